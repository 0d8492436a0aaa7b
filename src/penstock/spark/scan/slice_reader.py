"""The reader of a slice: blocks of records from the files, batches of columns from the blocks, and the lost offsets.

The index says where every record lies, so a batch is one read of the file and one pass of the kernel. Where index and
file disagree, or a checksum does not hold, the log's own reader takes over, which steps over damage exactly. Every loss
is reported: it fails the read, or goes to the caller. Spark is not imported here.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import OffsetOutOfRange, StorageFailed
from penstock.core.names import TopicName
from penstock.record import layout as at
from penstock.record.block import Block, Predecessor, scan
from penstock.spark.scan.columns import BatchBuilder
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.memory import allocate
from penstock.spark.scan.positions import RecordPositions
from penstock.spark.scan.slices import Slice, open_data, view_within
from penstock.storage.base.disk import Disk, File, opened
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log import log_view
from penstock.storage.log.index import IndexFile
from penstock.storage.log.log_view import LogView, Segment
from penstock.storage.log.segment import index_path

_LOG: Final = logging.getLogger(__name__)

ROWS_MAX: Final = 10_000
BYTES_MAX: Final = 2 << 20
"""The most bytes of records in a batch: larger ones do not fit the processor's caches, smaller ones cost more calls."""
_ENTRIES_MAX: Final = 1 << 16
"""Entries of the index read at a time: half a megabyte."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets `[start, stop)` that should be there and cannot be read, and the reason."""

    topic: str
    partition: int
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        count = self.stop - self.start
        what = f"offset {self.start} is" if count == 1 else f"{count} offsets, [{self.start}, {self.stop}), are"
        return f"{self.topic} partition {self.partition}: {what} lost: {self.reason}"


READ_ON: Final = "set failOnDataLoss to false"
"""The advice in the text of `DataLoss` for users of the data source. A command replaces it with its own option."""


class DataLoss(StorageFailed):
    """Messages that should be there are missing or damaged."""


def raise_loss(loss: LostRange) -> None:
    raise DataLoss(
        f"{loss}. To read on without what is lost, and have it counted, {READ_ON}",
        topic=loss.topic,
        partition=loss.partition,
        start=loss.start,
        stop=loss.stop,
    )


def end_of_log(next_offset: int) -> str:
    """Return the reason why offsets behind the end of a log are missing."""
    return f"the log ends with offset {next_offset - 1}" if next_offset else "the log is empty"


class LossCounter:
    """A counter of lost offsets that logs each loss."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, loss: LostRange) -> None:
        self.count += loss.stop - loss.start
        _LOG.warning("%s (left out; lost by this reader so far: %d)", loss, self.count)


def batches(
    part: Slice,
    columns: Sequence[str],
    *,
    verify: bool = True,
    filters: Filters = NO_FILTERS,
    fail_on_data_loss: bool = True,
    on_loss: Callable[[LostRange], None] | None = None,
    rows_max: int = ROWS_MAX,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice that pass the filters, as batches of exactly these columns; no batch is empty.

    A loss raises `DataLoss` with its offsets; or, if `fail_on_data_loss` is off, goes to `on_loss`, which by default
    logs and counts it.
    """
    if not filters.matches_partition(part.topic, part.partition):
        return
    maker = BatchBuilder(columns, part.topic, part.partition, rows_max=rows_max)
    lose = raise_loss if fail_on_data_loss else on_loss or LossCounter()
    for block in blocks(part, verify=verify, filters=filters, on_loss=lose, rows_max=rows_max):
        chosen = filters.select_rows(block)
        if len(chosen):
            yield maker.batch(chosen)


def blocks(
    part: Slice,
    *,
    verify: bool = True,
    filters: Filters = NO_FILTERS,
    on_loss: Callable[[LostRange], None] = raise_loss,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Iterator[Block]:
    """Yield the records of a slice in blocks, in order. Offsets that cannot be read go to `on_loss`, by default an
    error.

    Of the filters only the range of offsets is applied; the caller applies the others to the blocks.
    """
    reader = _SliceReader(open_data(part.location), part, verify, rows_max, bytes_max)
    for found in reader.read(*filters.offset.clip(part.start, part.stop)):
        if isinstance(found, LostRange):
            on_loss(found)
        else:
            yield found


class _SliceReader:
    def __init__(self, data: DataReader, part: Slice, verify: bool, rows_max: int, bytes_max: int) -> None:
        self._data = data
        self._disk: Disk = data.disk
        self._part = part
        self._verify = verify
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def _loss(self, start: int, stop: int, reason: str) -> LostRange:
        return LostRange(self._part.topic, self._part.partition, start, stop, reason)

    def read(self, start: int, stop: int) -> Iterator[Block | LostRange]:
        """Yield blocks and losses that together are exactly the offsets from `start` to `stop`, in order."""
        stuck_at = -1
        while start < stop:
            view = view_within(self._data, self._part.topic, self._part.partition, start, stop)
            if start == stuck_at:  # the cause was not retention: a name without a file
                view = replace(view, segments=tuple(one for one in view.segments if self._disk.exists(one.path)))
            try:
                for found in self._read_view(view, start, stop):
                    start = found.stop if isinstance(found, LostRange) else int(found.offsets.stop)
                    yield found
                return
            except FileNotFoundError:
                stuck_at = start

    def _read_view(self, view: LogView, start: int, stop: int) -> Iterator[Block | LostRange]:
        for segment in view.segments:
            first = max(segment.base, int(view.first_offset))
            if start < min(first, stop):
                yield self._loss(start, min(first, stop), self._reason_outside(start))
                start = min(first, stop)
            if start < min(segment.stop, stop):
                yield from self._read_segment(view, segment, start, min(segment.stop, stop))
                start = min(segment.stop, stop)
        if start < stop:
            yield self._loss(start, stop, self._reason_outside(start))

    def _reason_outside(self, start: int) -> str:
        """Return the reason why an offset is in no segment."""
        edges, _ = log_view.log_range(
            self._disk, self._data.log(TopicName.parse(self._part.topic), self._part.partition)
        )
        if start < edges.start:
            return f"the log begins with offset {edges.start} now"
        return end_of_log(edges.stop) if start >= edges.stop else "the segment is missing"

    def _read_segment(self, view: LogView, segment: Segment, start: int, stop: int) -> Iterator[Block | LostRange]:
        index = IndexFile(self._disk, index_path(segment.path), segment.base)
        with opened(self._disk, segment.path) as file:
            for first in range(start, stop, _ENTRIES_MAX):
                positions = RecordPositions.of(index, segment, first, min(stop, first + _ENTRIES_MAX))
                for row, end in positions.read_ranges(self._rows_max, self._bytes_max):
                    span = positions.byte_range(row, end)
                    found = None if span is None else self._read_block(file, *span, first + row, end - row)
                    if found is None:
                        yield from self._read_damaged(view, first + row, first + end)
                    else:
                        yield found

    def _read_block(self, file: File, start: int, stop: int, offset: int, rows: int) -> Block | None:
        """Return the records in these bytes of the file. None if they cannot be read, or are not exactly the `rows`
        records from `offset` on."""
        data = allocate(stop - start)
        try:
            if file.read_into(data, start) < data.size:
                return None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None
        table = allocate(rows, at.COLUMNS, kind=np.int64)
        block, end = scan(data, after=Predecessor(0, 0, offset), verify=self._verify, rows_max=rows, table=table)
        return block if len(block) == rows and end.position == data.size else None

    def _read_damaged(self, view: LogView, start: int, stop: int) -> Iterator[Block | LostRange]:
        """Yield the records from `start` to `stop` with the log's own reader, which steps over damage, and the
        losses."""
        while start < stop:
            try:
                chunk = log_view.read(self._disk, view, start, bytes_max=self._bytes_max, verify=self._verify)
            except OffsetOutOfRange as error:
                yield self._loss(start, stop, str(error))
                return
            for damage in chunk.damages:
                begin, end = max(start, int(damage.offsets.start)), min(stop, int(damage.offsets.stop))
                if begin < end:
                    yield self._loss(begin, end, damage.reason)
            yield from self._pieces(chunk.block, stop)
            if int(chunk.next_offset) <= start:
                yield self._loss(start, stop, "the segment does not hold what its index lists")
                return
            start = int(chunk.next_offset)

    def _pieces(self, block: Block, stop: int) -> Iterator[Block | LostRange]:
        """Yield the part of a block before the offset `stop`, in blocks of at most `rows_max` rows."""
        block = block.select(0, max(0, stop - int(block.offsets.start)))
        for row in range(0, len(block), self._rows_max):
            yield block.select(row, row + self._rows_max)
