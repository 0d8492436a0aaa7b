"""Idempotent publishing: the last requests of each producer are remembered, so that a message that is sent twice is
stored once.

A producer numbers its messages upwards, from 1. A message whose number is known is answered with the position of the
stored one. Number 0 means that a message is not numbered, and so never recognised.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np

from penstock.broker.base.effects import Effect
from penstock.core.dead_letter_attributes import DEAD_LETTER_PRODUCER_PREFIX, REDRIVE_PRODUCER_PREFIX
from penstock.core.errors import InvalidRequest
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.core.offsets import Offset
from penstock.storage.catalog.topics import ProducerCheckpoint, RequestRun
from penstock.storage.producer_windows import PRODUCERS_MAX, WINDOW

BY_KEY: Final = "idempotency-key"
"""The name of the producer that all messages with an idempotency key are stored under."""
_FIRST_REQUEST = attrgetter("first")


def check_not_reserved(name: str) -> None:
    """Raise `InvalidRequest` for a producer name that is reserved for the broker.

    If a client had such a name, the broker could not store under it, or would take the client's messages for
    repetitions of its own.
    """
    if name == BY_KEY or name.startswith((DEAD_LETTER_PRODUCER_PREFIX, REDRIVE_PRODUCER_PREFIX)):
        raise InvalidRequest(
            f"{name[:QUOTED_CHARS_MAX]!r} is a producer of the broker's own: take another name", field="name"
        )


@dataclass(slots=True, frozen=True)
class StoredRequests:
    """Stored messages of one producer with consecutive numbers, and their positions. Either they are consecutive in
    one partition, and `partition` and `offset` are those of the first; or both are arrays with one entry for each
    message."""

    first: int
    count: int
    partition: Any
    offset: Any

    def position_of(self, request_id: int) -> tuple[int, int]:
        index = request_id - self.first
        if isinstance(self.offset, int):
            return self.partition, self.offset + index
        return int(self.partition[index]), int(self.offset[index])

    def runs(self) -> Iterator[tuple[int, RequestRun]]:
        """Yield partition and run, as checkpoints store them."""
        if isinstance(self.offset, int):
            yield self.partition, RequestRun(self.first, self.offset, self.count)
            return
        positions = zip(self.partition.tolist(), self.offset.tolist(), strict=True)
        for index, (partition, offset) in enumerate(positions):
            yield partition, RequestRun(self.first + index, offset, 1)

    def continues(self, other: StoredRequests) -> bool:
        """Return whether these requests follow `other` directly, in numbers and in offsets, so that the two can be
        merged."""
        return (
            isinstance(self.offset, int)
            and isinstance(other.offset, int)
            and self.partition == other.partition
            and other.count < WINDOW
            and (self.first, self.offset) == (other.first + other.count, other.offset + other.count)
        )


@dataclass(slots=True)
class ProducerWindow:
    """The last requests of one producer on one topic. At least the last `WINDOW` are remembered, at most about three
    times as many."""

    entries: list[StoredRequests] = field(default_factory=list)
    """Stored requests in the order of their numbers."""

    arrived: deque[StoredRequests] = field(default_factory=deque)
    highest: int = 0
    count: int = 0
    submitted: int = 0
    """The highest number that has arrived. It may not be stored yet."""

    pending: int = 0
    """The number of blocks that are being validated, or that the log has not answered yet."""

    refused: int = 0
    """The first number of a block that was refused but may be sent again, or 0. Until `refused_ms`, later blocks are
    refused too, so that the order is kept."""

    refused_ms: int = 0
    """The time until which later blocks than `refused` are refused."""

    parked: deque[Callable[[], list[Effect]]] = field(default_factory=deque)
    """Blocks that may repeat a pending one. They continue when its outcome is known."""

    unordered: bool = False
    """True if the numbers have no order, as those made of idempotency keys. A block then waits only for pending blocks
    with the same numbers."""

    under_way: dict[int, int] = field(default_factory=dict)
    """The last number of each pending block, by its first number."""

    @classmethod
    def of(cls, runs: Iterable[tuple[int, RequestRun]]) -> ProducerWindow:
        """Build a window from the runs that were found in the log, each with its partition. The oldest must come
        first."""
        window = cls()
        for partition, run in runs:
            window.add(StoredRequests(run.request_id, run.count, partition, run.offset))
        window.submitted = window.highest
        return window

    def must_wait(self, first: int, last: int) -> bool:
        """Return whether a block with these numbers must wait for a pending one, because it may repeat messages of
        it."""
        if not self.unordered:
            return bool(self.pending and (self.parked or first <= self.submitted))
        return any(first <= end and begin <= last for begin, end in self.under_way.items())

    def begin(self, first: int, last: int) -> None:
        self.pending += 1
        self.under_way[first] = last

    def end(self, first: int) -> None:
        self.pending -= 1
        self.under_way.pop(first, None)

    def find(self, request_id: int) -> tuple[int, int] | None:
        """Return the partition and offset at which a request was stored; None if it is not known."""
        position_of = bisect_right(self.entries, request_id, key=_FIRST_REQUEST) - 1
        if position_of < 0 or request_id >= self.entries[position_of].first + self.entries[position_of].count:
            return None
        return self.entries[position_of].position_of(request_id)

    def add(self, entry: StoredRequests) -> None:
        self.highest = max(self.highest, entry.first + entry.count - 1)
        self.count += entry.count
        if self.arrived and entry.continues(self.arrived[-1]):
            before = self.arrived.pop()
            self._forget(before)
            entry = StoredRequests(before.first, before.count + entry.count, before.partition, before.offset)
        self.arrived.append(entry)
        insort(self.entries, entry, key=_FIRST_REQUEST)
        while self.count - self.arrived[0].count >= WINDOW:
            oldest = self.arrived.popleft()
            self._forget(oldest)
            self.count -= oldest.count

    def _forget(self, entry: StoredRequests) -> None:
        position_of = bisect_right(self.entries, entry.first, key=_FIRST_REQUEST) - 1
        while self.entries[position_of] is not entry:
            position_of -= 1
        del self.entries[position_of]


def entries_of(requests: Any, partitions: Any, offsets: Any) -> Iterator[StoredRequests]:
    """Yield entries for stored messages, split where the numbers are not consecutive. The arrays have the number,
    partition and offset of each message; the numbers rise."""
    edges = np.flatnonzero(np.diff(requests) != 1) + 1
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(requests)], strict=True):
        if first == stop:
            continue
        part, where = partitions[first:stop], offsets[first:stop]
        if part[0] == part[-1] and (part == part[0]).all() and (np.diff(where) == 1).all():
            yield StoredRequests(int(requests[first]), stop - first, int(part[0]), int(where[0]))
        else:
            yield StoredRequests(int(requests[first]), stop - first, part.copy(), where.copy())


def _oldest_first(runs: Mapping[int, tuple[RequestRun, ...]]) -> list[tuple[int, RequestRun]]:
    """Order one producer's runs of all partitions by age. A run counts as older, the more messages of the producer
    follow it in its partition."""
    aged = []
    for partition, partition_runs in runs.items():
        behind = 0
        for run in reversed(partition_runs):
            aged.append((behind, partition, run))
            behind += run.count
    aged.sort(key=lambda aged_run: (-aged_run[0], aged_run[2].request_id))
    return [(partition, run) for _, partition, run in aged]


@dataclass(slots=True)
class ProducerOwner:
    """A connection that has registered a producer, and may send messages under its id."""

    client: str
    name: str
    exclusive: bool
    session: str = ""
    """An id of the client's producer object, which is the same each time it reconnects."""

    resumes: bool = False
    """True if the producer object reconnects. It then does not take the producer from a newer connection."""


class TopicProducers:
    """The producers of one topic: the window of each producer id, and the connections that may use the id."""

    def __init__(self, checkpoints: Mapping[int, ProducerCheckpoint]) -> None:
        self._windows: dict[int, ProducerWindow] = {}
        self.owners: dict[int, dict[str, ProducerOwner]] = {}
        runs: dict[int, dict[int, tuple[RequestRun, ...]]] = {}
        for partition, checkpoint in checkpoints.items():
            for producer, partition_runs in checkpoint.runs.items():
                runs.setdefault(producer, {})[partition] = partition_runs
        for producer, of_partitions in runs.items():
            self._windows[producer] = ProducerWindow.of(_oldest_first(of_partitions))

    def window(self, producer_id: int) -> ProducerWindow:
        """Return the window of a producer, a new one if none is known, and mark it as the most recently used. May
        forget another window, if there are too many."""
        window = self._windows.pop(producer_id, None) or ProducerWindow()
        self._windows[producer_id] = window
        if len(self._windows) > PRODUCERS_MAX:
            self._forget_one()
        return window

    def _forget_one(self) -> None:
        """Forget the window that was used least recently, among those without a connection and without pending
        blocks."""
        idle = (
            producer_id
            for producer_id, window in self._windows.items()
            if producer_id not in self.owners and not window.pending
        )
        gone = next(idle, None)
        if gone is not None:
            del self._windows[gone]

    def claim(self, producer_id: int, owner: ProducerOwner) -> list[str]:
        """Make a connection an owner of a producer. Returns the clients that lose it: all others if the new owner is
        exclusive, else those that are exclusive."""
        owners = self.owners.setdefault(producer_id, {})
        fenced = [rival.client for rival in owners.values() if (owner.exclusive or rival.exclusive)]
        fenced = [rival for rival in fenced if rival != owner.client]
        for client in fenced:
            del owners[client]
        owners[owner.client] = owner
        return fenced

    def owns(self, producer_id: int, client: str) -> bool:
        return client in self.owners.get(producer_id, ())

    def name(self, producer_id: int, client: str) -> str:
        """Return the name with which a connection has registered a producer; empty if it has not."""
        owner = self.owners.get(producer_id, {}).get(client)
        return "" if owner is None else owner.name

    def release(self, client: str) -> None:
        """Remove a closed connection from the owners of all producers."""
        for producer_id in [owned_id for owned_id, owners in self.owners.items() if client in owners]:
            del self.owners[producer_id][client]
            if not self.owners[producer_id]:
                del self.owners[producer_id]

    def written(self) -> list[tuple[int, tuple[StoredRequests, ...]]]:
        """Return the remembered requests of each producer id, as a copy that does not change."""
        return [(producer_id, tuple(window.arrived)) for producer_id, window in self._windows.items()]


def checkpoints_of(
    written: Iterable[tuple[int, tuple[StoredRequests, ...]]], ends: Sequence[int]
) -> dict[int, ProducerCheckpoint]:
    """Build a checkpoint for each partition. `ends` has the offset up to which each checkpoint reaches: later requests
    are left out."""
    runs: list[dict[int, list[RequestRun]]] = [{} for _ in ends]
    for producer_id, entries in written:
        for partition, run in (run for entry in entries for run in entry.runs()):
            if run.offset < ends[partition]:
                runs[partition].setdefault(producer_id, []).append(run)
    return {
        partition: ProducerCheckpoint(
            next_offset=Offset(ends[partition]),
            runs={
                producer_id: tuple(sorted(producer_runs, key=lambda run: run.offset))
                for producer_id, producer_runs in found.items()
            },
        )
        for partition, found in enumerate(runs)
    }
