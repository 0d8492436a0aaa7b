"""Engines: how the tasks of a batch run, and how their errors come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.lake.archive.test_batch_commit import slices
from tests.spark.lake.tables.test_killed import in_lake, in_log
from tests.spark.log_kit import ORDERS, make_data

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.spark.lake.archive.batch_commit import BatchRunner, Destination
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE, Engine, SparkEngine, check_engine
from penstock.spark.lake.archive.write_task import WriteTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT = """
import os, sys
from penstock.spark.runtime import home, java
os.environ["JAVA_HOME"] = str(home.prepare(java.find()).java)
from pyspark.sql import SparkSession
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.run import archive
spark = SparkSession.builder.remote("local[2]").getOrCreate()
report = archive(spark, Location(sys.argv[1]), warehouse=sys.argv[2], once=True)
print(type(spark).__module__, report.rows)
spark.stop()
"""


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Engine:
    return SparkEngine(spark) if request.param == "spark" else LOCAL_ENGINE


def tasks(tmp_path: Path, data: Path, ranges: dict[tuple[str, int], tuple[int, int]]) -> list[WriteTask]:
    with Checkpoint(tmp_path / "checkpoint") as state:
        archiver = BatchRunner(Destination(warehouse=str(tmp_path / "lake")), state, state.query_id())
        return list(archiver._write_tasks(0, slices(data, ranges)))


def test_both_give_back_what_was_written(engine: Engine, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data", messages=50)
    found = engine.run(tasks(tmp_path, data, {(str(ORDERS), 0): (0, 50)}))
    assert [file.rows for landed in found for file in landed.files] == [50]
    assert engine.run([]) == []
    assert engine.cores >= 1


def test_an_error_of_ours_is_raised_as_itself_and_leaves_no_file(engine: Engine, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data", messages=300, dropped=150)
    given = tasks(tmp_path, data, {(str(ORDERS), 0): (0, 300)})
    with pytest.raises(StorageFailed, match="lost"):
        engine.run(given)
    assert list((tmp_path / "lake").rglob("archive-*")) == []


def test_an_engine_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="expected one of auto, local, spark"):
        check_engine("flink")


@pytest.mark.timeout(1800)
def test_a_session_of_spark_connect_does(tmp_path: Path) -> None:
    """Spark Connect has no context, only DataFrames. Spark's own scripts start its server, which ends with the
    process."""
    data, lake = make_data(tmp_path / "data", messages=30), tmp_path / "lake"
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-c", CONNECT, str(data), str(lake)]
    done = subprocess.run(command, env=os.environ | python, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["pyspark.sql.connect.session", "45"]
    assert in_lake(lake, "delta") == in_log(data)
