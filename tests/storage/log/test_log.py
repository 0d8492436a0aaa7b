"""The log of one partition, through its public doors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.core.errors import DiskFull, InvalidRequest, OffsetOutOfRange, PayloadTooLarge, StorageFailed
from penstock.core.ids import IdGenerator, ticks_of_id
from penstock.core.limits import Limits
from penstock.core.offsets import Offset
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import OsDisk, opened
from penstock.storage.catalog.topics import Retention
from penstock.storage.log.append_result import Durability
from penstock.storage.log.index import IndexFile, SegmentState
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import read, view_of
from penstock.storage.log.segment import index_path
from penstock.testing import Fault, FaultDisk, ManualClock
from penstock.testing.fault_disk import FaultFile

OpenLog = Callable[[FaultDisk], Log]
MakeDraft = Callable[..., Draft]
LOG_PATH = Path("/log")


def payloads(log: Log, start: int | None = None) -> list[bytes]:
    return [record.message.payload for record in log.records(start)]


def test_a_new_log_is_empty(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    assert (log.first_offset, log.next_offset, payloads(log)) == (0, 0, [])
    assert log.last_id == bytes(16)


def test_offsets_are_dense_and_ids_rise_over_appends(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    done = [log.append(draft(b"a", b"b")), log.append(draft(b"c"))]
    assert [each.offset for each in done] == [0, 2]
    records = list(log.records())
    assert [record.offset for record in records] == [0, 1, 2]
    ids = [record.id for record in records]
    assert ids == sorted(set(ids))
    assert ids == [done[0].ids[0], done[0].ids[1], done[1].id]


def test_a_reopened_log_goes_on_where_it_was(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    with open_log(disk) as log:
        log.append(draft(b"a"))
    with open_log(disk) as log:
        assert log.append(draft(b"b")).offset == 1
        assert payloads(log) == [b"a", b"b"]


def test_a_log_left_without_closing_is_recovered(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    open_log(disk).append(draft(b"a", b"b"))
    log = open_log(disk)
    assert payloads(log) == [b"a", b"b"]
    assert log.damages == []


def test_segments_roll_at_their_size_and_double(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    for number in range(60):
        log.append(draft(b"%d" % number + bytes(900)))
    sizes = [segment.size for segment in log.view.segments]
    assert len(sizes) >= 4
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]
    assert max(sizes) <= 16_384
    assert [record.offset for record in log.records()] == list(range(60))


def test_a_sealed_segment_is_cut_to_its_records_and_says_so(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    log.append(draft(b"a", b"b"))
    log.roll()
    segment = log.view.segments[0]
    header = IndexFile(disk, index_path(segment.path), 0).header()
    assert header is not None
    assert (header.state, header.count, header.size) == (SegmentState.SEALED, 2, segment.size)
    assert len(disk.content(segment.path)) == segment.size


def test_a_log_rolls_by_age_too(open_log: OpenLog, clock: ManualClock, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(b"a"))
    clock.advance_ms(8 * 24 * 3600 * 1000)
    log.append(draft(b"b"))
    assert [segment.count for segment in log.view.segments] == [1, 1]


def test_rolling_an_empty_log_does_nothing(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.roll()
    assert log.view.segments == ()


def test_reading_from_each_offset_gives_the_rest(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    sent = [b"%d" % number + bytes(number * 31 % 700) for number in range(50)]
    for payload in sent:
        log.append(draft(payload))
    for start in range(51):
        assert payloads(log, start) == sent[start:]


def test_a_small_read_still_gives_at_least_one_record(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(bytes(4000), b"small"))
    chunk = log.read(0, bytes_max=1)
    assert (len(chunk.block), chunk.next_offset) == (1, 1)


@pytest.mark.parametrize("offset", [-1, 4, 10**18])
def test_reading_outside_of_the_log_says_what_it_holds(open_log: OpenLog, draft: MakeDraft, offset: int) -> None:
    log = open_log(FaultDisk())
    log.append(draft(b"a", b"b", b"c"))
    with pytest.raises(OffsetOutOfRange, match=r"it holds \[0, 3\)"):
        log.read(offset)


def test_places_are_found_by_offset_time_and_id(open_log: OpenLog, clock: ManualClock, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    for number in range(40):
        log.append(draft(b"%d" % number + bytes(500)))
        clock.advance_ms(1000)
    records = list(log.records())
    assert log.offset_of(Earliest()) == 0
    assert log.offset_of(Latest()) == 40
    assert log.offset_of(AtOffset(Offset(7))) == 7
    for record in records:
        assert log.offset_of(AtId(record.id)) == record.offset
        assert log.offset_of(AtTime(record.publish_time_ms)) == record.offset
        assert log.offset_of(AtTime(record.publish_time_ms + 1)) == record.offset + 1
    assert log.offset_of(AtTime(0)) == 0
    assert log.offset_of(AtTime(2**40)) == 0
    assert log.offset_of(AtTime(2**41)) == 40
    with pytest.raises(OffsetOutOfRange):
        log.offset_of(AtOffset(Offset(41)))


def test_the_time_of_a_message_is_the_time_of_its_id(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(b"a"))
    (record,) = log.records()
    assert record.publish_time_ms == 1_700_000_000_000


def test_another_reader_sees_only_what_is_acknowledged(open_log: OpenLog, draft: MakeDraft) -> None:
    """Bytes that are written and not yet synced are there in the file, and not for anybody to see."""
    disk = FaultDisk()
    log = open_log(disk)
    log.append(draft(b"a"))
    disk.fail_at, disk.fault = disk.calls + 1, Fault.ERROR  # the write works, the sync does not
    with pytest.raises(StorageFailed):
        log.append(draft(b"b"))
    view = view_of(disk, LOG_PATH)
    assert view.next_offset == 1
    assert [record.message.payload for record in read(disk, view, 0)] == [b"a"]


def test_another_reader_follows_a_growing_log_over_segments(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    view, seen = None, []
    for number in range(60):
        log.append(draft(b"%d" % number + bytes(700)))
        view = view_of(disk, LOG_PATH, known=view)
        assert view.next_offset == number + 1
        seen += [record.offset for record in read(disk, view, number)]
    assert seen == list(range(60))


def test_truncation_hides_and_frees_what_came_before(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    for number in range(40):
        log.append(draft(b"%d" % number + bytes(900)))
    before = len(log.view.segments)
    log.truncate_before(25)
    assert (log.first_offset, log.next_offset) == (25, 40)
    assert len(log.view.segments) < before
    with pytest.raises(OffsetOutOfRange):
        log.read(24)
    log.close()
    again = open_log(disk)
    assert [record.offset for record in again.records()] == list(range(25, 40))
    assert view_of(disk, LOG_PATH).first_offset == 25


def test_truncating_everything_keeps_the_place_of_the_next_message(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    log.append(draft(b"a", b"b", b"c"))
    log.roll()
    log.truncate_before(3)
    assert payloads(log) == []
    log.close()
    log = open_log(disk)
    assert (log.first_offset, log.next_offset) == (3, 3)
    assert log.append(draft(b"d")).offset == 3


def test_truncating_outside_of_the_log_is_refused(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(b"a"))
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            log.truncate_before(offset)
    assert payloads(log) == [b"a"]


def test_retention_drops_old_segments_and_never_the_newest(
    open_log: OpenLog, clock: ManualClock, draft: MakeDraft
) -> None:
    log = open_log(FaultDisk())
    for number in range(4):
        log.append(draft(b"%d" % number))
        log.roll()
        clock.advance_ms(1000)
    assert log.retain(Retention(age_ms=3500)) == 1
    assert payloads(log) == [b"1", b"2", b"3"]
    assert log.retain(Retention(count=2)) == 1
    assert log.retain(Retention(age_ms=1, bytes=1, count=1)) == 1
    assert payloads(log) == [b"3"]
    assert log.retain(Retention(age_ms=1)) == 0
    assert log.append(draft(b"4")).offset == 4


def test_a_failed_sync_ends_appending_and_not_reading(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    log.append(draft(b"a"))
    disk.fail_at, disk.fault = disk.calls + 1, Fault.ERROR
    with pytest.raises(StorageFailed, match="input/output error"):
        log.append(draft(b"b"))
    with pytest.raises(StorageFailed, match="until it is opened"):
        log.append(draft(b"c"))
    assert payloads(log) == [b"a"]
    assert log.failure is not None
    log.close()
    reopened = open_log(disk)
    assert payloads(reopened) in ([b"a"], [b"a", b"b"])
    reopened.append(draft(b"c"))


def test_a_full_disk_refuses_before_writing_and_goes_on_when_there_is_room(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    stored = [int(log.append(draft(bytes(900))).offset)]
    disk.free = 100
    with pytest.raises(DiskFull, match="make room"):
        stored.extend(log.append(draft(bytes(900))).offset for _ in range(100))
    assert stored
    assert log.failure is None
    assert [record.offset for record in log.records()] == stored
    disk.free = 1 << 30
    assert log.append(draft(b"again")).offset == len(stored)


def test_the_next_segment_is_as_large_as_there_is_room_for(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    while not log.view.segments or not log.view.segments[-1].sealed:
        log.append(draft(bytes(1000)))
        if log.view.segments[-1].size >= log.limits.segment_bytes_max // 2:
            log.roll()
    disk.free = log.limits.disk_reserve_bytes + log.limits.segment_bytes_first + 300
    disk.remove(log.path / "spare.seg")
    log.append(draft(b"in less room"))
    with opened(disk, log.view.segments[-1].path) as file:
        assert file.size() == log.limits.segment_bytes_first + 300


def test_a_log_that_lacks_room_says_so_once_and_until_there_is_some(
    open_log: OpenLog, draft: MakeDraft, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    disk.free = 0
    for _ in range(5):
        with pytest.raises(DiskFull):
            log.append(draft(b"a"))
    assert "make room" in str(log.refusal)
    assert log.lacks_room(0)
    assert not log.lacks_room(1 << 30)
    disk.free = 1 << 30
    log.append(draft(b"a"))
    assert log.refusal is None
    assert not log.lacks_room(0)
    said = [record.message for record in caplog.records if "room" in record.message]
    assert len([each for each in said if "takes no messages" in each]) == 1


def test_a_closed_log_refuses_appends_and_serves_reads(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(b"a"))
    log.close()
    log.close()
    with pytest.raises(StorageFailed, match="closed"):
        log.append(draft(b"b"))
    assert payloads(log) == [b"a"]


def test_a_block_larger_than_the_first_segment_gets_a_segment_of_its_size(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(bytes(3000), bytes(3000)))
    assert len(payloads(log)) == 2


def test_a_block_over_the_limit_is_refused_by_its_size(small_limits: Limits, draft: MakeDraft) -> None:
    with pytest.raises(PayloadTooLarge, match="at most 4096 bytes, not 5000"):
        draft(bytes(5000)).check_sizes(small_limits)
    with pytest.raises(PayloadTooLarge, match="a block has at most 8192"):
        draft(*[bytes(4000)] * 3).check_sizes(small_limits)
    draft(bytes(4096)).check_sizes(small_limits)


def test_a_group_that_does_not_fit_goes_on_in_the_next_segment(open_log: OpenLog, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    outcomes = log.append_group([draft(b"%d" % number + bytes(1000)) for number in range(20)])
    assert [outcome.offset for outcome in outcomes if not isinstance(outcome, Exception)] == list(range(20))
    assert len(log.view.segments) > 1


def test_os_durability_does_not_sync(clock: ManualClock, small_limits: Limits, draft: MakeDraft) -> None:
    disk = FaultDisk()
    log = Log.open(
        disk,
        LOG_PATH,
        ids=IdGenerator(clock, node=1),
        clock=clock,
        limits=small_limits,
        durability=Durability.OS,
    )
    log.append(draft(b"a"))
    before = disk.calls
    log.append(draft(b"b"))
    assert disk.calls - before == 2  # the records and the index, and no sync
    assert payloads(log) == [b"a", b"b"]


def test_ids_go_on_after_the_newest_record_of_a_reopened_log(open_log: OpenLog, clock: ManualClock) -> None:
    disk = FaultDisk()
    with open_log(disk) as log:
        log.append(Draft.of([Message(payload=b"")]))
        last = log.last_id
    clock.advance_ms(-3_600_000)
    with open_log(disk) as log:
        assert log.last_id == last
        done = log.append(Draft.of([Message(payload=b"")]))
        assert ticks_of_id(done.id) == ticks_of_id(last) + 1


def test_reads_go_on_in_many_threads_while_one_appends(tmp_path: Path, draft: MakeDraft) -> None:
    clock = ManualClock()
    limits = Limits(
        segment_bytes_first=65_536, segment_bytes_max=131_072, block_bytes_max=65_536, payload_bytes_max=1024
    )
    log = Log.open(OsDisk(), tmp_path / "log", ids=IdGenerator(clock, node=1), clock=clock, limits=limits)
    wrong: list[str] = []
    done = threading.Event()

    def reader() -> None:
        while not done.is_set():
            found = [record.offset for record in log.records()]
            if found != list(range(len(found))):
                wrong.append(f"{found[:10]} ...")

    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        log.append(draft(*[bytes(500)] * 5))
    done.set()
    for thread in threads:
        thread.join()
    log.close()
    assert wrong == []


def test_an_id_of_another_length_is_no_place() -> None:
    with pytest.raises(InvalidRequest, match="16 bytes"):
        AtId(b"short")


def test_ids_go_on_although_every_record_was_truncated_and_the_clock_set_back(
    open_log: OpenLog, clock: ManualClock, draft: MakeDraft
) -> None:
    disk = FaultDisk()
    log = open_log(disk)
    log.append(draft(b"a", b"b"))
    log.roll()
    last = log.last_id
    log.truncate_before(2)
    log.append(draft(b"c"))
    log.truncate_before(3)
    log.close()
    for path in disk.paths():
        if path.suffix in (".seg", ".idx"):
            disk.remove(path)
    clock.advance_ms(-60_000)
    log = open_log(disk)
    before = log.last_id
    assert before > last
    assert log.append(draft(b"d")).id > before


class Interrupted(FaultDisk):
    """Something happens between the decision to open a segment for reading and its opening."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> FaultFile:
        if self.meanwhile is not None and path.suffix == ".seg" and not write:
            happen, self.meanwhile = self.meanwhile, None
            happen()
        return super().open(path, write=write, create=create)


def filled(open_log: OpenLog, disk: FaultDisk, draft: MakeDraft) -> Log:
    """Forty records in several segments."""
    log = open_log(disk)
    for number in range(40):
        log.append(draft(b"%d" % number + bytes(1000)))
    assert len(log.view.segments) > 3
    return log


def test_a_reader_whose_segment_goes_away_is_told_that_its_offset_is_gone(open_log: OpenLog, draft: MakeDraft) -> None:
    disk = Interrupted()
    log = filled(open_log, disk, draft)
    disk.meanwhile = lambda: log.truncate_before(30)
    with pytest.raises(OffsetOutOfRange):
        log.read(0)
    assert log.read(30).block.offsets.start == 30
    assert log.damages == []


@pytest.mark.parametrize(("last", "expected"), [(False, 30), (True, 39)])
def test_a_search_goes_on_in_what_is_left_when_segments_go_away_under_it(
    open_log: OpenLog, draft: MakeDraft, last: bool, expected: int
) -> None:
    disk = Interrupted()
    log = filled(open_log, disk, draft)
    disk.meanwhile = partial(log.truncate_before, 30)
    assert log.offset_of(AtId(log.last_id) if last else AtTime(0)) == expected


def test_a_search_that_the_disk_ends_says_so(open_log: OpenLog, draft: MakeDraft) -> None:
    def fail() -> None:
        raise OSError(13, "not today")

    disk = Interrupted()
    log = filled(open_log, disk, draft)
    disk.meanwhile = fail
    with pytest.raises(StorageFailed, match="not today"):
        log.offset_of(AtTime(0))


def test_a_closed_log_forgets_nothing_for_another_may_be_in_its_place(open_log: OpenLog, draft: MakeDraft) -> None:
    log = filled(open_log, FaultDisk(), draft)
    log.close()
    with pytest.raises(StorageFailed, match="is closed"):
        log.truncate_before(30)
    with pytest.raises(StorageFailed, match="is closed"):
        log.retain(Retention(count=1))
    assert log.first_offset == 0


def test_new_limits_hold_from_the_next_segment_on(open_log: OpenLog, small_limits: Limits, draft: MakeDraft) -> None:
    log = open_log(FaultDisk())
    log.append(draft(bytes(1000)))
    log.set_limits(replace(small_limits, segment_bytes_max=8192))
    assert log.limits.segment_bytes_max == 8192
    for _ in range(60):
        log.append(draft(bytes(1000)))
    assert max(segment.size for segment in log.view.segments) <= 8192
    with pytest.raises(InvalidRequest):
        log.set_limits(replace(small_limits, segment_bytes_max=1))
    assert log.limits.segment_bytes_max == 8192
