"""Lines: messages that are ready to be delivered, and to whom the next one goes. In order, or in order per key."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Final, Protocol

from penstock.broker.base.recent_rate import Pace
from penstock.broker.subscriptions.partition import Piece
from penstock.core.offset_set import Span

SLOTS: Final = 4096
"""Keys are told apart by their hash modulo this: enough to spread over any number of consumers, few enough to list."""

PARKED_MAX: Final = 10_000
"""Messages that wait for their key's turn: past this nothing more is fetched, so that a slow key is no memory leak."""

NO_KEY: Final = -1

_PRIME: Final = 2**61 - 1

Served = dict[tuple[str, int], list[Piece]]
"""What goes to whom: consumer and partition."""


@dataclass(slots=True)
class Consumer:
    """Whoever is subscribed, and what is in flight at it."""

    id: str
    name: str
    window: int
    window_bytes: int
    in_flight: int = 0
    in_flight_bytes: int = 0
    acks: Pace = field(default_factory=Pace)

    @property
    def room(self) -> int:
        """For so many messages: always for one, however large, where nothing is in flight."""
        if self.in_flight and self.in_flight_bytes >= self.window_bytes:
            return 0
        return self.window - self.in_flight

    def fitting(self, piece: Piece, most: int) -> int:
        count = piece.fitting(min(most, self.room), max(0, self.window_bytes - self.in_flight_bytes))
        return count if count or self.in_flight or not most else 1

    def took(self, piece: Piece) -> None:
        self.in_flight += len(piece)
        self.in_flight_bytes += piece.size

    def gave(self, count: int, size: int) -> None:
        self.in_flight -= count
        self.in_flight_bytes -= size


class Line(Protocol):
    """Of all partitions of a subscription."""

    def supply(self, partition: int, piece: Piece, slots: Sequence[int]) -> None:
        """Messages never delivered before, behind all others of their partition."""
        ...

    def know(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        """A message that is not to be delivered, but may be brought back."""
        ...

    def bring_back(self, partition: int, piece: Piece) -> None:
        """They were delivered, and are to be delivered again."""
        ...

    def hold(self, partition: int, start: int, stop: int) -> None:
        """They failed, and are brought back later."""
        ...

    def released(self, partition: int, start: int, stop: int) -> None:
        """They are no longer in flight."""
        ...

    def settled(self, partition: int, start: int, stop: int) -> None:
        """They will not be brought back."""
        ...

    def discard(self, partition: int, start: int, stop: int) -> None:
        """They can no longer be delivered, whether they are ready or not."""
        ...

    def clear(self, partition: int) -> None: ...

    def members(self, consumers: Mapping[str, Consumer]) -> None:
        """Those who are there now."""
        ...

    def serve(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Served:
        """What each of them gets now, which is then in flight. Nothing of blocked partitions."""
        ...

    def wants(self, partition: int) -> bool:
        """Whether more should be fetched."""
        ...

    def is_drained(self, partition: int) -> bool:
        """Whether nothing that was supplied is left."""
        ...

    def spans(self, partition: int) -> Iterator[Span]:
        """What is ready."""
        ...

    def kept_by_keys(self) -> Mapping[str, int]:
        """How many that are ready wait for a consumer that has their key, by that consumer."""
        ...


class OrderedLine:
    """In the order of offsets, and so what failed before first; to each consumer by the room it has."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._fresh: dict[int, deque[Piece]] = {}
        self._again: dict[int, list[Piece]] = {}
        """Of partitions that were ever supplied: an empty deque takes most of a KiB."""

        self._counts = dict.fromkeys(partitions, 0)
        """How many messages that is."""

        self._ready: dict[int, None] = {}
        """Partitions that have something, the one served last at the end."""

    def supply(self, partition: int, piece: Piece, slots: Sequence[int]) -> None:  # noqa: ARG002 - keys do not matter
        self._fresh.setdefault(partition, deque()).append(piece)
        self._counts[partition] += len(piece)
        self._ready.setdefault(partition)

    def know(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        """Nothing is to be known of it."""

    def bring_back(self, partition: int, piece: Piece) -> None:
        insort(self._again.setdefault(partition, []), piece, key=attrgetter("start"))
        self._counts[partition] += len(piece)
        self._ready.setdefault(partition)

    def hold(self, partition: int, start: int, stop: int) -> None:
        """Others need not wait for them."""

    def released(self, partition: int, start: int, stop: int) -> None:
        """Nobody waits for that."""

    def settled(self, partition: int, start: int, stop: int) -> None:
        """Nothing is known of them here."""

    def discard(self, partition: int, start: int, stop: int) -> None:
        for pieces in self._pieces(partition):
            kept = [part for piece in pieces for part in _outside(piece, start, stop)]
            pieces.clear()
            pieces.extend(kept)
        self._counts[partition] = sum(end - begin for begin, end in self.spans(partition))

    def clear(self, partition: int) -> None:
        self._fresh.pop(partition, None)
        self._again.pop(partition, None)
        self._counts[partition] = 0
        self._ready.pop(partition, None)

    def members(self, consumers: Mapping[str, Consumer]) -> None:
        """Whoever has room is served."""

    def wants(self, partition: int) -> bool:
        return self.is_drained(partition)

    def is_drained(self, partition: int) -> bool:
        return not self._fresh.get(partition)

    def spans(self, partition: int) -> Iterator[Span]:
        return ((each.start, each.stop) for pieces in self._pieces(partition) for each in pieces)

    def _pieces(self, partition: int) -> list[MutableSequence[Piece]]:
        """What failed before, and what did not, as far as there ever was any."""
        return [pieces for pieces in (self._again.get(partition), self._fresh.get(partition)) if pieces is not None]

    def kept_by_keys(self) -> Mapping[str, int]:
        return {}

    def serve(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Served:
        served: Served = {}
        partitions = [each for each in self._ready if each not in blocked]
        rooms = sorted(((each.room, each) for each in consumers if each.room), key=lambda pair: -pair[0])
        if not partitions or not rooms:
            return served
        count = sum(self._counts[each] for each in partitions)
        total = sum(room for room, _ in rooms)
        for room, consumer in rooms:
            self._serve_one(consumer, min(room, -(-count * room // total)), partitions, served)
        if any(self._counts[each] for each in partitions):
            for _, consumer in rooms:  # what was too much for one is not too much for all
                self._serve_one(consumer, consumer.room, partitions, served)
        return served

    def _serve_one(self, consumer: Consumer, share: int, partitions: list[int], served: Served) -> None:
        for partition in partitions:
            before = share
            while share and (piece := self._next(partition)) is not None:
                count = consumer.fitting(piece, share)
                if not count:
                    break
                taken = self._cut(partition, count)
                consumer.took(taken)
                served.setdefault((consumer.id, partition), []).append(taken)
                share -= count
            if partition not in self._ready:
                continue
            if share < before:
                self._ready[partition] = self._ready.pop(partition)
            return

    def _next(self, partition: int) -> Piece | None:
        pieces = self._first(partition)
        if not pieces:
            self._ready.pop(partition, None)
            return None
        return pieces[0]

    def _first(self, partition: int) -> MutableSequence[Piece] | None:
        """Where the lowest offset is: after a restart one that failed before it may lie behind others."""
        again, fresh = self._again.get(partition), self._fresh.get(partition)
        return fresh if not again or (fresh and fresh[0].start < again[0].start) else again

    def _cut(self, partition: int, count: int) -> Piece:
        """The first ones of what is next."""
        pieces = self._first(partition)
        assert pieces is not None, "something is ready"  # noqa: S101 - a defect here, not bad input
        taken = pieces[0].cut(count)
        self._counts[partition] -= count
        if not len(pieces[0]):
            del pieces[0]
        return taken


class KeyedLine:
    """In order per key: while a message of a key is in flight, or is to be tried again, the next one goes to the same
    consumer or waits. Messages without a key go to whoever has most room."""

    def __init__(self) -> None:
        self._parked: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """Ready, by slot and partition: offsets and sizes, a heap each."""

        self._counts: dict[int, int] = {}
        """How many are ready, of each partition,"""
        self._count = 0
        """and of all."""

        self._slots: dict[tuple[int, int], int] = {}
        """Of every message that is not settled yet."""

        self._holders: dict[int, tuple[str, int]] = {}
        """Slots with messages in flight: at whom, how many."""

        self._held: dict[int, set[tuple[int, int]]] = {}
        """Slots with messages to be tried again later: which."""

        self._open: dict[str, OrderedDict[int, None]] = {}
        """Of each consumer: its slots that may have something for it, the one served last at the end."""

        self._draws: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self._blocked: set[int] = set()
        self._keyless_first = False

    def supply(self, partition: int, piece: Piece, slots: Sequence[int]) -> None:
        for slot in slots:
            one = piece.cut(1)
            self._slots[partition, one.start] = slot
            self._park(slot, partition, one)

    def know(self, partition: int, offset: int, slots: Sequence[int]) -> None:
        (self._slots[partition, offset],) = slots

    def bring_back(self, partition: int, piece: Piece) -> None:
        while len(piece):
            one = piece.cut(1)
            slot = self._slots[partition, one.start]
            self._unhold(slot, partition, one.start)
            self._park(slot, partition, one)

    def _park(self, slot: int, partition: int, one: Piece) -> None:
        heap = self._parked.setdefault(slot, {}).setdefault(partition, [])
        heapq.heappush(heap, (one.start, one.size))
        self._add(partition, 1)
        self._reopen(slot)

    def _add(self, partition: int, count: int) -> None:
        self._counts[partition] = self._counts.get(partition, 0) + count
        self._count += count

    def _reopen(self, slot: int) -> None:
        """There is something to serve, or nothing in its way any more."""
        if self._draws and slot != NO_KEY and slot in self._parked:
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

    def released(self, partition: int, start: int, stop: int) -> None:
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

    def settled(self, partition: int, start: int, stop: int) -> None:
        for offset in range(start, stop):
            slot = self._slots.pop((partition, offset), None)
            if slot is not None:
                self._unhold(slot, partition, offset)

    def discard(self, partition: int, start: int, stop: int) -> None:
        self.settled(partition, start, stop)
        self._keep(partition, lambda offset: not start <= offset < stop)

    def clear(self, partition: int) -> None:
        self._keep(partition, lambda _: False)
        self._slots = {key: slot for key, slot in self._slots.items() if key[0] != partition}
        for slot, held in list(self._held.items()):
            for each in [each for each in held if each[0] == partition]:
                self._unhold(slot, *each)

    def _keep(self, partition: int, is_kept: Callable[[int], bool]) -> None:
        for slot, heaps in list(self._parked.items()):
            heap = heaps.pop(partition, [])
            kept = [each for each in heap if is_kept(each[0])]
            self._add(partition, len(kept) - len(heap))
            if kept:
                heapq.heapify(kept)
                heaps[partition] = kept
            elif not heaps:
                del self._parked[slot]

    def members(self, consumers: Mapping[str, Consumer]) -> None:
        self._draws = {
            each: int.from_bytes(blake2b(each.encode(), digest_size=8).digest(), "big") for each in consumers
        }
        self._owners.clear()
        self._reopen_all()

    def _reopen_all(self) -> None:
        self._open = {each: OrderedDict() for each in self._draws}
        for slot in self._parked:
            self._reopen(slot)

    def _owner(self, slot: int) -> str:
        """The highest of all consumers' draws for this slot: who comes or goes takes only its own slots along."""
        owner = self._owners.get(slot)
        if owner is None:
            owner = max(self._draws, key=lambda each: (slot + 1) * self._draws[each] % _PRIME)
            self._owners[slot] = owner
        return owner

    def wants(self, partition: int) -> bool:  # noqa: ARG002 - they wait for keys, not for partitions
        return self._count < PARKED_MAX

    def is_drained(self, partition: int) -> bool:
        return not self._counts.get(partition)

    def spans(self, partition: int) -> Iterator[Span]:
        for heaps in self._parked.values():
            yield from ((offset, offset + 1) for offset, _ in heaps.get(partition, ()))

    def kept_by_keys(self) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        for slot, heaps in self._parked.items():
            if slot != NO_KEY and self._draws:
                holder, _ = self._holders.get(slot) or (self._owner(slot), 0)
                found[holder] += sum(map(len, heaps.values()))
        return found

    def serve(self, consumers: Collection[Consumer], blocked: Collection[int]) -> Served:
        if self._blocked != set(blocked):
            self._blocked = set(blocked)
            self._reopen_all()
        served: Served = {}
        self._keyless_first = not self._keyless_first  # neither sort is to wait for the end of the other
        if self._keyless_first:
            self._serve_keyless(consumers, served)
        for consumer in consumers:
            self._serve_keys(consumer, served)
        if not self._keyless_first:
            self._serve_keyless(consumers, served)
        return served

    def _serve_keyless(self, consumers: Collection[Consumer], served: Served) -> None:
        while (first := self._first(NO_KEY)) is not None:
            able = [each for each in consumers if each.room and each.fitting(first[1], 1)]
            if not able:
                return
            self._give(NO_KEY, *first, max(able, key=lambda each: each.room), served)

    def _serve_keys(self, consumer: Consumer, served: Served) -> None:
        slots = self._open[consumer.id]
        while slots and consumer.room:
            slot = next(iter(slots))
            before = consumer.in_flight
            if not self._is_free(slot, consumer) or self._serve_slot(slot, consumer, served):
                del slots[slot]  # until it is reopened
                continue
            if consumer.in_flight > before:
                slots.move_to_end(slot)
            return

    def _is_free(self, slot: int, consumer: Consumer) -> bool:
        """False while the key is elsewhere, or one of its messages waits to be tried again."""
        holder = self._holders.get(slot)
        return slot not in self._held and (holder is None or holder[0] == consumer.id)

    def _serve_slot(self, slot: int, consumer: Consumer, served: Served) -> bool:
        """Whether the consumer had room for all there was."""
        while (first := self._first(slot)) is not None:
            if not consumer.room or not consumer.fitting(first[1], 1):
                return False
            self._give(slot, *first, consumer, served)
        return True

    def _first(self, slot: int) -> tuple[int, Piece] | None:
        """The next message, and its partition: the one that was served last is at the end."""
        for partition, heap in self._parked.get(slot, {}).items():
            if partition not in self._blocked:
                offset, size = heap[0]
                return partition, Piece(offset, offset + 1, size)
        return None

    def _give(self, slot: int, partition: int, piece: Piece, consumer: Consumer, served: Served) -> None:
        """The first of its slot and partition is then in flight."""
        heaps = self._parked[slot]
        heap = heaps.pop(partition)
        heapq.heappop(heap)
        if heap:
            heaps[partition] = heap
        elif not heaps:
            del self._parked[slot]
        self._add(partition, -1)
        consumer.took(piece)
        if slot != NO_KEY:
            _, count = self._holders.get(slot, ("", 0))
            self._holders[slot] = (consumer.id, count + 1)
        served.setdefault((consumer.id, partition), []).append(piece)


def _outside(piece: Piece, start: int, stop: int) -> Iterator[Piece]:
    """The parts of a piece that are not in `[start, stop)`."""
    if start >= stop:
        yield piece
        return
    if piece.start < start:
        yield piece.cut(min(start, piece.stop) - piece.start)
    if piece.start < stop and len(piece):
        piece.cut(min(stop, piece.stop) - piece.start)
    if len(piece):
        yield piece
