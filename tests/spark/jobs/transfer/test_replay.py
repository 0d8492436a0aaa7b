"""Replay and compaction on a real Spark: the selected messages, once, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.cli.kit import child_environment
from tests.spark.jobs.data_kit import flip, make_data, segments
from tests.spark.sink.kit import options, stored, values

from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, Record, SchemaRef
from penstock.spark.files.location import Location
from penstock.spark.jobs.transfer.compact import Keyless, Tombstones, compact
from penstock.spark.jobs.transfer.replay import REPLAY_ATTRIBUTES, replay
from penstock.spark.jobs.transfer.selection import ArchiveOrigin, LogOrigin, Selection
from penstock.spark.lake.archive.run import archive
from penstock.spark.lake.tables.table_factory import open_table
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = TopicName.parse("orders")


def message(number: int) -> Message:
    return Message(
        payload=b"row %d" % number,
        key=b"k%d" % (number % 7),
        type="paid" if number % 2 else "created",
        attributes={"n": str(number), "x-replay-run": "an old one"},
        schema=SchemaRef(7, 2),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of two partitions with a thousand messages."""
    root = tmp_path_factory.mktemp("data")
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, partitions=2)
        for first in range(0, 1000, 100):
            for partition in range(2):
                numbers = (each for each in range(first, first + 100) if each % 7 % 2 == partition)
                store.append(ORDERS, Draft.of(map(message, numbers)), partition=partition)
    return root


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


def log(data: Path) -> LogOrigin:
    return LogOrigin(Location.parse(path=str(data)))


def numbers(records: list[Record]) -> list[int]:
    return sorted(int(record.message.payload.removeprefix(b"row ")) for record in records)


def test_a_replay_keeps_what_a_message_is_and_says_where_it_was(
    spark: SparkSession, data: Path, broker: RunningBroker
) -> None:
    target = options(broker=broker.url, topic="replayed")
    for published in (1000, 0):
        report = replay(spark, log(data), [ORDERS], target, run="r1")
        assert (report.run, report.rows, report.published, report.known) == ("r1", 1000, published, 1000 - published)
    there, origin = stored(broker.data, "replayed"), stored(data, "orders")
    assert numbers(there) == list(range(1000))
    found = next(record for record in there if record.message.payload == b"row 3").message
    source = next(record for record in origin if record.message.payload == b"row 3")
    assert (found.key, found.type, found.schema) == (b"k3", "created" if 3 % 2 == 0 else "paid", SchemaRef(7, 2))
    assert [found.attributes[name] for name in ("n", *REPLAY_ATTRIBUTES)] == [
        "3",
        "r1",
        "/default/orders",
        "1",
        str(source.offset),
        iso_time(source.publish_time_ms),
    ]


def test_a_partition_keeps_its_order_and_a_later_start_adds_what_is_new(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "target", create=True) as store:
        store.create_topic(TopicName.parse("again"))
    target = options(path=tmp_path / "target", topic="again")
    half = Selection(types=("pa?d",), keys=("k1", "k3"))
    first = replay(spark, log(data), [ORDERS], target, selection=half, run="r2", mark=False)
    wanted = [each for each in range(1000) if each % 2 and each % 7 in (1, 3)]
    assert first.published == len(wanted)
    assert [int(value.removeprefix("row ")) for value in values(tmp_path / "target", "again")] == wanted
    assert dict(stored(tmp_path / "target", "again")[0].message.attributes)["x-replay-run"] == "an old one"
    with Store.open(data) as store:
        store.append(ORDERS, Draft.of([message(7001)]), partition=1)
    again = replay(spark, log(data), [ORDERS], target, selection=half, run="r2", mark=False)
    assert (again.published, again.known) == (1, len(wanted))
    assert values(tmp_path / "target", "again")[-1] == "row 7001"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_replay_by_place_and_condition_at_a_pace(spark: SparkSession, data: Path, broker: RunningBroker) -> None:
    target = options(broker=broker.url, topic="paced", rowsPerSecond="100000")
    selection = Selection(
        start="10", stop="200", partition=0, where="CAST(value AS STRING) LIKE '%7' AND schema_id = 7"
    )
    seen: list[int] = []
    replay(spark, log(data), [ORDERS], target, selection=selection, progress=seen.append)
    first = DataReader(data).topic(ORDERS).partition(0).read(10).block
    wanted = [
        record.message.payload.decode()
        for record in first
        if record.message.payload.endswith(b"7") and 10 <= record.offset < 200
    ]
    assert len(wanted) > 10
    assert values(broker.data, "paced") == wanted
    assert all(int(record.message.attributes["x-replayed-partition"]) == 0 for record in stored(broker.data, "paced"))


def test_a_condition_that_is_none_is_refused(spark: SparkSession, data: Path) -> None:
    target = options(broker="127.0.0.1:1", topic="t")
    with pytest.raises(InvalidRequest, match="where='colour = 1' is no condition"):
        replay(spark, log(data), [ORDERS], target, selection=Selection(where="colour = 1"))
    with pytest.raises(InvalidRequest, match=r"no condition on these messages: .*Syntax error at or near end of input"):
        replay(spark, log(data), [ORDERS], target, selection=Selection(where="nonsense >"))


def test_what_a_worker_met_is_raised_as_what_it_is(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    no_progress = options(broker="127.0.0.1:1", topic="t")
    with pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1") as refused:
        replay(spark, log(data), [ORDERS], no_progress)
    assert len(str(refused.value)) < 300
    damaged = make_data(tmp_path / "damaged", messages=20)
    flip(segments(damaged)[0], 300)
    target = options(path=damaged, topic="t", createPartitions="1")
    with pytest.raises(StorageFailed, match=r"^/default/orders partition 0: offset \d+ is lost: ") as lost:
        replay(spark, log(damaged), [ORDERS], target)
    assert "Traceback" not in str(lost.value)
    with pytest.raises(StorageFailed, match=r"^/default/orders partition 0: offset \d+ is lost: "):
        compact(spark, log(damaged), [ORDERS], open_table("delta", str(tmp_path / "lake"), "latest"))


def test_what_is_lost_may_be_left_out_and_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    damaged = make_data(tmp_path / "damaged", messages=20)
    flip(segments(damaged)[0], 300)
    target = options(path=damaged, topic="again", createPartitions="1")
    made = replay(spark, log(damaged), [ORDERS], target, selection=Selection(stop="15"), skip_lost=True)
    assert (made.published, made.lost) == (14, 1)
    offsets = [int(each.message.attributes["x-replayed-offset"]) for each in stored(damaged, "again")]
    assert len(set(offsets)) == len(offsets) == 14
    table = open_table("delta", str(tmp_path / "lake"), "latest")
    assert compact(spark, log(damaged), [ORDERS], table, skip_lost=True).lost == 1
    assert replay(spark, log(damaged), [ORDERS], target, selection=Selection(start="15"), skip_lost=True).lost == 0


def test_of_every_key_its_latest_message_is_left(spark: SparkSession, tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        said = [
            (b"a", b"1"),
            (b"b", b"1"),
            (None, b"x"),
            (b"a", b"2"),
            (b"c", b"1"),
            (b"b", b""),
            (None, b"y"),
            (b"", b"e"),
        ]
        store.append(ORDERS, Draft.of(Message(payload=value, key=key) for key, value in said))
    expected: list[tuple[Tombstones, Keyless, list[tuple[bytes | None, bytes]]]] = [
        (Tombstones.DROP, Keyless.KEEP, [(None, b"x"), (b"a", b"2"), (b"c", b"1"), (None, b"y"), (b"", b"e")]),
        (Tombstones.KEEP, Keyless.DROP, [(b"a", b"2"), (b"c", b"1"), (b"b", b""), (b"", b"e")]),
    ]
    for number, (tombstones, keyless, wanted) in enumerate(expected):
        topic = f"compacted{number}"
        target = options(path=tmp_path / "data", topic=topic, createPartitions="1")
        for _ in range(2):
            report = compact(
                spark, log(tmp_path / "data"), [ORDERS], target, tombstones=tombstones, keyless=keyless, run="c"
            )
            assert report.rows == len(wanted)
        found = [(record.message.key, record.message.payload) for record in stored(tmp_path / "data", topic)]
        assert found == wanted


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_archive_is_replayed_like_the_log(
    spark: SparkSession, data: Path, tmp_path: Path, table_format: str
) -> None:
    lake = tmp_path / "lake"
    archive(
        spark, Location.parse(path=str(data)), ["orders"], warehouse=str(lake), table_format=table_format, once=True
    )
    origin = ArchiveOrigin(warehouse=str(lake), table_format=table_format)
    target = options(path=tmp_path / "target", topic="again", createPartitions="1")
    with Store.open(tmp_path / "target", create=True):
        pass
    selection = Selection(start="20", types=("paid",))
    first = replay(spark, origin, [ORDERS], target, selection=selection, run="r3")
    assert first.published > 300
    assert replay(spark, log(data), [ORDERS], target, selection=selection, run="r3").published == 0
    wanted = [
        (each.message.key, each.message.payload, each.message.schema, each.message.attributes["n"])
        for each in stored(data, "orders")
        if each.offset >= 20 and each.message.type == "paid"
    ]
    found = [
        (each.message.key, each.message.payload, each.message.schema, each.message.attributes["n"])
        for each in stored(tmp_path / "target", "again")
    ]
    assert sorted(found) == sorted(wanted)
    with pytest.raises(InvalidRequest, match=f"has no {table_format} table of /default/missing"):
        replay(spark, origin, [TopicName.parse("missing")], target)


def test_the_latest_of_every_key_goes_into_a_table_once(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    table = open_table("delta", str(tmp_path / "lake"), "latest")
    reports = [compact(spark, log(data), [ORDERS], table, run="t") for _ in range(2)]
    assert [(report.published, report.known) for report in reports] == [(7, 0), (0, 7)]
    found = pa.Table.from_batches(list(table.read(["_key", "_offset"]))).to_pylist()
    assert sorted(row["_key"] for row in found) == [b"k%d" % number for number in range(7)]
