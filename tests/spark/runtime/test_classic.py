"""Spark Connect: topics can be read and written; jobs, which need a classic session, say so at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.log_kit import make_data

import penstock.spark
from penstock.cli.app import run
from penstock.core.errors import InvalidRequest
from penstock.spark.runtime import home, java, jvm

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from penstock.core.errors import InvalidRequest
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.run import audit
from penstock.spark.jobs.stats.stats import stats
from penstock.spark.runtime.session import register

(data,) = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
rows = spark.read.format("penstock").options(path=data, subscribe="orders", columns="offset").load().count()
location, refused = Location.parse(path=data), []
for job in (audit, stats):
    try:
        job(spark, location)
    except InvalidRequest as error:
        refused.append(error.message)
print(json.dumps({"rows": rows, "refused": refused}))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_session_of_spark_connect_reads_topics_and_jobs_ask_for_a_classic_one(tmp_path: Path) -> None:
    """A real server, which PySpark starts for the session."""
    place = home.prepare(java.find())
    spark = {"JAVA_HOME": str(place.java), "SPARK_HOME": str(place.spark), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = os.environ | spark | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    data = make_data(tmp_path / "data", messages=120)
    command = [sys.executable, "-c", _PROGRAM, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 120
    assert len(found["refused"]) == 2
    for said in found["refused"]:
        assert said.startswith("this is a session of Spark Connect. Audits, other jobs, pipelines and commands need")
        assert "penstock.spark.session(master=...)" in said


@pytest.mark.parametrize(
    ("variable", "value", "config"),
    [
        ("SPARK_REMOTE", "sc://127.0.0.1:1", {}),
        ("SPARK_API_MODE", "connect", {}),
        ("SPARK_CONNECT_MODE_ENABLED", "1", {}),
        ("SPARK_API_MODE", "classic", {"spark.remote": "local[2]"}),
        ("SPARK_API_MODE", "classic", {"spark.api.mode": "Connect"}),
    ],
)
def test_a_session_that_would_be_one_of_spark_connect_is_refused_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, config: dict[str, str]
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(jvm, "start", lambda *_, **__: pytest.fail("Spark was started"))
    with pytest.raises(InvalidRequest, match=r"asks for Spark Connect\. .* need a classic session"):
        penstock.spark.session(config=config)


@pytest.mark.parametrize("command", [("archive", "--once", "--engine", "spark"), ("audit",), ("stats",)])
def test_commands_say_so_at_once(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    monkeypatch.setattr(jvm, "start", lambda *_, **__: pytest.fail("Spark was started"))
    make_data(tmp_path / "data")
    assert run([*command, "--data", "data"]) == 2
    assert "SPARK_REMOTE is sc://127.0.0.1:1, which asks for Spark Connect." in capsys.readouterr().err
