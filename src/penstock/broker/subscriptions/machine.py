"""The subscription machine: decides which consumer gets which message, and knows what is in flight and what is acked.

It takes events and returns effects, and has no clock, socket or disk. Each event comes with the time; messages are
offsets and sizes. Everything to read, send, save or dead-letter is returned as an effect. One `SubscriptionMachine` is
one subscription with all its consumers and partitions.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.broker.subscriptions.events import (
    Ack,
    AckCounts,
    AckThrough,
    Connect,
    DeadLetter,
    DeadLettered,
    Deliver,
    Disconnect,
    Evict,
    Extend,
    Fetch,
    LogGrown,
    Lost,
    MachineEffect,
    MachineEvent,
    Nack,
    Pause,
    Promote,
    ReportGap,
    Resume,
    SaveCursor,
    Seek,
    Skip,
    Supplied,
    Tick,
)
from penstock.broker.subscriptions.partition import ExhaustedMessage, Lease, OffsetRun, PartitionCursor
from penstock.broker.subscriptions.ready_queue import Consumer, KeySharedQueue, OrderedQueue, ReadyQueue
from penstock.core.errors import InvalidRequest, NotOwner
from penstock.core.gaps import Gap
from penstock.core.offset_set import Span, offset_spans
from penstock.storage.catalog.subscriptions import Cursor, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.topics import Exhausted

WAITING_MAX: Final = 10_000
"""The most messages of one partition that wait for redelivery or for the dead letters. With more, no new messages are
fetched: otherwise a consumer that refuses everything would bring the whole log into memory."""

_DEADLINES_MIN: Final = 1_000
"""The number of deadlines from which on those of messages that are no longer in flight are dropped."""

_DEAD_LETTER_RETRY_MS: Final = 1_000
_BEFORE: Final = "the last delivery failed before the broker was started again"
_ALONE: Final = (SubscriptionKind.EXCLUSIVE, SubscriptionKind.FAILOVER)


class _Retry(NamedTuple):
    due_ms: int
    partition: int
    start: int
    stop: int
    size: int
    dead_letters: bool = False


class _Deadline(NamedTuple):
    due_ms: int
    partition: int
    start: int
    stop: int
    delivery: int


_NO_DEADLINES: Final[deque[_Deadline]] = deque(maxlen=0)
"""The empty list of deadlines that all subscriptions share before their first delivery: an empty deque takes most of a
KiB."""


class SubscriptionMachine:
    """One subscription. `handle` takes its events. An event that is refused raises an error and changes nothing."""

    def __init__(
        self,
        options: SubscriptionOptions,
        cursors: Mapping[int, Cursor],
        ends: Mapping[int, int],
        *,
        paused: bool = False,
        expires: bool = True,
    ) -> None:
        """Restore the subscription from its saved cursors and the end of each log. With `expires`, a message that is
        not acknowledged within the ack timeout counts as failed; without, it stays in flight."""
        self.options = options
        self.paused = paused
        self.cursors = {
            partition: PartitionCursor.restore(partition, cursor, ends[partition])
            for partition, cursor in cursors.items()
        }
        self.consumers: dict[str, Consumer] = {}
        """The connected consumers by id, in the order in which they connected."""

        self.delivered = 0
        self.acked = 0
        self.failed = 0
        """The number of times that a delivered message was refused, or not acknowledged in time."""

        self.redelivered = 0
        """The number of times that a message was made ready again, because it failed or its consumer left."""

        self.dead_lettered = 0
        self.dropped = 0
        self.lost = 0
        self.matched = 0
        """Messages that passed the filter. Without a filter, all that were fetched."""

        self.filtered = 0
        """Messages that a fetch passed over, because the filter excluded them or they are lost. They are acked without
        a delivery."""

        keyed = options.kind is SubscriptionKind.KEY_SHARED
        self._queue: ReadyQueue = KeySharedQueue() if keyed else OrderedQueue(self.cursors)
        self._retries: list[_Retry] = []
        self._deadlines = _NO_DEADLINES
        self._deadlines_max = _DEADLINES_MIN
        self._expires = expires
        self._delivery = 0

    # queries

    @property
    def active(self) -> str | None:
        """The id of the one consumer that gets messages in an exclusive or failover subscription. None if there is no
        consumer, and for other kinds."""
        return next(iter(self.consumers), None) if self.options.kind in _ALONE else None

    @property
    def eligible(self) -> list[Consumer]:
        """The consumers that may get messages now."""
        active = self.active
        return list(self.consumers.values()) if active is None else [self.consumers[active]]

    def ready_by_holder(self) -> Mapping[str, int]:
        """Return, for key_shared, how many ready messages wait for each consumer, because it has their keys. Empty for
        other kinds."""
        return self._queue.ready_by_holder()

    def next_retry_ms(self, partition: int) -> int | None:
        """Return the time of the next redelivery of a failed message of a partition; None if none waits."""
        due = (retry.due_ms for retry in self._retries if retry.partition == partition and not retry.dead_letters)
        return min(due, default=None)

    def attempt(self, partition: int, offset: int) -> int:
        """Return the number of a message's delivery: 1 for the first. If it is not in flight, of its next one."""
        return self.cursors[partition].failures.get(offset, 0) + 1

    def is_drained(self, partition: int) -> bool:
        """Return whether every fetched message of a partition has been delivered at least once."""
        return self._queue.is_drained(partition)

    def quiet_ms(self, now_ms: int) -> int:
        """Return the ms since a consumer that may get messages last acknowledged one, or since the oldest delivery in
        flight if that is later. 0 if there was neither."""
        last = [consumer.acks.last_ms for consumer in self.eligible if consumer.acks.last_ms is not None]
        since = [*last, *([] if (oldest := self.unacked_since_ms()) is None else [oldest])]
        return now_ms - max(since, default=now_ms)

    def unacked_since_ms(self) -> int | None:
        """Return the time of the oldest delivery that is still in flight; None if there is none, or if deliveries do
        not expire."""
        oldest = min((lease.delivery for cursor in self.cursors.values() for lease in cursor.leases), default=None)
        if oldest is None:
            return None
        due = (deadline.due_ms for deadline in self._deadlines if deadline.delivery >= oldest)
        return next((due_ms - self.options.ack_timeout_ms for due_ms in due), None)

    def next_due_ms(self) -> int | None:
        due = [pending[0].due_ms for pending in (self._retries, self._deadlines) if pending]
        return min(due, default=None)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken: an offset is in two places, or a consumer has more in flight
        than its window. For tests."""
        held: dict[str, list[int]] = {consumer: [0, 0] for consumer in self.consumers}
        for cursor in self.cursors.values():
            cursor.check(self._queue.spans(cursor.partition))
            for lease in cursor.leases:
                held[lease.consumer][0] += lease.stop - lease.start
                held[lease.consumer][1] += lease.size
        for consumer in self.consumers.values():
            in_flight = [consumer.in_flight, consumer.in_flight_bytes]
            assert held[consumer.id] == in_flight, f"{consumer} holds {held[consumer.id]}"  # noqa: S101
            assert consumer.in_flight <= consumer.window, f"{consumer} has more than its window"  # noqa: S101

    # events

    def handle(self, event: MachineEvent, now_ms: int) -> list[MachineEffect]:
        """Return the effects of an event, and the deliveries and fetches that are possible after it. `now_ms` must
        never decrease."""
        return [*self._handle(event, now_ms), *self._dispatch(now_ms)]

    def _handle(self, event: MachineEvent, now_ms: int) -> list[MachineEffect]:  # noqa: C901 - one row an event
        match event:
            case Connect():
                return self._connect(event)
            case Disconnect(consumer):
                return self._disconnect(consumer)
            case LogGrown(partition, end):
                self.cursors[partition].end = max(self.cursors[partition].end, end)
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
            case DeadLettered():
                return self._dead_lettered(event, now_ms)
            case Lost(partition, start, stop, reason):
                cursor = self.cursor(partition)
                return [*self._count_lost(cursor, Gap(start, stop, reason)), *self._skip(cursor, start, stop)]
            case Skip(partition, start, stop):
                return self._skip(self.cursor(partition), start, stop)

    # consumers

    def _connect(self, event: Connect) -> list[MachineEffect]:
        if self.options.kind is SubscriptionKind.EXCLUSIVE:
            self._check_alone(event.name)
        effects: list[MachineEffect] = []
        for other in [consumer.id for consumer in self.consumers.values() if consumer.name == event.name]:
            effects += [*self._disconnect(other), Evict(other)]
        before = self.active
        self.consumers[event.consumer] = Consumer(event.consumer, event.name, event.window, event.window_bytes)
        self._queue.set_consumers(self.consumers)
        return [*effects, Promote(event.consumer)] if self.active != before else effects

    def _check_alone(self, name: str) -> None:
        for other in self.consumers.values():
            if other.name != name:
                raise NotOwner(
                    f"this subscription is exclusive, and consumer {other.name!r} has it: wait until it has gone, come"
                    " back under its name, or make the subscription failover, shared or key_shared",
                    consumer=other.name,
                )

    def _disconnect(self, consumer: str) -> list[MachineEffect]:
        """Remove a consumer. Its messages in flight did not fail: they are ready for other consumers at once."""
        if consumer not in self.consumers:
            return []
        was_active = self.active == consumer
        for cursor in self.cursors.values():
            for lease in self._release(cursor, cursor.leases.take_all(consumer)):
                self._queue.requeue(cursor.partition, OffsetRun(lease.start, lease.stop, lease.size))
                self.redelivered += lease.stop - lease.start
        del self.consumers[consumer]
        self._queue.set_consumers(self.consumers)
        return [Promote(self.active)] if was_active and self.active is not None else []

    def _release(self, cursor: PartitionCursor, leases: list[Lease]) -> list[Lease]:
        """Note that leases have ended: their consumers have room again. Returns the same leases."""
        for lease in leases:
            self.consumers[lease.consumer].remove_in_flight(lease.stop - lease.start, lease.size)
            self._queue.release(cursor.partition, lease.start, lease.stop)
        return leases

    # messages from the log

    def _supplied(self, event: Supplied, now_ms: int) -> list[MachineEffect]:
        cursor = self.cursors[event.partition]
        if not cursor.fetching or cursor.fetched != event.offset:
            return []  # made void by a seek
        cursor.fetching = False
        floor, position, taken = cursor.floor, event.offset, 0
        exhausted = cursor.exhausted(event.offset, event.next_offset, self.options.redeliveries)
        effects: list[MachineEffect] = [effect for gap in event.gaps for effect in self._count_lost(cursor, gap)]
        for run in event.runs:
            cursor.mark_acked(position, run.start)
            position, count = run.stop, len(run)
            self.matched += count
            effects += self._queue_run(cursor, run, event.slots[taken : taken + count], exhausted, now_ms)
            taken += count
        cursor.mark_acked(position, event.next_offset)
        self.filtered += event.next_offset - event.offset - taken
        cursor.fetched = event.next_offset
        cursor.end = max(cursor.end, event.next_offset)
        return [*effects, SaveCursor(cursor.partition)] if cursor.floor != floor else effects

    def _count_lost(self, cursor: PartitionCursor, gap: Gap) -> Iterator[ReportGap]:
        """Count the messages of a gap that were not acked, and yield the gap to report. Yields nothing if all were."""
        messages = sum(stop - start for start, stop in cursor.acked.gaps(max(gap.start, cursor.floor), gap.stop))
        if messages:
            self.lost += messages
            yield ReportGap(cursor.partition, gap, messages)

    def _queue_run(
        self, cursor: PartitionCursor, run: OffsetRun, slots: Sequence[int], exhausted: Collection[int], now_ms: int
    ) -> Iterator[MachineEffect]:
        first, unacked = run.start, list(cursor.unacked(run))
        for part in (part for piece in unacked for part in piece.split_at(exhausted)):
            offset, own = part.start, slots[part.start - first : part.stop - first]
            if offset in exhausted:
                self._queue.register_key(cursor.partition, offset, own)
                yield from self._exhaust(
                    cursor, offset, ExhaustedMessage(cursor.failures[offset], part.size, _BEFORE, now_ms)
                )
            else:
                self._queue.supply(cursor.partition, part, own)

    # acks, nacks and extensions

    def cursor(self, partition: int) -> PartitionCursor:
        cursor = self.cursors.get(partition)
        if cursor is None:
            raise InvalidRequest(
                f"there is no partition {partition}: 0 to {len(self.cursors) - 1}", partition=partition
            )
        return cursor

    def _take_leases(self, cursor: PartitionCursor, consumer: str, spans: Sequence[Span]) -> list[Lease]:
        """End the leases that a consumer has within these spans, and return them. Offsets that are not in flight at it
        are ignored."""
        return [lease for start, stop in spans for lease in cursor.leases.take(start, stop, consumer=consumer)]

    def _ack(self, consumer: str, partition: int, spans: Sequence[Span], now_ms: int) -> list[MachineEffect]:
        cursor = self.cursor(partition)
        before = sum(cursor.acked_within(start, stop) for start, stop in spans)
        leases = self._release(cursor, self._take_leases(cursor, consumer, spans))
        for lease in leases:
            self._mark_acked(cursor, lease.start, lease.stop)
        count = _message_count(leases)
        self.acked += count
        if count:
            self.consumers[consumer].acks.add(count, now_ms)
        return [AckCounts(count, before), SaveCursor(partition)] if leases else [AckCounts(0, before)]

    def _ack_through(self, consumer: str, partition: int, offset: int, now_ms: int) -> list[MachineEffect]:
        if self.options.kind not in _ALONE:
            raise InvalidRequest(
                f"a {self.options.kind.value} subscription has no cumulative acks: others may hold what lies before",
                type=self.options.kind.value,
            )
        return self._ack(consumer, partition, [(0, offset + 1)], now_ms)

    def _nack(self, event: Nack, now_ms: int) -> list[MachineEffect]:
        cursor = self.cursor(event.partition)
        leases = self._release(cursor, self._take_leases(cursor, event.consumer, event.spans))
        effects = [
            effect for lease in leases for effect in self._fail(cursor, lease, event.reason, event.delay_ms, now_ms)
        ]
        return [AckCounts(_message_count(leases)), SaveCursor(cursor.partition), *effects] if leases else [AckCounts(0)]

    def _extend(self, consumer: str, partition: int, spans: Sequence[Span], now_ms: int) -> list[MachineEffect]:
        cursor = self.cursor(partition)
        leases = self._take_leases(cursor, consumer, spans)
        for lease in leases:
            self._start_lease(cursor, lease, now_ms)
        return [AckCounts(_message_count(leases))]

    def _start_lease(self, cursor: PartitionCursor, lease: Lease, now_ms: int) -> None:
        """Put messages in flight, and set the deadline for their acknowledgement."""
        self._delivery += 1
        lease.delivery = self._delivery
        cursor.leases.add(lease)
        if self._expires:
            due_ms = now_ms + self.options.ack_timeout_ms
            if self._deadlines is _NO_DEADLINES:
                self._deadlines = deque()
            self._deadlines.append(_Deadline(due_ms, cursor.partition, lease.start, lease.stop, lease.delivery))
        if len(self._deadlines) > self._deadlines_max:
            self._drop_stale_deadlines()

    def _drop_stale_deadlines(self) -> None:
        """Drop the deadlines of messages that are no longer in flight. With a long ack timeout there are many of
        them."""
        in_flight = {lease.delivery for cursor in self.cursors.values() for lease in cursor.leases}
        self._deadlines = deque(deadline for deadline in self._deadlines if deadline.delivery in in_flight)
        self._deadlines_max = 2 * len(self._deadlines) + _DEADLINES_MIN

    def _mark_acked(self, cursor: PartitionCursor, start: int, stop: int) -> None:
        cursor.mark_acked(start, stop)
        self._queue.forget(cursor.partition, start, stop)

    # failures

    def _fail(
        self, cursor: PartitionCursor, lease: Lease, reason: str, delay_ms: int | None, now_ms: int
    ) -> Iterator[MachineEffect]:
        """Count a failed delivery of every message of a lease. Each is scheduled for redelivery, or treated as
        exhausted if this was its last delivery."""
        again: dict[int, list[int]] = {}
        self.failed += lease.stop - lease.start
        for offset in range(lease.start, lease.stop):
            failed = cursor.failures[offset] = cursor.failures.get(offset, 0) + 1
            if failed > self.options.redeliveries:
                size = lease.size // (lease.stop - lease.start)
                yield from self._exhaust(cursor, offset, ExhaustedMessage(failed, size, reason, now_ms))
            else:
                delay = self._backoff(failed) if delay_ms is None else delay_ms
                again.setdefault(now_ms + delay, []).append(offset)
        for due_ms, offsets in again.items():
            for start, stop in offset_spans(offsets):
                size = lease.size * (stop - start) // (lease.stop - lease.start)
                cursor.waiting.add(start, stop)
                self._queue.hold(cursor.partition, start, stop)
                heapq.heappush(self._retries, _Retry(due_ms, cursor.partition, start, stop, size))

    def _backoff(self, failed: int) -> int:
        return int(min(self.options.backoff_ms << min(failed - 1, 40), self.options.backoff_ms_max))

    def _exhaust(self, cursor: PartitionCursor, offset: int, failed: ExhaustedMessage) -> Iterator[MachineEffect]:
        match self.options.exhausted:
            case Exhausted.DEAD_LETTER:
                cursor.dead_lettering[offset] = failed
                yield _dead_letter(cursor, offset, failed)
            case Exhausted.DROP:
                self.dropped += 1
                self._mark_acked(cursor, offset, offset + 1)
            case Exhausted.BLOCK:
                cursor.poison[offset] = failed

    def _dead_lettered(self, event: DeadLettered, now_ms: int) -> list[MachineEffect]:
        cursor = self.cursors[event.partition]
        if event.offset not in cursor.dead_lettering or event.seek != cursor.seeks:
            return []  # made void by a seek
        if event.stored:
            del cursor.dead_lettering[event.offset]
            self.dead_lettered += 1
            self._mark_acked(cursor, event.offset, event.offset + 1)
            return [SaveCursor(cursor.partition)]
        if event.permanent_error:
            failed = cursor.dead_lettering.pop(event.offset)
            reason = f"{failed.reason}; it cannot become a dead letter: {event.permanent_error}"
            cursor.poison[event.offset] = failed._replace(reason=reason)
            return []
        next_retry_ms, offset = now_ms + _DEAD_LETTER_RETRY_MS, event.offset
        heapq.heappush(self._retries, _Retry(next_retry_ms, cursor.partition, offset, offset + 1, 0, dead_letters=True))
        return []

    def _expire(self, now_ms: int) -> list[MachineEffect]:
        effects: list[MachineEffect] = []
        changed: dict[int, None] = {}
        while self._deadlines and self._deadlines[0].due_ms <= now_ms:
            due = self._deadlines.popleft()
            cursor = self.cursors[due.partition]
            reason = f"not acknowledged within {self.options.ack_timeout_ms} ms"
            for lease in self._release(cursor, cursor.leases.take(due.start, due.stop, delivery=due.delivery)):
                effects += self._fail(cursor, lease, reason, None, now_ms)
                changed[due.partition] = None
        effects = [*map(SaveCursor, changed), *effects]
        while self._retries and self._retries[0].due_ms <= now_ms:
            effects += self._retry(heapq.heappop(self._retries))
        return effects

    def _retry(self, retry: _Retry) -> Iterator[MachineEffect]:
        cursor = self.cursors[retry.partition]
        if retry.dead_letters:
            exhausted = cursor.dead_lettering.get(retry.start)
            if exhausted is not None:
                yield _dead_letter(cursor, retry.start, exhausted)
            return
        for start, stop in cursor.waiting.within(retry.start, retry.stop):
            size = retry.size * (stop - start) // (retry.stop - retry.start)
            self._queue.requeue(cursor.partition, OffsetRun(start, stop, size))
            self.redelivered += stop - start
        cursor.waiting.remove(retry.start, retry.stop)

    # what operators do

    def _seek(self, starts: Mapping[int, int]) -> list[MachineEffect]:
        cursors = [(self.cursor(partition), offset) for partition, offset in starts.items()]
        for cursor, offset in cursors:
            self._restart(cursor, offset)
        return [SaveCursor(cursor.partition) for cursor, _ in cursors]

    def _restart(self, cursor: PartitionCursor, offset: int) -> None:
        self._release(cursor, cursor.leases.take_all())
        self._queue.clear(cursor.partition)
        self._retries = [retry for retry in self._retries if retry.partition != cursor.partition]
        heapq.heapify(self._retries)
        cursor.seek(offset)

    def _resume(self) -> list[MachineEffect]:
        """End the pause. Poison messages are delivered again, with their count of failures at zero."""
        self.paused = False
        blocked = [cursor for cursor in self.cursors.values() if cursor.poison]
        for cursor in blocked:
            for offset, failed in cursor.poison.items():
                cursor.failures.pop(offset, None)
                self._queue.requeue(cursor.partition, OffsetRun(offset, offset + 1, failed.size))
            cursor.poison.clear()
        return [SaveCursor(cursor.partition) for cursor in blocked]

    def _skip(self, cursor: PartitionCursor, start: int, stop: int) -> list[MachineEffect]:
        """Ack these messages, whether they are in flight, waiting or not fetched yet. The answer to a fetch that began
        among them is ignored."""
        partition, looked_at = cursor.partition, min(stop, cursor.fetched)
        if start <= cursor.fetched < stop:
            cursor.fetched, cursor.fetching = stop, False
        start = max(start, cursor.floor)
        if start >= stop:
            return []
        self._release(cursor, cursor.leases.take(start, looked_at))
        self._queue.discard(partition, start, looked_at)
        cursor.waiting.remove(start, looked_at)
        for offsets in (cursor.dead_lettering, cursor.poison):
            for offset in [offset for offset in offsets if start <= offset < stop]:
                del offsets[offset]
        cursor.mark_acked(start, stop)
        return [SaveCursor(partition)]

    # deliveries

    def _dispatch(self, now_ms: int) -> list[MachineEffect]:
        """Deliver what the consumers have room for. If there is room left, fetch more. Does nothing while paused or
        without consumers."""
        if self.paused or not self.consumers:
            return []
        consumers = self.eligible
        blocked = [cursor.partition for cursor in self.cursors.values() if cursor.poison]
        effects: list[MachineEffect] = []
        for (consumer, partition), runs in self._queue.dispatch(consumers, blocked).items():
            effects.append(self._deliver(consumer, self.cursors[partition], runs, now_ms))
        if any(consumer.room for consumer in consumers):
            effects += self._fetches(blocked)
        return effects

    def _deliver(self, consumer: str, cursor: PartitionCursor, runs: list[OffsetRun], now_ms: int) -> Deliver:
        runs.sort(key=lambda run: run.start)
        spans: list[Span] = []
        for run in runs:
            self._start_lease(cursor, Lease(run.start, run.stop, run.size, consumer, 0), now_ms)
            self.delivered += len(run)
            if spans and spans[-1][1] == run.start:
                spans[-1] = (spans[-1][0], run.stop)
            else:
                spans.append((run.start, run.stop))
        return Deliver(consumer, cursor.partition, tuple(spans))

    def _fetches(self, blocked: list[int]) -> Iterator[Fetch]:
        for cursor in self.cursors.values():
            if cursor.fetching or cursor.partition in blocked:
                continue
            cursor.fetched = max(cursor.fetched, cursor.floor)
            if (
                cursor.fetched < cursor.end
                and cursor.failing < WAITING_MAX
                and self._queue.wants_more(cursor.partition)
            ):
                cursor.fetching = True
                yield Fetch(cursor.partition, cursor.fetched)


def _message_count(leases: list[Lease]) -> int:
    return sum(lease.stop - lease.start for lease in leases)


def _dead_letter(cursor: PartitionCursor, offset: int, failed: ExhaustedMessage) -> DeadLetter:
    return DeadLetter(cursor.partition, offset, failed.attempts, failed.reason, cursor.seeks)
