"""Ready queues: the messages that can be delivered now, and the choice of a consumer for each. One queue keeps the
order of offsets, the other the order of each key."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Final, Protocol

from penstock.broker.base.recent_rate import RecentRate
from penstock.broker.subscriptions.partition import OffsetRun
from penstock.core.offset_set import Span

SLOTS: Final = 4096
"""The number of key slots. The slot of a key is its hash modulo this: enough to spread over many consumers, few enough
to list."""

READY_MAX: Final = 10_000
"""The most messages that wait for their key's turn. With more, nothing is fetched, so that one slow key does not fill
the memory."""

NO_KEY: Final = -1

_PRIME: Final = 2**61 - 1

Dispatched = dict[tuple[str, int], list[OffsetRun]]
"""The runs to deliver, by consumer and partition."""


@dataclass(slots=True)
class Consumer:
    """A connected consumer, its window, and how much is in flight at it."""

    id: str
    name: str
    window: int
    window_bytes: int
    in_flight: int = 0
    in_flight_bytes: int = 0
    acks: RecentRate = field(default_factory=RecentRate)

    @property
    def room(self) -> int:
        """The number of messages that can be given to it now. While nothing is in flight it is at least one, however
        large that message is."""
        if self.in_flight and self.in_flight_bytes >= self.window_bytes:
            return 0
        return self.window - self.in_flight

    def capacity_for(self, run: OffsetRun, most: int) -> int:
        count = run.count_within(min(most, self.room), max(0, self.window_bytes - self.in_flight_bytes))
        return count if count or self.in_flight or not most else 1

    def add_in_flight(self, run: OffsetRun) -> None:
        self.in_flight += len(run)
        self.in_flight_bytes += run.size

    def remove_in_flight(self, count: int, size: int) -> None:
        self.in_flight -= count
        self.in_flight_bytes -= size


class ReadyQueue(Protocol):
    """The ready messages of all partitions of a subscription."""

    def supply(self, partition: int, run: OffsetRun, slots: Sequence[int]) -> None:
        """Add messages that were never delivered, behind all others of their partition. `slots` has the key slot of
        each, for key_shared."""
        ...

    def register_key(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        """Note the key slot of a message that is exhausted, as it may be requeued later. `slots` has one entry."""
        ...

    def requeue(self, partition: int, run: OffsetRun) -> None:
        """Add messages that were delivered before, so that they are delivered again."""
        ...

    def hold(self, partition: int, start: int, stop: int) -> None:
        """Note that messages have failed and will be requeued later. Until then, key_shared holds back later messages
        of their keys."""
        ...

    def release(self, partition: int, start: int, stop: int) -> None:
        """Note that messages are no longer in flight."""
        ...

    def forget(self, partition: int, start: int, stop: int) -> None:
        """Forget messages that are acked: they will never be requeued."""
        ...

    def discard(self, partition: int, start: int, stop: int) -> None:
        """Remove and forget messages that must not be delivered any more, whether they are ready or not."""
        ...

    def clear(self, partition: int) -> None: ...

    def set_consumers(self, consumers: Mapping[str, Consumer]) -> None:
        """Set the connected consumers, in place of those set before."""
        ...

    def dispatch(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Dispatched:
        """Remove the messages that each consumer gets now, and count them as in flight there. Partitions in `blocked`
        give none."""
        ...

    def wants_more(self, partition: int) -> bool:
        """Return whether more messages of a partition should be fetched."""
        ...

    def is_drained(self, partition: int) -> bool:
        """Return whether no supplied message of a partition is left in the queue."""
        ...

    def spans(self, partition: int) -> Iterator[Span]:
        """Return the ready offsets of a partition, as spans in any order."""
        ...

    def ready_by_holder(self) -> Mapping[str, int]:
        """Return how many ready messages wait for each consumer because it has their keys."""
        ...


class OrderedQueue:
    """A queue in the order of offsets, in which redeliveries usually come first. Any consumer can get any message; each
    gets a share according to the room it has."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._fresh: dict[int, deque[OffsetRun]] = {}
        self._again: dict[int, list[OffsetRun]] = {}
        """Runs to deliver again, by partition. A partition gets its entry when it first has one: empty containers would
        take much memory."""

        self._counts = dict.fromkeys(partitions, 0)
        """The number of ready messages of each partition."""

        self._ready: dict[int, None] = {}
        """The partitions with ready messages. The one that was dispatched last is last."""

    def supply(self, partition: int, run: OffsetRun, slots: Sequence[int]) -> None:  # noqa: ARG002 - keys do not matter
        self._fresh.setdefault(partition, deque()).append(run)
        self._counts[partition] += len(run)
        self._ready.setdefault(partition)

    def register_key(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        """Do nothing: delivery does not depend on keys."""

    def requeue(self, partition: int, run: OffsetRun) -> None:
        insort(self._again.setdefault(partition, []), run, key=attrgetter("start"))
        self._counts[partition] += len(run)
        self._ready.setdefault(partition)

    def hold(self, partition: int, start: int, stop: int) -> None:
        """Do nothing: later messages do not wait for failed ones."""

    def release(self, partition: int, start: int, stop: int) -> None:
        """Do nothing: no message waits for one in flight."""

    def forget(self, partition: int, start: int, stop: int) -> None:
        """Do nothing: the queue keeps nothing about messages that were dispatched."""

    def discard(self, partition: int, start: int, stop: int) -> None:
        for runs in self._runs(partition):
            kept = [part for run in runs for part in _outside(run, start, stop)]
            runs.clear()
            runs.extend(kept)
        self._counts[partition] = sum(end - begin for begin, end in self.spans(partition))

    def clear(self, partition: int) -> None:
        self._fresh.pop(partition, None)
        self._again.pop(partition, None)
        self._counts[partition] = 0
        self._ready.pop(partition, None)

    def set_consumers(self, consumers: Mapping[str, Consumer]) -> None:
        """Do nothing: any consumer with room can get any message."""

    def wants_more(self, partition: int) -> bool:
        return self.is_drained(partition)

    def is_drained(self, partition: int) -> bool:
        return not self._fresh.get(partition)

    def spans(self, partition: int) -> Iterator[Span]:
        return ((run.start, run.stop) for runs in self._runs(partition) for run in runs)

    def _runs(self, partition: int) -> list[MutableSequence[OffsetRun]]:
        """Return two lists of runs of a partition, redeliveries and first deliveries, without a list that never had
        one."""
        return [runs for runs in (self._again.get(partition), self._fresh.get(partition)) if runs is not None]

    def ready_by_holder(self) -> Mapping[str, int]:
        return {}

    def dispatch(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Dispatched:
        dispatched: Dispatched = {}
        partitions = [partition for partition in self._ready if partition not in blocked]
        rooms = [(consumer.room, consumer) for consumer in consumers if consumer.room]
        if not partitions or not rooms:
            return dispatched
        rooms.sort(key=lambda pair: -pair[0])
        count = sum(self._counts[partition] for partition in partitions)
        total = sum(room for room, _ in rooms)
        for room, consumer in rooms:
            self._dispatch_to(consumer, min(room, -(-count * room // total)), partitions, dispatched)
        if any(self._counts[partition] for partition in partitions):
            for _, consumer in rooms:  # too much for one consumer's share is not too much for all
                self._dispatch_to(consumer, consumer.room, partitions, dispatched)
        return dispatched

    def _dispatch_to(self, consumer: Consumer, share: int, partitions: list[int], dispatched: Dispatched) -> None:
        for partition in partitions:
            before = share
            while share and (run := self._next(partition)) is not None:
                count = consumer.capacity_for(run, share)
                if not count:
                    break
                taken = self._cut(partition, count)
                consumer.add_in_flight(taken)
                dispatched.setdefault((consumer.id, partition), []).append(taken)
                share -= count
            if partition not in self._ready:
                continue
            if share < before:
                self._ready[partition] = self._ready.pop(partition)
            return

    def _next(self, partition: int) -> OffsetRun | None:
        runs = self._first(partition)
        if not runs:
            self._ready.pop(partition, None)
            return None
        return runs[0]

    def _first(self, partition: int) -> MutableSequence[OffsetRun] | None:
        """Return the list of runs that has the lowest offset; None or an empty list if nothing is ready. After a
        restart a failed message may come after others."""
        again, fresh = self._again.get(partition), self._fresh.get(partition)
        return fresh if not again or (fresh and fresh[0].start < again[0].start) else again

    def _cut(self, partition: int, count: int) -> OffsetRun:
        """Remove the first `count` messages of the next run, and return them."""
        runs = self._first(partition)
        assert runs is not None, "something is ready"  # noqa: S101 - an internal error, not bad input
        taken = runs[0].take_first(count)
        self._counts[partition] -= count
        if not len(runs[0]):
            del runs[0]
        return taken


class KeySharedQueue:
    """A queue that keeps the order of each key. While a message of a key is in flight, the next one goes to the same
    consumer. While one waits for redelivery, the next one waits too. Messages without a key go to the consumer with the
    most room."""

    def __init__(self) -> None:
        self._ready: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """Ready messages by slot and partition: a heap of pairs of offset and size."""

        self._counts: dict[int, int] = {}
        """The number of ready messages of each partition."""
        self._count = 0
        """The number of ready messages of all partitions."""

        self._slots: dict[tuple[int, int], int] = {}
        """The slot of every message that was supplied and is not acked yet, by partition and offset."""

        self._holders: dict[int, tuple[str, int]] = {}
        """For each slot with messages in flight, the consumer that has them, and how many they are."""

        self._held: dict[int, set[tuple[int, int]]] = {}
        """For each slot with messages that wait for redelivery, the partition and offset of each."""

        self._open: dict[str, OrderedDict[int, None]] = {}
        """For each consumer, the slots that may have a message for it. The one that was dispatched last is last."""

        self._weights: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._blocked: set[int] = set()
        self._keyless_first = False

    def supply(self, partition: int, run: OffsetRun, slots: Sequence[int]) -> None:
        for slot in slots:
            message = run.take_first(1)
            self._slots[partition, message.start] = slot
            self._push(slot, partition, message)

    def register_key(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        (self._slots[partition, offset],) = slots

    def requeue(self, partition: int, run: OffsetRun) -> None:
        while len(run):
            message = run.take_first(1)
            slot = self._slots[partition, message.start]
            self._unhold(slot, partition, message.start)
            self._push(slot, partition, message)

    def _push(self, slot: int, partition: int, message: OffsetRun) -> None:
        heap = self._ready.setdefault(slot, {}).setdefault(partition, [])
        heapq.heappush(heap, (message.start, message.size))
        self._add(partition, 1)
        self._reopen(slot)

    def _add(self, partition: int, count: int) -> None:
        self._counts[partition] = self._counts.get(partition, 0) + count
        self._count += count

    def _reopen(self, slot: int) -> None:
        """Add a slot to the open slots of its consumer, because a message of it has become ready or need not wait any
        longer."""
        if self._weights and slot != NO_KEY and slot in self._ready:
            self._open[self._owner(slot)].setdefault(slot)

    def hold(self, partition: int, start: int, stop: int) -> None:
        for offset in range(start, stop):
            slot = self._slots[partition, offset]
            if slot != NO_KEY:
                self._held.setdefault(slot, set()).add((partition, offset))

    def _unhold(self, slot: int, partition: int, offset: int) -> None:
        held = self._held.get(slot)
        if held is not None:
            held.discard((partition, offset))
            if not held:
                del self._held[slot]
                self._reopen(slot)

    def release(self, partition: int, start: int, stop: int) -> None:
        for offset in range(start, stop):
            slot = self._slots[partition, offset]
            holder = self._holders.get(slot)
            if holder is None:
                continue
            if holder[1] > 1:
                self._holders[slot] = (holder[0], holder[1] - 1)
            else:
                del self._holders[slot]
                self._reopen(slot)

    def forget(self, partition: int, start: int, stop: int) -> None:
        for offset in range(start, stop):
            slot = self._slots.pop((partition, offset), None)
            if slot is not None:
                self._unhold(slot, partition, offset)

    def discard(self, partition: int, start: int, stop: int) -> None:
        self.forget(partition, start, stop)
        self._retain(partition, lambda offset: not start <= offset < stop)

    def clear(self, partition: int) -> None:
        self._retain(partition, lambda _: False)
        self._slots = {key: slot for key, slot in self._slots.items() if key[0] != partition}
        for slot, held in list(self._held.items()):
            for each in [each for each in held if each[0] == partition]:
                self._unhold(slot, *each)

    def _retain(self, partition: int, is_kept: Callable[[int], bool]) -> None:
        for slot, heaps in list(self._ready.items()):
            heap = heaps.pop(partition, [])
            kept = [each for each in heap if is_kept(each[0])]
            self._add(partition, len(kept) - len(heap))
            if kept:
                heapq.heapify(kept)
                heaps[partition] = kept
            elif not heaps:
                del self._ready[slot]

    def set_consumers(self, consumers: Mapping[str, Consumer]) -> None:
        self._weights = {
            consumer: int.from_bytes(blake2b(consumer.encode(), digest_size=8).digest(), "big")
            for consumer in consumers
        }
        self._owners.clear()
        self._reopen_all()

    def _reopen_all(self) -> None:
        self._open = {each: OrderedDict() for each in self._weights}
        for slot in self._ready:
            self._reopen(slot)

    def _owner(self, slot: int) -> str:
        """Return the consumer that a slot belongs to, by rendezvous hashing: when a consumer joins or leaves, only its
        own slots move."""
        owner = self._owners.get(slot)
        if owner is None:
            owner = max(self._weights, key=lambda each: (slot + 1) * self._weights[each] % _PRIME)
            self._owners[slot] = owner
        return owner

    def wants_more(self, partition: int) -> bool:  # noqa: ARG002 - messages wait for keys, not for partitions
        return self._count < READY_MAX

    def is_drained(self, partition: int) -> bool:
        return not self._counts.get(partition)

    def spans(self, partition: int) -> Iterator[Span]:
        for heaps in self._ready.values():
            yield from ((offset, offset + 1) for offset, _ in heaps.get(partition, ()))

    def ready_by_holder(self) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for slot, heaps in self._ready.items():
            if slot != NO_KEY and self._weights:
                holder, _ = self._holders.get(slot) or (self._owner(slot), 0)
                counts[holder] += sum(map(len, heaps.values()))
        return counts

    def dispatch(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Dispatched:
        if self._blocked != set(blocked):
            self._blocked = set(blocked)
            self._reopen_all()
        dispatched: Dispatched = {}
        self._keyless_first = not self._keyless_first  # so that neither kind waits for the end of the other
        if self._keyless_first:
            self._dispatch_keyless(consumers, dispatched)
        for consumer in consumers:
            self._dispatch_keyed(consumer, dispatched)
        if not self._keyless_first:
            self._dispatch_keyless(consumers, dispatched)
        return dispatched

    def _dispatch_keyless(self, consumers: Collection[Consumer], dispatched: Dispatched) -> None:
        while (first := self._first(NO_KEY)) is not None:
            able = [each for each in consumers if each.room and each.capacity_for(first[1], 1)]
            if not able:
                return
            self._dispatch_first(NO_KEY, *first, max(able, key=lambda each: each.room), dispatched)

    def _dispatch_keyed(self, consumer: Consumer, dispatched: Dispatched) -> None:
        slots = self._open[consumer.id]
        while slots and consumer.room:
            slot = next(iter(slots))
            before = consumer.in_flight
            if not self._is_free(slot, consumer) or self._dispatch_slot(slot, consumer, dispatched):
                del slots[slot]  # until it is listed again
                continue
            if consumer.in_flight > before:
                slots.move_to_end(slot)
            return

    def _is_free(self, slot: int, consumer: Consumer) -> bool:
        """Return whether messages of a slot may go to this consumer now: none is in flight at another one, and none
        waits for redelivery."""
        holder = self._holders.get(slot)
        return slot not in self._held and (holder is None or holder[0] == consumer.id)

    def _dispatch_slot(self, slot: int, consumer: Consumer, dispatched: Dispatched) -> bool:
        """Dispatch the ready messages of a slot to a consumer. Returns False if it had no room for all of them."""
        while (first := self._first(slot)) is not None:
            if not consumer.room or not consumer.capacity_for(first[1], 1):
                return False
            self._dispatch_first(slot, *first, consumer, dispatched)
        return True

    def _first(self, slot: int) -> tuple[int, OffsetRun] | None:
        """Return the partition and the next message of a slot, without removing it; None if no unblocked partition has
        one. Partitions take turns."""
        for partition, heap in self._ready.get(slot, {}).items():
            if partition not in self._blocked:
                offset, size = heap[0]
                return partition, OffsetRun(offset, offset + 1, size)
        return None

    def _dispatch_first(
        self, slot: int, partition: int, run: OffsetRun, consumer: Consumer, dispatched: Dispatched
    ) -> None:
        """Remove the first message of a slot and partition, and count it as in flight at the consumer."""
        heaps = self._ready[slot]
        heap = heaps.pop(partition)
        heapq.heappop(heap)
        if heap:
            heaps[partition] = heap
        elif not heaps:
            del self._ready[slot]
        self._add(partition, -1)
        consumer.add_in_flight(run)
        if slot != NO_KEY:
            _, count = self._holders.get(slot, ("", 0))
            self._holders[slot] = (consumer.id, count + 1)
        dispatched.setdefault((consumer.id, partition), []).append(run)


def _outside(run: OffsetRun, start: int, stop: int) -> Iterator[OffsetRun]:
    """Yield the parts of a run that are not in `[start, stop)`. The run itself is used up."""
    if start >= stop:
        yield run
        return
    if run.start < start:
        yield run.take_first(min(start, run.stop) - run.start)
    if run.start < stop and len(run):
        run.take_first(min(stop, run.stop) - run.start)
    if len(run):
        yield run
