"""Partition cursors: the state of one partition in a subscription, that is which offsets are acked, in flight, waiting
or exhausted."""

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
    """A run of consecutive offsets, with the size of all its messages in bytes."""

    start: int
    stop: int
    size: int
    ends: Sequence[int] | None = None
    """The end of each message in bytes, counted from the start of the read. None for messages that were delivered
    before: only their total size is known."""

    before: int = 0
    """The number of leading entries in `ends` that belong to messages before this run."""

    def __len__(self) -> int:
        return self.stop - self.start

    def count_within(self, messages: int, size: int) -> int:
        """Return how many messages fit, counted from the first: at most `messages`, with at most `size` bytes together.
        If `ends` is None, all count as equally large."""
        most = min(len(self), messages)
        if self.size <= size:
            return most
        if self.ends is None:
            return min(most, size * len(self) // self.size)
        first = self.ends[self.before - 1] if self.before else 0
        return bisect_right(self.ends, first + size, self.before, self.before + most) - self.before

    def take_first(self, count: int) -> OffsetRun:
        """Remove the first `count` messages, and return them as a run. If `ends` is None, the size is divided equally
        among messages."""
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
        """Yield all messages as runs, in which each of these offsets is a run of its own. The run itself is used up."""
        for offset in sorted(each for each in offsets if self.start <= each < self.stop):
            if self.start < offset:
                yield self.take_first(offset - self.start)
            yield self.take_first(1)
        if len(self):
            yield self


@dataclass(slots=True)
class Lease:
    """Messages that one delivery put in flight at one consumer."""

    start: int
    stop: int
    size: int
    consumer: str
    delivery: int


class Leases:
    """The leases of one partition. They do not overlap, and are in the order of offsets."""

    def __init__(self) -> None:
        self._leases: list[Lease] = []

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        insort(self._leases, lease, key=_START)

    def take(self, start: int, stop: int, *, consumer: str | None = None, delivery: int | None = None) -> list[Lease]:
        """End the leases within `[start, stop)`, and return them. If a consumer or a delivery is given, only its
        leases. A lease that reaches beyond is split, and the rest stays in flight."""
        if start >= stop:
            return []
        first = max(0, bisect_right(self._leases, start, key=_START) - 1)
        taken: list[Lease] = []
        kept: list[Lease] = []
        index = first
        while index < len(self._leases) and self._leases[index].start < stop:
            lease = self._leases[index]
            index += 1
            if lease.stop <= start or not _is(lease, consumer, delivery):
                kept.append(lease)
            else:
                taken.append(_split(lease, start, stop, kept))
        if taken:
            self._leases[first:index] = kept
        return taken

    def take_all(self, consumer: str | None = None) -> list[Lease]:
        """End all leases, or all of one consumer, and return them."""
        taken = [lease for lease in self._leases if _is(lease, consumer, None)]
        self._leases = [] if consumer is None else [each for each in self._leases if each.consumer != consumer]
        return taken


def _is(lease: Lease, consumer: str | None, delivery: int | None) -> bool:
    return (consumer is None or lease.consumer == consumer) and (delivery is None or lease.delivery == delivery)


def _split(lease: Lease, start: int, stop: int, kept: list[Lease]) -> Lease:
    """Return the part of a lease within `[start, stop)`. The parts before and after are appended to `kept`."""
    rest = OffsetRun(lease.start, lease.stop, lease.size)
    if lease.start < start:
        head = rest.take_first(start - lease.start)
        kept.append(Lease(head.start, head.stop, head.size, lease.consumer, lease.delivery))
    middle = rest.take_first(min(stop, lease.stop) - rest.start)
    if len(rest):
        kept.append(Lease(rest.start, rest.stop, rest.size, lease.consumer, lease.delivery))
    return Lease(middle.start, middle.stop, middle.size, lease.consumer, lease.delivery)


class ExhaustedMessage(NamedTuple):
    """A message whose last delivery failed. It is about to become a dead letter, or it is poison, which blocks the
    messages behind it."""

    attempts: int
    size: int
    reason: str
    since_ms: int


@dataclass(slots=True)
class PartitionCursor:
    """The state of one partition. Every offset below `floor` is acked. Nothing from `fetched` on has been read yet.
    `end` is the next offset of the log.

    Acked means done for good: acknowledged, filtered out, dropped, dead-lettered, lost or skipped. Offsets that were
    acked before a restart may lie after `fetched`; the floor passes `fetched` when it reaches them.
    """

    partition: int
    floor: int
    fetched: int
    end: int
    acked: OffsetSet = field(default_factory=OffsetSet)
    failures: dict[int, int] = field(default_factory=dict)
    """The number of failed deliveries of each message that has failed, by offset."""

    waiting: OffsetSet = field(default_factory=OffsetSet)
    """Offsets of messages that failed and wait for their redelivery."""

    leases: Leases = field(default_factory=Leases)
    dead_lettering: dict[int, ExhaustedMessage] = field(default_factory=dict)
    poison: dict[int, ExhaustedMessage] = field(default_factory=dict)
    fetching: bool = False
    seeks: int = 0
    """The number of seeks. It shows whether an answer is from before the last seek."""

    reported_ms: int = 0
    """The time of the last report by an external reader, in ms since 1970; 0 if there was none."""

    @classmethod
    def restore(cls, partition: int, saved: Cursor, end: int) -> PartitionCursor:
        """Restore the state from a saved cursor. Messages that were in flight are fetched and delivered again."""
        acked = OffsetSet((each.start, each.stop) for each in saved.acked)
        floor = int(saved.floor)
        cursor = cls(partition, floor, floor, end, acked, dict(saved.failures))
        cursor.seeks, cursor.reported_ms = saved.seeks, saved.reported_ms
        return cursor

    def snapshot(self) -> Cursor:
        """Return the part of the state that is saved and survives a restart."""
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
        """The number of messages that are not acked."""
        return max(0, self.end - self.floor - self.acked.count)

    @property
    def failing(self) -> int:
        """The number of messages that wait for redelivery or for the dead letters. Poison is not counted."""
        return self.waiting.count + len(self.dead_lettering)

    def unacked(self, run: OffsetRun) -> Iterator[OffsetRun]:
        """Yield the parts of a fetched run that are not acked yet. The run itself is used up."""
        for start, stop in self.acked.gaps(max(run.start, self.floor), run.stop):
            if start > run.start:
                run.take_first(start - run.start)
            yield run.take_first(stop - start)

    def exhausted(self, start: int, stop: int, redeliveries: int) -> set[int]:
        """Return the offsets within `[start, stop)` whose last delivery failed before a restart: they have more
        failures than `redeliveries`."""
        return {offset for offset, failed in self.failures.items() if failed > redeliveries and start <= offset < stop}

    def acked_within(self, start: int, stop: int) -> int:
        """Count the acked offsets within `[start, stop)`."""
        above = sum(end - begin for begin, end in self.acked.within(start, stop))
        return above + max(0, min(stop, self.floor) - start)

    def mark_acked(self, start: int, stop: int) -> None:
        """Mark `[start, stop)` as acked, and move the floor if possible. Their failures are forgotten."""
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
        """Start again at `offset`: everything before it is acked, nothing from there on, and nothing is in flight."""
        self.floor = self.fetched = offset
        self.seeks = (self.seeks + 1) % (SEEKS_MAX + 1)
        self.fetching = False
        self.acked.clear()
        self.waiting.clear()
        self.leases.take_all()
        for offsets in (self.failures, self.dead_lettering, self.poison):
            offsets.clear()

    def check(self, ready: Iterable[Span]) -> None:
        """Raise AssertionError unless every offset between the floor and `fetched` is in exactly one place. `ready` has
        the offsets in the ready queue."""
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
