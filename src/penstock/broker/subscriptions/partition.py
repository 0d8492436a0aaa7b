"""A partition as one subscription sees it: offsets acknowledged, in flight at a consumer, and up for redelivery."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from penstock.core.offset_set import OffsetSet, Span
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.catalog.subscriptions import SEEKS_MAX, Cursor

_START = attrgetter("start")


@dataclass(slots=True)
class OffsetRun:
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

    def take_first(self, count: int) -> OffsetRun:
        """The first ones, which are then no longer in this piece. Where sizes are not known each has its share."""
        if self.ends is None:
            size = self.size * count // len(self)
        else:
            first = self.ends[self.before - 1] if self.before else 0
            size = int(self.ends[self.before + count - 1]) - int(first)
        head = OffsetRun(self.start, self.start + count, size, self.ends, self.before)
        self.start += count
        self.size -= size
        self.before += count
        return head

    def split_at(self, offsets: Collection[int]) -> Iterator[OffsetRun]:
        """The same messages, each of these offsets by itself."""
        for offset in sorted(each for each in offsets if self.start <= each < self.stop):
            if self.start < offset:
                yield self.take_first(offset - self.start)
            yield self.take_first(1)
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
    rest = OffsetRun(lease.start, lease.stop, lease.size)
    if lease.start < start:
        head = rest.take_first(start - lease.start)
        kept.append(Lease(head.start, head.stop, head.size, lease.consumer, lease.delivery))
    middle = rest.take_first(min(stop, lease.stop) - rest.start)
    if len(rest):
        kept.append(Lease(rest.start, rest.stop, rest.size, lease.consumer, lease.delivery))
    return Lease(middle.start, middle.stop, middle.size, lease.consumer, lease.delivery)


class ExhaustedMessage(NamedTuple):
    """A message that has had its last delivery: on its way to the dead letters, or in the way of those behind it."""

    attempts: int
    size: int
    reason: str
    since_ms: int


@dataclass(slots=True)
class PartitionCursor:
    """`floor`: everything below is settled. `fetched`: nothing from here on was looked at. `end`: where the log ends.

    What was settled before a restart may lie beyond `fetched`, and the floor passes `fetched` when it comes there.
    """

    partition: int
    floor: int
    fetched: int
    end: int
    acked: OffsetSet = field(default_factory=OffsetSet)
    failures: dict[int, int] = field(default_factory=dict)
    """How often a message was delivered in vain."""

    waiting: OffsetSet = field(default_factory=OffsetSet)
    """To be delivered again later."""

    leases: Leases = field(default_factory=Leases)
    dead_lettering: dict[int, ExhaustedMessage] = field(default_factory=dict)
    poison: dict[int, ExhaustedMessage] = field(default_factory=dict)
    fetching: bool = False
    seeks: int = 0
    """How often somebody sought elsewhere: what fails after that is another failure."""

    reported_ms: int = 0
    """When somebody who reads the files last said how far that is."""

    @classmethod
    def restore(cls, partition: int, saved: Cursor, end: int) -> PartitionCursor:
        """As it was saved: what was in flight then is delivered again."""
        acked = OffsetSet((each.start, each.stop) for each in saved.acked)
        floor = int(saved.floor)
        cursor = cls(partition, floor, floor, end, acked, dict(saved.failures))
        cursor.seeks, cursor.reported_ms = saved.seeks, saved.reported_ms
        return cursor

    def snapshot(self) -> Cursor:
        """What is to be known after a restart."""
        acked = tuple(OffsetRange.of(start, stop) for start, stop in self.acked)
        return Cursor(
            floor=Offset(self.floor),
            acked=acked,
            failures=dict(self.failures),
            seeks=self.seeks,
            reported_ms=self.reported_ms,
        )

    @property
    def backlog(self) -> int:
        """How many are not settled."""
        return max(0, self.end - self.floor - self.acked.count)

    @property
    def failing(self) -> int:
        """How many wait for their next delivery, or for their burial."""
        return self.waiting.count + len(self.dead_lettering)

    def unacked(self, run: OffsetRun) -> Iterator[OffsetRun]:
        """Of messages just fetched, those that are not settled already."""
        for start, stop in self.acked.gaps(max(run.start, self.floor), run.stop):
            if start > run.start:
                run.take_first(start - run.start)
            yield run.take_first(stop - start)

    def exhausted(self, start: int, stop: int, redeliveries: int) -> set[int]:
        """Of messages just fetched, those that have had their last delivery before a restart."""
        return {offset for offset, failed in self.failures.items() if failed > redeliveries and start <= offset < stop}

    def acked_within(self, start: int, stop: int) -> int:
        """How many of these are settled."""
        above = sum(end - begin for begin, end in self.acked.within(start, stop))
        return above + max(0, min(stop, self.floor) - start)

    def mark_acked(self, start: int, stop: int) -> None:
        """Done with for good."""
        start = max(start, self.floor)
        if start >= stop:
            return
        self.acked.add(start, stop)
        self.floor = self.acked.take_first_if(self.floor)
        if not self.failures:
            return
        if stop - start < len(self.failures):
            for offset in range(start, stop):
                self.failures.pop(offset, None)
        else:
            self.failures = {key: count for key, count in self.failures.items() if not start <= key < stop}

    def seek(self, offset: int) -> None:
        """Begin again from there; nothing from there on is settled, nothing is in flight."""
        self.floor = self.fetched = offset
        self.seeks = (self.seeks + 1) % (SEEKS_MAX + 1)
        self.fetching = False
        self.acked.clear()
        self.waiting.clear()
        self.leases.take_all()
        for each in (self.failures, self.dead_lettering, self.poison):
            each.clear()

    def check(self, ready: Iterable[Span]) -> None:
        """Raise AssertionError unless every offset is where it should be, and only there."""
        leased = ((each.start, each.stop) for each in self.leases)
        alone = ((offset, offset + 1) for offset in (*self.dead_lettering, *self.poison))
        seen, total = OffsetSet(), 0
        for start, stop in (*self.acked, *self.waiting, *leased, *alone, *ready):
            inside = min(stop, self.fetched) - start
            if inside > 0:
                seen.add(start, start + inside)
                total += inside
        whole = [(self.floor, self.fetched)] if self.floor < self.fetched else []
        assert list(seen) == whole, f"partition {self.partition}: {list(seen)} is not {whole}"  # noqa: S101
        assert seen.count == total, f"partition {self.partition}: an offset is in two places"  # noqa: S101
        assert all(each >= self.floor and each not in self.acked for each in self.failures)  # noqa: S101
