"""The read side of a log: the same for its owner, for another process, and for Spark.

A `LogView` is the readable part of a log as a value: the owner makes one after every commit, others make one from the
files. Files are opened inside a read and closed before it returns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

from penstock.core.errors import OffsetOutOfRange
from penstock.core.ids import ID_BYTES, high_word, ticks_of_unix_ms
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Block, Predecessor, ScanStop
from penstock.record.message import Record
from penstock.storage.base.disk import Disk, File, opened
from penstock.storage.log.index import IndexFile, IndexHeader, SegmentState
from penstock.storage.log.repair import scan_segment_file
from penstock.storage.log.segment import (
    READ_BYTES,
    Damage,
    base_of,
    index_path,
    read_block,
    read_log_start,
    read_tolerant,
    segment_name,
)

MISSING: Final = "the segment is missing"
"""The reason of damage where no file holds the offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A readable segment: the offsets `[base, stop)` lie in the first `size` bytes of its file."""

    path: Path
    base: int
    stop: int
    size: int
    sealed: bool

    @property
    def count(self) -> int:
        return self.stop - self.base


@dataclass(frozen=True, slots=True)
class LogView:
    """The readable part of a log: everything in it is acknowledged."""

    segments: tuple[Segment, ...] = ()
    start: int = 0
    """The first offset that is not truncated. Its segment may still hold older messages."""

    @property
    def first_offset(self) -> Offset:
        return Offset(max(self.start, self.segments[0].base) if self.segments else self.start)

    @property
    def next_offset(self) -> Offset:
        return Offset(max(self.start, self.segments[-1].stop) if self.segments else self.start)

    @property
    def messages(self) -> int:
        """The number of offsets in the segments from `start` on, damaged messages included, without gaps between
        segments."""
        return sum(max(0, segment.stop - max(segment.base, self.start)) for segment in self.segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> Segment | None:
        """Return the last segment that begins at or before `offset`; None if there is none. If any segment holds the
        offset, that one does."""
        count = bisect_right(self.segments, offset, key=lambda segment: segment.base)
        return self.segments[count - 1] if count else None

    def past_gap(self, offset: int) -> int:
        """Return `offset`; if it lies in a gap between segments, the first offset behind the gap."""
        segment = self.segment_of(offset)
        if segment is not None and offset < segment.stop:
            return offset
        return next((segment.base for segment in self.segments if segment.base > offset), offset)


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """The result of one read: a block of good records, the damage stepped over before them, and the offset to read
    next."""

    block: Block
    damages: tuple[Damage, ...]
    next_offset: Offset

    def __iter__(self) -> Iterator[Record]:
        return iter(self.block)


def read(disk: Disk, view: LogView, offset: int, *, bytes_max: int = READ_BYTES, verify: bool = True) -> ReadChunk:
    """Return the records from `offset` on, in one block of about `bytes_max` bytes; an empty block at the end of the
    log.

    Damaged records are stepped over and named in the result; their neighbours are returned. Raises `OffsetOutOfRange`
    for an offset outside the log.
    """
    check_range(view, offset)
    damages: list[Damage] = []
    while offset < view.next_offset:
        segment = view.segment_of(offset)
        if segment is None or offset >= segment.stop:
            offset = _step_over_gap(view, offset, damages)
            continue
        block, damage = _read_segment(disk, segment, offset, bytes_max, verify)
        if len(block):
            return ReadChunk(block, tuple(damages), block.offsets.stop)
        damage = damage or _unheld_damage(segment, offset)
        _add_damage(damages, damage)
        offset = damage.offsets.stop
    return ReadChunk(EMPTY_BLOCK, tuple(damages), Offset(offset))


def _step_over_gap(view: LogView, offset: int, damages: list[Damage]) -> int:
    following = next(segment for segment in view.segments if segment.base > offset)
    damages.append(Damage(offset, OffsetRange.of(offset, following.base), 0, 0, MISSING))
    return following.base


def _unheld_damage(segment: Segment, offset: int) -> Damage:
    """Return the damage for offsets that the index lists and the segment does not have, so that a read can go on behind
    them."""
    reason = "the segment does not hold what its index lists"
    return Damage(segment.base, OffsetRange.of(offset, segment.stop), segment.size, segment.size, reason)


def _add_damage(damages: list[Damage], damage: Damage) -> None:
    if damages and damages[-1].base == damage.base and damages[-1].offsets.stop == damage.offsets.start:
        before = damages.pop()
        offsets = OffsetRange(before.offsets.start, damage.offsets.stop)
        damage = replace(damage, offsets=offsets, start=before.start, reason=before.reason)
    damages.append(damage)


def _read_segment(
    disk: Disk, segment: Segment, offset: int, bytes_max: int, verify: bool
) -> tuple[Block, Damage | None]:
    """Return the good records from `offset` on, or the damage at `offset`.

    Returns an empty block and None if the segment does not have the offset.
    """
    index = IndexFile(disk, index_path(segment.path), segment.base)
    ordinal = offset - segment.base
    start = index.start(ordinal)
    if start < 0 or start > segment.size:
        return _read_by_scan(disk, segment, offset, bytes_max, verify)
    with opened(disk, segment.path) as file:
        after = Predecessor(0, 0, offset)
        block, stop = read_block(file, start, segment.size, after=after, bytes_max=bytes_max, verify=verify)
        if not len(block) and (
            _index_is_wrong(file, segment, index, ordinal - 1, start) or _is_cut_last(segment, offset, stop)
        ):
            return _read_by_scan(disk, segment, offset, bytes_max, verify)
    if len(block):
        rows = min(len(block), segment.stop - offset)
        listed = int(index.ends(ordinal + rows - 1, ordinal + rows)[0])
        if listed not in (-1, start + int(block.columns[rows - 1, at.END])):
            return _read_by_scan(disk, segment, offset, bytes_max, verify)
        return block.select(0, rows), None
    end = int(index.ends(ordinal, ordinal + 1)[0])
    if end < start:
        return _read_by_scan(disk, segment, offset, bytes_max, verify)
    return EMPTY_BLOCK, Damage(segment.base, OffsetRange.of(offset, offset + 1), start, end, str(stop))


def _index_is_wrong(file: File, segment: Segment, index: IndexFile, ordinal: int, end: int) -> bool:
    """Return True if the record before `end` is good and does not end there. The index is wrong then, not the next
    record."""
    start = index.start(ordinal) if ordinal >= 0 else -1
    if not 0 <= start < segment.size:
        return False
    after = Predecessor(0, 0, segment.base + ordinal)
    block, _ = read_block(file, start, segment.size, after=after, bytes_max=at.MESSAGE_RECORD_BYTES_MIN, rows_max=1)
    return len(block) == 1 and start + int(block.columns[0, at.END]) != end


def _is_cut_last(segment: Segment, offset: int, stop: ScanStop) -> bool:
    """Return True if the record at `offset` is the last of a segment being written, and reaches past the segment's
    known size: the index is wrong then."""
    return not segment.sealed and offset + 1 == segment.stop and stop.reason == at.CUT


def _read_by_scan(
    disk: Disk, segment: Segment, offset: int, bytes_max: int, verify: bool
) -> tuple[Block, Damage | None]:
    """Read at `offset` after a scan of the whole segment, because the index is no help. Slow, and rare."""
    scan = scan_segment_file(disk, segment.path, count=segment.count if segment.sealed else None)
    for damage in scan.damages:
        if offset in damage.offsets:
            return EMPTY_BLOCK, replace(damage, offsets=OffsetRange(Offset(offset), damage.offsets.stop))
    ordinal = offset - segment.base
    if ordinal >= scan.count:
        return EMPTY_BLOCK, None
    start = int(scan.ends[ordinal - 1]) if ordinal else 0
    stop = min((damage.start for damage in scan.damages if damage.start >= start), default=scan.size)
    with opened(disk, segment.path) as file:
        after = Predecessor(0, 0, offset)
        block, _ = read_block(file, start, stop, after=after, bytes_max=bytes_max, verify=verify)
    return block.select(0, min(len(block), segment.stop - offset)), None


def find_id(disk: Disk, view: LogView, id_high: int, id_low: int) -> Offset:
    """Return the first offset whose id is equal to the given one or greater; `next_offset` if there is none.

    The id is given as its first and last eight bytes. The search halves the log and verifies each record that it looks
    at, so that a damaged one cannot mislead it.
    """
    low, high = int(view.first_offset), int(view.next_offset)
    while low < high:
        middle = (low + high) // 2
        chunk = read(disk, view, middle, bytes_max=at.MESSAGE_RECORD_BYTES_MIN)
        if not len(chunk.block):
            high = middle
            continue
        id_words = (
            int(chunk.block.columns[0, at.ID_HIGH]),
            int(chunk.block.columns[0, at.ID_LOW]) & 0xFFFFFFFFFFFFFFFF,
        )
        if id_words >= (id_high, id_low):
            high = middle
        else:
            low = chunk.block.offsets.start + 1
    return Offset(low)


def offset_of(disk: Disk, view: LogView, position: Position) -> Offset:
    """Return the offset of a position now. Raises `OffsetOutOfRange` for an offset outside the log."""
    match position:
        case Earliest():
            return view.first_offset
        case Latest():
            return view.next_offset
        case AtTime(unix_ms):
            return find_id(disk, view, high_word(max(0, ticks_of_unix_ms(unix_ms))), 0)
        case AtId(value):
            return find_id(disk, view, int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big"))
        case AtOffset(offset):
            check_range(view, offset)
            return offset


def check_range(view: LogView, offset: int) -> None:
    """Raise `OffsetOutOfRange` unless the log holds the offset, or it is the next one."""
    if not view.first_offset <= offset <= view.next_offset:
        raise OffsetOutOfRange(
            f"offset {offset} is not in the log: it holds [{view.first_offset}, {view.next_offset})",
            offset=offset,
            first_offset=view.first_offset,
            next_offset=view.next_offset,
        )


def view_of(disk: Disk, path: Path, *, known: LogView | None = None, within: OffsetRange | None = None) -> LogView:
    """Return what another process may read of a log right now, from its files alone.

    `known` is an earlier view of the same log: what it counts is not counted again. With `within`, only segments that
    may hold these offsets are read and returned, so that the cost does not grow with the log.
    """
    bases = _bases(disk, path)
    before = {segment.base: segment for segment in known.segments} if known else {}
    segments = []
    for base, following in zip_longest(bases, bases[1:]):
        if within is not None and (base >= within.stop or (following is not None and following <= within.start)):
            continue
        earlier = before.get(base)
        if earlier is not None and earlier.sealed:
            segments.append(earlier)
            continue
        try:
            segments.append(_segment(disk, path / segment_name(base), base, following, earlier))
        except FileNotFoundError:
            continue  # retention was quicker
    return LogView(tuple(segments), read_log_start(disk, path).offset)


def log_range(disk: Disk, path: Path, *, known: Segment | None = None) -> tuple[OffsetRange, Segment | None]:
    """Return the range of a log's offsets and its newest segment (None without any), and read no other segment.

    `known` is the newest segment of an earlier call: its records are not counted again, unless another log lies at the
    path by now.
    """
    bases = _bases(disk, path)
    start = read_log_start(disk, path).offset
    for base in reversed(bases):
        earlier = known if known is not None and known.base == base and not known.sealed else None
        try:
            newest = _segment(disk, path / segment_name(base), base, None, earlier)
        except FileNotFoundError:
            continue  # retention was quicker
        first = max(start, bases[0])
        return OffsetRange.of(first, max(first, newest.stop)), newest
    return OffsetRange.of(start, start), None


def _bases(disk: Disk, path: Path) -> list[int]:
    return sorted(base for base in map(base_of, disk.names(path)) if base is not None)


def _segment(disk: Disk, path: Path, base: int, following: int | None, earlier: Segment | None) -> Segment:
    index = IndexFile(disk, index_path(path), base)
    header = index.header()
    if (
        header is not None
        and header.state is not SegmentState.OPEN
        and header_is_trusted(disk, path, header, following)
    ):
        stop = base + header.count
        return Segment(path=path, base=base, stop=stop, size=header.size, sealed=header.state is SegmentState.SEALED)
    if header is None or header.state is not SegmentState.OPEN or following is not None:
        scan = scan_segment_file(disk, path, count=None if following is None else following - base)
        stop = base + scan.count
        return Segment(path=path, base=base, stop=stop, size=scan.size, sealed=following is not None)
    known = earlier.count if earlier else 0
    count = index.count_from(max(0, known - 1))
    if count < known:  # its last record is no longer listed: another log lies there now
        count = index.count_from(0)
    return Segment(path=path, base=base, stop=base + count, size=max(0, index.start(count)), sealed=False)


def header_is_trusted(disk: Disk, path: Path, header: IndexHeader, following: int | None = None) -> bool:
    """Return True if the header of a closed or sealed segment agrees with its files.

    A sealed segment is trusted at once if its file has the right size and the next segment begins at offset `following`
    where this one ends: on remote storage each further read costs a request.
    """
    with opened(disk, path) as file:
        if (
            header.state is SegmentState.SEALED
            and header.size == file.size()
            and following == header.base + header.count
        ):
            return True
        index = IndexFile(disk, index_path(path), header.base)
        return index.allows(header, file) and not read_tolerant(file, header.size, ID_BYTES).any()


def gaps_in(view: LogView) -> list[Damage]:
    """Return the damage of offsets missing between the segments of a log."""
    edges = [(max(left.stop, view.start), right.base) for left, right in pairwise(view.segments)]
    return [Damage(start, OffsetRange.of(start, stop), 0, 0, MISSING) for start, stop in edges if start < stop]
