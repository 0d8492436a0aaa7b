"""Offset reads: records at given offsets of a log, with gaps for those that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.errors import OffsetOutOfRange, StorageFailed
from penstock.core.gaps import RETENTION, Gap, gaps_of
from penstock.core.offset_set import OffsetSet, Span
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.storage.log.log import Log


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """The result of one read: the records, the offsets that are lost, with the reason, and the offsets that another
    read must get."""

    blocks: list[Block]
    missing: list[Gap]
    rest: list[Span]


def read_spans(log: Log, spans: Sequence[Span]) -> OffsetRead:
    """Read the log once, from the first of these offsets, and return what the spans select. The rest is for another
    read. Runs in another thread. Raises `StorageFailed` if nothing can be read."""
    start = spans[0][0]
    try:
        chunk = log.read(start)
    except OffsetOutOfRange:
        gone = max(int(log.first_offset), start + 1)
        missing = [Gap(*span, RETENTION) for span in _before(spans, gone)]
        return OffsetRead([], missing, _after(spans, gone))
    end = int(chunk.next_offset)
    if end <= start:
        raise StorageFailed(f"offset {start} cannot be read")
    offsets = chunk.block.columns[:, at.OFFSET]
    rows = [np.arange(*np.searchsorted(offsets, span)) for span in _before(spans, end)]
    read_rows = np.concatenate(rows)
    blocks = [chunk.block.gather(read_rows)] if read_rows.size else []
    there = OffsetSet((offset, offset + 1) for offset in offsets[read_rows].tolist())
    damages = gaps_of(chunk.damages)
    missing = [Gap(*gap, _reason(damages, gap[0])) for span in _before(spans, end) for gap in there.gaps(*span)]
    return OffsetRead(blocks, missing, _after(spans, end))


def _reason(damages: Sequence[Gap], offset: int) -> str:
    """Return the reason for which the record at this offset could not be read."""
    return next(
        (damage.reason for damage in damages if damage.start <= offset < damage.stop), "it is not there any more"
    )


def _before(spans: Sequence[Span], offset: int) -> list[Span]:
    return [(start, min(stop, offset)) for start, stop in spans if start < offset]


def _after(spans: Sequence[Span], offset: int) -> list[Span]:
    return [(max(start, offset), stop) for start, stop in spans if stop > offset]
