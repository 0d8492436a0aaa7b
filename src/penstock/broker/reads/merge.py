"""Merging: what several logs hold behind a message id, in the order of ids, which is the order of publishing.

All logs of a data directory take their ids from one generator, so the order is total, and one id says how far somebody
has read in all of them. It reads logs in another thread, and touches nothing else.
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
"""Looked at in one go: a few milliseconds, also where nothing of it is wanted."""
_READ_BYTES_MIN: Final = 4 * KIB
_MERGED_MAX: Final = 64
"""Logs that are read side by side: those whose next messages are the oldest. The others wait for their turn."""
_LOW: Final = 0x8000_0000_0000_0000

Accept = Callable[[str], bool]
"""Whether messages of a type are wanted."""


class LogSource(NamedTuple):
    """One log, and what it is called. The name of a partition is that of MessageIDs."""

    log: Log
    topic: TopicName
    partition: int
    name: str


class ReadPosition(NamedTuple):
    """Where somebody is in one log: the next offset, and the time in the id of the message there, if it is known."""

    offset: int
    head: int | None = None


ReadPositions = Mapping[Log, ReadPosition]
"""Of the logs that were looked at. It only saves a search: all that must be known is the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedGap:
    """Messages that should have come, and are not there."""

    topic: TopicName
    partition: int
    start: int | None
    """The first offset that is missing; None where it is not known."""
    stop: int
    """The first offset that is there again."""
    reason: str
    certain: bool = True
    """False: what is gone may all have been read before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSlice:
    """What came next."""

    rows: list[tuple[LogSource, RecordRow]]
    gaps: list[FeedGap]
    after: int
    """Everything up to here, by the time in the ids, is in the slice, or was not wanted, or is gone."""
    positions: ReadPositions


@dataclass(slots=True)
class _LogReader:
    """One log that has something to give."""

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
    """Messages behind `after` and not behind `until` (times of ids), the oldest first, as many as fit; some at least.

    `resumed`: somebody has read up to `after` before, and is to be told what is gone since. Raises what keeps a log
    from being read.
    """
    known = {source.log: positions[source.log] for source in sources if source.log in positions}
    merge = _MergeState(after, until, resumed, known)
    readers = _open_readers(merge, sources)
    chosen, bound = _oldest(readers, until)
    for reader in chosen:
        bound = min(bound, _fill(merge, reader, max(_READ_BYTES_MIN, bytes_max // len(chosen))))
    rows = [each for reader in chosen for each in _rows_up_to(merge, reader, bound, accept)]
    if len(chosen) > 1:
        rows.sort(key=_by_id)
    return MergedSlice(rows=rows, gaps=merge.gaps, after=max(after, bound), positions=merge.positions)


def _by_id(found: tuple[LogSource, RecordRow]) -> bytes:
    return found[1][0]


def _open_readers(merge: _MergeState, sources: Sequence[LogSource]) -> list[_LogReader]:
    """Those that have anything in the range."""
    after = id_bytes(merge.after + 1, 0) if merge.after >= 0 else b""
    fresh = [source for source in sources if source.log.last_id >= after]
    few = len(fresh) <= _MERGED_MAX
    readers = (_open_reader(merge, source, few=few) for source in fresh)
    return [reader for reader in readers if reader is not None and reader.head <= merge.until]


def _open_reader(merge: _MergeState, source: LogSource, *, few: bool) -> _LogReader | None:
    """`few`: all of them are read anyhow, so nobody need know which comes first."""
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
    """Where the first message behind `after` is. What is gone since somebody was there is told."""
    log = source.log
    if merge.after < 0:
        return int(log.first_offset)
    found = int(log.offset_of(AtId(id_bytes(merge.after + 1, 0))))
    first = int(log.first_offset)
    if merge.resumed and found == first > 0:
        # With nothing left, the newest message is one of those that are gone.
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
    return found


def _gap(source: LogSource, start: int, stop: int, reason: str = RETENTION) -> FeedGap:
    return FeedGap(topic=source.topic, partition=source.partition, start=start, stop=stop, reason=reason)


def _peek_ticks(merge: _MergeState, source: LogSource, offset: int) -> int:
    """The time in the id of the message there."""
    chunk = _read(merge, source, offset, at.MESSAGE_RECORD_BYTES_MIN)
    if not len(chunk.block):
        return merge.until + 1
    head = ticks_of_high_word(int(chunk.block.columns[0, at.ID_HIGH]))
    merge.positions[source.log] = ReadPosition(int(chunk.block.columns[0, at.OFFSET]), head)
    return head


def _oldest(readers: list[_LogReader], until: int) -> tuple[list[_LogReader], int]:
    """Those to be read, and how far: up to where the first of the others begins."""
    if len(readers) <= _MERGED_MAX:
        return readers, until
    *chosen, following = heapq.nsmallest(_MERGED_MAX + 1, readers, key=lambda reader: reader.head)
    return chosen, min(until, following.head - 1)


def _fill(merge: _MergeState, reader: _LogReader, size: int) -> int:
    """Read it. The time up to which all that it has is known then."""
    chunk = _read(merge, reader.source, reader.offset, size)
    reader.block, reader.offset = chunk.block, int(chunk.next_offset)
    if not len(reader.block):
        merge.positions[reader.source.log] = ReadPosition(reader.offset)
        return merge.until
    if reader.offset >= int(reader.source.log.next_offset):
        return merge.until
    return ticks_of_high_word(int(reader.block.columns[-1, at.ID_HIGH]))


def _read(merge: _MergeState, source: LogSource, offset: int, size: int) -> ReadChunk:
    """From there on; what is gone or damaged meanwhile is noted, and stepped over."""
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
    """What lies up to the bound, and is wanted."""
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
    """The time in the newest id of all; -1 where there is nothing."""
    return max((ticks_of_id(log.last_id) for log in logs if any(log.last_id)), default=-1)


def cursor_id(ticks: int) -> bytes:
    """An id that stands for a time between messages."""
    return id_bytes(max(ticks, 0), _LOW)
