"""Counts of messages from their offsets: how many a range of a log holds, as a whole or in each hour.

Offsets are dense, so a count is a difference of offsets. Times rise with the offsets, so the beginning of an hour is
found by a search that reads a few records. A damaged message counts as there, since only reading it would show the
damage. Messages of a missing segment do not count. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.ids import high_word, ticks_of_id, ticks_of_unix_ms, unix_ms_of_ticks
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Block
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.slice_reader import LossCounter, LostRange, raise_loss
from penstock.spark.scan.slices import Slice, open_data, view_within
from penstock.storage.base.disk import Disk
from penstock.storage.log import log_view
from penstock.storage.log.log_view import LogView

HOUR_MS: Final = 3_600_000
SLICE_BYTES: Final = 1 << 62
"""The size of a slice in bytes, larger than any partition: counting one takes milliseconds, so it is never cut."""
_LOOK_BYTES: Final = 16 << 10
"""Bytes of each read in a search: no slower than reading one record, and often enough to find the end of an hour."""

COUNT_COLUMNS: Final[pa.Schema] = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""The columns of `rows = counts`. A partition has one row, and one more for the part behind each gap in its log."""
HOUR_COLUMNS: Final[pa.Schema] = COUNT_COLUMNS.insert(2, pa.field("hour", pa.timestamp("us", tz="UTC")))
"""The columns of `rows = hours`. The hour is null if no message that can be read tells it."""


@dataclass(frozen=True, slots=True)
class CountedRange:
    """Offsets `[start, stop)` without a missing segment. `hour_ms` is the beginning of their hour in Unix milliseconds;
    None if hours are not counted, or if no message there can be read."""

    start: int
    stop: int
    hour_ms: int | None = None

    @property
    def count(self) -> int:
        return self.stop - self.start


def counted_ranges(
    part: Slice, *, hourly: bool = False, on_loss: Callable[[LostRange], None] = raise_loss
) -> Iterator[CountedRange]:
    """Yield the ranges of a slice that the log holds, in order. `on_loss` is called for offsets that are in no segment;
    by default it raises `DataLoss`."""
    data = open_data(part.location)
    view = view_within(data, part.topic, part.partition, part.start, part.stop)
    for start, stop, there in _pieces(view, part.start, part.stop):
        if not there:
            on_loss(LostRange(part.topic, part.partition, start, stop, "the segment is missing"))
        elif hourly:
            yield from _hours(data.disk, view, start, stop)
        else:
            yield CountedRange(start, stop)


def _pieces(view: LogView, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """Yield consecutive pieces of the range: start, stop, and True if the segments are there, False if they are
    missing."""
    begun = start
    for segment in view.segments:
        base, end = max(segment.base, int(view.first_offset)), min(segment.stop, stop)
        if start < min(base, stop):
            if begun < start:
                yield begun, start, True
            yield start, min(base, stop), False
            begun = start = min(base, stop)
        start = max(start, end)
    if begun < start:
        yield begun, start, True
    if start < stop:
        yield start, stop, False


def _hours(disk: Disk, view: LogView, start: int, stop: int) -> Iterator[CountedRange]:
    clock = _PublishTimes(disk, view)
    last_ms = clock.time_near(stop - 1, stop - 1)
    while start < stop:
        time_ms = clock.time_near(start, stop)
        if time_ms is None:
            yield CountedRange(start, stop)
            return
        hour_ms = time_ms - time_ms % HOUR_MS
        end = clock.first_offset_at(hour_ms + HOUR_MS, (start, time_ms), (stop, last_ms))
        yield CountedRange(start, end, hour_ms)
        start = end


class _PublishTimes:
    """The publish times of a log, which rise with the offset. Every record that is read is verified, so damage cannot
    mislead a search."""

    def __init__(self, disk: Disk, view: LogView) -> None:
        self._disk = disk
        self._view = view
        self._block: Block = EMPTY_BLOCK

    def time_near(self, offset: int, stop: int) -> int | None:
        """Return the time of the first readable record at or after `offset`, in Unix milliseconds; None if none is up
        to `stop`."""
        block = self._block_at(offset)
        if not len(block) or int(block.offsets.start) > stop:
            return None
        return _time_ms(block, max(0, offset - int(block.offsets.start)))

    def first_offset_at(self, time_ms: int, low: tuple[int, int], high: tuple[int, int | None]) -> int:
        """Return the first offset after that of `low` whose message is not older than `time_ms`; the offset of `high`
        if none is.

        `low` and `high` are pairs of an offset and its time; the time of `high` may be unknown. The search guesses the
        place by proportion, since messages mostly come evenly. Every third guess is the middle, for logs where they do
        not.
        """
        (start, start_ms), (stop, stop_ms) = low, high
        wanted = high_word(ticks_of_unix_ms(time_ms))
        start += 1
        tries = 0
        while start < stop:
            tries += 1
            share = _interpolate(time_ms, start_ms, stop_ms) if tries % 3 else 0.5
            ahead = int((stop - start) * share) - len(self._block) // 2  # it had best lie within what is read
            guess = min(stop - 1, start + max(0, ahead))
            block = self._block_at(guess)
            place = int(np.searchsorted(block.columns[:, at.ID_HIGH], wanted))
            if place:
                start, start_ms = int(block.offsets.start) + place, _time_ms(block, place - 1)
                if place < len(block):
                    return min(start, stop)
            else:
                stop, stop_ms = guess, _time_ms(block, 0) if len(block) else stop_ms
        return min(start, high[0])  # behind damage, what can be read may lie beyond

    def _block_at(self, offset: int) -> Block:
        """Return records from an offset on: the last ones read, where the offset is among them."""
        known = self._block
        if not (len(known) and known.offsets.start <= offset < known.offsets.stop):
            self._block = log_view.read(self._disk, self._view, offset, bytes_max=_LOOK_BYTES).block
        return self._block


def _interpolate(time_ms: int, start_ms: int, stop_ms: int | None) -> float:
    """Return how far a time lies between two others, from 0 to 1; 0.5 if the second is unknown or the time is
    outside."""
    if stop_ms is None or not start_ms < time_ms < stop_ms:
        return 0.5
    return (time_ms - start_ms) / (stop_ms - start_ms)


def _time_ms(block: Block, place: int) -> int:
    return unix_ms_of_ticks(ticks_of_id(block.id(place)))


@dataclass(frozen=True, slots=True)
class CountTask:
    """The task that counts the messages of its slice instead of reading them. Made on the driver, pickled, run in the
    workers."""

    schema: pa.Schema
    hourly: bool
    fail_on_data_loss: bool = True

    def run(self, part: Slice, _filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
        lose = raise_loss if self.fail_on_data_loss else LossCounter()
        found = list(counted_ranges(part, hourly=self.hourly, on_loss=lose))
        values = {
            "topic": [part.topic] * len(found),
            "partition": [part.partition] * len(found),
            "hour": [None if run.hour_ms is None else run.hour_ms * 1000 for run in found],
            "first_offset": [run.start for run in found],
            "next_offset": [run.stop for run in found],
            "count": [run.count for run in found],
        }
        arrays = [pa.array(values[field.name], field.type) for field in self.schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
