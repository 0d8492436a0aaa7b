"""A durable subscription: who gets which message, what is in flight, what is settled. Events in, effects out.

No clock, no socket and no disk: time comes with each event, messages are numbers and sizes, and what is to be read,
sent, saved or buried is said in effects. One `Group` is one subscription with all its consumers and partitions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.broker.subscriptions.partition import Failed, Lane, Lease, Piece
from penstock.broker.subscriptions.ready_queue import Consumer, KeyedLine, Line, OrderedLine
from penstock.core.errors import InvalidRequest, NotOwner
from penstock.core.gaps import RETENTION, Gap
from penstock.core.offset_set import Span, offset_spans
from penstock.storage.catalog.subscriptions import Cursor, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.topics import Exhausted

WAITING_MAX: Final = 10_000
"""Messages of a partition that failed and wait, for their next delivery or for their burial: past this no new ones are
taken, so that a consumer that refuses everything does not have the whole log in memory."""

_DEADLINES_MIN: Final = 1_000
"""So many may be of messages that are long acknowledged before anybody looks for those."""

_BURY_AGAIN_MS: Final = 1_000
_BEFORE: Final = "the last delivery failed before the broker was started again"
_ALONE: Final = (SubscriptionKind.EXCLUSIVE, SubscriptionKind.FAILOVER)

# events


class Connect(NamedTuple):
    consumer: str
    name: str
    window: int
    """At most so many messages in flight at it,"""
    window_bytes: int
    """and so many bytes; but always one message."""


class Disconnect(NamedTuple):
    consumer: str


class Grown(NamedTuple):
    """The log of a partition goes up to `end` now."""

    partition: int
    end: int


class Supplied(NamedTuple):
    """What was fetched from `offset` on. What lies between the pieces is not wanted by this subscription."""

    partition: int
    offset: int
    pieces: Sequence[Piece]
    next_offset: int
    slots: Sequence[int] = ()
    """For key_shared: the slot of the key of each message of the pieces, one after another; `NO_KEY` without one."""
    gaps: Sequence[Gap] = ()
    """What of it cannot be read."""


class Ack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]


class AckThrough(NamedTuple):
    """Everything up to and with this offset."""

    consumer: str
    partition: int
    offset: int


class Nack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]
    delay_ms: int | None = None
    reason: str = "refused by the consumer"


class Extend(NamedTuple):
    """Still being worked on: the time to acknowledge begins again."""

    consumer: str
    partition: int
    spans: Sequence[Span]


class Seek(NamedTuple):
    starts: Mapping[int, int]


class Pause(NamedTuple):
    pass


class Resume(NamedTuple):
    pass


class Tick(NamedTuple):
    pass


class Buried(NamedTuple):
    """A message is among the dead letters, durably; or could not be put there."""

    partition: int
    offset: int
    stored: bool
    seek: int = 0
    """As in the `Bury` that this answers: after a seek it is somebody else's."""

    hopeless: str = ""
    """Why it never can be."""


class Lost(NamedTuple):
    """Messages that can no longer be read: retention was quicker, or they are damaged."""

    partition: int
    start: int
    stop: int
    reason: str = RETENTION


class Skip(NamedTuple):
    """Messages that somebody wants settled although nobody acknowledged them."""

    partition: int
    start: int
    stop: int


Event = (
    Connect
    | Disconnect
    | Grown
    | Supplied
    | Ack
    | AckThrough
    | Nack
    | Extend
    | Seek
    | Pause
    | Resume
    | Tick
    | Buried
    | Lost
    | Skip
)

# effects


class Deliver(NamedTuple):
    consumer: str
    partition: int
    spans: tuple[Span, ...]


class Fetch(NamedTuple):
    """Look at what lies from `offset` on, and say so with `Supplied`."""

    partition: int
    offset: int


class Bury(NamedTuple):
    """Put it among the dead letters once all that was to be saved is durable, and say so with `Buried`."""

    partition: int
    offset: int
    attempts: int
    reason: str
    seek: int
    """How often somebody had sought elsewhere: the same message may fail once more after the next time."""


class Save(NamedTuple):
    """The cursor of this partition has changed."""

    partition: int


class Settled(NamedTuple):
    """So many of what a consumer spoke of were in flight at it, and so many were settled before; the rest was not its
    to speak of."""

    messages: int
    before: int = 0


class Promote(NamedTuple):
    """This consumer is the active one now."""

    consumer: str


class Evict(NamedTuple):
    """Another connection has taken this consumer's place."""

    consumer: str


class Missing(NamedTuple):
    """Messages of these offsets, so many of them not settled before, are lost to the subscription: its consumers are
    told."""

    partition: int
    gap: Gap
    messages: int


Effect = Deliver | Fetch | Bury | Save | Settled | Promote | Evict | Missing


class _Retry(NamedTuple):
    due_ms: int
    partition: int
    start: int
    stop: int
    size: int
    buries: bool = False


class _Deadline(NamedTuple):
    due_ms: int
    partition: int
    start: int
    stop: int
    delivery: int


_NO_DEADLINES: Final[deque[_Deadline]] = deque(maxlen=0)
"""Of a subscription before its first delivery. One for all: an empty deque takes most of a KiB."""


class Group:
    """One subscription. What happens goes into `handle`; an event that is refused raises and changes nothing."""

    def __init__(
        self,
        options: SubscriptionOptions,
        cursors: Mapping[int, Cursor],
        ends: Mapping[int, int],
        *,
        paused: bool = False,
        expires: bool = True,
    ) -> None:
        """`expires`: what is not acknowledged in time has failed."""
        self.options = options
        self.paused = paused
        self.lanes = {each: Lane.restore(each, cursor, ends[each]) for each, cursor in cursors.items()}
        self.consumers: dict[str, Consumer] = {}
        """In the order in which they came."""

        self.delivered = 0
        self.acked = 0
        self.failed = 0
        """Deliveries that were refused, or not acknowledged in time."""

        self.redelivered = 0
        """Given back to be delivered once more: they failed, or their consumer left."""

        self.buried = 0
        self.dropped = 0
        self.lost = 0
        self.passed = 0
        """Messages that the filter let through; all that were looked at where there is none."""

        self.filtered = 0
        """Messages that the filter settled: nobody was given them."""

        keyed = options.kind is SubscriptionKind.KEY_SHARED
        self._line: Line = KeyedLine() if keyed else OrderedLine(self.lanes)
        self._retries: list[_Retry] = []
        self._deadlines = _NO_DEADLINES
        self._deadlines_max = _DEADLINES_MIN
        self._expires = expires
        self._delivery = 0

    # what others ask

    @property
    def active(self) -> str | None:
        """The one consumer that is served, where there is only one."""
        return next(iter(self.consumers), None) if self.options.kind in _ALONE else None

    @property
    def served(self) -> list[Consumer]:
        """Those to whom messages go."""
        active = self.active
        return list(self.consumers.values()) if active is None else [self.consumers[active]]

    def kept_by_keys(self) -> Mapping[str, int]:
        """How many messages that are ready wait for a consumer that has their key, by that consumer."""
        return self._line.kept_by_keys()

    def again_ms(self, partition: int) -> int | None:
        """When the next of what failed is delivered again."""
        due = (each.due_ms for each in self._retries if each.partition == partition and not each.buries)
        return min(due, default=None)

    def attempt(self, partition: int, offset: int) -> int:
        """Which delivery of a message this is, from 1."""
        return self.lanes[partition].failures.get(offset, 0) + 1

    def is_drained(self, partition: int) -> bool:
        """Nothing that was fetched waits for its first delivery."""
        return self._line.is_drained(partition)

    def quiet_ms(self, now_ms: int) -> int:
        """How long nobody has acknowledged anything of what is in flight."""
        last = [each.acks.last_ms for each in self.served if each.acks.last_ms is not None]
        since = [*last, *([] if (oldest := self.unacked_since_ms()) is None else [oldest])]
        return now_ms - max(since, default=now_ms)

    def unacked_since_ms(self) -> int | None:
        """When the delivery was made that has waited longest for its acknowledgement; None if none waits."""
        oldest = min((lease.delivery for lane in self.lanes.values() for lease in lane.leases), default=None)
        if oldest is None:
            return None
        due = (each.due_ms for each in self._deadlines if each.delivery >= oldest)
        return next((due_ms - self.options.ack_timeout_ms for due_ms in due), None)

    def next_due_ms(self) -> int | None:
        due = [each[0].due_ms for each in (self._retries, self._deadlines) if each]
        return min(due, default=None)

    def check(self) -> None:
        """Raise AssertionError unless all is in order."""
        held: dict[str, list[int]] = {each: [0, 0] for each in self.consumers}
        for lane in self.lanes.values():
            lane.check(self._line.spans(lane.partition))
            for lease in lane.leases:
                held[lease.consumer][0] += lease.stop - lease.start
                held[lease.consumer][1] += lease.size
        for each in self.consumers.values():
            assert held[each.id] == [each.in_flight, each.in_flight_bytes], f"{each} holds {held[each.id]}"  # noqa: S101
            assert each.in_flight <= each.window, f"{each} has more than its window"  # noqa: S101

    # events

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What is to be done now. Time never goes back."""
        return [*self._handle(event, now_ms), *self._pump(now_ms)]

    def _handle(self, event: Event, now_ms: int) -> list[Effect]:  # noqa: C901 - one row an event
        match event:
            case Connect():
                return self._connect(event)
            case Disconnect(consumer):
                return self._disconnect(consumer)
            case Grown(partition, end):
                self.lanes[partition].end = max(self.lanes[partition].end, end)
                return []
            case Supplied():
                return self._supplied(event, now_ms)
            case Ack(consumer, partition, spans):
                return self._ack(consumer, partition, spans, now_ms)
            case AckThrough(consumer, partition, offset):
                return self._ack_through(consumer, partition, offset, now_ms)
            case Nack():
                return self._nack(event, now_ms)
            case Extend(consumer, partition, spans):
                return self._extend(consumer, partition, spans, now_ms)
            case Seek(starts):
                return self._seek(starts)
            case Pause():
                self.paused = True
                return []
            case Resume():
                return self._resume()
            case Tick():
                return self._expire(now_ms)
            case Buried():
                return self._buried(event, now_ms)
            case Lost(partition, start, stop, reason):
                lane = self.lane(partition)
                return [*self._lose(lane, Gap(start, stop, reason)), *self._skip(lane, start, stop)]
            case Skip(partition, start, stop):
                return self._skip(self.lane(partition), start, stop)

    # consumers

    def _connect(self, event: Connect) -> list[Effect]:
        if self.options.kind is SubscriptionKind.EXCLUSIVE:
            self._check_alone(event.name)
        effects: list[Effect] = []
        for other in [each.id for each in self.consumers.values() if each.name == event.name]:
            effects += [*self._disconnect(other), Evict(other)]
        before = self.active
        self.consumers[event.consumer] = Consumer(event.consumer, event.name, event.window, event.window_bytes)
        self._line.members(self.consumers)
        return [*effects, Promote(event.consumer)] if self.active != before else effects

    def _check_alone(self, name: str) -> None:
        for other in self.consumers.values():
            if other.name != name:
                raise NotOwner(
                    f"this subscription is exclusive, and consumer {other.name!r} has it: wait until it has gone, come"
                    " back under its name, or make the subscription failover, shared or key_shared",
                    consumer=other.name,
                )

    def _disconnect(self, consumer: str) -> list[Effect]:
        """What was in flight at it is ready for others at once: it did not fail."""
        if consumer not in self.consumers:
            return []
        was_active = self.active == consumer
        for lane in self.lanes.values():
            for lease in self._released(lane, lane.leases.take_all(consumer)):
                self._line.bring_back(lane.partition, Piece(lease.start, lease.stop, lease.size))
                self.redelivered += lease.stop - lease.start
        del self.consumers[consumer]
        self._line.members(self.consumers)
        return [Promote(self.active)] if was_active and self.active is not None else []

    def _released(self, lane: Lane, leases: list[Lease]) -> list[Lease]:
        """They are no longer in flight: their consumers have room again."""
        for lease in leases:
            self.consumers[lease.consumer].gave(lease.stop - lease.start, lease.size)
            self._line.released(lane.partition, lease.start, lease.stop)
        return leases

    # what comes from the log

    def _supplied(self, event: Supplied, now_ms: int) -> list[Effect]:
        lane = self.lanes[event.partition]
        if not lane.fetching or lane.fetched != event.offset:
            return []  # somebody sought elsewhere meanwhile
        lane.fetching = False
        floor, position, taken = lane.floor, event.offset, 0
        exhausted = lane.exhausted(event.offset, event.next_offset, self.options.redeliveries)
        effects: list[Effect] = [each for gap in event.gaps for each in self._lose(lane, gap)]
        for piece in event.pieces:
            lane.settle(position, piece.start)
            position, count = piece.stop, len(piece)
            self.passed += count
            effects += self._supply(lane, piece, event.slots[taken : taken + count], exhausted, now_ms)
            taken += count
        lane.settle(position, event.next_offset)
        self.filtered += event.next_offset - event.offset - taken
        lane.fetched = event.next_offset
        lane.end = max(lane.end, event.next_offset)
        return [*effects, Save(lane.partition)] if lane.floor != floor else effects

    def _lose(self, lane: Lane, gap: Gap) -> Iterator[Missing]:
        """Count the messages of a gap that were not settled before."""
        messages = sum(stop - start for start, stop in lane.settled.gaps(max(gap.start, lane.floor), gap.stop))
        if messages:
            self.lost += messages
            yield Missing(lane.partition, gap, messages)

    def _supply(
        self, lane: Lane, piece: Piece, slots: Sequence[int], exhausted: Collection[int], now_ms: int
    ) -> Iterator[Effect]:
        first, wanted = piece.start, list(lane.unsettled(piece))
        for part in (part for each in wanted for part in each.parted(exhausted)):
            offset, own = part.start, slots[part.start - first : part.stop - first]
            if offset in exhausted:
                self._line.know(lane.partition, offset, own)
                yield from self._exhaust(lane, offset, Failed(lane.failures[offset], part.size, _BEFORE, now_ms))
            else:
                self._line.supply(lane.partition, part, own)

    # what consumers say

    def lane(self, partition: int) -> Lane:
        lane = self.lanes.get(partition)
        if lane is None:
            raise InvalidRequest(f"there is no partition {partition}: 0 to {len(self.lanes) - 1}", partition=partition)
        return lane

    def _taken(self, lane: Lane, consumer: str, spans: Sequence[Span]) -> list[Lease]:
        """Of what a consumer speaks of, what is in flight at it."""
        return [each for start, stop in spans for each in lane.leases.take(start, stop, consumer=consumer)]

    def _ack(self, consumer: str, partition: int, spans: Sequence[Span], now_ms: int) -> list[Effect]:
        lane = self.lane(partition)
        before = sum(lane.settled_within(start, stop) for start, stop in spans)
        leases = self._released(lane, self._taken(lane, consumer, spans))
        for lease in leases:
            self._settle(lane, lease.start, lease.stop)
        count = _count(leases)
        self.acked += count
        if count:
            self.consumers[consumer].acks.add(count, now_ms)
        return [Settled(count, before), Save(partition)] if leases else [Settled(0, before)]

    def _ack_through(self, consumer: str, partition: int, offset: int, now_ms: int) -> list[Effect]:
        if self.options.kind not in _ALONE:
            raise InvalidRequest(
                f"a {self.options.kind.value} subscription has no cumulative acks: others may hold what lies before",
                type=self.options.kind.value,
            )
        return self._ack(consumer, partition, [(0, offset + 1)], now_ms)

    def _nack(self, event: Nack, now_ms: int) -> list[Effect]:
        lane = self.lane(event.partition)
        leases = self._released(lane, self._taken(lane, event.consumer, event.spans))
        effects = [each for lease in leases for each in self._fail(lane, lease, event.reason, event.delay_ms, now_ms)]
        return [Settled(_count(leases)), Save(lane.partition), *effects] if leases else [Settled(0)]

    def _extend(self, consumer: str, partition: int, spans: Sequence[Span], now_ms: int) -> list[Effect]:
        lane = self.lane(partition)
        leases = self._taken(lane, consumer, spans)
        for lease in leases:
            self._begin(lane, lease, now_ms)
        return [Settled(_count(leases))]

    def _begin(self, lane: Lane, lease: Lease, now_ms: int) -> None:
        """It is in flight from now on."""
        self._delivery += 1
        lease.delivery = self._delivery
        lane.leases.add(lease)
        if self._expires:
            due_ms = now_ms + self.options.ack_timeout_ms
            if self._deadlines is _NO_DEADLINES:
                self._deadlines = deque()
            self._deadlines.append(_Deadline(due_ms, lane.partition, lease.start, lease.stop, lease.delivery))
        if len(self._deadlines) > self._deadlines_max:
            self._forget_deadlines()

    def _forget_deadlines(self) -> None:
        """Those of messages that are no longer in flight: they are many where the time to acknowledge is long."""
        living = {lease.delivery for lane in self.lanes.values() for lease in lane.leases}
        self._deadlines = deque(each for each in self._deadlines if each.delivery in living)
        self._deadlines_max = 2 * len(self._deadlines) + _DEADLINES_MIN

    def _settle(self, lane: Lane, start: int, stop: int) -> None:
        lane.settle(start, stop)
        self._line.settled(lane.partition, start, stop)

    # failures

    def _fail(self, lane: Lane, lease: Lease, reason: str, delay_ms: int | None, now_ms: int) -> Iterator[Effect]:
        """Each is tried again later, or has had its last delivery."""
        again: dict[int, list[int]] = {}
        self.failed += lease.stop - lease.start
        for offset in range(lease.start, lease.stop):
            failed = lane.failures[offset] = lane.failures.get(offset, 0) + 1
            if failed > self.options.redeliveries:
                size = lease.size // (lease.stop - lease.start)
                yield from self._exhaust(lane, offset, Failed(failed, size, reason, now_ms))
            else:
                delay = self._backoff(failed) if delay_ms is None else delay_ms
                again.setdefault(now_ms + delay, []).append(offset)
        for due_ms, offsets in again.items():
            for start, stop in offset_spans(offsets):
                size = lease.size * (stop - start) // (lease.stop - lease.start)
                lane.waiting.add(start, stop)
                self._line.hold(lane.partition, start, stop)
                heapq.heappush(self._retries, _Retry(due_ms, lane.partition, start, stop, size))

    def _backoff(self, failed: int) -> int:
        return int(min(self.options.backoff_ms << min(failed - 1, 40), self.options.backoff_ms_max))

    def _exhaust(self, lane: Lane, offset: int, failed: Failed) -> Iterator[Effect]:
        match self.options.exhausted:
            case Exhausted.DEAD_LETTER:
                lane.burying[offset] = failed
                yield _bury(lane, offset, failed)
            case Exhausted.DROP:
                self.dropped += 1
                self._settle(lane, offset, offset + 1)
            case Exhausted.BLOCK:
                lane.poison[offset] = failed

    def _buried(self, event: Buried, now_ms: int) -> list[Effect]:
        lane = self.lanes[event.partition]
        if event.offset not in lane.burying or event.seek != lane.seeks:
            return []  # somebody sought elsewhere meanwhile
        if event.stored:
            del lane.burying[event.offset]
            self.buried += 1
            self._settle(lane, event.offset, event.offset + 1)
            return [Save(lane.partition)]
        if event.hopeless:
            failed = lane.burying.pop(event.offset)
            reason = f"{failed.reason}; it cannot become a dead letter: {event.hopeless}"
            lane.poison[event.offset] = failed._replace(reason=reason)
            return []
        again_ms, offset = now_ms + _BURY_AGAIN_MS, event.offset
        heapq.heappush(self._retries, _Retry(again_ms, lane.partition, offset, offset + 1, 0, buries=True))
        return []

    def _expire(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        changed: dict[int, None] = {}
        while self._deadlines and self._deadlines[0].due_ms <= now_ms:
            due = self._deadlines.popleft()
            lane = self.lanes[due.partition]
            reason = f"not acknowledged within {self.options.ack_timeout_ms} ms"
            for lease in self._released(lane, lane.leases.take(due.start, due.stop, delivery=due.delivery)):
                effects += self._fail(lane, lease, reason, None, now_ms)
                changed[due.partition] = None
        effects = [*map(Save, changed), *effects]
        while self._retries and self._retries[0].due_ms <= now_ms:
            effects += self._retry(heapq.heappop(self._retries))
        return effects

    def _retry(self, retry: _Retry) -> Iterator[Effect]:
        lane = self.lanes[retry.partition]
        if retry.buries:
            failed = lane.burying.get(retry.start)
            if failed is not None:
                yield _bury(lane, retry.start, failed)
            return
        for start, stop in lane.waiting.within(retry.start, retry.stop):
            size = retry.size * (stop - start) // (retry.stop - retry.start)
            self._line.bring_back(lane.partition, Piece(start, stop, size))
            self.redelivered += stop - start
        lane.waiting.remove(retry.start, retry.stop)

    # what operators do

    def _seek(self, starts: Mapping[int, int]) -> list[Effect]:
        lanes = [(self.lane(partition), offset) for partition, offset in starts.items()]
        for lane, offset in lanes:
            self._restart(lane, offset)
        return [Save(lane.partition) for lane, _ in lanes]

    def _restart(self, lane: Lane, offset: int) -> None:
        self._released(lane, lane.leases.take_all())
        self._line.clear(lane.partition)
        self._retries = [each for each in self._retries if each.partition != lane.partition]
        heapq.heapify(self._retries)
        lane.seek(offset)

    def _resume(self) -> list[Effect]:
        """What blocked is tried once more, from the first attempt."""
        self.paused = False
        blocked = [lane for lane in self.lanes.values() if lane.poison]
        for lane in blocked:
            for offset, failed in lane.poison.items():
                lane.failures.pop(offset, None)
                self._line.bring_back(lane.partition, Piece(offset, offset + 1, failed.size))
            lane.poison.clear()
        return [Save(lane.partition) for lane in blocked]

    def _skip(self, lane: Lane, start: int, stop: int) -> list[Effect]:
        """They count as settled, wherever they are. A fetch that is under way there no longer counts."""
        partition, looked_at = lane.partition, min(stop, lane.fetched)
        if start <= lane.fetched < stop:
            lane.fetched, lane.fetching = stop, False
        start = max(start, lane.floor)
        if start >= stop:
            return []
        self._released(lane, lane.leases.take(start, looked_at))
        self._line.discard(partition, start, looked_at)
        lane.waiting.remove(start, looked_at)
        for offsets in (lane.burying, lane.poison):
            for offset in [each for each in offsets if start <= each < stop]:
                del offsets[offset]
        lane.settle(start, stop)
        return [Save(partition)]

    # deliveries

    def _pump(self, now_ms: int) -> list[Effect]:
        """Give consumers what they have room for, and fetch more where there is room left."""
        if self.paused or not self.consumers:
            return []
        served_to = self.served
        blocked = [each.partition for each in self.lanes.values() if each.poison]
        effects: list[Effect] = []
        for (consumer, partition), pieces in self._line.serve(served_to, blocked).items():
            effects.append(self._deliver(consumer, self.lanes[partition], pieces, now_ms))
        if any(each.room for each in served_to):
            effects += self._fetches(blocked)
        return effects

    def _deliver(self, consumer: str, lane: Lane, pieces: list[Piece], now_ms: int) -> Deliver:
        pieces.sort(key=lambda piece: piece.start)
        spans: list[Span] = []
        for piece in pieces:
            self._begin(lane, Lease(piece.start, piece.stop, piece.size, consumer, 0), now_ms)
            self.delivered += len(piece)
            if spans and spans[-1][1] == piece.start:
                spans[-1] = (spans[-1][0], piece.stop)
            else:
                spans.append((piece.start, piece.stop))
        return Deliver(consumer, lane.partition, tuple(spans))

    def _fetches(self, blocked: list[int]) -> Iterator[Fetch]:
        for lane in self.lanes.values():
            if lane.fetching or lane.partition in blocked:
                continue
            lane.fetched = max(lane.fetched, lane.floor)
            if lane.fetched < lane.end and lane.failing < WAITING_MAX and self._line.wants(lane.partition):
                lane.fetching = True
                yield Fetch(lane.partition, lane.fetched)


def _count(leases: list[Lease]) -> int:
    return sum(lease.stop - lease.start for lease in leases)


def _bury(lane: Lane, offset: int, failed: Failed) -> Bury:
    return Bury(lane.partition, offset, failed.attempts, failed.reason, lane.seeks)
