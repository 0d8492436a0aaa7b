"""The merge: messages of several logs after a given message id, in the order of ids, which is the order of publishing.

All logs of a data directory take their ids from one generator. So the order is total, and one id says how far a reader
has read in all logs. The merge reads logs in another thread and changes no other state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from penstock.core.errors import OffsetOutOfRange, StorageFailed
from penstock.core.gaps import RETENTION, gaps_of
from penstock.core.ids import high_word, id_bytes, ticks_of_high_word, ticks_of_id
from penstock.core.limits import KIB
from penstock.core.names import TopicName
from penstock.core.positions import AtId
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Block
from penstock.record.rows import RecordRow
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import ReadChunk

SLICE_BYTES: Final = 128 * KIB
"""Bytes that one call reads: a few milliseconds' worth, even where the filter matches nothing."""
_READ_BYTES_MIN: Final = 4 * KIB
_MERGED_MAX: Final = 64
"""The most logs that one call reads: those whose next messages are the oldest. Later calls read the others."""
_LOW: Final = 0x8000_0000_0000_0000

Accept = Callable[[str], bool]
"""A function that returns whether a feed wants messages of this type."""


class LogSource(NamedTuple):
    """A log with its topic and partition, and the name that message ids have for that partition."""

    log: Log
    topic: TopicName
    partition: int
    name: str


class ReadPosition(NamedTuple):
    """A reader's position in one log: the next offset, and the time in the id of the message there; None if that is not
    known."""

    offset: int
    head: int | None = None


ReadPositions = Mapping[Log, ReadPosition]
"""Positions in the logs that were read before. They only save a search: a reader can resume from the id alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedGap:
    """A range of messages that belong in the feed but are lost."""

    topic: TopicName
    partition: int
    start: int | None
    """The first missing offset; None if it is not known."""
    stop: int
    """The first offset after the gap."""
    reason: str
    certain: bool = True
    """False if the reader may have read all of the lost messages before they were lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSlice:
    """One part of a feed."""

    rows: list[tuple[LogSource, RecordRow]]
    gaps: list[FeedGap]
    after: int
    """The id time up to which the feed is complete: every message is in this slice or earlier ones, was filtered out,
    or is lost."""
    positions: ReadPositions


@dataclass(slots=True)
class _LogReader:
    """A log that has messages in the range, with what was read of it."""

    source: LogSource
    offset: int
    head: int
    block: Block = EMPTY_BLOCK


@dataclass(slots=True)
class _MergeState:
    after: int
    until: int
    resumed: bool
    positions: dict[Log, ReadPosition]
    gaps: list[FeedGap] = field(default_factory=list)


def merge_logs(
    sources: Sequence[LogSource],
    positions: ReadPositions,
    *,
    after: int,
    until: int,
    accept: Accept | None = None,
    resumed: bool = False,
    bytes_max: int = SLICE_BYTES,
) -> MergedSlice:
    """Return the messages whose id time is later than `after` and at most `until`, the oldest first, about `bytes_max`
    bytes of them. The slice is empty if the filter accepts none of those that were read: its `after` says where to go
    on.

    With `resumed`, a reader has read up to `after` before, and is told of the gaps since. Raises the error of a log
    that cannot be read.
    """
    known = {source.log: positions[source.log] for source in sources if source.log in positions}
    merge = _MergeState(after, until, resumed, known)
    readers = _open_readers(merge, sources)
    chosen, bound = _oldest(readers, until)
    for reader in chosen:
        bound = min(bound, _fill(merge, reader, max(_READ_BYTES_MIN, bytes_max // len(chosen))))
    rows = [row for reader in chosen for row in _rows_up_to(merge, reader, bound, accept)]
    if len(chosen) > 1:
        rows.sort(key=_by_id)
    return MergedSlice(rows=rows, gaps=merge.gaps, after=max(after, bound), positions=merge.positions)


def _by_id(row: tuple[LogSource, RecordRow]) -> bytes:
    return row[1][0]


def _open_readers(merge: _MergeState, sources: Sequence[LogSource]) -> list[_LogReader]:
    """Return readers of the logs that have messages in the range."""
    after = id_bytes(merge.after + 1, 0) if merge.after >= 0 else b""
    fresh = [source for source in sources if source.log.last_id >= after]
    few = len(fresh) <= _MERGED_MAX
    readers = (_open_reader(merge, source, few=few) for source in fresh)
    return [reader for reader in readers if reader is not None and reader.head <= merge.until]


def _open_reader(merge: _MergeState, source: LogSource, *, few: bool) -> _LogReader | None:
    """Return a reader for a log; None if the log has nothing more. With `few` logs all of them are read, so the time of
    the next message is not looked up."""
    position = merge.positions.get(source.log) or ReadPosition(_find_start(merge, source))
    first = int(source.log.first_offset)
    if position.offset < first:
        merge.gaps.append(_gap(source, position.offset, first))
        position = ReadPosition(first)
    merge.positions[source.log] = position
    if position.offset >= int(source.log.next_offset):
        return None
    head = position.head
    if head is None:
        head = merge.after + 1 if few else _peek_ticks(merge, source, position.offset)
    return _LogReader(source, int(merge.positions[source.log].offset), head)


def _find_start(merge: _MergeState, source: LogSource) -> int:
    """Return the offset of the first message whose id time is later than `after`. If retention may have deleted
    messages since then, add a gap."""
    log = source.log
    if merge.after < 0:
        return int(log.first_offset)
    offset = int(log.offset_of(AtId(id_bytes(merge.after + 1, 0))))
    first = int(log.first_offset)
    if merge.resumed and offset == first > 0:
        # With nothing left, the newest message is one of the deleted ones.
        certain = first >= int(log.next_offset)
        gap = FeedGap(
            topic=source.topic,
            partition=source.partition,
            start=None,
            stop=first,
            reason=RETENTION,
            certain=certain,
        )
        merge.gaps.append(gap)
    return offset


def _gap(source: LogSource, start: int, stop: int, reason: str = RETENTION) -> FeedGap:
    return FeedGap(topic=source.topic, partition=source.partition, start=start, stop=stop, reason=reason)


def _peek_ticks(merge: _MergeState, source: LogSource, offset: int) -> int:
    """Return the time in the id of the message at an offset, or of the first readable one after it; a time after
    `until` if there is none."""
    chunk = _read(merge, source, offset, at.MESSAGE_RECORD_BYTES_MIN)
    if not len(chunk.block):
        return merge.until + 1
    head = ticks_of_high_word(int(chunk.block.columns[0, at.ID_HIGH]))
    merge.positions[source.log] = ReadPosition(int(chunk.block.columns[0, at.OFFSET]), head)
    return head


def _oldest(readers: list[_LogReader], until: int) -> tuple[list[_LogReader], int]:
    """Return the readers to read now, and the id time up to which they are enough: the others have only later
    messages."""
    if len(readers) <= _MERGED_MAX:
        return readers, until
    *chosen, following = heapq.nsmallest(_MERGED_MAX + 1, readers, key=lambda reader: reader.head)
    return chosen, min(until, following.head - 1)


def _fill(merge: _MergeState, reader: _LogReader, size: int) -> int:
    """Read the next block of a log. Returns the id time up to which all messages of this log have then been read."""
    chunk = _read(merge, reader.source, reader.offset, size)
    reader.block, reader.offset = chunk.block, int(chunk.next_offset)
    if not len(reader.block):
        merge.positions[reader.source.log] = ReadPosition(reader.offset)
        return merge.until
    if reader.offset >= int(reader.source.log.next_offset):
        return merge.until
    return ticks_of_high_word(int(reader.block.columns[-1, at.ID_HIGH]))


def _read(merge: _MergeState, source: LogSource, offset: int, size: int) -> ReadChunk:
    """Read from an offset. Messages that are deleted or damaged are added as gaps, and skipped. Raises `StorageFailed`
    if nothing can be read."""
    while True:
        try:
            chunk = source.log.read(offset, bytes_max=size)
        except OffsetOutOfRange:
            first = int(source.log.first_offset)
            if first <= offset:
                raise
            merge.gaps.append(_gap(source, offset, first))
            offset = first
            continue
        if not len(chunk.block) and chunk.next_offset < source.log.next_offset and chunk.next_offset <= offset:
            raise StorageFailed(f"offset {offset} of {source.name} cannot be read")
        merge.gaps += [_gap(source, *gap) for gap in gaps_of(chunk.damages)]
        return chunk


def _rows_up_to(
    merge: _MergeState, reader: _LogReader, bound: int, accept: Accept | None
) -> list[tuple[LogSource, RecordRow]]:
    """Return the accepted messages up to the id time `bound`, and move the position behind them."""
    block = reader.block
    if not len(block):
        return []
    highs = block.columns[:, at.ID_HIGH]
    count = int(np.searchsorted(highs, high_word(bound), side="right"))
    if count < len(block):
        merge.positions[reader.source.log] = ReadPosition(
            int(block.columns[count, at.OFFSET]), ticks_of_high_word(int(highs[count]))
        )
    else:
        merge.positions[reader.source.log] = ReadPosition(reader.offset)
    taken = block.select(0, count)
    if accept is not None and count:
        taken = taken.filtered(taken.accepted(accept))
    return [(reader.source, row) for row in taken.rows()]


def newest_ticks(logs: Sequence[Log]) -> int:
    """Return the time in the newest id of all logs; -1 if all are empty."""
    return max((ticks_of_id(log.last_id) for log in logs if any(log.last_id)), default=-1)


def cursor_id(ticks: int) -> bytes:
    """Return an id with this time. It stands for a position, and need not be the id of a message."""
    return id_bytes(max(ticks, 0), _LOW)
