"""The same plan for every location: Spark reads the same rows from a directory, an object store and a broker's HTTP;
and the broker shows a stream's position."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        with penstock.connect(running.url) as client:
            client.ask("system.topic.create", {"topic": "orders", "partitions": 3})
            with client.producer("orders") as producer:
                for number in range(3000):
                    producer.send(b"order %d" % number, key=b"%d" % (number % 17))
        yield running


def places(broker: RunningBroker) -> dict[str, dict[str, str]]:
    return {
        "directory": {"path": str(broker.data)},
        "object store": {"path": broker.data.as_uri()},
        "broker": {"url": broker.http_url},
    }


@pytest.mark.parametrize("place", ["directory", "object store", "broker"])
def test_the_same_rows_come_from_everywhere(spark: SparkSession, broker: RunningBroker, place: str) -> None:
    options = places(broker)[place] | {"subscribe": "orders", "columns": "partition,offset,value"}

    def rows(more: dict[str, str]) -> DataFrame:
        return spark.read.format("penstock").options(**options, **more).load()

    found = {(row["partition"], row["offset"]): bytes(row["value"]) for row in rows({}).collect()}
    assert len(found) == 3000
    assert sorted(found.values()) == sorted(b"order %d" % number for number in range(3000))
    assert rows({"minPartitions": "8"}).filter("offset >= 100 and partition = 1").count() == sum(
        partition == 1 and offset >= 100 for partition, offset in found
    )


@pytest.mark.parametrize("place", ["directory", "broker"])
def test_the_place_of_a_stream_is_seen_at_the_broker(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, place: str
) -> None:
    name = f"job-{place}"
    options = places(broker)[place] | {"subscribe": "orders", "subscription": name, "broker": broker.url}
    stream = spark.readStream.format("penstock").options(**options, startingOffsets="earliest").load()
    writing = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    until = time.monotonic() + DEADLINE_SECONDS
    with penstock.connect(broker.url) as client:
        while True:
            listed = client.ask("system.subscription.list", {"topic": "orders"})["subscriptions"]
            lags = {each["subscription"]: each["lag"] for each in listed}
            if lags.get(name) == 0:
                return
            assert time.monotonic() < until, lags
            time.sleep(0.05)
