"""A lane: one partition as one subscription sees it. What is settled, in flight, and waiting to be tried again.

Every offset from `floor` up to `fetched` is in exactly one place, here or in the line of what is ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.broker.leases import Leases, Piece
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.ranges import Ranges, Span
from penstock.storage.catalog.subscriptions import SEEKS_MAX, Cursor


class Failed(NamedTuple):
    """A message that has had its last delivery: on its way to the dead letters, or in the way of those behind it."""

    attempts: int
    size: int
    reason: str
    since_ms: int


@dataclass(slots=True)
class Lane:
    """`floor`: everything below is settled. `fetched`: nothing from here on was looked at. `end`: where the log ends.

    What was settled before a restart may lie beyond `fetched`, and the floor passes `fetched` when it comes there.
    """

    partition: int
    floor: int
    fetched: int
    end: int
    settled: Ranges = field(default_factory=Ranges)
    failures: dict[int, int] = field(default_factory=dict)
    """How often a message was delivered in vain."""

    waiting: Ranges = field(default_factory=Ranges)
    """To be delivered again later."""

    leases: Leases = field(default_factory=Leases)
    burying: dict[int, Failed] = field(default_factory=dict)
    poison: dict[int, Failed] = field(default_factory=dict)
    fetching: bool = False
    seeks: int = 0
    """How often somebody sought elsewhere: what fails after that is another failure."""

    reported_ms: int = 0
    """When somebody who reads the files last said how far that is."""

    @classmethod
    def restore(cls, partition: int, cursor: Cursor, end: int) -> Lane:
        """As it was saved: what was in flight then is delivered again."""
        settled = Ranges((each.start, each.stop) for each in cursor.acked)
        floor = int(cursor.floor)
        lane = cls(partition, floor, floor, end, settled, dict(cursor.failures))
        lane.seeks, lane.reported_ms = cursor.seeks, cursor.reported_ms
        return lane

    def cursor(self) -> Cursor:
        """What is to be known after a restart."""
        acked = tuple(OffsetRange.of(start, stop) for start, stop in self.settled)
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
        return max(0, self.end - self.floor - self.settled.count)

    @property
    def failing(self) -> int:
        """How many wait for their next delivery, or for their burial."""
        return self.waiting.count + len(self.burying)

    def unsettled(self, piece: Piece) -> Iterator[Piece]:
        """Of messages just fetched, those that are not settled already."""
        for start, stop in self.settled.gaps(max(piece.start, self.floor), piece.stop):
            if start > piece.start:
                piece.cut(start - piece.start)
            yield piece.cut(stop - start)

    def exhausted(self, start: int, stop: int, redeliveries: int) -> set[int]:
        """Of messages just fetched, those that have had their last delivery before a restart."""
        return {offset for offset, failed in self.failures.items() if failed > redeliveries and start <= offset < stop}

    def settled_within(self, start: int, stop: int) -> int:
        """How many of these are settled."""
        above = sum(end - begin for begin, end in self.settled.within(start, stop))
        return above + max(0, min(stop, self.floor) - start)

    def settle(self, start: int, stop: int) -> None:
        """Done with for good."""
        start = max(start, self.floor)
        if start >= stop:
            return
        self.settled.add(start, stop)
        self.floor = self.settled.take_first_if(self.floor)
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
        self.settled.clear()
        self.waiting.clear()
        self.leases.take_all()
        for each in (self.failures, self.burying, self.poison):
            each.clear()

    def check(self, ready: Iterable[Span]) -> None:
        """Raise AssertionError unless every offset is where it should be, and only there."""
        leased = ((each.start, each.stop) for each in self.leases)
        alone = ((offset, offset + 1) for offset in (*self.burying, *self.poison))
        seen, total = Ranges(), 0
        for start, stop in (*self.settled, *self.waiting, *leased, *alone, *ready):
            inside = min(stop, self.fetched) - start
            if inside > 0:
                seen.add(start, start + inside)
                total += inside
        whole = [(self.floor, self.fetched)] if self.floor < self.fetched else []
        assert list(seen) == whole, f"partition {self.partition}: {list(seen)} is not {whole}"  # noqa: S101
        assert seen.count == total, f"partition {self.partition}: an offset is in two places"  # noqa: S101
        assert all(each >= self.floor and each not in self.settled for each in self.failures)  # noqa: S101
