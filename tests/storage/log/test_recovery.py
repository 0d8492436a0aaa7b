"""Recovery of single segments, scanned without a log around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.core.ids import IdGenerator
from penstock.core.offsets import OffsetRange
from penstock.record import layout as at
from penstock.record.block import Draft, Longs, stamp
from penstock.record.message import Message
from penstock.storage.base.work_limit import ScanBudget
from penstock.storage.log.index import IndexHeader, SegmentState
from penstock.storage.log.recovery import SegmentExpectation, SegmentScan, scan_segment
from penstock.testing import FaultDisk, ManualClock

BASE = 40
PATH = Path("/log/00000000000000000040.seg")
UNUSED_BYTES = 600
NOTHING_LISTED = np.empty(0, dtype=np.int64)


class Segment:
    """Eight messages and some unused space behind them."""

    def __init__(self, *payloads: bytes) -> None:
        sent = payloads or tuple(b"message %d " % number * (number + 1) for number in range(8))
        draft = Draft.of(Message(payload=payload) for payload in sent)
        self.data = bytearray(draft.data)
        ids = IdGenerator(ManualClock(), node=1).take(len(draft))
        self.ends: Longs = stamp(self.data, len(draft), ids, BASE)
        self.data += bytes(UNUSED_BYTES)

    def start(self, ordinal: int) -> int:
        return int(self.ends[ordinal - 1]) if ordinal else 0

    def scan(
        self,
        state: SegmentState | None = SegmentState.OPEN,
        listed: int | None = None,
        *,
        ends: Longs | None = None,
        count: int | None = None,
        budget: ScanBudget | None = None,
    ) -> SegmentScan:
        disk = FaultDisk()
        disk.open(PATH, write=True, create=True).write(self.data, 0)
        header = None if state is None else IndexHeader(state=state, base=BASE)
        known = self.ends[:listed] if ends is None else ends
        expected = SegmentExpectation(base=BASE, header=header, ends=known if header else NOTHING_LISTED, count=count)
        return scan_segment(disk.open(PATH), len(self.data), expected, budget)


def lost(scan: SegmentScan) -> list[OffsetRange]:
    return [damage.offsets for damage in scan.damages]


def test_a_whole_segment_is_whole_with_and_without_its_index() -> None:
    segment = Segment()
    for state in (SegmentState.OPEN, None):
        scan = segment.scan(state)
        assert scan.ends.tolist() == segment.ends.tolist()
        assert (scan.damages, scan.torn_start, scan.torn_stop) == ((), segment.ends[-1], segment.ends[-1])
        assert scan.last.next_offset == BASE + 8


def test_an_empty_segment_is_empty() -> None:
    segment = Segment()
    segment.data = bytearray(1000)
    scan = segment.scan(listed=0)
    assert (scan.count, scan.size, scan.damages) == (0, 0, ())


def test_unlisted_records_that_verify_are_kept() -> None:
    segment = Segment()
    assert segment.scan(listed=3).count == 8


def test_an_unlisted_record_that_does_not_verify_begins_the_torn_tail() -> None:
    segment = Segment()
    segment.data[segment.start(6) + 30] ^= 1
    scan = segment.scan(listed=5)
    assert scan.count == 6
    assert scan.damages == ()
    assert (scan.torn_start, scan.torn_stop) == (segment.start(6), segment.ends[-1])


def test_a_listed_record_that_does_not_verify_is_damaged_and_stepped_over_exactly() -> None:
    segment = Segment()
    segment.data[segment.start(2) + 30] ^= 1
    scan = segment.scan()
    assert lost(scan) == [OffsetRange.of(BASE + 2, BASE + 3)]
    (damage,) = scan.damages
    assert (damage.start, damage.stop) == (segment.start(2), segment.start(3))
    assert scan.ends.tolist() == segment.ends.tolist()


def test_the_last_listed_record_is_damaged_not_torn_and_its_offset_is_not_given_again() -> None:
    segment = Segment()
    segment.data[int(segment.ends[-1]) - 1] ^= 1
    scan = segment.scan()
    assert lost(scan) == [OffsetRange.of(BASE + 7, BASE + 8)]
    assert scan.last.next_offset == BASE + 8
    assert scan.torn_start == scan.torn_stop == segment.ends[-1]


@pytest.mark.parametrize("field", [16, 17, 18, 19, 20])
def test_without_an_index_a_broken_length_costs_one_record(field: int) -> None:
    segment = Segment()
    segment.data[segment.start(3) + field] ^= 0x40
    scan = segment.scan(None)
    assert lost(scan) == [OffsetRange.of(BASE + 3, BASE + 4)]
    assert scan.count == 8


@pytest.mark.parametrize("place", [3, 16, 19, 20, 40, 75, 80])
def test_without_an_index_a_broken_last_record_keeps_its_offset(place: int) -> None:
    """The lengths lead to the end of the data, or do with one bit flipped: the record is complete, so it is not
    torn."""
    segment = Segment()
    segment.data[segment.start(7) + place] ^= 1
    scan = segment.scan(None)
    assert lost(scan) == [OffsetRange.of(BASE + 7, BASE + 8)]
    assert scan.torn_start == scan.torn_stop == segment.ends[-1]


def test_without_an_index_an_unfinished_last_record_is_torn() -> None:
    segment = Segment()
    segment.data[segment.start(7) + 60 : segment.ends[-1]] = bytes(segment.ends[-1] - segment.start(7) - 60)
    scan = segment.scan(None)
    assert (scan.count, scan.damages) == (7, ())
    assert scan.torn_start == segment.start(7)


def test_without_an_index_records_that_do_not_lead_to_the_end_are_not_believed() -> None:
    """A head destroyed in one place, a torn write in another, and no index: what lies between is not anchored."""
    segment = Segment()
    segment.data[segment.start(2) : segment.start(2) + 60] = bytes(60)
    segment.data[segment.start(7) + 60 : segment.ends[-1]] = bytes(segment.ends[-1] - segment.start(7) - 60)
    scan = segment.scan(None)
    assert scan.count == 2
    assert scan.torn_start == segment.start(2)
    assert segment.start(7) < scan.torn_stop < segment.ends[-1]


def test_without_an_index_two_broken_records_cost_two() -> None:
    segment = Segment()
    for ordinal in (2, 5):
        segment.data[segment.start(ordinal) + 20] ^= 1
    scan = segment.scan(None)
    assert lost(scan) == [OffsetRange.of(BASE + 2, BASE + 3), OffsetRange.of(BASE + 5, BASE + 6)]
    assert scan.count == 8


def test_a_lost_index_entry_beside_a_broken_record_is_worked_out_from_its_neighbours() -> None:
    segment = Segment()
    segment.data[segment.start(3) + 20] ^= 1
    ends = segment.ends.copy()
    ends[3] = -1
    scan = segment.scan(ends=ends)
    assert lost(scan) == [OffsetRange.of(BASE + 3, BASE + 4)]
    assert scan.ends.tolist() == segment.ends.tolist()


def test_zeros_where_records_are_listed_are_damage() -> None:
    segment = Segment()
    segment.data[segment.start(4) : segment.start(6)] = bytes(segment.start(6) - segment.start(4))
    scan = segment.scan()
    assert lost(scan) == [OffsetRange.of(BASE + 4, BASE + 6)]
    assert scan.count == 8


def test_a_file_cut_short_loses_only_what_was_cut() -> None:
    segment = Segment()
    del segment.data[segment.start(6) + 10 :]
    for count in (None, 8):
        scan = segment.scan(SegmentState.SEALED, count=count or 8)
        assert lost(scan) == [OffsetRange.of(BASE + 6, BASE + 8)]


def test_records_in_each_others_place_are_not_served() -> None:
    segment = Segment(*[b"%d" % number for number in range(8)])
    size = int(segment.ends[0])
    first, second = segment.data[2 * size : 3 * size], segment.data[5 * size : 6 * size]
    segment.data[2 * size : 3 * size], segment.data[5 * size : 6 * size] = second, first
    scan = segment.scan()
    assert lost(scan) == [OffsetRange.of(BASE + 2, BASE + 3), OffsetRange.of(BASE + 5, BASE + 6)]


def test_a_record_inside_a_payload_is_not_a_record() -> None:
    """Forged with an id and an offset that would fit, in a message whose length was hit, with the index lost."""
    inner = Draft.of([Message(payload=b"forged")])
    forged = bytearray(inner.data)
    clock = ManualClock()
    clock.advance_ms(10_000)
    for offset in (BASE + 1, BASE + 2, BASE + 3):
        stamp(forged, 1, IdGenerator(clock, node=2).take(1), offset)
        segment = Segment(b"before", b"[" + bytes(forged) + b"]", b"after", b"last")
        segment.data[segment.start(1) + 20] ^= 1
        scan = segment.scan(None)
        assert lost(scan) == [OffsetRange.of(BASE + 1, BASE + 2)]
        assert scan.ends.tolist() == segment.ends.tolist()


# how much work it is


def forged_heads(size: int, claimed: int, *, offset: int = BASE + 2) -> bytes:
    """A payload full of heads of records that could follow, each of `claimed` bytes; no checksum of theirs holds."""
    ids = IdGenerator(ManualClock(1_900_000_000_000), node=1).take(size // at.MESSAGE_RECORD_BYTES_MIN)
    heads = []
    for number in range(ids.count):
        record = bytearray(Draft.of([Message(payload=b"")]).data)
        record[: at.ID_BYTES] = ids[number]
        length = claimed - at.RECORD_BYTES_MIN
        record[at.TYPE_AT : at.HEAD_BYTES] = length.to_bytes(4, "big")
        place = at.HEAD_BYTES + at.OFFSET_AT
        record[place : place + 8] = offset.to_bytes(8, "big")
        heads.append(bytes(record))
    return b"".join(heads)


def forged_segment(size: int, claimed: int, behind: int) -> Segment:
    """A message, one with forged heads, and some more; the index is lost, and the head around the forged ones too."""
    late = [b"message %d" % number for number in range(behind)]
    segment = Segment(b"before", forged_heads(size, claimed), *late)
    segment.data[segment.start(1) : segment.start(1) + 60] = bytes(range(60))
    return segment


@pytest.mark.parametrize("behind", [0, 40])
def test_a_payload_full_of_forged_heads_is_searched_with_bounded_effort(behind: int) -> None:
    segment = forged_segment(1_000_000, 900_000, behind)
    budget = ScanBudget(len(segment.data))
    scan = segment.scan(None, count=2 + behind, budget=budget)
    assert budget.spent <= budget.limit + 2 * len(segment.data)
    assert lost(scan) == [OffsetRange.of(BASE + 1, BASE + 2)], "nothing behind it is lost"
    assert scan.count == 2 + behind


def test_effort_grows_with_the_segment_and_not_with_its_square() -> None:
    spent = {}
    for size in (1_000_000, 4_000_000):
        segment = forged_segment(size, size // 2, 3)
        budget = ScanBudget(len(segment.data))
        segment.scan(None, budget=budget)
        spent[size] = budget.spent
    assert spent[4_000_000] <= 5 * spent[1_000_000]


def test_every_tenth_sector_lost_with_the_index_is_within_the_effort() -> None:
    segment = Segment(*(b"message %d" % number * 3 for number in range(30_000)))
    for start in range(5120, len(segment.data) - UNUSED_BYTES, 5120):
        segment.data[start : start + 512] = bytes(range(256)) * 2
    budget = ScanBudget(len(segment.data))
    scan = segment.scan(None, count=30_000, budget=budget)
    assert budget.spent < budget.limit // 2
    assert scan.count == 30_000
    assert sum(map(len, lost(scan))) < 9_000


def test_a_listed_segment_of_nothing_but_forged_records_is_walked_within_the_effort() -> None:
    segment = Segment(*(b"message %d" % number for number in range(20_000)))
    claimed = (len(segment.data) // 2).to_bytes(4, "big")
    for ordinal in range(10_000):
        place = segment.start(ordinal) + at.TYPE_AT
        segment.data[place : place + 4] = claimed
    budget = ScanBudget(len(segment.data))
    scan = segment.scan(SegmentState.SEALED, count=20_000, budget=budget)
    assert budget.spent <= budget.limit + 4 * len(segment.data)
    assert lost(scan) == [OffsetRange.of(BASE, BASE + 10_000)]


def test_a_segment_cut_to_nothing_loses_what_is_listed_at_once() -> None:
    segment = Segment(*(b"%d" % number for number in range(20_000)))
    del segment.data[50:]
    budget = ScanBudget(len(segment.data))
    scan = segment.scan(SegmentState.SEALED, count=20_000, budget=budget)
    assert lost(scan) == [OffsetRange.of(BASE, BASE + 20_000)]
    assert scan.ends.tolist() == segment.ends.tolist()
    assert len(scan.damages) == 1
