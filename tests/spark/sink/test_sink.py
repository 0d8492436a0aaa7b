"""The sink as users have it: DataFrames and streams into topics, through a broker and into a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import child_environment
from tests.spark.log_kit import make_data
from tests.spark.sink.kit import row_values, stored, values

from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data", messages=300)


def numbered(spark: SparkSession, count: int, parts: int = 3) -> DataFrame:
    return spark.range(0, count, numPartitions=parts).selectExpr(
        "concat('row ', id) AS value", "CAST(id % 7 AS STRING) AS key", "map('n', CAST(id AS STRING)) AS attributes"
    )


def copy(spark: SparkSession, data: Path, checkpoint: Path, **target: str) -> None:
    """A stream of one topic into another, until there is no more."""
    source = spark.readStream.format("penstock").option("path", str(data)).option("subscribe", "orders")
    rows = source.option("maxOffsetsPerTrigger", "70").option("startingOffsets", "earliest").load()
    query = (
        rows.select("key", "value", "type")
        .writeStream.format("penstock")
        .options(**target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_run_of_a_batch_is_published_once(spark: SparkSession, broker: RunningBroker) -> None:
    for _ in range(2):
        writer = numbered(spark, 5000).write.format("penstock").mode("append")
        writer.options(broker=broker.url, topic="sink.batch", run="nightly").save()
    assert sorted(values(broker.data, "sink.batch")) == sorted(row_values(range(5000)))
    message = stored(broker.data, "sink.batch")[0].message
    assert message.attributes["n"] == message.payload.decode().removeprefix("row ")
    assert message.producer_name.startswith("spark/nightly/")


def test_without_a_run_every_write_is_another(spark: SparkSession, broker: RunningBroker) -> None:
    for _ in range(2):
        numbered(spark, 10).write.format("penstock").mode("append").options(
            broker=broker.url, topic="sink.twice"
        ).save()
    assert sorted(values(broker.data, "sink.twice")) == sorted(2 * row_values(range(10)))


def test_a_batch_goes_into_a_directory_and_leaves_nothing_beside_it(spark: SparkSession, data: Path) -> None:
    writer = numbered(spark, 1000).write.format("penstock").mode("append")
    writer.options(path=str(data), topic="loaded", createPartitions="2").save()
    assert sorted(values(data, "loaded")) == sorted(row_values(range(1000)))
    assert [path.name for path in data.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("target", ["broker", "path"])
def test_a_stream_that_is_started_again_goes_on(
    spark: SparkSession, broker: RunningBroker, data: Path, tmp_path: Path, target: str
) -> None:
    root = broker.data if target == "broker" else make_data(tmp_path / "target", messages=1)
    topic = f"sink.stream.{target}"
    options = {"topic": topic, "createPartitions": "1", target: broker.url if target == "broker" else str(root)}
    copy(spark, data, tmp_path / "checkpoint", **options)
    assert values(root, topic) == values(data, "orders")
    # What Spark does when it dies between the sink's commit and its own: the last batch comes again.
    commits = sorted((tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    copy(spark, data, tmp_path / "checkpoint", **options)
    assert values(root, topic) == values(data, "orders")
    found, given = stored(root, topic), stored(data, "orders")
    assert [(r.message.key, r.message.type) for r in found] == [(r.message.key, r.message.type) for r in given]


@pytest.mark.parametrize(
    ("expression", "options", "said"),
    [
        ("id AS other", {"topic": "t"}, "no column 'other'"),
        ("CAST(id AS STRING) AS key", {"topic": "t"}, "column 'value' is missing"),
        ("id AS value", {"topic": "t"}, "column 'value' is bigint"),
        ("CAST(id AS STRING) AS value", {}, "no topic is given"),
        ("CAST(id AS STRING) AS value", {"topic": "t", "oder": "content"}, "did you mean order?"),
        ("IF(id = 3, NULL, 'x') AS value", {"topic": "t"}, "column 'value' is null in row"),
        ("repeat('x', 2000000) AS value", {"topic": "t"}, "has at most 1048576 bytes, not 2000000"),
        ("CAST(id AS STRING) AS value", {"topic": "system.metrics"}, "system"),
    ],
)
def test_what_is_wrong_reaches_the_user(
    spark: SparkSession, broker: RunningBroker, expression: str, options: dict[str, str], said: str
) -> None:
    writer = spark.range(0, 5, numPartitions=1).selectExpr(expression).write.format("penstock").mode("append")
    with pytest.raises(Exception, match="penstock") as caught:
        writer.options(broker=broker.url, **options).save()
    assert said in str(caught.value)


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: RunningBroker) -> None:
    writer = numbered(spark, 5).write.format("penstock").mode("overwrite")
    with pytest.raises(Exception, match="a log only grows"):
        writer.options(broker=broker.url, topic="sink.batch").save()


def test_a_directory_that_a_broker_owns_is_refused(spark: SparkSession, broker: RunningBroker) -> None:
    writer = numbered(spark, 5).write.format("penstock").mode("append")
    with pytest.raises(Exception, match="broker=HOST:PORT in place of path"):
        writer.options(path=str(broker.data), topic="t").save()
