"""Slices: the unit that one task reads. The driver cuts ranges of offsets into slices of about equal size.

The index says where each record ends, so a large segment can be cut for many tasks, and one task can read many small
segments. A slice is a small value that travels to the worker, which opens the files itself. Spark is not imported here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

from penstock.core.names import TopicName
from penstock.core.offsets import OffsetRange
from penstock.spark.files.location import Location
from penstock.storage.base.disk import Disk
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log.index import IndexFile
from penstock.storage.log.log_view import LogView, Segment, view_of
from penstock.storage.log.segment import index_path

SLICE_BYTES_MAX: Final = 96 << 20
"""The size of the largest slice in bytes, unless one is configured. A task costs about 15 ms before its first row, in
the JVM and in Python: a twentieth of the time in which it reads such a slice."""
SLICE_BYTES_MIN: Final = 16 << 20
"""The size in bytes below which a slice is not worth a task."""
_AT_ONCE: Final = 8
"""The number that the count of slices is a multiple of, so that 2, 4 or 8 cores end together.

Cores are not counted: a batch that is repeated on another machine has to be cut the same way, since rows are numbered
by it.
"""
_TOLERANCE: Final = 16
"""The tolerance of a cut: a slice divided by this. With it, one look into the index nearly always finds the cut."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Offsets `[start, stop)` of one partition, to be read by one task."""

    location: Location
    topic: str
    partition: int
    start: int
    stop: int
    bytes: int
    """The approximate size of the records in bytes."""


@lru_cache(maxsize=8)
def open_data(location: Location) -> DataReader:
    """Return the reader of the data at a location. It is opened once in each process, since a worker reads many slices
    of it."""
    return location.open()


def view_within(data: DataReader, topic: str, partition: int, start: int, stop: int) -> LogView:
    """Return a view of the segments of a partition that hold offsets from `start` to `stop`, and of no others."""
    path = data.log(TopicName.parse(topic), partition)
    return view_of(data.disk, path, within=OffsetRange.of(start, max(start, stop)))


def plan_slices(
    location: Location,
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    *,
    slice_bytes: int | None = None,
    slices_min: int = 0,
    data: DataReader | None = None,
) -> list[Slice]:
    """Cut offset ranges, given by topic and partition, into slices of about `slice_bytes`. Empty ranges give no slice.

    Without `slice_bytes` the total size decides, see `best_slice_bytes`. `slices_min` asks for at least that many
    slices, as far as there are enough offsets. The same ranges of the same log are always cut the same way. Offsets
    that are missing in the log are not noticed here, but by the reader of the slice.
    """
    data = open_data(location) if data is None else data
    spans = [
        _PartitionRange(key, start, stop, ByteRuler(data.disk, view_within(data, *key, start, stop)))
        for key, (start, stop) in sorted(ranges.items())
        if start < stop
    ]
    total = sum(span.size for span in spans)
    aim = best_slice_bytes(total) if slice_bytes is None else slice_bytes
    target = max(1, min(aim, -(-total // slices_min) if slices_min else aim))
    return [
        Slice(location, *span.key, start, stop, size)
        for span in spans
        for start, stop, size in span.cut(-(-max(span.size, 1) // target))
    ]


def best_slice_bytes(total: int) -> int:
    """Return the slice size in bytes for this total: at most `SLICE_BYTES_MAX`, with a number of slices that is a
    multiple of eight, but not below `SLICE_BYTES_MIN`."""
    count = _AT_ONCE * max(1, -(-total // (_AT_ONCE * SLICE_BYTES_MAX)))
    return max(SLICE_BYTES_MIN, -(-total // count))


class ByteRuler:
    """A converter between offsets and positions in a view, which are bytes from the start of its first segment."""

    def __init__(self, disk: Disk, view: LogView) -> None:
        self._disk = disk
        self._segments = view.segments
        self._begins = list(accumulate((segment.size for segment in view.segments), initial=0))
        self._known: dict[int, int] = {}

    def position(self, offset: int) -> int:
        """Return the position where a record begins, in bytes; an estimate if the index has no valid entry."""
        if offset not in self._known:
            self._known[offset] = self._look_up(offset)
        return self._known[offset]

    def _look_up(self, offset: int) -> int:
        place = bisect_right(self._segments, offset, key=lambda segment: segment.base) - 1
        if place < 0:
            return 0
        segment = self._segments[place]
        if offset >= segment.stop:
            return self._begins[place + 1]
        return self._begins[place] + self._within(segment, offset - segment.base)

    def _within(self, segment: Segment, ordinal: int) -> int:
        found = IndexFile(self._disk, index_path(segment.path), segment.base).start(ordinal)
        return found if 0 <= found <= segment.size else segment.size * ordinal // segment.count

    def offset_at(self, position: int, low: int, high: int, *, tolerance: int) -> int:
        """Return an offset above `low`, up to `high`, whose record begins within `tolerance` bytes of a position, or
        the nearest.

        Guesses by proportion and by halving in turn: records of one topic are mostly alike, and halving helps when they
        are not.
        """
        low_at, high_at = self.position(low), self.position(high)
        for step in range(2 * max(1, high - low).bit_length()):
            if high - low <= 1 or high_at <= low_at:
                break
            share = (position - low_at) / (high_at - low_at) if step % 2 == 0 else 0.5
            guess = min(high - 1, max(low + 1, low + round((high - low) * share)))
            found = self.position(guess)
            if abs(found - position) <= tolerance:
                return guess
            if found < position:
                low, low_at = guess, found
            else:
                high, high_at = guess, found
        return high


class _PartitionRange:
    """A range of one partition with its size."""

    def __init__(self, key: tuple[str, int], start: int, stop: int, ruler: ByteRuler) -> None:
        self.key = key
        self._start, self._stop = start, stop
        self._ruler = ruler
        self._first, self._last = ruler.position(start), ruler.position(stop)

    @property
    def size(self) -> int:
        return max(0, self._last - self._first)

    def cut(self, count: int) -> Iterator[tuple[int, int, int]]:
        """Yield about `count` pieces, none empty: start, stop and bytes of each."""
        step = self.size / count
        cuts = [self._start]
        for place in range(1, count):
            if self._stop - cuts[-1] <= 1:
                break
            target = self._first + round(step * place)
            cuts.append(self._ruler.offset_at(target, cuts[-1], self._stop, tolerance=int(step / _TOLERANCE)))
        if cuts[-1] < self._stop:
            cuts.append(self._stop)
        for start, stop in pairwise(cuts):
            yield start, stop, self.size // (len(cuts) - 1)
