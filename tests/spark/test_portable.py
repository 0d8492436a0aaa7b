"""The same tests for every supported PySpark: reading, following, writing, archiving, auditing.

`./dev sparks` runs this file with each of them; the suite runs it with the installed one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.kit import child_environment
from tests.spark.lake.kit import independent
from tests.spark.log_kit import ORDERS, append, make_data
from tests.spark.sink.kit import stored, values
from tests.spark.source_kit import make_logs, unchanged

from penstock.core.errors import InvalidRequest, PenstockError
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.archive_side import Warehouse
from penstock.spark.jobs.audit.run import AuditRequest, audit
from penstock.spark.lake import open_table
from penstock.spark.lake.archive.run import archive
from penstock.spark.runtime import versions
from penstock.spark.runtime.failures import penstock_errors
from penstock.storage.store import Store
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        yield running


def rows_of(frame: Any) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in frame.orderBy("topic", "partition", "offset").collect()]
    for row in rows:
        row |= {name: bytes(value) for name, value in row.items() if isinstance(value, bytearray)}
        row["attributes"] = sorted(row["attributes"].items())
        row["timestamp"] = row["timestamp"].astimezone()
    return rows


def copied(spark: SparkSession, data: Path, checkpoint: Path, **target: str) -> None:
    """Copy one topic into another with a stream, until there is no more."""
    source = spark.readStream.format("penstock").options(path=str(data), subscribe="orders", includeAttributes="true")
    rows = source.option("startingOffsets", "earliest").load().select("key", "value", "type", "attributes", "schema_id")
    writer = rows.writeStream.format("penstock").options(**target).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_every_column_of_a_batch_is_what_a_plain_reader_reads(spark: SparkSession, tmp_path: Path) -> None:
    root = make_logs(tmp_path / "data", seed=5, messages=200)
    options = {"path": str(root), "subscribe": "orders,/shop/carts,empty", "includeAttributes": "true"}
    found = rows_of(spark.read.format("penstock").options(**options).load())
    plain = [row for _, rows in sorted(unchanged(root).items()) for row in rows]
    assert found == [row | {"attributes": sorted(row["attributes"])} for row in plain]
    chosen = spark.read.format("penstock").options(**options).schema("offset long, timestamp timestamp").load()
    assert chosen.count() == len(found)


def test_a_stream_that_is_started_again_has_every_row_once(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data", messages=120)
    target = {"broker": broker.url, "topic": "portable", "createPartitions": "1"}
    copied(spark, data, tmp_path / "checkpoint", **target)
    assert values(broker.data, "portable") == values(data, "orders")
    with Store.open(data) as store:
        append(store, ORDERS, range(120, 150))
    copied(spark, data, tmp_path / "checkpoint", **target)
    assert values(broker.data, "portable") == values(data, "orders")
    # As if Spark had died between the sink's commit and its own: the last batch comes again.
    max((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    with Store.open(data) as store:
        append(store, ORDERS, range(150, 170))
    for _ in range(2):  # the first of which may end behind the batch that it has found begun
        copied(spark, data, tmp_path / "checkpoint", **target)
    found, given = stored(broker.data, "portable"), stored(data, "orders")
    assert [(each.message.key, each.message.payload, each.message.type) for each in found] == [
        (each.message.key, each.message.payload, each.message.type) for each in given
    ]


def test_a_batch_is_written_into_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 500, numPartitions=3).selectExpr(
        "CAST(id AS STRING) AS value", "map('n', CAST(id AS STRING)) AS attributes"
    )
    writer = rows.write.format("penstock").mode("append")
    writer.options(path=str(tmp_path / "data"), topic="loaded", createPartitions="2").save()
    found = stored(tmp_path / "data", "loaded")
    assert sorted(int(each.message.payload) for each in found) == list(range(500))
    assert all(each.message.attributes["n"].encode() == each.message.payload for each in found)


def test_an_archive_is_the_log_and_an_audit_says_so(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = make_data(tmp_path / "data", messages=200), tmp_path / "lake"
    location = Location.parse(path=str(data))
    assert archive(spark, location, warehouse=str(lake), once=True).rows == 215
    with Store.open(data) as store:
        append(store, ORDERS, range(200, 230))
    assert archive(spark, location, warehouse=str(lake), once=True).rows == 30
    offsets = independent(open_table("delta", str(lake), "default.orders"), ["_offset"]).column(0).to_pylist()
    assert sorted(offsets) == list(range(230))
    found = audit(spark, location, AuditRequest(against=Warehouse(str(lake)), duplicates=True))
    assert found.is_clean, found.found.listed
    assert sum(each.comparison.compared for each in found.partitions if each.comparison is not None) == 245


@pytest.mark.parametrize(
    ("feature", "options"),
    [
        (versions.LIMITS, {"maxOffsetsPerTrigger": "50"}),
        (versions.LIMITS, {"maxBytesPerTrigger": "4KiB"}),
        (versions.FILTERS, {"pushdown": "true"}),
    ],
)
def test_what_a_spark_does_not_have_is_said_where_it_is_asked_for(
    spark: SparkSession, tmp_path: Path, feature: versions.Feature, options: dict[str, str]
) -> None:
    data = make_data(tmp_path / "data", messages=120)
    asked = {"path": str(data), "subscribe": "orders", **options}
    told: list[int] = []
    try:
        with penstock_errors():
            if feature is versions.FILTERS:
                told = [spark.read.format("penstock").options(**asked).load().where("offset < 60").count()]
            else:
                stream = spark.readStream.format("penstock").options(**asked).option("startingOffsets", "earliest")
                writer = stream.load().writeStream.foreachBatch(lambda frame, _: told.append(frame.count()))
                writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
                writer.trigger(availableNow=True).start().awaitTermination()
    except PenstockError as error:
        refused: PenstockError | None = error
    else:
        refused = None
    if feature.is_available:
        assert refused is None
        assert told == [60] if feature is versions.FILTERS else len(told) > 1 and sum(told) == 120
    else:
        assert isinstance(refused, InvalidRequest)
        assert f"needs PySpark {feature.since[0]}.{feature.since[1]} or newer" in refused.message
