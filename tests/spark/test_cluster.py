"""A cluster of several processes on this machine gives the results of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

TOPIC = TopicName.parse("shop.orders")
MESSAGES, PARTITIONS = 6000, 3

_PROGRAM = """
import json, sys
import penstock.spark
from tests.spark.test_cluster import summary

all_first = {  # no job begins before both are there
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
}
spark = penstock.spark.session("cluster", master="local-cluster[2,1,1024]", quick=True, config=all_first)
frame = spark.read.format("penstock").options(path=sys.argv[1], subscribe="shop.orders", minPartitions="4").load()
rows = summary(frame)
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # by now they have come up
print(json.dumps({"executors": executors, "rows": rows}))
spark.stop()
"""


def summary(frame: DataFrame) -> list[list[object]]:
    """Return an aggregate that every row contributes to, through a shuffle."""
    query = """
        select partition, type, count(*), sum(length(value)), min(offset), max(offset),
            sum(cast(xxhash64(id) as decimal(38, 0)))
        from {frame} group by partition, type order by partition, type
    """
    return [[str(value) for value in row] for row in frame.sparkSession.sql(query, frame=frame).collect()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    small = Limits(
        segment_bytes_first=64 << 10, segment_bytes_max=128 << 10, block_bytes_max=64 << 10, payload_bytes_max=4096
    )
    with Store.open(root, create=True, limits=small) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        for number in range(0, MESSAGES, 200):
            batch = [
                Message(payload=b"x" * (each % 97), type=f"type{each % 3}") for each in range(number, number + 200)
            ]
            store.append(TOPIC, Draft.of(batch), partition=number // 200 % PARTITIONS)
    return root


@pytest.mark.timeout(1200)
def test_a_cluster_of_processes_reads_what_one_process_reads(spark: SparkSession, data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(data)],
        capture_output=True,
        text=True,
        timeout=1000,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = summary(spark.read.format("penstock").options(path=str(data), subscribe="shop.orders").load())
    assert found["executors"] == 2
    assert found["rows"] == here
    assert sum(int(str(row[2])) for row in here) == MESSAGES
