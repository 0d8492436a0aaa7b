"""The scan of a log: every offset once, the same records that readers get, whatever is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.kit import FOLDER, Sample, lose_entry, orders, write

from penstock.core.ids import IdGenerator
from penstock.core.positions import Earliest
from penstock.record.block import Block, Draft
from penstock.record.message import Message
from penstock.spark.jobs.audit.scan_range import IndexFault, LossKind, LostOffsets, ScanEvent, scan_range
from penstock.storage.inspect.data_reader import LogReader
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import LogView, view_of
from penstock.storage.log.segment import LogStart, index_path, write_log_start
from penstock.testing import FaultDisk, ManualClock


def walked(sample: Sample, start: int = 0, stop: int | None = None) -> list[ScanEvent]:
    return list(scan_range(sample.disk, sample.view, start, sample.count if stop is None else stop))


def served(events: list[ScanEvent]) -> list[int]:
    return [int(record.offset) for event in events if isinstance(event, Block) for record in event]


def lost(events: list[ScanEvent]) -> list[LostOffsets]:
    return [event for event in events if isinstance(event, LostOffsets)]


def accounted(events: list[ScanEvent]) -> Iterator[range]:
    for event in events:
        match event:
            case Block():
                yield range(event.offsets.start, event.offsets.stop)
            case LostOffsets():
                yield range(event.start, event.stop)


@pytest.fixture
def sample() -> Sample:
    return orders(60)


def test_a_sound_log_is_blocks_and_nothing_else(sample: Sample) -> None:
    events = walked(sample)
    assert served(events) == list(range(60))
    assert all(isinstance(event, Block) for event in events)


def test_a_part_of_a_log_begins_and_ends_where_it_should(sample: Sample) -> None:
    assert served(walked(sample, 7, 41)) == list(range(7, 41))
    assert walked(sample, 7, 7) == []


def test_a_record_larger_than_a_read_is_read_whole() -> None:
    disk, clock = FaultDisk(), ManualClock()
    log = Log.open(disk, FOLDER, ids=IdGenerator(clock, node=1), clock=clock)
    for size in (10, 1 << 20, 10, 700_000, 600_000):
        log.append(Draft.of([Message(payload=bytes(size))]))
    events = list(scan_range(disk, view_of(disk, FOLDER), 0, 5))
    assert [len(record.message.payload) for event in events if isinstance(event, Block) for record in event] == [
        10, 1 << 20, 10, 700_000, 600_000,
    ]  # fmt: skip


def test_many_small_records_are_all_there() -> None:
    sample = write([[Message(payload=b"")] * 60] * 100)
    assert served(walked(sample)) == list(range(6000))


def test_a_damaged_record_is_named_and_those_beside_it_are_served(sample: Sample) -> None:
    segment = sample.view.segments[1]
    sample.flip(segment.path, 8 * 300)
    (found,) = lost(walked(sample))
    assert (found.start, found.stop, found.kind, found.base) == (
        segment.base,
        segment.base + 1,
        LossKind.DAMAGED,
        segment.base,
    )
    assert found.position == 0 < found.end
    assert "checksum" in found.reason
    assert served(walked(sample)) == [each for each in range(60) if each != segment.base]


def test_a_missing_segment_is_missing_offsets(sample: Sample) -> None:
    gone = sample.view.segments[1]
    sample.disk.remove(gone.path)
    (found,) = lost(walked(sample))
    assert (found.start, found.stop, found.kind) == (gone.base, gone.stop, LossKind.MISSING)


def test_a_missing_first_segment_is_missed_too(sample: Sample) -> None:
    gone = sample.view.segments[0]
    sample.disk.remove(gone.path)
    (found,) = lost(walked(sample))
    assert (found.start, found.stop, found.kind) == (0, gone.stop, LossKind.MISSING)


def test_what_was_truncated_meanwhile_is_dropped_and_no_damage(sample: Sample) -> None:
    write_log_start(sample.disk, FOLDER, LogStart(4, bytes(16)))
    assert [(each.start, each.stop, each.kind) for each in lost(walked(sample))] == [(0, 4, LossKind.DROPPED)]


def test_a_segment_that_goes_while_it_is_walked_is_dropped(sample: Sample) -> None:
    view: LogView = sample.view
    sample.disk.remove(view.segments[0].path)
    events = list(scan_range(sample.disk, view, 0, 60))
    assert [(each.start, each.stop, each.kind) for each in lost(events)] == [
        (0, view.segments[0].stop, LossKind.DROPPED)
    ]


def test_a_lost_index_is_told_and_costs_no_record(sample: Sample) -> None:
    segment = sample.view.segments[0]
    sample.disk.remove(index_path(segment.path))
    events = walked(sample)
    assert served(events) == list(range(60))
    faults = [event for event in events if isinstance(event, IndexFault)]
    assert {fault.base for fault in faults} == {0}
    assert sum(fault.count for fault in faults) == segment.count
    assert any(fault.header for fault in faults)


def test_a_lost_entry_of_an_index_is_told_and_costs_no_record(sample: Sample) -> None:
    lose_entry(sample, sample.segments[0], 2)
    events = walked(sample)
    assert served(events) == list(range(60))
    assert [event for event in events if isinstance(event, IndexFault)] == [IndexFault(0, 2, 1)]


def test_a_walk_that_begins_behind_a_lost_entry_finds_its_first_record(sample: Sample) -> None:
    lose_entry(sample, sample.segments[0], 2)
    assert served(walked(sample, 3)) == list(range(3, 60))


def test_damage_where_the_index_is_lost_costs_the_one_record(sample: Sample) -> None:
    segment = sample.view.segments[0]
    sample.disk.remove(index_path(segment.path))
    sample.flip(segment.path, 8 * 1300)
    assert [(each.start, each.stop) for each in lost(walked(sample))] == [(2, 3)]


@given(st.lists(st.integers(0, 2**18), max_size=4), st.lists(st.integers(0, 6), max_size=3), st.booleans())
def test_whatever_is_damaged_each_offset_is_told_once_and_readers_get_the_same(
    bits: list[int], entries: list[int], no_index: bool
) -> None:
    sample = orders(40)
    segments = sample.segments
    for bit in bits:
        sample.flip(segments[bit % len(segments)], bit)
    for entry in entries:
        lose_entry(sample, segments[entry % 2], entry)
    if no_index:
        sample.disk.remove(index_path(segments[-2]))
    events = walked(sample)
    ranges = list(accounted(events))
    assert ranges[0].start == 0
    assert ranges[-1].stop == 40
    assert all(left.stop == right.start for left, right in pairwise(ranges))
    readers = LogReader(sample.disk, FOLDER).follow(Earliest())
    assert served(events) == [record.offset for record, _ in readers if record is not None]
