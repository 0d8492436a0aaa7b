"""Import and export: the round trip loses nothing, and a repeated import adds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.spark.sink.kit import options, stored, values

from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest, NotOwner, PayloadTooLarge
from penstock.core.ids import format_id
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, Record, SchemaRef
from penstock.spark.files.location import Location
from penstock.spark.jobs.transfer.file_formats import FileFormat
from penstock.spark.jobs.transfer.selection import Selection
from penstock.spark.jobs.transfer.transfer import copy, export, import_file
from penstock.spark.scan.slice_reader import DataLoss
from penstock.storage.store import Store
from penstock.testing import RunningBroker

ORDERS, SOLD = TopicName.parse("orders"), TopicName.parse("/shop/sold")


def message(number: int) -> Message:
    return Message(
        payload=b"\xff%d" % number if number % 5 == 0 else b"payload %d" % number,
        key=None if number % 3 == 0 else b"k%d" % (number % 7),
        type=f"order.{'created' if number % 2 else 'paid'}",
        attributes={"n": str(number)} if number % 4 == 0 else {},
        schema=SchemaRef(7, 2) if number % 6 == 0 else None,
    )


@pytest.fixture
def data(tmp_path: Path) -> Location:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(ORDERS)
        store.create_topic(SOLD, partitions=2)
        for first in range(0, 300, 50):
            store.append(ORDERS, Draft.of(map(message, range(first, first + 50))))
        store.append(SOLD, Draft.of(map(message, range(20))), partition=1)
    return Location.parse(path=str(tmp_path / "data"))


def target(tmp_path: Path, *topics: TopicName) -> Path:
    with Store.open(tmp_path / "target", create=True) as store:
        for name in topics:
            store.create_topic(name)
    return tmp_path / "target"


def fields_of(records: list[Record]) -> list[tuple[object, ...]]:
    """Return the fields of a message that do not depend on its position."""
    return [(m.payload, m.key, m.type, dict(m.attributes), m.schema) for m in (record.message for record in records)]


@pytest.mark.parametrize("kind", [FileFormat.PARQUET, FileFormat.JSONL, FileFormat.CSV])
def test_a_round_trip_loses_nothing(tmp_path: Path, data: Location, kind: FileFormat) -> None:
    seen: list[tuple[int, int | None]] = []
    made = export(data, [ORDERS], tmp_path / "file", kind, progress=lambda done, of: seen.append((done, of)))
    assert (made.rows, made.format, made.lost, seen[-1]) == (300, kind.value, 0, (300, 300))
    root = target(tmp_path, ORDERS)
    report = import_file(tmp_path / "file", kind, options(path=root))
    assert (report.rows, report.published, report.known) == (300, 300, 0)
    assert fields_of(stored(root, "orders")) == fields_of(stored(Path(data.uri), "orders"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("file")] == ["file"]


def test_an_import_that_is_repeated_under_its_run_adds_nothing(tmp_path: Path, data: Location) -> None:
    export(data, [ORDERS], tmp_path / "a.jsonl", FileFormat.JSONL)
    root = target(tmp_path, ORDERS)
    first = import_file(tmp_path / "a.jsonl", FileFormat.JSONL, options(path=root))
    again = import_file(tmp_path / "a.jsonl", FileFormat.JSONL, options(path=root), run=first.run)
    assert (again.published, again.known) == (0, 300)
    import_file(tmp_path / "a.jsonl", FileFormat.JSONL, options(path=root))
    assert len(stored(root, "orders")) == 600


def test_a_selection_is_exported_by_place_type_and_key(tmp_path: Path, data: Location) -> None:
    records = stored(Path(data.uri), "orders")
    early, late = records[40], records[200]
    for start, stop in (
        ("40", "200"),
        (format_id(early.id), format_id(late.id)),
        (iso_time(early.publish_time_ms), None),
    ):
        selection = Selection(start=start, stop=stop, types=("*.paid",), keys=("k1", "k4*"))
        export(data, [ORDERS], tmp_path / "a.parquet", FileFormat.PARQUET, selection=selection)
        root = tmp_path / f"t{start[:4]}{stop is None}"
        with Store.open(root, create=True) as store:
            store.create_topic(ORDERS)
        import_file(tmp_path / "a.parquet", FileFormat.PARQUET, options(path=root))
        first = (
            next(each for each in records if each.publish_time_ms >= early.publish_time_ms) if stop is None else early
        )
        wanted = [
            each
            for each in records
            if first.offset <= each.offset < (late.offset if stop else 10**9)
            and each.message.type.endswith("paid")
            and each.message.key in (b"k1", b"k4")
        ]
        assert fields_of(stored(root, "orders")) == fields_of(wanted)


def test_a_directory_is_copied_with_its_partitions(tmp_path: Path, data: Location) -> None:
    root = tmp_path / "copy"
    report = copy(data, [ORDERS, SOLD], options(path=root), run="c")
    assert report.published == 320
    for topic in ("orders", "/shop/sold"):
        there = stored(root, topic)
        assert fields_of(there) == fields_of(stored(Path(data.uri), topic))
        assert [each.offset for each in there] == list(range(len(there)))
    with Store.open(Path(data.uri)) as store:
        store.append(ORDERS, Draft.of([message(1000)]))
    assert copy(data, [ORDERS, SOLD], options(path=root), run="c").published == 1
    assert len(stored(root, "orders")) == 301


def test_what_cannot_be_read_fails_an_export_or_is_counted(tmp_path: Path, data: Location) -> None:
    segment = next((Path(data.uri) / "topics/default/orders").glob("*.log"), None) or next(
        path for path in (Path(data.uri) / "topics/default/orders").iterdir() if path.stat().st_size > 10_000
    )
    damaged = bytearray(segment.read_bytes())
    damaged[2000] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(DataLoss):
        export(data, [ORDERS], tmp_path / "a.csv", FileFormat.CSV)
    assert not list(tmp_path.glob("a.csv*"))
    made = export(data, [ORDERS], tmp_path / "a.csv", FileFormat.CSV, skip_lost=True)
    assert (made.rows, made.lost) == (299, 1)
    with pytest.raises(DataLoss):
        copy(data, [ORDERS], options(path=tmp_path / "copy"))
    copied = copy(data, [ORDERS], options(path=tmp_path / "copy"), skip_lost=True)
    assert (copied.rows, copied.lost) == (299, 1)


def test_what_cannot_be_imported_is_refused(tmp_path: Path, data: Location) -> None:
    root = target(tmp_path, ORDERS)
    (tmp_path / "a.jsonl").write_text('{"value": "a"}\n')
    with pytest.raises(InvalidRequest, match="names no topic"):
        import_file(tmp_path / "a.jsonl", FileFormat.JSONL, options(path=root))
    with pytest.raises(InvalidRequest, match="kept only into a directory"):
        import_file(
            tmp_path / "a.jsonl", FileFormat.JSONL, options(broker="127.0.0.1:1", topic="t"), keep_partitions=True
        )
    with Store.open(root), pytest.raises(NotOwner, match="broker=HOST:PORT"):
        import_file(tmp_path / "a.jsonl", FileFormat.JSONL, options(path=root, topic="orders"))
    (tmp_path / "b.jsonl").write_text(f'{{"value": "{"x" * 1_100_000}"}}\n')
    with pytest.raises(PayloadTooLarge):
        import_file(tmp_path / "b.jsonl", FileFormat.JSONL, options(path=root, topic="orders"))
    with pytest.raises(InvalidRequest, match="needs Spark"):
        export(data, [ORDERS], tmp_path / "a.csv", FileFormat.CSV, selection=Selection(where="key = 'a'"))
    assert values(root, "orders") == []


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        yield running


@pytest.mark.slow
def test_through_a_broker_it_is_the_same(tmp_path: Path, data: Location, broker: RunningBroker) -> None:
    export(data, [ORDERS, SOLD], tmp_path / "a.parquet", FileFormat.PARQUET)
    for _ in range(2):
        import_file(tmp_path / "a.parquet", FileFormat.PARQUET, options(broker=broker.url), run="one")
        copy(data, [ORDERS], options(broker=broker.url, topic="copied"), run="two")
    for topic, source in (("orders", "orders"), ("/shop/sold", "/shop/sold"), ("copied", "orders")):
        assert fields_of(stored(broker.data, topic)) == fields_of(stored(Path(data.uri), source))
