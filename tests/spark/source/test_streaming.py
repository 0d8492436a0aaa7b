"""Streams in a real Spark: bounded batches, restarts, new partitions, checkpoints of earlier releases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.source_kit import LIMITS, make_logs, unchanged

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_LOG = Path(__file__).parents[2] / "golden" / "log-1"
Batch = tuple[int, list[tuple[str, int, int]]]
"""A batch: its number, and topic, partition and offset of its rows."""


class Stream:
    """A query whose rows are gathered here."""

    def __init__(self, spark: SparkSession, root: Path, checkpoint: Path, **options: str) -> None:
        self.batches: list[Batch] = []
        asked = {"path": str(root), "startingOffsets": "earliest", "columns": "topic,partition,offset", **options}
        frame = spark.readStream.format("penstock").options(**asked).load()
        self._writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = [(row["topic"], row["partition"], row["offset"]) for row in frame.collect()]
        self.batches.append((number, sorted(rows)))

    def run(self) -> list[Batch]:
        """Run a query over everything that is there, and no more."""
        query = self._writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return self.batches

    def start(self) -> StreamingQuery:
        return self._writer.trigger(processingTime="0 seconds").start()

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        return sorted(row for _, rows in self.batches for row in rows)


class Failing(Stream):
    """Run a query that fails in its first batch."""

    def _take(self, frame: DataFrame, number: int) -> None:
        super()._take(frame, number)
        raise RuntimeError("this batch is to fail")


def places(root: Path, wanted: Callable[[str], bool] = lambda _: True) -> list[tuple[str, int, int]]:
    return sorted(
        (topic, partition, row["offset"])
        for (topic, partition), rows in unchanged(root).items()
        for row in rows
        if wanted(topic)
    )


def test_batches_are_bounded_and_a_restart_goes_on_with_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    root = make_logs(tmp_path / "data", seed=21, messages=120)
    checkpoint = tmp_path / "checkpoint"
    options = {"subscribe": "orders,/shop/carts,empty", "maxOffsetsPerTrigger": "50"}
    first = Stream(spark, root, checkpoint, **options)
    first.run()
    assert first.rows == places(root)
    assert [len(rows) for _, rows in first.batches] == [50] * (len(first.rows) // 50) + [len(first.rows) % 50]
    with Store.open(root, limits=LIMITS) as store:
        store.append(TopicName.parse("orders"), Draft.of([Message(payload=b"new")]))
        store.append(TopicName.parse("empty"), Draft.of([Message(payload=b"new")]), partition=1)
    again = Stream(spark, root, checkpoint, **options)
    ((number, rows),) = again.run()
    assert number == len(first.batches)
    assert rows == [("/default/empty", 1, 0), ("/default/orders", 0, len(unchanged(root)["/default/orders", 0]))]
    assert Stream(spark, root, checkpoint, **options).run() == []


def test_a_first_batch_that_failed_is_read_again_from_where_it_began(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint, orders = tmp_path / "data", tmp_path / "checkpoint", TopicName.parse("orders")
    with Store.open(root, create=True) as store:
        store.create_topic(orders)
        store.append(orders, Draft.of([Message(payload=b"before")] * 3))
        failing = Failing(spark, root, checkpoint, subscribe="orders", startingOffsets="latest")
        query = failing.start()
        try:
            while not failing.batches and query.isActive:
                store.append(orders, Draft.of([Message(payload=b"after")]))
        finally:
            query.stop()
        said = json.loads(checkpoint.joinpath("offsets", "0").read_text().splitlines()[2])
        mark = said["topics"]["/default/orders"]["0"]
        batch = [("/default/orders", 0, offset) for offset in range(mark["since"], mark["offset"])]
        assert failing.batches == [(0, batch)]  # Spark asks twice for where it begins, and the log grows meanwhile
        store.append(orders, Draft.of([Message(payload=b"later")] * 5))
        there = store.log(orders, 0).next_offset
    again = Stream(spark, root, checkpoint, subscribe="orders", startingOffsets="latest")
    again.run()
    assert again.batches[0] == (0, batch)
    assert again.rows == [("/default/orders", 0, offset) for offset in range(mark["since"], there)]


def test_new_messages_new_topics_and_new_partitions_are_picked_up(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "data"
    with Store.open(root, create=True) as store:
        one, two = TopicName.parse("a.one"), TopicName.parse("a.two")
        store.create_topic(one)
        store.append(one, Draft.of([Message(payload=b"0")] * 3))
        stream = Stream(spark, root, tmp_path / "checkpoint", subscribePattern="a[.].*", startingOffsets="latest")
        query = stream.start()
        try:
            query.processAllAvailable()
            assert stream.rows == []
            store.append(one, Draft.of([Message(payload=b"1")] * 2))
            store.create_topic(two, partitions=2)
            store.append(two, Draft.of([Message(payload=b"2")]), partition=1)
            _until(query, lambda: len(stream.rows) == 3)
        finally:
            query.stop()
    assert stream.rows == [("/default/a.one", 0, 3), ("/default/a.one", 0, 4), ("/default/a.two", 1, 0)]


def _until(query: StreamingQuery, done: Callable[[], bool]) -> None:
    """Looks again and again: new topics are looked for once a second. The test's own timeout ends it."""
    while not done():
        assert query.exception() is None
        query.processAllAvailable()


def test_a_topic_that_was_made_again_stops_the_query_with_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint, orders = tmp_path / "data", tmp_path / "checkpoint", TopicName.parse("orders")
    with Store.open(root, create=True) as store:
        store.create_topic(orders)
        store.append(orders, Draft.of([Message(payload=b"1")] * 10))
        Stream(spark, root, checkpoint, subscribe="orders").run()
        store.delete_topic(orders)
        store.create_topic(orders)
        store.append(orders, Draft.of([Message(payload=b"1")] * 20))
    with pytest.raises(Exception, match="was read up to offset 10, and cannot be read on"):
        Stream(spark, root, checkpoint, subscribe="orders").run()
    allowed = Stream(spark, root, checkpoint, subscribe="orders", failOnDataLoss="false")
    allowed.run()
    assert allowed.rows == [("/default/orders", 0, offset) for offset in range(20)]


def test_conditions_and_slices_work_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    root = make_logs(tmp_path / "data", seed=22, messages=100)
    some = Stream(spark, root, tmp_path / "one", subscribe="orders", where="type = 'x' and offset >= 5")
    some.run()
    wanted = [row["offset"] for row in unchanged(root)["/default/orders", 0] if row["type"] == "x"]
    assert [offset for _, _, offset in some.rows] == [offset for offset in wanted if offset >= 5]
    slices = spark.readStream.format("penstock").options(
        path=str(root), subscribe="orders", startingOffsets="earliest", rows="slices", minPartitions="4"
    )
    found: list[Any] = []
    query = (
        slices.load()
        .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "two"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(found) >= 4
    assert sorted(offset for row in found for offset in range(row.start, row.stop)) == [
        row["offset"] for row in unchanged(root)["/default/orders", 0]
    ]


@pytest.fixture
def golden(tmp_path: Path) -> tuple[Path, Path]:
    """A log and a checkpoint as the first release wrote them: three batches begun, two of them finished."""
    log = tmp_path / "data" / "topics" / "default" / "golden"
    log.parent.mkdir(parents=True)
    shutil.copytree(GOLDEN_LOG, log)
    return tmp_path / "data", Path(shutil.copytree(GOLDEN / "checkpoint-1", tmp_path / "checkpoint"))


def test_a_golden_checkpoint_resumes_with_the_batch_that_was_not_finished(
    spark: SparkSession, golden: tuple[Path, Path]
) -> None:
    root, checkpoint = golden
    said = [json.loads(checkpoint.joinpath("offsets", str(n)).read_text().splitlines()[2]) for n in range(3)]
    ends = [each["topics"]["/default/golden"]["0"]["offset"] for each in said]
    last = len(unchanged(root)["/default/golden", 0])
    first = unchanged(root)["/default/golden", 0][0]["offset"]
    stream = Stream(spark, root, checkpoint, subscribe="golden", maxOffsetsPerTrigger="4")
    stream.run()
    assert stream.batches[0] == (2, [("/default/golden", 0, offset) for offset in range(ends[1], ends[2])])
    assert [offset for _, _, offset in stream.rows] == [*range(ends[1], first + last)]
