"""What a segment's bytes say after a crash or damage, decided in one place; acting on it is elsewhere (`repair`).

Two things can be wrong, and they are not the same:

- **torn**: the tail of the newest segment that was being written when the process or the machine stopped. Nothing in it
  was acknowledged. It is cut.
- **damaged**: anything else that does not verify. Exactly those records are stepped over; nothing is cut.

The index tells them apart. It lists records only after they are durable, so a listed record that does not verify is
damaged, and its neighbours are where the index says. Past the index of a segment that was being written, the first
record that does not verify begins the torn tail. Where the index itself is lost, a damaged record's own length is
believed if the next record begins there, or the data ends. Else what follows the gap is believed only if an unbroken
run of verified records leads from there to the clean end of the data, or fits, by offsets, before one that does: a
record inside another record's payload does not.

All of it takes time in proportion to the segment, whatever its bytes are (`budget`). Where what is tried and fails has
used that up, the index is followed to its end, and what lies behind is given up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from penstock.core.limits import BLOCK_BYTES_CEILING
from penstock.core.offsets import OFFSET_MAX, OffsetRange
from penstock.record import layout as at
from penstock.record.block import Block, Bytes, Longs, Predecessor, scan
from penstock.storage.base.disk import File
from penstock.storage.base.work_limit import CountedFile, ScanBudget
from penstock.storage.log.index import IndexHeader, SegmentState
from penstock.storage.log.record_runs import RecordRun, RecordSearch, choose_runs
from penstock.storage.log.segment import READ_BYTES, Damage, last_used, read_block, read_tolerant, record_bytes

NONE_LISTED: Final[Longs] = np.empty(0, dtype=np.int64)
_NOT_AS_LISTED: Final = "the record is not the one that was acknowledged here"
_LENGTH_BITS: Final = 8 * (1 + at.MESSAGE_LENGTH_BYTES)
_RUNS_MAX: Final = 1024
"""Runs considered behind one gap; a segment with more separate islands than this is beyond repair by guessing."""
_REACH_BYTES: Final = 4096
"""Read first where it is not known whether anything good is there; then twice as much each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExpectation:
    """What is known of a segment besides its own bytes."""

    base: int
    header: IndexHeader | None
    ends: Longs
    """From the index: where each listed record ends, -1 where an entry is not sound."""
    count: int | None = None
    """How many records it must hold, where that is known: a closed header, or else the next segment's base."""

    @property
    def listed(self) -> int:
        return int(self.ends.size)

    def end(self, ordinal: int) -> int:
        return int(self.ends[ordinal]) if ordinal < self.ends.size else -1

    @property
    def is_open(self) -> bool:
        """The index is there and says that the segment is being written."""
        return self.header is not None and self.header.state is SegmentState.OPEN

    @property
    def was_being_written(self) -> bool:
        """The index is there and says that the newest segment was open: its unlisted rest is unacknowledged."""
        return self.is_open and self.count is None

    @property
    def closed(self) -> IndexHeader | None:
        """The header that counts all there is, where the segment was closed in order or sealed."""
        return None if self.is_open else self.header

    @property
    def limit(self) -> int:
        """No offset it holds is as high as this."""
        return OFFSET_MAX if self.count is None else self.base + self.count

    def without_index(self) -> SegmentExpectation:
        """As if the index were not there: it is that of another segment."""
        return replace(self, header=None, ends=NONE_LISTED, count=None if self.closed else self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """The result: every record's end, what is damaged, what is torn."""

    base: int
    ends: Longs
    damages: tuple[Damage, ...]
    torn_start: int
    """Where the data ends. What lies behind it up to `torn_stop` is torn; nothing if the two are equal."""
    torn_stop: int
    first_id: bytes
    last: Predecessor
    """The last id that was seen, and the next offset."""

    @property
    def size(self) -> int:
        return self.torn_start

    @property
    def count(self) -> int:
        return int(self.ends.size)

    def header(self, state: SegmentState, digest: int = 0) -> IndexHeader:
        last_id = id_before(self.last)
        return IndexHeader(
            state=state,
            base=self.base,
            count=self.count,
            size=self.size,
            first_id=self.first_id,
            last_id=last_id,
            hash=digest,
        )


def id_before(after: Predecessor) -> bytes:
    return b"".join((word & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big") for word in (after.id_high, after.id_low))


def scan_segment(file: File, size: int, expected: SegmentExpectation, budget: ScanBudget | None = None) -> SegmentScan:
    """Read a whole segment of `size` bytes and say what is there. Reads only; memory is bounded by a block, and work by
    the budget."""
    budget = budget or ScanBudget(size)
    counted: Any = CountedFile(file, budget.spend)
    scanner = _SegmentScanner(counted, size, expected, budget)
    scanner.run()
    return scanner.result()


@dataclass
class _SegmentScanner:
    """The state of one pass over a segment."""

    file: File
    size: int
    expected: SegmentExpectation
    budget: ScanBudget
    stop_reason: str = ""
    """What stopped it last."""
    position: int = 0
    torn_stop: int = 0
    last: Predecessor = field(default_factory=Predecessor)
    first_id: bytes = bytes(at.ID_BYTES)
    pieces: list[Longs] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    runs: list[RecordRun] | None = None
    """What a search has found behind the first gap that needed one."""
    plan: deque[RecordRun] = field(default_factory=deque)
    """Those of them that are believed and still ahead."""
    _used: int | None = None

    def __post_init__(self) -> None:
        self.last = Predecessor(0, 0, self.expected.base)

    @property
    def ordinal(self) -> int:
        return self.last.next_offset - self.expected.base

    def run(self) -> None:
        self._take_verified()
        while self._step_over():
            self._take_verified()

    def _take_verified(self) -> None:
        """All records up to the first that is not good, or not the one that was listed; `why` says what it is."""
        self.stop_reason = at.REASONS[at.AT_END]
        reach = _REACH_BYTES if self.damages else READ_BYTES
        while self.position < self.size:
            until = self._until()
            block, stop = read_block(self.file, self.position, until, after=self.last, bytes_max=reach)
            agreed = self._as_listed(block)
            self._take(block.select(0, agreed))
            self.stop_reason = str(stop) if agreed == len(block) else _NOT_AS_LISTED
            if agreed < len(block) or not (stop.reason == at.MORE or self.position == until):
                return
            reach = min(2 * reach, READ_BYTES)

    def _until(self) -> int:
        """How far to read for the next record: to where it is listed to end, once there is no budget to spend on what
        it says of its own length."""
        listed = self.expected.end(self.ordinal)
        return listed if not self.budget.left and self.position < listed <= self.size else self.size

    def _as_listed(self, block: Block) -> int:
        """How many of the first records end where the index has them end.

        Where the two differ, the one that a good record follows is right: a record may verify although its length was
        changed, if whoever wrote its payload saw to that; and an index may be that of another segment.
        """
        listed = self.expected.ends[self.ordinal : self.ordinal + len(block)]
        ends = block.columns[: listed.size, at.END] + self.position
        wrong = np.flatnonzero((listed >= 0) & (listed != ends))
        if not wrong.size:
            return len(block)
        first = int(wrong[0])
        if self._is_followed(int(listed[first]), self.last.next_offset + first + 1):
            return first
        self._forget_index()
        return len(block)

    def _forget_index(self) -> None:
        self.expected = self.expected.without_index()
        self.runs = None
        self.plan.clear()

    def _is_followed(self, end: int, offset: int) -> bool:
        """Whether the record with that offset begins at `end`, or the data ends there."""
        if not self.position < end <= self.size:
            return False
        after = replace(self.last, next_offset=offset)
        block, _ = read_block(self.file, end, self.size, after=after, bytes_max=_REACH_BYTES, rows_max=1)
        return len(block) == 1 or _ends_data(end, self._last_used())

    def _last_used(self) -> int:
        """One past the last byte from here on that is not zero; where it stands, if all are."""
        if self._used is None:
            self._used = last_used(self.file, self.position, self.size)
        return max(self.position, self._used)

    def _take(self, block: Block) -> None:
        if not len(block):
            return
        if self.first_id == bytes(at.ID_BYTES):
            self.first_id = block.id(0)
        self.pieces.append(block.columns[:, at.END] + self.position)
        self.position += int(block.columns[-1, at.END])
        self.last = block.last

    def _step_over(self) -> bool:
        """Past what stopped the scanner, if anything follows; False when the data ends here."""
        if self.ordinal < self.expected.listed:
            return self._step_by_index()
        self.torn_stop = self._last_used()
        if self.expected.was_being_written or (self.torn_stop == self.position and not self._missing()):
            return False
        if self.budget.left:
            return self._step_by_search()
        self._lose_the_rest()
        return False

    def _missing(self) -> int:
        """How many more records there must be."""
        limit = self.expected.limit
        return 0 if limit == OFFSET_MAX else max(0, limit - self.last.next_offset)

    def _step_by_index(self) -> bool:
        """The index lists the record here, so it was acknowledged: it is damaged, and the index says where it ends."""
        if self.position >= self.size:
            self._lose_listed()
            return True
        following = self._next_listed()
        if following < 0:
            self._forget_index()
            return self._step_over()
        lost = following + 1 - self.ordinal
        end = self.expected.end(following)
        if lost > 1:
            return self._step_to_known(end, lost)
        self._lose(end, 1)
        return True

    def _next_listed(self) -> int:
        """The first record from here on whose end is listed, and not before here; -1 if there is none."""
        start, step = self.ordinal, 64
        while start < self.expected.listed:
            found = np.flatnonzero(self.expected.ends[start : start + step] >= self.position)
            if found.size:
                return start + int(found[0])
            start, step = start + step, 2 * step
        return -1

    def _lose_listed(self) -> None:
        """All that is listed and lies behind the end of the file: it was cut off."""
        ends = np.maximum.accumulate(np.maximum(self.expected.ends[self.ordinal :], self.position))
        self._lose(int(ends[-1]), int(ends.size))
        self.pieces[-1] = ends

    def _step_to_known(self, end: int, span: int) -> bool:
        """The next `span` records end at `end`; the entries between are lost too. Take what can be told apart."""
        first, limit = self.last.next_offset, self.last.next_offset + span
        search = RecordSearch(self.file, end, self.budget)
        for start in search.find_all(self.position + 1, self.last, first + 1, limit):
            run = self._run_at(start, end)
            if (run.stop, run.next_offset) == (end, limit):
                self._lose(start, run.first_offset - first)
                return True
        self._lose(end, span)
        return True

    def _step_by_search(self) -> bool:
        """No index to go by: believe what the damaged record says of itself, if the next one bears it out; else what
        fits together."""
        end, inside = self._own_end()
        if self._is_followed(end, self.last.next_offset + 1):
            self._lose(end, 1)
            return True
        run = self._believed_run(self.position + 1)
        if run is not None and run.start < inside and not self._reaches(run):
            self.plan.clear()
            run = self._believed_run(inside)
        if run is not None:
            self._lose(run.start, run.first_offset - self.last.next_offset)
            return True
        self._lose_the_rest()
        return False

    def _believed_run(self, start: int) -> RecordRun | None:
        while self.plan and not self._is_ahead(self.plan[0], start):
            self.plan.popleft()
        if not self.plan:
            self.plan.extend(choose_runs(self._runs(start), self.expected.limit, self.torn_stop))
        return self.plan[0] if self.plan else None

    def _is_ahead(self, run: RecordRun, start: int) -> bool:
        """Whether a run begins at or behind `start`, and can come after the gap."""
        return run.start >= start and run.first_offset > self.last.next_offset and run.first_id > id_before(self.last)

    def _reaches(self, run: RecordRun) -> bool:
        """Whether the damaged record verifies with the length that makes it end where the run begins."""
        data = read_tolerant(self.file, self.position, run.start - self.position)
        message = at.HEAD_BYTES + int(data[at.TYPE_LENGTH_AT])
        size = len(data) - message - at.CHECKSUM_BYTES
        if size < at.ENVELOPE_BYTES_MIN or run.first_offset != self.last.next_offset + 1:
            return False
        data[message - at.MESSAGE_LENGTH_BYTES : message] = np.frombuffer(size.to_bytes(4, "big"), dtype=np.uint8)
        return self._verifies(data)

    def _verifies(self, data: Bytes) -> bool:
        """Whether `data` is the record that belongs here."""
        block, _ = scan(data, after=self.last, rows_max=1)
        return len(block) == 1

    def _lose_the_rest(self) -> None:
        """Nothing more can be believed. What must be there is lost, as far as it can have been in this file."""
        closed = self.expected.closed
        stop = closed.size if closed is not None else self.size
        room = self._missing() if closed is not None else (stop - self.position) // at.MESSAGE_RECORD_BYTES_MIN
        lost = min(self._missing(), room)
        if lost:
            self._lose(max(stop, self.position), lost)
            self.torn_stop = self.position

    def _own_end(self) -> tuple[int, int]:
        """Where the damaged record says that it ends, and up to where that rules out other records; -1 if it does not.

        It does if the record verifies with one bit of its lengths put right, or if all else in its head is as it must
        be: an unfinished write may hold anything.
        """
        head = self._head(self.position)
        end = self._end_with_any_bit_flipped(head)
        if end >= 0:
            return end, end
        end = self.position + record_bytes(head)
        if not self.position + at.MESSAGE_RECORD_BYTES_MIN <= end <= self.size:
            return -1, -1
        return end, end if self._is_head(head, self.last.next_offset) else -1

    def _head(self, position: int) -> Bytes:
        """As much as lengths, id and offset of a record can take."""
        return read_tolerant(self.file, position, at.HEAD_BYTES + 255 + at.ENVELOPE_BYTES_MIN)

    def _end_with_any_bit_flipped(self, head: Bytes) -> int:
        """Where the record ends if it verifies with one bit of its lengths changed; -1 if it does not.

        Short records first, and those that something follows which looks like a record, or nothing: the others are
        long, and tried only as long as there is budget to spare.
        """
        flipped = [self._with_bit_flipped(head, bit) for bit in range(_LENGTH_BITS if len(head) > at.HEAD_BYTES else 0)]
        possible = [each for each in flipped if each is not None and self._is_possible(record_bytes(each))]
        likely = [each for each in possible if self._is_likely(record_bytes(each))]
        for each in likely:
            if self._verifies_with(each):
                return self.position + record_bytes(each)
        for each in possible:
            if self.budget.is_ample and self._verifies_with(each):
                return self.position + record_bytes(each)
        return -1

    @staticmethod
    def _with_bit_flipped(head: Bytes, bit: int) -> Bytes | None:
        place = at.TYPE_LENGTH_AT if bit < 8 else at.TYPE_AT + int(head[at.TYPE_LENGTH_AT]) + bit // 8 - 1
        if place >= len(head):
            return None
        flipped: Bytes = head.copy()
        flipped[place] ^= 1 << bit % 8
        return flipped

    def _is_possible(self, size: int) -> bool:
        return size <= min(BLOCK_BYTES_CEILING, self.size - self.position)

    def _is_likely(self, size: int) -> bool:
        """Whether a record of that size would be short, or followed by what looks like the next, or by zeros."""
        if size <= _REACH_BYTES:
            return True
        following = self._head(self.position + size)
        return not following.any() or self._is_head(following, self.last.next_offset + 1)

    def _verifies_with(self, head: Bytes) -> bool:
        """Whether the record here verifies if it has this head."""
        size = record_bytes(head)
        data = read_tolerant(self.file, self.position, size)
        data[: len(head)] = head[:size]
        return self._verifies(data)

    def _is_head(self, head: Bytes, offset: int) -> bool:
        """Whether id, envelope version and offset are what they must be in a record that comes here, or later."""
        message = at.HEAD_BYTES + int(head[at.TYPE_LENGTH_AT]) if len(head) >= at.HEAD_BYTES else len(head)
        if len(head) < message + at.PRODUCER_ID_AT:
            return False
        is_id = head[6] >> 4 == 6 and head[8] >> 6 == 2 and head[: at.ID_BYTES].tobytes() > id_before(self.last)
        found = int.from_bytes(head[message + at.OFFSET_AT : message + at.PRODUCER_ID_AT].tobytes())
        return bool(is_id and head[message] == at.VERSION and found == offset)

    def _runs(self, start: int) -> list[RecordRun]:
        """Every unbroken run of verified records from `start` to the end of the segment that can come after the gap;
        the last ones if there are very many, for these are what the others must fit before."""
        if self.runs is None or any(run.start < start < run.stop for run in self.runs):
            self.runs = self._search_runs(start)
        return [run for run in self.runs if self._is_ahead(run, start)]

    def _search_runs(self, start: int) -> list[RecordRun]:
        runs: deque[RecordRun] = deque(maxlen=_RUNS_MAX)
        search = RecordSearch(self.file, self.size, self.budget)
        while (start := search.find(start, self.last, self.last.next_offset + 1, self.expected.limit)) >= 0:
            run = self._run_at(start, self.size)
            if self._fits(run):
                runs.append(run)
            start = run.stop
        return list(runs)

    def _fits(self, run: RecordRun) -> bool:
        """Whether there is room before it for the records that it says there are."""
        return run.first_offset - self.expected.base <= run.start // at.MESSAGE_RECORD_BYTES_MIN

    def _run_at(self, start: int, stop: int) -> RecordRun:
        """The run that begins with the verified record at `start` and ends by `stop`."""
        block, _ = read_block(self.file, start, stop, bytes_max=at.MESSAGE_RECORD_BYTES_MIN, rows_max=1)
        first = int(block.columns[0, at.OFFSET])
        after, position, reach = replace(self.last, next_offset=first), start, _REACH_BYTES
        first_id = block.id(0)
        while True:
            block, end = read_block(self.file, position, stop, after=after, bytes_max=reach)
            if len(block):
                after, position = block.last, end.position
            if end.reason != at.MORE:
                return RecordRun(start, position, first, after.next_offset - first, first_id)
            reach = min(2 * reach, READ_BYTES)

    def _lose(self, end: int, count: int) -> None:
        """`count` records are damaged; the first of them is charged with all the bytes up to `end`."""
        first = self.last.next_offset
        lost = Damage(self.expected.base, OffsetRange.of(first, first + count), self.position, end, self.stop_reason)
        if self.damages and self.damages[-1].stop == lost.start and self.damages[-1].offsets.stop == first:
            before = self.damages.pop()
            offsets = OffsetRange(before.offsets.start, lost.offsets.stop)
            lost = Damage(lost.base, offsets, before.start, lost.stop, before.reason)
        self.damages.append(lost)
        self.pieces.append(np.full(count, end, dtype=np.int64))
        self.position = end
        self.last = replace(self.last, next_offset=first + count)

    def result(self) -> SegmentScan:
        return SegmentScan(
            base=self.expected.base,
            ends=np.concatenate(self.pieces) if self.pieces else NONE_LISTED,
            damages=tuple(self.damages),
            torn_start=self.position,
            torn_stop=max(self.position, self.torn_stop),
            first_id=self.first_id,
            last=self.last,
        )


def _ends_data(end: int, used: int) -> bool:
    """Whether a record that ends at `end` is the last thing before unused space: its checksum may end with zeros."""
    return used <= end < used + at.CHECKSUM_BYTES
