"""The scan of a range of one partition: every readable record, verified, and the offsets of unreadable ones.

The scan returns the records that readers get and trusts only what they trust: the index says where records are, and
where it cannot, the whole segment is surveyed, once. The result for an offset does not depend on where the scan began,
so a log may be cut anywhere. It only reads. Neither Spark nor counting is known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np

from penstock.core.limits import KIB
from penstock.record import layout as at
from penstock.record.block import Block, Bools, Bytes, Longs, Predecessor, ScanStop
from penstock.record.kernels import block_kernels
from penstock.record.kernels.tally_kernels import entries_held
from penstock.storage.base.disk import Disk, File, opened
from penstock.storage.log.index import ENTRY_BYTES, HEADER_BYTES, IndexFile, decode_entries
from penstock.storage.log.log_view import LogView, Segment
from penstock.storage.log.recovery import SegmentScan
from penstock.storage.log.repair import scan_segment_file
from penstock.storage.log.segment import Damage, index_path, read_block, read_tolerant


class LossKind(StrEnum):
    DAMAGED = "damaged"
    """The bytes exist and do not verify."""
    MISSING = "missing"
    """No file holds the record."""
    DROPPED = "dropped"
    """Retention or a truncation removed the record before the scan reached it. That is no fault."""


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets `start` up to, but not including, `stop` that cannot be read, and the reason.

    `base` is the first offset of their segment; `position` and `end` bound their bytes in its file. If no file holds
    them, `base` is -1.
    """

    start: int
    stop: int
    kind: LossKind
    base: int
    position: int
    end: int
    reason: str

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class IndexFault:
    """A number of records (`count`, from the offset `first` on) whose index entries are lost or wrong. `base` is the
    first offset of their segment. No record is lost; reading is slow until the index is rebuilt."""

    base: int
    first: int
    count: int
    header: bool = False
    """True if the header of the index is lost. Then it is not known if the segment is complete."""


ScanEvent = Block | LostOffsets | IndexFault

_BLOCK_BYTES: Final = 512 * KIB
"""Bytes that are read at a time. They and the results made of them fit into a processor's own cache."""
_ROWS_FIRST: Final = 1024
_MISSING: Final = "the segment is missing: is a file gone?"
_TOO_SHORT: Final = "the segment ends before it"


def scan_range(disk: Disk, view: LogView, start: int, stop: int, *, verify: bool = True) -> Iterator[ScanEvent]:
    """Yield blocks, losses and index faults of the offsets `[start, stop)`, in the order of offsets. Each offset is in
    exactly one block or one `LostOffsets`. With `verify=False` checksums are not checked.

    Within a block ids always rise. Where the log is out of order, the next block begins with an id that is not greater.
    """
    offset = start
    if offset < view.start:
        yield dropped_by_retention(offset, min(stop, view.start))
        offset = min(stop, view.start)
    for segment in view.segments:
        if segment.stop <= offset or segment.base >= stop:
            continue
        if segment.base > offset:
            yield _missing(offset, segment.base)
            offset = segment.base
        end = min(stop, segment.stop)
        yield from _segment(disk, segment, offset, end, verify=verify)
        offset = end
    if offset < stop:
        yield _missing(offset, stop)


def _missing(start: int, stop: int) -> LostOffsets:
    return LostOffsets(start, stop, LossKind.MISSING, -1, 0, 0, _MISSING)


def dropped_by_retention(start: int, stop: int) -> LostOffsets:
    return LostOffsets(start, stop, LossKind.DROPPED, -1, 0, 0, "dropped by retention while it was read")


def _segment(disk: Disk, segment: Segment, start: int, stop: int, *, verify: bool) -> Iterator[ScanEvent]:
    reached = start
    try:
        with opened(disk, segment.path) as file:
            for event in _SegmentPass(disk, file, segment, start, stop, verify=verify).run():
                yield event
                reached = _end_of(event, reached)
    except FileNotFoundError:
        yield dropped_by_retention(reached, stop)


def _end_of(event: ScanEvent, reached: int) -> int:
    match event:
        case Block():
            return int(event.offsets.stop)
        case LostOffsets():
            return event.stop
        case _:
            return reached


class _IndexEntries:
    """The index entries of a range of a segment. They are read at once and decoded block by block, since all decoded
    entries would not fit into the processor's cache."""

    def __init__(self, disk: Disk, segment: Segment, start: int, stop: int) -> None:
        self._first = start
        self._count = stop - start
        path, before = index_path(segment.path), min(1, start - segment.base)
        self.header_lost = before == 0 and IndexFile(disk, path, segment.base).header() is None
        position = HEADER_BYTES + (start - segment.base - before) * ENTRY_BYTES
        raw = _read_if_there(disk, path, position, (self._count + before) * ENTRY_BYTES)
        self.start = int(_decode_ends(raw[:ENTRY_BYTES], start - 1, 1)[0]) if before else 0
        """Position of the first record; -1 if unknown."""
        self._raw = raw[before * ENTRY_BYTES :]

    def match(self, block: Block, offset: int, position: int) -> bool:
        """Return True if all records of a block end where the index says. `offset` and `position` are those of the
        block's first record."""
        begin = (offset - self._first) * ENTRY_BYTES
        raw = self._raw[begin : begin + len(block) * ENTRY_BYTES]
        return raw.size == len(block) * ENTRY_BYTES and entries_held(raw, block.columns, position, offset) == len(block)

    def ends(self, start: int, stop: int) -> Longs:
        """Return the position at which each record from offset `start` up to `stop` ends, according to the index; -1 if
        the index has no entry."""
        begin = (start - self._first) * ENTRY_BYTES
        return _decode_ends(self._raw[begin : begin + (stop - start) * ENTRY_BYTES], start, stop - start)


def _read_if_there(disk: Disk, path: Path, position: int, size: int) -> Bytes:
    try:
        with opened(disk, path) as file:
            return read_tolerant(file, position, size)
    except FileNotFoundError:
        return np.empty(0, dtype=np.uint8)


def _decode_ends(raw: Bytes, first_offset: int, count: int) -> Longs:
    whole = raw[: len(raw) // ENTRY_BYTES * ENTRY_BYTES]
    ends = decode_entries(whole, first_offset)
    if ends.size == count:
        return ends
    return np.concatenate((ends, np.full(count - ends.size, -1, dtype=np.int64)))


class _SegmentPass:
    """The scan of a range of one segment."""

    def __init__(self, disk: Disk, file: File, segment: Segment, start: int, stop: int, *, verify: bool) -> None:
        self._disk = disk
        self._file = file
        self._segment = segment
        self._verify = verify
        self._offset, self._stop = start, stop
        self._entries = _IndexEntries(disk, segment, start, stop)
        self._position = self._entries.start
        self._rows = _ROWS_FIRST
        self._survey: SegmentScan | None = None
        """Result of the survey, if one was needed; it replaces the index from then on."""

    def run(self) -> Iterator[ScanEvent]:
        if self._entries.header_lost:
            yield IndexFault(self._segment.base, self._offset, 0, header=True)
        while self._offset < self._stop:
            if self._survey is None and not 0 <= self._position <= self._segment.size:
                self._run_survey()
            damage = self._damage_here()
            yield from self._next_block() if damage is None else self._skip_damage(damage)

    def _next_block(self) -> Iterator[ScanEvent]:
        """Read the next block, yield it with its index faults, and advance. If the next record does not verify, yield
        its loss instead. If the index cannot be trusted, survey the segment and yield nothing."""
        block, why = self._read(self._readable_until())
        block = block.select(0, self._stop - self._offset)
        if not len(block):
            yield from self._skip_bad_record(str(why))
            return
        end = self._position + int(block.columns[-1, at.END])
        if not self._entries.match(block, self._offset, self._position):
            listed_ends = self._entries.ends(self._offset, self._offset + len(block))
            if self._survey is None and listed_ends[-1] not in (-1, end):
                self._run_survey()
                return
            yield from self._faults(listed_ends != block.columns[:, at.END] + self._position)
        yield block
        self._advance(self._offset + len(block), end)

    def _read(self, stop: int) -> tuple[Block, ScanStop]:
        """Read a block as `read_block` does, and return it with the reason why it ended. The table of its columns is
        made as large as the last block needed, which is seldom too small."""
        data = read_tolerant(self._file, self._position, max(0, min(_BLOCK_BYTES, stop - self._position)))
        table = np.empty((self._rows, at.COLUMNS), dtype=np.int64)
        mode = at.STAMPED | at.ENVELOPES | at.TEXTS | (at.VERIFY if self._verify else 0)
        count, position, why = block_kernels.scan(data, 0, data.size, mode, 0, 0, self._offset, table)
        if not count:
            after = Predecessor(0, 0, self._offset)
            return read_block(self._file, self._position, stop, after=after, verify=self._verify)
        self._rows = max(self._rows, 2 * count) if why == at.MORE else max(_ROWS_FIRST, count + count // 8)
        return Block(data, table[:count]), ScanStop(self._position + position, why)

    def _skip_bad_record(self, why: str) -> Iterator[ScanEvent]:
        """Yield the loss of the record at this position, which does not verify, and advance behind it. If the index
        does not say where the record ends, survey the segment instead. After a survey, all offsets that remain are
        lost."""
        end = int(self._entries.ends(self._offset, self._offset + 1)[0])
        if self._survey is not None:
            yield self._lost(self._stop, self._position, self._position, _TOO_SHORT)
            self._advance(self._stop, self._position)
        elif self._position < end <= self._segment.size:
            yield self._lost(self._offset + 1, self._position, end, why)
            self._advance(self._offset + 1, end)
        else:
            self._run_survey()

    def _skip_damage(self, damage: Damage) -> Iterator[ScanEvent]:
        stop = min(self._stop, int(damage.offsets.stop))
        yield from self._faults(self._entries.ends(self._offset, stop) != damage.stop)
        yield self._lost(stop, damage.start, damage.stop, damage.reason)
        self._advance(stop, damage.stop)

    def _lost(self, stop: int, position: int, end: int, reason: str) -> LostOffsets:
        return LostOffsets(self._offset, stop, LossKind.DAMAGED, self._segment.base, position, end, reason)

    def _faults(self, wrong: Bools) -> Iterator[IndexFault]:
        """Yield one index fault if any entry is wrong. `wrong` has a bool for each offset from the current one on."""
        rows = np.flatnonzero(wrong)
        if rows.size:
            yield IndexFault(self._segment.base, self._offset + int(rows[0]), int(rows.size))

    def _run_survey(self) -> None:
        """Read the whole segment to find where its records are, and set the position of the current offset. From then
        on the result replaces the index."""
        segment = self._segment
        survey = self._survey = scan_segment_file(
            self._disk, segment.path, count=segment.count if segment.sealed else None
        )
        ordinal = self._offset - segment.base
        self._position = int(survey.ends[ordinal - 1]) if 0 < ordinal <= survey.count else survey.size if ordinal else 0

    def _damages(self) -> tuple[Damage, ...]:
        return () if self._survey is None else self._survey.damages

    def _damage_here(self) -> Damage | None:
        return next((damage for damage in self._damages() if self._offset in damage.offsets), None)

    def _readable_until(self) -> int:
        """Return the position up to which records may be read: the start of the next damage that a survey found, or the
        end of the segment."""
        starts = (damage.start for damage in self._damages() if damage.start >= self._position)
        return min(starts, default=self._segment.size)

    def _advance(self, offset: int, position: int) -> None:
        self._offset, self._position = offset, position
