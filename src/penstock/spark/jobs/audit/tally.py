"""The tally of a scanned range: it takes the events of `scan_range` and makes a `PartitionSummary` of them. Kernels
count the records of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from penstock.core.offsets import OFFSET_MAX
from penstock.record import layout as at
from penstock.record.block import Block, Longs
from penstock.record.kernels import tally_kernels as kernel
from penstock.spark.jobs.audit import digests
from penstock.spark.jobs.audit.partition_summary import (
    PRODUCERS_MAX,
    Digest,
    Disorder,
    Losses,
    Nonconforming,
    PartitionSummary,
    Requests,
    Sample,
    disorder,
)
from penstock.spark.jobs.audit.scan_range import IndexFault, LostOffsets, ScanEvent
from penstock.spark.jobs.histogram import NO_VALUES, Histogram

ConformanceCheck = Callable[[Block], Sample[Nonconforming]]
"""A function that returns the payloads of a block that do not conform to their schemas."""

_TABLE_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """Time cut into `count` spans of `width_ms`, from `since_ms` on."""

    since_ms: int
    width_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The offsets `[start, stop)` of one partition that an archive should hold, and the batches that the archive's
    history knows, in the order of offsets: first offset, next offset, commit time (Unix ms)."""

    start: int
    stop: int
    batches: tuple[tuple[int, int, int], ...] = ()


NOT_ARCHIVED: Final = ArchivedRange(0, 0)


@dataclass
class RangeTally:
    """The counts of one scan. Call `take` with the events, then `result` once."""

    start: int
    stop: int
    spans: TimeSpans
    archived: ArchivedRange = NOT_ARCHIVED
    check_conformance: ConformanceCheck | None = None
    _records: int = 0
    _bytes: int = 0
    _first: tuple[int, bytes] = (-1, b"")
    _last_id: bytes = b""
    _losses: Losses = field(default_factory=Losses)
    _disorder: Sample[Disorder] = field(default_factory=Sample)
    _faults: dict[int, IndexFault] = field(default_factory=dict)
    _requests: dict[int, Requests] = field(default_factory=dict)
    _schemas: dict[tuple[int, int], int] = field(default_factory=dict)
    _nonconforming: Sample[Nonconforming] = field(default_factory=Sample)
    _digests: dict[int, Digest] = field(default_factory=dict)
    _latency: Histogram = NO_VALUES

    def __post_init__(self) -> None:
        self._totals = np.zeros(kernel.TOTALS, dtype=np.int64)
        self._totals[[kernel.FIRST_MS, kernel.SMALLEST]] = OFFSET_MAX
        self._totals[kernel.LAST_MS] = -OFFSET_MAX
        self._sizes = np.zeros(kernel.BUCKETS, dtype=np.int64)
        self._volume = np.zeros((self.spans.count, kernel.VOLUME_COLUMNS), dtype=np.int64)
        self._producers_table = np.zeros((_TABLE_ROWS, kernel.ROW), dtype=np.int64)
        self._schemas_table = np.zeros((_TABLE_ROWS, kernel.ROW), dtype=np.int64)
        self._used = np.zeros(2, dtype=np.int64)
        self._batches = np.array(self.archived.batches, dtype=np.int64).reshape(-1, 3)

    def take(self, events: Iterable[ScanEvent]) -> RangeTally:
        for event in events:
            match event:
                case Block():
                    self._block(event)
                case LostOffsets():
                    self._losses += Losses.of(event)
                case IndexFault():
                    self._fault(event)
        return self

    def _fault(self, fault: IndexFault) -> None:
        known = self._faults.get(fault.base, IndexFault(fault.base, fault.first, 0))
        header = known.header or fault.header
        self._faults[fault.base] = IndexFault(fault.base, known.first, known.count + fault.count, header)

    def _block(self, block: Block) -> None:
        first_id, last_id = block.id(0), block.id(len(block) - 1)
        self._disorder += disorder(self._last_id, first_id, int(block.columns[0, at.OFFSET]))
        if not self._last_id:
            self._first = int(block.columns[0, at.OFFSET]), first_id
        self._last_id = last_id
        self._records += len(block)
        self._bytes += int(block.columns[-1, at.END] - block.columns[0, at.START])
        self._count(block.columns)
        if self.check_conformance is not None:
            self._nonconforming += self.check_conformance(block)
        if self.archived.stop > self.archived.start:
            self._compare(block)

    def _count(self, columns: Longs) -> None:
        row, spans = 0, self.spans
        while row < len(columns):
            row = kernel.tally(
                columns,
                row,
                spans.since_ms,
                spans.width_ms,
                self._totals,
                self._sizes,
                self._volume,
                self._producers_table,
                self._schemas_table,
                self._used,
            )
            if row < len(columns):
                self._drain_tables()

    def _drain_tables(self) -> None:
        """Add the contents of the kernel's small tables of producers and schemas to the dicts, and empty the tables."""
        for producer, _, count, first, last, breaks in _drain(self._producers_table):
            requests = Requests(first, last, count, breaks)
            known = self._requests.get(producer)
            self._requests[producer] = requests if known is None else known + requests
        for schema_id, version, count, *_ in _drain(self._schemas_table):
            key = (schema_id, version)
            self._schemas[key] = self._schemas.get(key, 0) + count
        self._used[:] = 0

    def _compare(self, block: Block) -> None:
        """Add digests and latency of the messages that the archive should have."""
        first = int(block.columns[0, at.OFFSET])
        low, high = self.archived.start - first, self.archived.stop - first
        held = block.select(max(0, low), max(0, min(high, len(block))))
        if not len(held):
            return
        digests.add_days(self._digests, digests.days_of_block(held))
        if self._batches.size:
            self._latency += Histogram.of(self._archive_delays(held.columns))

    def _archive_delays(self, columns: Longs) -> Longs:
        """Return the time from publish to archive, in milliseconds, of each message whose batch is known. A negative
        time becomes 0: the clocks of two machines may differ."""
        starts, stops, committed = self._batches.T
        batch = np.searchsorted(starts, columns[:, at.OFFSET], side="right") - 1
        known = (batch >= 0) & (columns[:, at.OFFSET] < stops[batch])
        waits: Longs = committed[batch[known]] - columns[known, at.PUBLISH_TIME]
        return np.maximum(waits, 0)

    def result(self) -> PartitionSummary:
        self._drain_tables()
        totals: list[int] = self._totals.tolist()
        used = np.flatnonzero(self._volume[:, 0]).tolist()
        summary = PartitionSummary(
            start=self.start,
            stop=self.stop,
            records=self._records,
            record_bytes=self._bytes,
            payload_bytes=totals[kernel.PAYLOAD_BYTES],
            first_offset=self._first[0],
            first_id=self._first[1],
            last_id=self._last_id,
            first_ms=totals[kernel.FIRST_MS] if self._records else None,
            last_ms=totals[kernel.LAST_MS] if self._records else None,
            sizes=Histogram.counted(self._sizes, totals[kernel.SMALLEST], totals[kernel.LARGEST]),
            latency=self._latency,
            volume={span: tuple(self._volume[span].tolist()) for span in used},
            losses=self._losses,
            disorder=self._disorder,
            index_faults=self._faults,
            requests=self._requests,
            schemas=self._schemas,
            nonconforming=self._nonconforming,
            digests=self._digests,
        )
        return summary if len(self._requests) <= PRODUCERS_MAX else _with_lowest_producers(summary)


def _with_lowest_producers(summary: PartitionSummary) -> PartitionSummary:
    lowest = sorted(summary.requests)[:PRODUCERS_MAX]
    followed = {producer: summary.requests[producer] for producer in lowest}
    return replace(summary, requests=followed, producers_left_out=True)


def _drain(table: Any) -> list[list[int]]:
    """Return the rows of a kernel's table that are in use, and set the whole table to 0."""
    rows: list[list[int]] = table[table[:, kernel.COUNT] > 0].tolist()
    table[:] = 0
    return rows
