"""Sets of offsets, stored as half-open ranges: a million consecutive offsets take two numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Span = tuple[int, int]
"""A range `(start, stop)` that contains `start` and not `stop`."""


class OffsetSet:
    """A set of offsets, stored as sorted ranges. No range is empty, and no two overlap or touch."""

    __slots__ = ("_starts", "_stops", "count")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.count = 0
        """The number of offsets."""

        for start, stop in spans:
            self.add(start, stop)

    def __iter__(self) -> Iterator[Span]:
        return zip(self._starts, self._stops, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges, not of offsets."""
        return len(self._starts)

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        number = bisect_right(self._starts, offset)
        return number > 0 and offset < self._stops[number - 1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def add(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        first = bisect_left(self._stops, start)  # the first that reaches it, or touches
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._replace(first, last, [(start, stop)])

    def remove(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        first = bisect_right(self._stops, start)  # the first that reaches into it
        last = bisect_left(self._starts, stop)
        if first >= last:
            return
        rest = [(self._starts[first], start), (stop, self._stops[last - 1])]
        self._replace(first, last, [(begin, end) for begin, end in rest if begin < end])

    def _replace(self, first: int, last: int, spans: list[Span]) -> None:
        self.count -= sum(self._stops[first:last]) - sum(self._starts[first:last])
        self.count += sum(stop - start for start, stop in spans)
        self._starts[first:last] = [start for start, _ in spans]
        self._stops[first:last] = [stop for _, stop in spans]

    def take_first_if(self, start: int) -> int:
        """Remove the first range if it begins at `start`, and return its stop. Otherwise change nothing and return
        `start`."""
        if not self._starts or self._starts[0] != start:
            return start
        stop = self._stops[0]
        self._replace(0, 1, [])
        return stop

    def within(self, start: int, stop: int) -> list[Span]:
        """Return the parts of `[start, stop)` that are in the set, in order."""
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        spans = zip(self._starts[first:last], self._stops[first:last], strict=True)
        return [(max(begin, start), min(end, stop)) for begin, end in spans] if start < stop else []

    def gaps(self, start: int, stop: int) -> Iterator[Span]:
        """Yield the parts of `[start, stop)` that are not in the set, in order."""
        number = bisect_right(self._stops, start)
        while start < stop:
            following = self._starts[number] if number < len(self._starts) else stop
            if start < min(following, stop):
                yield start, min(following, stop)
            if number == len(self._starts):
                return
            start = self._stops[number]
            number += 1

    def clear(self) -> None:
        self._starts.clear()
        self._stops.clear()
        self.count = 0


def offset_spans(offsets: Iterable[int]) -> Iterator[Span]:
    """Yield offsets, which must be in rising order, as ranges."""
    start = stop = -1
    for offset in offsets:
        if offset == stop:
            stop += 1
            continue
        if start >= 0:
            yield start, stop
        start, stop = offset, offset + 1
    if start >= 0:
        yield start, stop
