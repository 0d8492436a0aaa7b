"""Recovery: the one place that decides what a segment's bytes mean after a crash or damage. `repair` acts on it.

Two things can be wrong, and they are not the same:

- **torn**: the tail of the newest segment that was being written when the process or the machine stopped. Nothing in it
  was acknowledged. It is cut.
- **damaged**: anything else that does not verify. Exactly those records are stepped over; nothing is cut.

The index tells them apart. It lists records only after they are durable, so a listed record that does not verify is
damaged, and its neighbours are where the index says. Past the index of a segment that was being written, the first
record that does not verify begins the torn tail. Where the index itself is lost, a damaged record's own length is
believed if the next record begins there, or the data ends. Else records behind the gap are believed only if an unbroken
run of verified records leads from there to the clean end of the data, or fits, by offsets, before one that does: a
record inside another record's payload does not.

The work is in proportion to the segment, whatever its bytes are (`ScanBudget`). Once failed attempts have used that
up, the index is followed to its end, and the rest is given up.
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
"""The most runs considered behind one gap. A segment with more separate runs cannot be repaired by a guess."""
_REACH_BYTES: Final = 4096
"""The size of the first read at a place where perhaps nothing good follows; each further read is twice as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExpectation:
    """The knowledge about a segment that needs no reading of its records: from its index, and from the segment behind
    it."""

    base: int
    header: IndexHeader | None
    ends: Longs
    """Ends of the listed records, from the index; -1 where an entry is not sound."""
    count: int | None = None
    """The number of records that the segment must hold; None if neither a closed header nor the next segment tells
    it."""

    @property
    def listed(self) -> int:
        return int(self.ends.size)

    def end(self, ordinal: int) -> int:
        return int(self.ends[ordinal]) if ordinal < self.ends.size else -1

    @property
    def is_open(self) -> bool:
        """True if the index exists and marks the segment as being written."""
        return self.header is not None and self.header.state is SegmentState.OPEN

    @property
    def was_being_written(self) -> bool:
        """True if it is the newest segment and its index is open: records that the index does not list are not
        acknowledged then."""
        return self.is_open and self.count is None

    @property
    def closed(self) -> IndexHeader | None:
        """The header, if the segment was closed in order or sealed, so that it counts all records; None otherwise."""
        return None if self.is_open else self.header

    @property
    def limit(self) -> int:
        """The offset behind the last that the segment must hold; `OFFSET_MAX` if that is unknown."""
        return OFFSET_MAX if self.count is None else self.base + self.count

    def without_index(self) -> SegmentExpectation:
        """Return the expectation without the index, which turned out to be of another segment."""
        return replace(self, header=None, ends=NONE_LISTED, count=None if self.closed else self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """The result of a scan: where each record ends, the damage, and the torn tail."""

    base: int
    ends: Longs
    damages: tuple[Damage, ...]
    torn_start: int
    """The end of the data. The bytes from here to `torn_stop` are the torn tail; it is empty if the two are equal."""
    torn_stop: int
    first_id: bytes
    last: Predecessor
    """The id of the last good record, and the offset behind the last record."""

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
    """Read a whole segment of `size` bytes and report its records, damage and torn tail.

    Writes nothing; memory is bounded by a block, and work by the budget.
    """
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
    """The reason why `_take_verified` stopped last."""
    position: int = 0
    torn_stop: int = 0
    last: Predecessor = field(default_factory=Predecessor)
    first_id: bytes = bytes(at.ID_BYTES)
    pieces: list[Longs] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    runs: list[RecordRun] | None = None
    """Runs that the search behind a gap found; None before the first search."""
    plan: deque[RecordRun] = field(default_factory=deque)
    """The trusted runs that the scan has not reached yet."""
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
        """Take records up to the first that is not good, or does not end where the index says, and set
        `stop_reason`."""
        self.stop_reason = at.REASONS[at.AT_END]
        reach = _REACH_BYTES if self.damages else READ_BYTES
        while self.position < self.size:
            until = self._read_limit()
            block, stop = read_block(self.file, self.position, until, after=self.last, bytes_max=reach)
            agreed = self._agreeing_count(block)
            self._take(block.select(0, agreed))
            self.stop_reason = str(stop) if agreed == len(block) else _NOT_AS_LISTED
            if agreed < len(block) or not (stop.reason == at.MORE or self.position == until):
                return
            reach = min(2 * reach, READ_BYTES)

    def _read_limit(self) -> int:
        """Return the position up to which the next record is looked for: the end of the file, or the record's listed
        end once the budget is spent."""
        listed = self.expected.end(self.ordinal)
        return listed if not self.budget.left and self.position < listed <= self.size else self.size

    def _agreeing_count(self, block: Block) -> int:
        """Return how many records of the block, from the first on, are to be taken.

        All are, if they end where the index says. Where the two differ, the index is right if a good record follows at
        its end, and the records from there on are not taken: a record with a changed length can verify if its payload
        was forged for that. Otherwise the index is of another segment, and is dropped.
        """
        listed = self.expected.ends[self.ordinal : self.ordinal + len(block)]
        ends = block.columns[: listed.size, at.END] + self.position
        wrong = np.flatnonzero((listed >= 0) & (listed != ends))
        if not wrong.size:
            return len(block)
        first = int(wrong[0])
        if self._is_followed(int(listed[first]), self.last.next_offset + first + 1):
            return first
        self._drop_index()
        return len(block)

    def _drop_index(self) -> None:
        self.expected = self.expected.without_index()
        self.runs = None
        self.plan.clear()

    def _is_followed(self, end: int, offset: int) -> bool:
        """Return True if the record with that offset begins at `end`, or the data ends there."""
        if not self.position < end <= self.size:
            return False
        after = replace(self.last, next_offset=offset)
        block, _ = read_block(self.file, end, self.size, after=after, bytes_max=_REACH_BYTES, rows_max=1)
        return len(block) == 1 or _ends_data(end, self._last_used())

    def _last_used(self) -> int:
        """Return the position behind the last byte that is not zero; the current position if only zeros follow."""
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
        """Step over what stopped the scan, and return True; return False where the data ends."""
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
        """Return how many more records the segment must hold; 0 if that is unknown."""
        limit = self.expected.limit
        return 0 if limit == OFFSET_MAX else max(0, limit - self.last.next_offset)

    def _step_by_index(self) -> bool:
        """Step over the next listed record and return True; return False if the data ends here.

        A listed record was acknowledged, so it is damaged, and the index has its end.
        """
        if self.position >= self.size:
            self._lose_listed()
            return True
        following = self._next_listed()
        if following < 0:
            self._drop_index()
            return self._step_over()
        lost = following + 1 - self.ordinal
        end = self.expected.end(following)
        if lost > 1:
            return self._step_to_known(end, lost)
        self._lose(end, 1)
        return True

    def _next_listed(self) -> int:
        """Return the number of the next listed record whose end is known and not before the current position; -1 if
        there is none."""
        start, step = self.ordinal, 64
        while start < self.expected.listed:
            following = np.flatnonzero(self.expected.ends[start : start + step] >= self.position)
            if following.size:
                return start + int(following[0])
            start, step = start + step, 2 * step
        return -1

    def _lose_listed(self) -> None:
        """Count all listed records behind the end of the file as damaged: the file was cut."""
        ends = np.maximum.accumulate(np.maximum(self.expected.ends[self.ordinal :], self.position))
        self._lose(int(ends[-1]), int(ends.size))
        self.pieces[-1] = ends

    def _step_to_known(self, end: int, span: int) -> bool:
        """Step over `span` records, the last of which ends at `end`; the index has lost the other ends.

        Those at the end of the span that verify in an unbroken run are kept; the others count as damaged.
        """
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
        """Step over a damaged record that no index lists, and return True; return False if the rest of the segment was
        given up.

        Trusts the damaged record's own length if the next record confirms it; otherwise the runs that `choose_runs`
        trusts.
        """
        end, inside = self._end_by_own_length()
        if self._is_followed(end, self.last.next_offset + 1):
            self._lose(end, 1)
            return True
        run = self._trusted_run(self.position + 1)
        if run is not None and run.start < inside and not self._verifies_up_to(run):
            self.plan.clear()
            run = self._trusted_run(inside)
        if run is not None:
            self._lose(run.start, run.first_offset - self.last.next_offset)
            return True
        self._lose_the_rest()
        return False

    def _trusted_run(self, start: int) -> RecordRun | None:
        while self.plan and not self._is_ahead(self.plan[0], start):
            self.plan.popleft()
        if not self.plan:
            self.plan.extend(choose_runs(self._runs(start), self.expected.limit, self.torn_stop))
        return self.plan[0] if self.plan else None

    def _is_ahead(self, run: RecordRun, start: int) -> bool:
        """Return True if a run begins at or behind `start` and can come after the gap."""
        return run.start >= start and run.first_offset > self.last.next_offset and run.first_id > id_before(self.last)

    def _verifies_up_to(self, run: RecordRun) -> bool:
        """Return True if the damaged record verifies with the length that makes it end where the run begins."""
        data = read_tolerant(self.file, self.position, run.start - self.position)
        message = at.HEAD_BYTES + int(data[at.TYPE_LENGTH_AT])
        size = len(data) - message - at.CHECKSUM_BYTES
        if size < at.ENVELOPE_BYTES_MIN or run.first_offset != self.last.next_offset + 1:
            return False
        data[message - at.MESSAGE_LENGTH_BYTES : message] = np.frombuffer(size.to_bytes(4, "big"), dtype=np.uint8)
        return self._verifies(data)

    def _verifies(self, data: Bytes) -> bool:
        """Return True if `data` is the record that belongs here."""
        block, _ = scan(data, after=self.last, rows_max=1)
        return len(block) == 1

    def _lose_the_rest(self) -> None:
        """Give up the rest: the records that must exist count as damaged, but no more than the file can have held."""
        closed = self.expected.closed
        stop = closed.size if closed is not None else self.size
        room = self._missing() if closed is not None else (stop - self.position) // at.MESSAGE_RECORD_BYTES_MIN
        lost = min(self._missing(), room)
        if lost:
            self._lose(max(stop, self.position), lost)
            self.torn_stop = self.position

    def _end_by_own_length(self) -> tuple[int, int]:
        """Return where the damaged record ends by its own length, and up to where other records are ruled out; -1 if
        unknown.

        Other records are ruled out if the record verifies with one bit of its lengths flipped, or if all else in its
        head is right. Otherwise the bytes may be anything, for instance an unfinished write.
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
        """Return the bytes from a position on in which a record's lengths, id and offset lie."""
        return read_tolerant(self.file, position, at.HEAD_BYTES + 255 + at.ENVELOPE_BYTES_MIN)

    def _end_with_any_bit_flipped(self, head: Bytes) -> int:
        """Return the end of the record if it verifies with one bit of its lengths flipped; -1 otherwise.

        Tries short records first, and those followed by what looks like a record or by zeros; the others are long, and
        are tried only while budget is ample.
        """
        flipped = [self._with_bit_flipped(head, bit) for bit in range(_LENGTH_BITS if len(head) > at.HEAD_BYTES else 0)]
        possible = [head_ for head_ in flipped if head_ is not None and self._is_possible(record_bytes(head_))]
        likely = [head_ for head_ in possible if self._is_likely(record_bytes(head_))]
        for head_ in likely:
            if self._verifies_with(head_):
                return self.position + record_bytes(head_)
        for head_ in possible:
            if self.budget.is_ample and self._verifies_with(head_):
                return self.position + record_bytes(head_)
        return -1

    @staticmethod
    def _with_bit_flipped(head: Bytes, bit: int) -> Bytes | None:
        byte = at.TYPE_LENGTH_AT if bit < 8 else at.TYPE_AT + int(head[at.TYPE_LENGTH_AT]) + bit // 8 - 1
        if byte >= len(head):
            return None
        flipped: Bytes = head.copy()
        flipped[byte] ^= 1 << bit % 8
        return flipped

    def _is_possible(self, size: int) -> bool:
        return size <= min(BLOCK_BYTES_CEILING, self.size - self.position)

    def _is_likely(self, size: int) -> bool:
        """Return True if a record of that size is short, or followed by what looks like the next record, or by
        zeros."""
        if size <= _REACH_BYTES:
            return True
        following = self._head(self.position + size)
        return not following.any() or self._is_head(following, self.last.next_offset + 1)

    def _verifies_with(self, head: Bytes) -> bool:
        """Return True if the record here verifies with this head."""
        size = record_bytes(head)
        data = read_tolerant(self.file, self.position, size)
        data[: len(head)] = head[:size]
        return self._verifies(data)

    def _is_head(self, head: Bytes, offset: int) -> bool:
        """Return True if the bytes look like the head of the record with that offset: id, envelope version and offset
        fit."""
        message = at.HEAD_BYTES + int(head[at.TYPE_LENGTH_AT]) if len(head) >= at.HEAD_BYTES else len(head)
        if len(head) < message + at.PRODUCER_ID_AT:
            return False
        is_id = head[6] >> 4 == 6 and head[8] >> 6 == 2 and head[: at.ID_BYTES].tobytes() > id_before(self.last)
        found_offset = int.from_bytes(head[message + at.OFFSET_AT : message + at.PRODUCER_ID_AT].tobytes())
        return bool(is_id and head[message] == at.VERSION and found_offset == offset)

    def _runs(self, start: int) -> list[RecordRun]:
        """Return all unbroken runs of verified records from `start` on that can come after the gap.

        If there are more than `_RUNS_MAX`, returns only the last ones: the others would have to fit before them.
        """
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
        """Return True if the file has room before the run for the records that must precede it."""
        return run.first_offset - self.expected.base <= run.start // at.MESSAGE_RECORD_BYTES_MIN

    def _run_at(self, start: int, stop: int) -> RecordRun:
        """Return the run that begins with the verified record at `start` and ends by `stop`."""
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
        """Count the next `count` records as damaged and continue at `end`. All bytes up to there are counted as those
        of the first record."""
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
    """Return True if the record that ends at `end` is the last before unused space, which begins at `used` or a few
    bytes later: a checksum may end with zeros."""
    return used <= end < used + at.CHECKSUM_BYTES
