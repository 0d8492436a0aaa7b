"""Reading a data directory from the files alone, while another process owns it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, OffsetOutOfRange, TopicNotSupported, VersionNotSupported
from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position
from penstock.record.block import Draft
from penstock.record.hashing import hash64
from penstock.record.message import Message, Record
from penstock.storage.base.disk import OsDisk
from penstock.storage.inspect.data_reader import DataReader, LogReader, file_records, lies_before, segment_facts
from penstock.storage.log.log import Log
from penstock.storage.log.segment import Damage, index_path, segment_name
from penstock.storage.store import Store
from penstock.testing import FaultDisk, ManualClock

OpenLog = Callable[[FaultDisk], Log]
MakeDraft = Callable[..., Draft]
Followed = tuple[Record | None, tuple[Damage, ...]]
FOLDER = Path("/log")
ORDERS = TopicName.parse("orders")


def filled(disk: FaultDisk, open_log: OpenLog, clock: ManualClock, count: int) -> Log:
    """Messages a second apart, in several segments; the log is left open."""
    log = open_log(disk)
    for number in range(count):
        log.append(Draft.of([Message(payload=b"%d" % number + bytes(700), type="t")]))
        clock.advance_ms(1000)
    return log


@pytest.fixture
def disk() -> FaultDisk:
    return FaultDisk()


@pytest.fixture
def log(disk: FaultDisk, open_log: OpenLog, clock: ManualClock) -> Log:
    made = filled(disk, open_log, clock, 30)
    assert len(made.view.segments) > 2
    return made


@pytest.fixture
def reader(disk: FaultDisk, log: Log) -> LogReader:
    return LogReader(disk, FOLDER)


def offsets(followed: Iterable[Followed]) -> list[int]:
    return [record.offset for record, _ in followed if record is not None]


# one partition


def test_a_reader_has_everything_that_is_acknowledged_and_changes_nothing(disk: FaultDisk, reader: LogReader) -> None:
    calls = disk.calls
    assert (reader.view.first_offset, reader.view.next_offset) == (0, 30)
    assert offsets(reader.follow(Earliest())) == list(range(30))
    assert [record.message.payload[:2] for record in reader.read(28)] == [b"28", b"29"]
    assert disk.calls == calls


def test_a_log_without_a_message_is_empty(disk: FaultDisk, open_log: OpenLog) -> None:
    open_log(disk)
    reader = LogReader(disk, FOLDER)
    assert list(reader.follow(Earliest())) == []
    assert reader.facts() == {
        "messages": 0,
        "first_offset": 0,
        "next_offset": 0,
        "bytes": 0,
        "segments": 0,
        "oldest_ms": None,
        "newest_ms": None,
    }


def test_what_comes_later_is_there_after_another_look(reader: LogReader, log: Log, draft: MakeDraft) -> None:
    log.append(draft(b"later"))
    assert reader.view.next_offset == 30
    assert reader.refresh().next_offset == 31
    assert [record.message.payload for record in reader.read(30)] == [b"later"]


def test_facts_are_what_the_log_holds(reader: LogReader, log: Log) -> None:
    facts = reader.facts()
    assert (facts["messages"], facts["first_offset"], facts["next_offset"]) == (30, 0, 30)
    assert (facts["bytes"], facts["segments"]) == (log.view.size, len(log.view.segments))
    assert (facts["oldest_ms"], facts["newest_ms"]) == (1_700_000_000_000, 1_700_000_029_000)


def test_facts_of_a_truncated_log_begin_where_it_does(log: Log, disk: FaultDisk) -> None:
    log.truncate_before(17)
    facts = LogReader(disk, FOLDER).facts()
    assert (facts["messages"], facts["first_offset"], facts["oldest_ms"]) == (13, 17, 1_700_000_017_000)


def place_kinds(records: list[Record], number: int) -> list[Position]:
    return [AtOffset(Offset(number)), AtTime(records[number].publish_time_ms), AtId(records[number].id)]


def test_from_and_to_may_be_offsets_times_and_ids(reader: LogReader, log: Log) -> None:
    records = list(log.records())
    for start in place_kinds(records, 7):
        for stop in place_kinds(records, 19):
            assert offsets(reader.follow(start, stop)) == list(range(7, 19))
        assert offsets(reader.follow(start)) == list(range(7, 30))
    for stop in place_kinds(records, 19):
        assert offsets(reader.follow(Earliest(), stop)) == list(range(19))


def test_nothing_lies_before_the_earliest_and_behind_the_latest(reader: LogReader) -> None:
    assert offsets(reader.follow(Earliest(), Earliest())) == []
    assert offsets(reader.follow(Latest())) == []
    assert offsets(reader.follow(AtOffset(Offset(30)))) == []


@pytest.mark.parametrize("stop", [AtOffset(Offset(99)), AtTime(2**41), AtId(b"\xff" * 16), Latest()])
def test_a_stop_behind_the_end_is_the_end(reader: LogReader, stop: Position) -> None:
    assert offsets(reader.follow(AtOffset(Offset(28)), stop)) == [28, 29]


def test_a_start_that_is_not_there_is_refused(reader: LogReader) -> None:
    with pytest.raises(OffsetOutOfRange, match=r"it holds \[0, 30\)"):
        list(reader.follow(AtOffset(Offset(31))))


def appending(log: Log, clock: ManualClock, turns: int) -> Callable[[], None]:
    """Append while the reader waits; the test fails if the reader waits for longer than that."""
    left = [turns]

    def wait() -> None:
        assert left[0], "the reader should have ended"
        left[0] -= 1
        clock.advance_ms(1000)
        log.append(Draft.of([Message(payload=b"late" + bytes(700))]))

    return wait


def test_a_follower_waits_for_what_comes_over_segments_too(reader: LogReader, log: Log, clock: ManualClock) -> None:
    seen = offsets(reader.follow(AtOffset(Offset(28)), AtOffset(Offset(45)), wait=appending(log, clock, 15)))
    assert seen == list(range(28, 45))


def test_a_follower_ends_at_a_time_that_was_yet_to_come(reader: LogReader, log: Log, clock: ManualClock) -> None:
    stop = AtTime(1_700_000_033_000)
    assert offsets(reader.follow(Latest(), stop, wait=appending(log, clock, 4))) == [30, 31]


def test_a_follower_up_to_the_latest_ends_where_that_was(reader: LogReader, log: Log, draft: MakeDraft) -> None:
    followed = reader.follow(AtOffset(Offset(28)), Latest(), wait=lambda: pytest.fail("there is nothing to wait for"))
    first, _ = next(followed)
    assert first is not None
    log.append(draft(b"later"))
    assert offsets(followed) == [29]


def test_damage_is_named_between_the_records_around_it(disk: FaultDisk, log: Log, reader: LogReader) -> None:
    segment = log.view.segments[1]
    disk.content(segment.path)[30] ^= 1
    followed = list(reader.follow(Earliest()))
    assert offsets(followed) == [offset for offset in range(30) if offset != segment.base]
    ((place, damages),) = [(place, damages) for place, (_, damages) in enumerate(followed) if damages]
    assert place == segment.base
    assert [damage.offsets for damage in damages] == [OffsetRange.of(segment.base, segment.base + 1)]


def test_what_retention_drops_before_it_is_read_is_named(reader: LogReader, log: Log) -> None:
    followed = reader.follow(Earliest())
    record, _ = next(followed)
    assert record is not None
    log.truncate_before(25)
    rest = list(followed)
    (dropped,) = [damage for _, damages in rest for damage in damages]
    assert dropped.offsets.stop == 25
    assert "dropped by retention" in str(dropped)
    assert offsets(rest) == [*range(1, dropped.offsets.start), *range(25, 30)]


def test_a_follower_that_slept_through_a_truncation_goes_on_behind_it(
    reader: LogReader, log: Log, draft: MakeDraft
) -> None:
    def wait() -> None:
        for _ in range(3):
            log.append(draft(b"late"))
        log.truncate_before(32)

    followed = reader.follow(Latest(), AtOffset(Offset(33)), wait=wait)
    (_, (dropped,)), (record, _) = followed
    assert dropped.offsets == OffsetRange.of(30, 32)
    assert record is not None
    assert record.offset == 32


@pytest.mark.parametrize("number", [0, 12, 29])
def test_a_record_lies_before_a_place_or_it_does_not(log: Log, number: int) -> None:
    records = list(log.records())
    for place in place_kinds(records, number):
        assert [record.offset for record in records if lies_before(record, place)] == list(range(number))
    assert not any(lies_before(record, Earliest()) for record in records)
    assert all(lies_before(record, Latest()) for record in records)


# a data directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)
        store.create_topic(TopicName.parse("/shop/parts.sold"), partitions=12)
        for number in range(12):
            message = Message(payload=b"%d" % number)
            store.append(TopicName.parse("/shop/parts.sold"), Draft.of([message]), partition=number)
    return root


def test_topics_and_partitions_are_what_the_directories_say(root: Path) -> None:
    topics = DataReader(root).topics()
    assert [(str(topic.name), topic.partitions) for topic in topics] == [
        ("/default/orders", 1),
        ("/shop/parts.sold", 12),
    ]
    for number in range(12):
        (record,) = topics[1].partition(number).read(0)
        assert record.message.payload == b"%d" % number


def test_reading_needs_neither_the_catalog_nor_the_owner(root: Path) -> None:
    with Store.open(root) as store:
        store.append(ORDERS, Draft.of([Message(payload=b"seen")]))
        (root / "catalog.db").write_bytes(b"damaged")
        (record,) = DataReader(root).topic(ORDERS).partition(0).read(0)
        assert record.message.payload == b"seen"


def test_an_unknown_topic_is_refused_with_those_there_are(root: Path) -> None:
    with pytest.raises(
        TopicNotSupported, match=r"no topic /default/order in .* there are: /default/orders, /shop/parts"
    ):
        DataReader(root).topic(TopicName.parse("order"))


def test_a_directory_without_topics_says_that_there_are_none(tmp_path: Path) -> None:
    Store.open(tmp_path / "data", create=True).close()
    assert DataReader(tmp_path / "data").topics() == []
    with pytest.raises(TopicNotSupported, match="none yet"):
        DataReader(tmp_path / "data").topic(ORDERS)


@pytest.mark.parametrize("number", [-1, 1, 10**6])
def test_an_unknown_partition_is_refused_with_those_there_are(root: Path, number: int) -> None:
    with pytest.raises(InvalidRequest, match=f"/default/orders has partitions 0 to 0, not {number}"):
        DataReader(root).topic(ORDERS).partition(number)


def test_a_partition_that_is_gone_does_not_move_the_others(root: Path) -> None:
    (root / "topics/shop/parts.sold-part-3").rename(root / "elsewhere")
    topic = DataReader(root).topic(TopicName.parse("/shop/parts.sold"))
    assert (topic.partitions, len(topic.paths)) == (12, 11)
    (record,) = topic.partition(4).read(0)
    assert record.message.payload == b"4"
    with pytest.raises(InvalidRequest, match=r"partition 3 of /shop/parts\.sold is missing"):
        topic.partition(3)


def test_stray_files_and_names_that_are_no_topics_are_left_alone(root: Path) -> None:
    (root / "topics/README").write_text("a file")
    (root / "topics/default/notes").write_text("a file")
    (root / "topics/default/lost+found").mkdir()
    (root / "topics/no namespace!/orders").mkdir(parents=True)
    assert [str(topic.name) for topic in DataReader(root).topics()] == ["/default/orders", "/shop/parts.sold"]


@pytest.mark.parametrize("what", ["missing", "a file", "an empty directory"])
def test_what_is_no_data_directory_is_refused_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "a file":
        place.write_text("x")
    elif what == "an empty directory":
        place.mkdir()
    with pytest.raises(InvalidRequest, match="is not a"):
        DataReader(place)
    assert place.exists() is (what != "missing")
    assert not place.is_dir() or not list(place.iterdir())


def test_a_directory_of_a_newer_format_is_refused(root: Path) -> None:
    (root / "store.json").write_text(json.dumps({"format": 2, "node": 1}))
    with pytest.raises(VersionNotSupported, match="use a newer Penstock"):
        DataReader(root)


def test_a_damaged_identity_does_not_hide_the_messages(root: Path) -> None:
    (root / "store.json").write_bytes(b"\0\0\0")
    assert len(DataReader(root).topics()) == 2


# files


def put(disk: FaultDisk, name: str, data: bytes) -> Path:
    disk.make_directory(FOLDER)
    disk.open(FOLDER / name, write=True, create=True).write(data, 0)
    return FOLDER / name


def test_facts_of_segments_come_from_their_headers(disk: FaultDisk, log: Log) -> None:
    log.close()
    for segment in log.view.segments:
        facts = segment_facts(disk, segment.path)
        assert (facts["base"], facts["records"], facts["bytes"]) == (segment.base, segment.count, segment.size)
        assert facts["state"] == ("sealed" if segment.sealed else "closed")
        assert facts["first_ms"] == 1_700_000_000_000 + 1000 * segment.base
        assert facts["last_ms"] == 1_700_000_000_000 + 1000 * (segment.stop - 1)


def test_facts_of_a_living_segment_come_from_its_records(disk: FaultDisk, log: Log) -> None:
    segment = log.view.segments[-1]
    facts = segment_facts(disk, segment.path)
    assert (facts["state"], facts["records"], facts["bytes"]) == ("open", segment.count, segment.size)
    disk.remove(index_path(segment.path))
    assert segment_facts(disk, segment.path) == facts | {"state": "no index"}


def test_facts_of_a_copy_are_those_of_the_segment(disk: FaultDisk, log: Log) -> None:
    segment = log.view.segments[1]
    facts = segment_facts(disk, put(disk, "copy.bin", bytes(disk.content(segment.path))))
    assert (facts["base"], facts["records"], facts["state"]) == (segment.base, segment.count, "no index")


@pytest.mark.parametrize(
    ("data", "state"), [(b"", "no index"), (bytes(99), "no index"), (b"text" * 99, "not a segment")]
)
def test_a_file_without_records_has_none(disk: FaultDisk, data: bytes, state: str) -> None:
    facts = segment_facts(disk, put(disk, "file.bin", data))
    assert facts == {
        "path": "/log/file.bin",
        "base": None,
        "records": 0,
        "bytes": 0,
        "file_bytes": len(data),
        "state": state,
        "first_ms": None,
        "last_ms": None,
    }


def items(disk: FaultDisk, path: Path, *, raw: bool = False) -> list[int | str]:
    return [item if isinstance(item, str) else item.offset for item in file_records(disk, path, raw=raw)]


def test_the_records_of_a_segment_and_of_its_copy_are_the_same(disk: FaultDisk, log: Log) -> None:
    segment = log.view.segments[1]
    copy = put(disk, "copy.bin", bytes(disk.content(segment.path)))
    assert items(disk, segment.path) == items(disk, copy) == list(range(segment.base, segment.stop))
    assert list(file_records(disk, segment.path, raw=False)) == list(log.records(segment.base, segment.stop))


def test_a_damaged_record_is_a_sentence_between_the_others(disk: FaultDisk, log: Log) -> None:
    segment = log.view.segments[1]
    disk.content(segment.path)[30] ^= 1
    first, *rest = items(disk, segment.path)
    assert isinstance(first, str)
    assert first.startswith(f"offset {segment.base} (segment {segment.base}, bytes 0 to ")
    assert rest == list(range(segment.base + 1, segment.stop))


def test_the_unfinished_write_of_a_living_segment_is_not_mentioned(disk: FaultDisk, log: Log) -> None:
    segment = log.view.segments[-1]
    disk.content(segment.path)[segment.size : segment.size + 9] = b"x" * 9
    assert items(disk, segment.path) == list(range(segment.base, segment.stop))
    disk.remove(index_path(segment.path))
    assert items(disk, segment.path)[-1] == (
        f"position {segment.size}: 9 bytes behind the last record are neither records nor unused space"
    )


def test_a_segment_of_garbage_is_not_silently_empty(disk: FaultDisk) -> None:
    (sentence,) = items(disk, put(disk, segment_name(7), b"garbage" * 100))
    assert "position 0: it does not begin with a record" in str(sentence)


def foreign(number: int, message: bytes) -> bytes:
    """A record whose message is no envelope."""
    id_ = IdGenerator(ManualClock(1_700_000_000_000 + number), node=1).take(1)[0]
    body = id_ + b"\x01f" + len(message).to_bytes(4, "big") + message
    return body + hash64(body).to_bytes(8, "big")


def test_messages_that_are_no_envelopes_are_read_raw(disk: FaultDisk) -> None:
    path = put(disk, "foreign.bin", b"".join(foreign(number, b"any %d" % number) for number in range(3)))
    (sentence,) = items(disk, path)
    assert "not Penstock envelopes" in str(sentence)
    records = [item for item in file_records(disk, path, raw=True) if not isinstance(item, str)]
    assert [(record.offset, record.message.payload) for record in records] == [
        (0, b"any 0"),
        (1, b"any 1"),
        (2, b"any 2"),
    ]
    assert [record.publish_time_ms for record in records] == [1_700_000_000_000 + number for number in range(3)]
    assert records[0].message.type == "f"


def test_raw_records_are_numbered_through_the_whole_file(disk: FaultDisk) -> None:
    path = put(disk, "large.bin", b"".join(foreign(number, bytes(100_000)) for number in range(25)))
    assert items(disk, path, raw=True) == list(range(25))


def test_a_bad_raw_record_has_its_number_too(disk: FaultDisk) -> None:
    records = [foreign(number, b"any %d" % number) for number in range(3)]
    data = bytearray(b"".join(records))
    data[len(records[0]) + 25] ^= 1
    assert items(disk, put(disk, "foreign.bin", bytes(data)), raw=True) == [
        0,
        f"position {len(records[0])}: the checksum does not match",
        2,
    ]


@pytest.mark.parametrize("raw", [False, True])
def test_an_empty_file_has_no_records_and_no_complaints(disk: FaultDisk, raw: bool) -> None:
    assert items(disk, put(disk, "empty.bin", b""), raw=raw) == []


def test_reading_never_touches_a_file(tmp_path: Path, clock: ManualClock, small_limits: Limits) -> None:
    disk = OsDisk()
    log = Log.open(disk, tmp_path, ids=IdGenerator(clock, node=1), clock=clock, limits=small_limits)
    for _ in range(20):
        log.append(Draft.of([Message(payload=bytes(700))]))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    reader = LogReader(disk, tmp_path)
    readings: list[Any] = [list(reader.follow(Earliest())), reader.facts()]
    for segment in reader.view.segments:
        readings += [segment_facts(disk, segment.path), list(file_records(disk, segment.path, raw=False))]
    assert all(readings)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before
    log.close()
