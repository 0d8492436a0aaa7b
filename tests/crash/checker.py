"""Histories of producers and consumers, and what must be true of them whatever happened meanwhile.

A history is what clients saw, with the time at which each of them saw it, on one clock; and what the log holds in the
end. Every check is a function from a history to sentences, one for each thing that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Final

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = "exclusive", "failover", "shared", "key_shared"
_SHOWN_MAX: Final = 5
"""Problems of one kind that are told: the first ones say enough."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer was given a message. Its payload is like no other."""

    at: float
    topic: str
    payload: bytes
    producer: str
    life: int
    """The number of earlier producers of this name."""
    number: int
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A producer was told where its message lies."""

    topic: str
    payload: bytes
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message came to a consumer."""

    at: float
    subscription: str
    consumer: str
    seat: str
    """The connection of the consumer, by number."""
    partition: int
    offset: int
    payload: bytes
    key: bytes | None = None

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Settled:
    """A consumer said what became of a message: done, or not."""

    at: float
    subscription: str
    consumer: str
    partition: int
    offset: int
    done: bool = True

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the log."""

    topic: str
    partition: int
    offset: int
    payload: bytes
    key: bytes | None = None

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Watched:
    """A subscription, from the beginning of its topic."""

    name: str
    topic: str
    kind: str


@dataclass(slots=True)
class History:
    subscriptions: list[Watched] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    confirmed: list[Confirmed] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    """Deliveries in the order of arrival."""
    taken: set[tuple[str, int, int]] = field(default_factory=set)
    """Messages that applications received, not only their connections: subscription, partition, offset."""
    settled: list[Settled] = field(default_factory=list)
    acked: list[Settled] = field(default_factory=list)
    """Acknowledgements that were confirmed, and when."""
    stored: list[Stored] = field(default_factory=list)

    def of(self, subscription: Watched) -> list[Delivered]:
        return [each for each in self.delivered if each.subscription == subscription.name]

    def log(self, topic: str) -> dict[Place, Stored]:
        return {each.place: each for each in self.stored if each.topic == topic}

    def sent_at(self) -> dict[bytes, float]:
        return {each.payload: each.at for each in self.sent}


Check = Callable[[History], Iterator[str]]


def problems(history: History) -> list[str]:
    """Return all violations, in the order of the checks."""
    return [f"{check.__name__}: {problem}" for check in CHECKS for problem in islice(check(history), _SHOWN_MAX)]


# the log


def confirmed_messages_are_stored(history: History) -> Iterator[str]:
    logs = {topic: history.log(topic) for topic in {each.topic for each in history.confirmed}}
    for each in history.confirmed:
        found = logs[each.topic].get(each.place)
        if found is None or found.payload != each.payload:
            yield f"{_shown(each.payload)} was confirmed at {each.topic} {each.place}; there lies {_what(found)}"


def every_stored_message_was_sent(history: History) -> Iterator[str]:
    sent = {(each.topic, each.payload, each.key) for each in history.sent}
    for each in history.stored:
        if (each.topic, each.payload, each.key) not in sent:
            yield f"{_what(each)} at {each.topic} {each.place} was never sent there"


def no_message_is_stored_twice(history: History) -> Iterator[str]:
    seen: dict[tuple[str, bytes], Place] = {}
    for each in history.stored:
        first = seen.setdefault((each.topic, each.payload), each.place)
        if first != each.place:
            yield f"{_what(each)} lies at {each.topic} {first} and {each.place}"


def a_producer_s_messages_are_in_order(history: History) -> Iterator[str]:
    """Check that a producer's messages rise in each partition, and none comes after its successor's first."""
    numbers = {(each.topic, each.payload): each for each in history.sent}
    last: dict[tuple[str, int, str], Sent] = {}
    for stored in sorted(history.stored, key=lambda each: (each.topic, *each.place)):
        sent = numbers.get((stored.topic, stored.payload))
        if sent is None:
            continue
        key = (stored.topic, stored.partition, sent.producer)
        before = last.get(key)
        if before is not None and (before.life, before.number) > (sent.life, sent.number):
            yield f"{_what(stored)} at {stored.topic} {stored.place} lies behind {_shown(before.payload)}"
        last[key] = sent


def offsets_are_dense(history: History) -> Iterator[str]:
    places: dict[tuple[str, int], list[int]] = {}
    for each in history.stored:
        places.setdefault((each.topic, each.partition), []).append(each.offset)
    for (topic, partition), offsets in places.items():
        if offsets != list(range(len(offsets))):
            wrong = next(place for place, offset in enumerate(offsets) if place != offset)
            yield f"{topic} partition {partition}: offset {offsets[wrong]} where {wrong} should be"


def a_key_has_one_partition(history: History) -> Iterator[str]:
    homes: dict[tuple[str, bytes], int] = {}
    for each in history.stored:
        if each.key is not None and homes.setdefault((each.topic, each.key), each.partition) != each.partition:
            yield f"key {each.key!r} of {each.topic} is in two partitions, also at {each.place}"


# what was delivered


def what_was_seen_stays(history: History) -> Iterator[str]:
    """Under the same offset, with the same payload."""
    for subscription in history.subscriptions:
        log = history.log(subscription.topic)
        for each in history.of(subscription):
            found = log.get(each.place)
            if found is None or (found.payload, found.key) != (each.payload, each.key):
                yield f"{each.consumer} saw {_shown(each.payload)} at {each.place}; there lies {_what(found)}"


def every_message_is_delivered(history: History) -> Iterator[str]:
    for subscription in history.subscriptions:
        for partition, offset in history.log(subscription.topic):
            if (subscription.name, partition, offset) not in history.taken:
                yield f"{subscription.name} never had {(partition, offset)}"


def what_is_acked_stays_acked(history: History) -> Iterator[str]:
    done: dict[tuple[str, Place], float] = {}
    for each in history.acked:
        done.setdefault((each.subscription, each.place), each.at)
    for arrived in history.delivered:
        confirmed = done.get((arrived.subscription, arrived.place))
        if confirmed is not None and arrived.at > confirmed:
            late = arrived.at - confirmed
            yield (
                f"{arrived.subscription} {arrived.place} came to {arrived.consumer} {late:.3f} s after its"
                " acknowledgement was confirmed"
            )


def first_deliveries_are_in_order(history: History) -> Iterator[str]:
    """Check the order of first deliveries: of a partition with one active consumer, of each key with key_shared."""
    for subscription in history.subscriptions:
        if subscription.kind == SHARED:
            continue
        keyed = subscription.kind == KEY_SHARED
        seen: set[Place] = set()
        highest: dict[tuple[int, bytes | None], int] = {}
        for each in history.of(subscription):
            if each.place in seen or (keyed and each.key is None):
                continue
            seen.add(each.place)
            line = (each.partition, each.key if keyed else None)
            if each.offset < highest.get(line, -1):
                yield f"{subscription.name} had {highest[line]} before its first {each.place}, key {each.key!r}"
            highest[line] = max(each.offset, highest.get(line, -1))


def one_consumer_is_served_at_a_time(history: History) -> Iterator[str]:
    """Check that no connection is served again after another consumer was.

    A message that was sent after another consumer received one is a proof: the broker gave it away after that.
    """
    sent_at = history.sent_at()
    for subscription in history.subscriptions:
        if subscription.kind not in (EXCLUSIVE, FAILOVER):
            continue
        seats = _by_seat(history.of(subscription))
        for one, ones in seats.items():
            latest = max(sent_at.get(each.payload, 0.0) for each in ones)
            for other, others in seats.items():
                after = [each.at for each in others if sent_at.get(each.payload, 0.0) > ones[0].at]
                if one != other and after and latest > min(after):
                    yield f"{subscription.name}: {ones[0].consumer}, then {others[0].consumer}, then the first again"


def a_message_is_in_flight_at_one_consumer(history: History) -> Iterator[str]:
    """Check that a message is in flight at one connection only, until it is settled or the connection ends."""
    for subscription in history.subscriptions:
        evidence = _Evidence.of(history, subscription)
        refused = {
            (each.consumer, each.place, each.at)
            for each in history.settled
            if each.subscription == subscription.name and not each.done
        }
        nacks: dict[tuple[str, Place], list[float]] = {}
        for consumer, place, at in refused:
            nacks.setdefault((consumer, place), []).append(at)
        for first, second in _again(history.of(subscription)):
            if not evidence.is_shared(first, second):
                continue
            if not any(first.at <= at <= second.at for at in nacks.get((first.consumer, first.place), ())):
                yield (
                    f"{subscription.name} {first.place} was in flight at {first.consumer} when it came to"
                    f" {second.consumer}"
                )


def _again(delivered: Iterable[Delivered]) -> Iterator[tuple[Delivered, Delivered]]:
    """Yield each redelivery of a message, with the delivery before it."""
    by_place: dict[Place, list[Delivered]] = {}
    for each in delivered:
        by_place.setdefault(each.place, []).append(each)
    for deliveries in by_place.values():
        yield from pairwise(deliveries)


def a_key_is_in_flight_at_one_consumer(history: History) -> Iterator[str]:
    for subscription in history.subscriptions:
        if subscription.kind != KEY_SHARED:
            continue
        evidence = _Evidence.of(history, subscription)
        held: dict[bytes, dict[tuple[str, Place], Delivered]] = {}
        keys = {each.place: each.key for each in history.of(subscription)}
        for event in _events(history, subscription):
            key = keys.get(event.place)
            if key is None:
                continue
            mine = held.setdefault(key, {})
            if isinstance(event, Settled):
                mine.pop((event.consumer, event.place), None)
                continue
            for other in mine.values():
                if other.place != event.place and evidence.is_shared(other, event):
                    yield (
                        f"{subscription.name} {event.place} of key {key!r} came to {event.consumer} while"
                        f" {other.consumer} had {other.place}"
                    )
            mine[event.consumer, event.place] = event


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence of a history about the time between the delivery of a message and its ack."""

    sent_at: dict[bytes, float]
    served_until: dict[str, float]
    doubtful: set[Delivered]

    @classmethod
    def of(cls, history: History, subscription: Watched) -> _Evidence:
        doubtful = set(_spoken_of_before(history, subscription))
        return cls(history.sent_at(), _served_until(history, subscription), doubtful)

    def is_shared(self, first: Delivered, second: Delivered) -> bool:
        """Return True if both deliveries were certainly in flight at once, unless the first was settled meanwhile.

        The second may have come late: given away before the first, on a connection that another has replaced. It was
        not if its connection was served on, or if it was sent after the first had come.
        """
        if first.seat == second.seat or self.served_until[first.seat] <= second.at:
            return False
        if first in self.doubtful or second in self.doubtful:
            return False
        return self.served_until[second.seat] > second.at or self.sent_at.get(second.payload, 0.0) > first.at


def _spoken_of_before(history: History, subscription: Watched) -> Iterator[Delivered]:
    """Deliveries of what the same consumer had spoken of when it came on a connection before.

    Its client says so on the new connection too, which settles what has just come again, and nobody sees when.
    """
    seats: dict[tuple[str, Place], str] = {}
    spoken: dict[tuple[str, Place], str] = {}
    for event in _events(history, subscription):
        mark = (event.consumer, event.place)
        if isinstance(event, Delivered):
            seats[mark] = event.seat
            if spoken.get(mark, event.seat) != event.seat:
                yield event
        elif mark in seats:
            spoken.setdefault(mark, seats[mark])


def _events(history: History, subscription: Watched) -> list[Delivered | Settled]:
    settled = [each for each in history.settled if each.subscription == subscription.name]
    return sorted([*history.of(subscription), *settled], key=lambda each: each.at)


def _by_seat(delivered: Iterable[Delivered]) -> dict[str, list[Delivered]]:
    seats: dict[str, list[Delivered]] = {}
    for each in delivered:
        seats.setdefault(each.seat, []).append(each)
    return seats


def _served_until(history: History, subscription: Watched) -> dict[str, float]:
    """Return until when each connection was certainly served: the time at which its last message was sent."""
    sent_at = history.sent_at()
    return {
        seat: max(sent_at.get(each.payload, 0.0) for each in delivered)
        for seat, delivered in _by_seat(history.of(subscription)).items()
    }


def _shown(payload: bytes) -> str:
    return payload.rstrip(b"\0")[:40].decode(errors="replace")


def _what(stored: Stored | None) -> str:
    return "nothing" if stored is None else _shown(stored.payload)


CHECKS: Final[tuple[Check, ...]] = (
    confirmed_messages_are_stored,
    every_stored_message_was_sent,
    no_message_is_stored_twice,
    a_producer_s_messages_are_in_order,
    offsets_are_dense,
    a_key_has_one_partition,
    what_was_seen_stays,
    every_message_is_delivered,
    what_is_acked_stays_acked,
    first_deliveries_are_in_order,
    one_consumer_is_served_at_a_time,
    a_message_is_in_flight_at_one_consumer,
    a_key_is_in_flight_at_one_consumer,
)
