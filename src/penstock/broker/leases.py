"""Leases: which offsets of a partition are in flight, at whom, since which delivery."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

_START = attrgetter("start")


@dataclass(slots=True)
class Piece:
    """Messages that lie behind each other, and what they take in bytes."""

    start: int
    stop: int
    size: int
    ends: Sequence[int] | None = None
    """Where each message ends, counted in bytes, where that is known: of those that were never delivered."""

    before: int = 0
    """How many of `ends` belong to messages before this piece."""

    def __len__(self) -> int:
        return self.stop - self.start

    def fitting(self, messages: int, size: int) -> int:
        """How many of the first ones are within these bounds."""
        most = min(len(self), messages)
        if self.size <= size:
            return most
        if self.ends is None:
            return min(most, size * len(self) // self.size)
        first = self.ends[self.before - 1] if self.before else 0
        return bisect_right(self.ends, first + size, self.before, self.before + most) - self.before

    def cut(self, count: int) -> Piece:
        """The first ones, which are then no longer in this piece. Where sizes are not known each has its share."""
        if self.ends is None:
            size = self.size * count // len(self)
        else:
            first = self.ends[self.before - 1] if self.before else 0
            size = int(self.ends[self.before + count - 1]) - int(first)
        head = Piece(self.start, self.start + count, size, self.ends, self.before)
        self.start += count
        self.size -= size
        self.before += count
        return head

    def parted(self, offsets: Collection[int]) -> Iterator[Piece]:
        """The same messages, each of these offsets by itself."""
        for offset in sorted(each for each in offsets if self.start <= each < self.stop):
            if self.start < offset:
                yield self.cut(offset - self.start)
            yield self.cut(1)
        if len(self):
            yield self


@dataclass(slots=True)
class Lease:
    """Messages in flight at one consumer since one delivery."""

    start: int
    stop: int
    size: int
    consumer: str
    delivery: int


class Leases:
    """Of one partition, disjoint, in the order of offsets."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        insort(self._leases, lease, key=_START)

    def take(self, start: int, stop: int, *, consumer: str | None = None, delivery: int | None = None) -> list[Lease]:
        """What of `[start, stop)` is in flight, at this consumer, since this delivery; it no longer is."""
        if start >= stop:
            return []
        first = max(0, bisect_right(self._leases, start, key=_START) - 1)
        taken: list[Lease] = []
        kept: list[Lease] = []
        place = first
        while place < len(self._leases) and self._leases[place].start < stop:
            lease = self._leases[place]
            place += 1
            if lease.stop <= start or not _is(lease, consumer, delivery):
                kept.append(lease)
            else:
                taken.append(_split(lease, start, stop, kept))
        if taken:
            self._leases[first:place] = kept
        return taken

    def take_all(self, consumer: str | None = None) -> list[Lease]:
        """All that are in flight, at this consumer; they no longer are."""
        taken = [lease for lease in self._leases if _is(lease, consumer, None)]
        self._leases = [] if consumer is None else [each for each in self._leases if each.consumer != consumer]
        return taken


def _is(lease: Lease, consumer: str | None, delivery: int | None) -> bool:
    return (consumer is None or lease.consumer == consumer) and (delivery is None or lease.delivery == delivery)


def _split(lease: Lease, start: int, stop: int, kept: list[Lease]) -> Lease:
    """The part of a lease within `[start, stop)`; what lies before and after it goes to `kept`."""
    rest = Piece(lease.start, lease.stop, lease.size)
    if lease.start < start:
        head = rest.cut(start - lease.start)
        kept.append(Lease(head.start, head.stop, head.size, lease.consumer, lease.delivery))
    middle = rest.cut(min(stop, lease.stop) - rest.start)
    if len(rest):
        kept.append(Lease(rest.start, rest.stop, rest.size, lease.consumer, lease.delivery))
    return Lease(middle.start, middle.stop, middle.size, lease.consumer, lease.delivery)
