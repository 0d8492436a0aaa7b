"""Counts out of the dense offsets: how many messages a range of a log holds, as a whole or by the hour.

Offsets are dense and times rise with them, so that a count is a difference, and the hours of a log are found by binary
search: no payload is read but those that the search looks at. A message that is damaged counts, since only reading
tells; a segment that is missing does not. Spark does not come in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.core.ids import ticks_of_id, unix_ms_of_ticks
from penstock.core.places import AtTime
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.reading import Loss, LossCount, fail
from penstock.spark.scan.slices import Slice, opened_data, view_within
from penstock.storage import reading
from penstock.storage.disk import Disk
from penstock.storage.reading import View

HOUR_MS: Final = 3_600_000
SLICE_BYTES: Final = 1 << 62
"""A partition is one task: nothing is gained by cutting what takes milliseconds."""
_ONE_RECORD: Final = 1
"""Bytes: a read gives the whole of the record that begins there."""

COUNT_COLUMNS: Final[pa.Schema] = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64(), nullable=False),
        pa.field("next_offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""What `rows = counts` gives: one row of a partition, and one more behind every gap."""
HOUR_COLUMNS: Final[pa.Schema] = COUNT_COLUMNS.insert(2, pa.field("hour", pa.timestamp("us", tz="UTC")))
"""What `rows = hours` gives; null where no message that can be read tells the hour."""


@dataclass(frozen=True, slots=True)
class Run:
    """Offsets `[start, stop)` that are all there; of one hour, where that was asked for."""

    start: int
    stop: int
    hour_ms: int | None = None

    @property
    def count(self) -> int:
        return self.stop - self.start


def runs(part: Slice, *, hourly: bool = False, on_loss: Callable[[Loss], None] = fail) -> Iterator[Run]:
    """What a slice holds, in order; offsets in no segment are told to `on_loss`."""
    data = opened_data(part.location)
    view = view_within(data, part.topic, part.partition, part.start, part.stop)
    for start, stop, there in _pieces(view, part.start, part.stop):
        if not there:
            on_loss(Loss(part.topic, part.partition, start, stop, "the segment is missing"))
        elif hourly:
            yield from _hours(data.disk, view, start, stop)
        else:
            yield Run(start, stop)


def _pieces(view: View, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """The range, cut where segments are missing: whether each piece is there. Neighbours that are, are one."""
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


def _hours(disk: Disk, view: View, start: int, stop: int) -> Iterator[Run]:
    while start < stop:
        block = reading.read(disk, view, start, bytes_max=_ONE_RECORD).block
        if not len(block) or int(block.offsets.start) >= stop:
            yield Run(start, stop)
            return
        time_ms = unix_ms_of_ticks(ticks_of_id(block.id(0)))
        hour_ms = time_ms - time_ms % HOUR_MS
        following = int(reading.offset_of(disk, view, AtTime(hour_ms + HOUR_MS)))
        end = min(stop, max(following, int(block.offsets.start) + 1))
        yield Run(start, end, hour_ms)
        start = end


@dataclass(frozen=True, slots=True)
class CountRows:
    """What a task does in place of reading its slice. Made on the driver, done in the workers: it pickles."""

    schema: pa.Schema
    hourly: bool
    fail_on_data_loss: bool = True

    def run(self, part: Slice, _filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
        lose = fail if self.fail_on_data_loss else LossCount()
        found = list(runs(part, hourly=self.hourly, on_loss=lose))
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
