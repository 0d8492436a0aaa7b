"""Delivery: the runner of one subscription. It reads the log for the machine, sends the messages that the machine
delivers, and saves the cursors."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from penstock.broker.access.policy import ANONYMOUS, Operation, Resource
from penstock.broker.base.effects import Effect, RunInThread, Send
from penstock.broker.base.replies import json_bytes, own_message
from penstock.broker.context import BrokerContext
from penstock.broker.reads.offset_reads import OffsetRead, read_spans
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.block_cache import BlockCache, records_at
from penstock.broker.subscriptions.cursors import CursorStore
from penstock.broker.subscriptions.machine import SubscriptionMachine
from penstock.broker.subscriptions.partition import OffsetRun
from penstock.broker.subscriptions.ready_queue import NO_KEY, SLOTS
from penstock.broker.subscriptions.stall_reasons import stall_reasons
from penstock.core.clock import iso_time
from penstock.core.dead_letter_attributes import is_redrive_subscription
from penstock.core.errors import NotOwner, OffsetOutOfRange, PenstockError
from penstock.core.gaps import Gap, gaps_of
from penstock.core.ids import format_id
from penstock.core.offset_set import Span
from penstock.protocol.frames import frame_bytes
from penstock.protocol.notices import ACTIVE, ENDED, GAP, SOUGHT
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.storage.catalog.subscriptions import SubscriptionKind
from penstock.storage.log.log import Log
from penstock.storage.log.segment import READ_BYTES

if TYPE_CHECKING:
    from penstock.broker.live.connections import Client
    from penstock.broker.topics.topics import TopicState

_VERSION: Final = "1.0.0"
_MESSAGE_BYTES: Final = 512
"""The approximate size of the metadata line in front of the payload of a `message` frame."""
_REPLACED_MAX: Final = 1_000
"""The most replaced consumers that are remembered. One that was forgotten and comes back counts as a new consumer."""
_FETCH_BYTES_MIN: Final = 64 * 1024
_FETCH_RETRY_MS: Final = 1_000
_NONE_REPLACED: Final[deque[str]] = deque(maxlen=0)
"""The empty list that all subscriptions without a replaced consumer share: an empty deque takes most of a KiB."""

_PendingSpans = deque[tuple[Span, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerEndpoint:
    """The connection of a consumer: where its messages are sent, and in which kind of frame."""

    consumer: str
    client: str
    topic: str
    """The topic as the `subscribe` spelled it; frames repeat it so."""

    parent: str | None
    """The request id of the `subscribe`, which frames to the consumer name as their parent."""

    blocks: bool
    """True if the consumer gets `records` frames, False if it gets `message` frames."""

    stream_id: str
    """The id of its `records` frames. In each frame the last group is the partition."""

    connection: Client | None = None
    """The client of the connection, for its principal and address."""

    def records(self, partition: int, block: Block) -> bytes:
        parent = f":{self.parent}" if self.parent else ""
        head = f"records:{self.topic}:{_VERSION}:{self.stream_id[:-12]}{partition:012x}{parent}"
        return frame_bytes(head.encode(), block.raw)

    def message(self, metadata: dict[str, Any], payload: memoryview, message_id: str) -> bytes:
        parent = f":{self.parent}" if self.parent else ""
        head = f"message:{self.topic}:{_VERSION}:{message_id}{parent}"
        return frame_bytes(head.encode(), b"".join((json_bytes(metadata), b"\n", payload)))


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of one read: the block, and the runs of messages in it that match the subscription's filter."""

    block: Block
    runs: list[OffsetRun]
    slots: list[int]
    next_offset: int
    gaps: Sequence[Gap] = ()


class SubscriptionRunner:
    """One durable subscription, or one reader: passes events to its machine, and carries out the effects."""

    def __init__(
        self,
        topic: TopicState,
        name: str,
        uid: int,
        machine: SubscriptionMachine,
        *,
        context: BrokerContext,
        cursor_store: CursorStore | None,
        cache: BlockCache,
        dead_letter: Callable[[SubscriptionRunner, events.DeadLetter], list[Effect]],
        reschedule: Callable[[SubscriptionRunner], None],
    ) -> None:
        self.topic = topic
        self.name = name
        self.uid = uid
        self.machine = machine
        self.endpoints: dict[str, ConsumerEndpoint] = {}
        self.ended = False
        self.last_counts = events.AckCounts(0)
        """The counts that the last ack, nack or extend had as its result."""

        self.last_error: PenstockError | None = None
        """The error with which the last read, save or dead letter failed; None if it succeeded."""

        self._retry_ms: int | None = None
        self._pending_reads: dict[tuple[str, int], _PendingSpans] = {}
        """For each consumer and partition with a read under way, the deliveries that wait behind it."""

        self._failed_reads: list[tuple[str, int, Sequence[Span]]] = []
        """Reads that failed and will be tried again: consumer, partition and offsets."""

        self._replaced = _NONE_REPLACED
        """The request ids of the `subscribe` of consumers that another connection has replaced. Such a consumer cannot
        join again, or the two would replace each other for ever."""

        self._context = context
        self._cursor_store = cursor_store
        self._cache = cache
        self._dead_letter = dead_letter
        self._reschedule = reschedule
        self._resource = Resource.topic(topic.name)

    @property
    def _in_blocks(self) -> bool:
        """True if all consumers get `records` frames. If not, less is read at a time, and messages count as larger: a
        `message` frame takes more time and room."""
        return all(endpoint.blocks for endpoint in self.endpoints.values())

    @property
    def is_internal(self) -> bool:
        """True for a subscription that the broker itself uses, such as that for redrives."""
        return is_redrive_subscription(self.topic.name, self.name)

    @property
    def is_reader(self) -> bool:
        """True for a reader: it belongs to a connection, and its cursor is not saved."""
        return self._cursor_store is None

    # consumers

    def join(self, endpoint: ConsumerEndpoint, name: str, window: int, window_bytes: int) -> list[Effect]:
        """Add a consumer. Raises `NotOwner` if the subscription is exclusive and taken, or if this consumer was
        replaced by another connection."""
        if endpoint.parent in self._replaced:
            raise NotOwner(f"{self.name}: another connection has taken this consumer's place")
        self.endpoints[endpoint.consumer] = endpoint
        try:
            return self.handle(events.Connect(endpoint.consumer, name, window, window_bytes))
        except PenstockError:
            del self.endpoints[endpoint.consumer]
            raise

    def dismiss(self, consumer: str, reason: str) -> list[Effect]:
        """Return the effect that tells a consumer that it is about to be removed. The caller removes it."""
        endpoint = self.endpoints.get(consumer)
        return [] if endpoint is None else [self._end_notice(endpoint, reason)]

    def leave(self, consumer: str) -> list[Effect]:
        self.endpoints.pop(consumer, None)
        return self.handle(events.Disconnect(consumer))

    def end(self, reason: str) -> list[Effect]:
        """End the subscription, which ignores all events from now on. Returns the effects that tell its consumers."""
        self.ended = True
        for partition in self.machine.cursors:
            self._cache.drop((self.uid, partition))
        endpoints, self.endpoints = self.endpoints, {}
        return [self._end_notice(endpoint, reason) for endpoint in endpoints.values()]

    def _end_notice(self, endpoint: ConsumerEndpoint, reason: str) -> Send:
        return Send(endpoint.client, self._notice(ENDED, endpoint, {"reason": reason}))

    def _notice(self, topic: str, endpoint: ConsumerEndpoint, fields: dict[str, Any]) -> bytes:
        body = {"topic": endpoint.topic, "subscription": self.name, "subscribeId": endpoint.parent} | fields
        return own_message(topic, json_bytes(body))

    def note_report(self, partitions: Iterable[int]) -> list[Effect]:
        """Note that an external reader, such as Spark, reports its position in these partitions now, and save that."""
        for partition in partitions:
            self.machine.cursors[partition].reported_ms = self._context.unix_ms_of(self._context.now_ms)
        return [effect for partition in partitions for effect in self._carry_out(events.SaveCursor(partition))]

    @property
    def reported_at(self) -> str | None:
        """The time at which an external reader last reported its position, as text; None if none has."""
        last_ms = max(cursor.reported_ms for cursor in self.machine.cursors.values())
        return iso_time(last_ms) if last_ms else None

    # time

    def next_due_ms(self) -> int | None:
        due = [each for each in (self.machine.next_due_ms(), self._retry_ms) if each is not None]
        return min(due, default=None)

    def tick(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._retry_ms is not None and self._retry_ms <= self._context.now_ms:
            self._retry_ms = None
            unread, self._failed_reads = self._failed_reads, []
            for consumer, partition, spans in unread:
                if (consumer, partition) in self._pending_reads:
                    effects += self._read_spans(consumer, partition, spans)
        return [*effects, *self.handle(events.Tick())]

    # events

    def handle(self, event: events.MachineEvent) -> list[Effect]:
        """Pass an event to the machine, and carry out its effects. Raises the error of an event that the machine
        refuses. Does nothing once the subscription has ended."""
        if self.ended:
            return []
        decided = self.machine.handle(event, self._context.now_ms)
        before = self._announce_seek(event) if isinstance(event, events.Seek) else []
        effects = [*before, *(effect for decision in decided for effect in self._carry_out(decision))]
        self._reschedule(self)
        for decision in decided:
            if isinstance(decision, events.Deliver) and self.machine.is_drained(decision.partition):
                self._cache.drop((self.uid, decision.partition))
        return effects

    def _carry_out(self, effect: events.MachineEffect) -> list[Effect]:
        match effect:
            case events.Deliver(consumer, partition, spans):
                return self._deliver(consumer, partition, spans)
            case events.Fetch(partition, offset):
                return self._fetch(partition, offset)
            case events.SaveCursor(partition):
                if self._cursor_store is not None:
                    self._cursor_store.mark_dirty((self.uid, partition), self.machine.cursors[partition].snapshot)
                return []
            case events.AckCounts():
                self.last_counts = effect
                return []
            case events.DeadLetter():
                return self._dead_letter_once_saved(effect)
            case events.Promote(consumer):
                return self._on_promote(consumer)
            case events.Evict(consumer):
                return self._on_evict(consumer)
            case events.ReportGap(partition, gap, messages):
                return self._report_gap(partition, gap, messages)

    def _dead_letter_once_saved(self, effect: events.DeadLetter) -> list[Effect]:
        """Save the cursor, which says that this was the last delivery, then write the dead letter. So the message is
        never delivered again, even if the broker is killed in between."""
        if self._cursor_store is None:
            return self._dead_letter(self, effect)

        def saved(outcome: object) -> list[Effect]:
            if self.ended or effect.seek != self.machine.cursors[effect.partition].seeks:
                return []
            if isinstance(outcome, PenstockError):
                self.last_error = outcome
                return self.handle(events.DeadLettered(effect.partition, effect.offset, stored=False, seek=effect.seek))
            return self._dead_letter(self, effect)

        return self._cursor_store.when_durable(saved, None)

    def _on_evict(self, consumer: str) -> list[Effect]:
        gone = self.endpoints.pop(consumer, None)
        if gone is None:
            return []
        if gone.parent is not None and all(endpoint.parent != gone.parent for endpoint in self.endpoints.values()):
            if self._replaced is _NONE_REPLACED:
                self._replaced = deque(maxlen=_REPLACED_MAX)
            self._replaced.append(gone.parent)
        return [self._end_notice(gone, "another connection took its place")]

    def _announce_seek(self, event: events.Seek) -> list[Effect]:
        """Return the effects that tell consumers of a seek, and drop reads from before it. These effects come before
        any delivery."""
        self._pending_reads = {
            key: waiting for key, waiting in self._pending_reads.items() if key[1] not in event.starts
        }
        fields = {"positions": {str(partition): offset for partition, offset in event.starts.items()}}
        return [Send(endpoint.client, self._notice(SOUGHT, endpoint, fields)) for endpoint in self.endpoints.values()]

    def _report_gap(self, partition: int, gap: Gap, messages: int) -> list[Effect]:
        """Return the effects that tell every consumer, unless it may no longer consume, that the messages in a gap are
        lost. `messages` is the number of them that were not acked."""
        fields = {"partition": partition, **gap._asdict(), "messages": messages}
        return [
            Send(endpoint.client, self._notice(GAP, endpoint, fields))
            for endpoint in self.endpoints.values()
            if self._is_allowed(endpoint)
        ]

    def _on_promote(self, consumer: str) -> list[Effect]:
        endpoint = self.endpoints.get(consumer)
        if endpoint is None or self.machine.options.kind is not SubscriptionKind.FAILOVER:
            return []
        return [Send(endpoint.client, self._notice(ACTIVE, endpoint, {"active": True}))]

    # reading

    def _fetch(self, partition: int, offset: int) -> list[Effect]:
        """Get messages for the machine: from memory if they have just been stored, otherwise with a read of the log.
        The machine gets `Supplied`."""
        block = self.topic.lent_block(partition, offset)
        if block is not None:
            return self._fetched(partition, offset, self._match(block, int(block.offsets.stop)))
        room = sum(
            max(0, consumer.window_bytes - consumer.in_flight_bytes) for consumer in self.machine.consumers.values()
        )
        size = min(READ_BYTES if self._in_blocks else _FETCH_BYTES_MIN, max(_FETCH_BYTES_MIN, room))
        read = partial(self._read, self.topic.logs[partition], offset, size)
        return [RunInThread(read, partial(self._fetched, partition, offset), read_only=True)]

    def _read(self, log: Log, offset: int, size: int) -> FetchResult:
        """Read the log and match the filter. Runs in another thread, and changes no state of the broker."""
        chunk = log.read(offset, bytes_max=size)
        return self._match(chunk.block, int(chunk.next_offset), gaps_of(chunk.damages))

    def _match(self, block: Block, next_offset: int, gaps: Sequence[Gap] = ()) -> FetchResult:
        options = self.machine.options
        matching = np.ones(len(block), np.bool_)
        if options.types or options.keys:
            matching = block.matching(options.types, options.keys)
        slots: list[int] = []
        if options.kind is SubscriptionKind.KEY_SHARED:
            slots = _slots(block)[matching].tolist()
        overhead = 0 if self._in_blocks else _MESSAGE_BYTES
        return FetchResult(block, list(_runs(block, matching, overhead)), slots, next_offset, gaps)

    def _fetched(self, partition: int, offset: int, outcome: FetchResult | PenstockError) -> list[Effect]:
        if self.ended:
            return []
        if isinstance(outcome, FetchResult):
            self.last_error = None
            self._cache.put((self.uid, partition), outcome.block)
            runs, slots, gaps = outcome.runs, outcome.slots, outcome.gaps
            return self.handle(events.Supplied(partition, offset, runs, outcome.next_offset, slots, gaps))
        first = int(self.topic.logs[partition].first_offset)
        if isinstance(outcome, OffsetOutOfRange) and offset < first:
            return self.handle(events.Lost(partition, offset, first))  # retention was quicker
        self.last_error = outcome
        cursor = self.machine.cursors[partition]
        if cursor.fetching and cursor.fetched == offset:
            cursor.fetching = False  # fetched again at the next tick
            self._retry_ms = self._context.now_ms + _FETCH_RETRY_MS
            self._reschedule(self)
        return []

    # sending

    def _deliver(self, consumer: str, partition: int, spans: tuple[Span, ...]) -> list[Effect]:
        """Send messages at once if they are in the cache; otherwise read them first. While a read is under way, later
        deliveries of this consumer and partition wait, so that the order is kept."""
        waiting = self._pending_reads.get((consumer, partition))
        if waiting is not None:
            waiting.append(spans)
            return []
        cached = self._cache.get((self.uid, partition))
        block = None if cached is None else records_at(cached, spans)
        if block is not None:
            return self._send(consumer, partition, block)
        self._pending_reads[consumer, partition] = deque()
        return self._read_spans(consumer, partition, spans)

    def _read_spans(self, consumer: str, partition: int, spans: Sequence[Span]) -> list[Effect]:
        read = partial(read_spans, self.topic.logs[partition], spans)
        waiting = self._pending_reads[consumer, partition]
        return [RunInThread(read, partial(self._read_again, consumer, partition, spans, waiting), read_only=True)]

    def _read_again(
        self,
        consumer: str,
        partition: int,
        spans: Sequence[Span],
        waiting: _PendingSpans,
        outcome: OffsetRead | PenstockError,
    ) -> list[Effect]:
        if self._pending_reads.get((consumer, partition)) is not waiting:
            return []  # made void by a seek
        if consumer not in self.endpoints:
            del self._pending_reads[consumer, partition]
            return []
        if isinstance(outcome, PenstockError):
            self.last_error = outcome
            self._failed_reads.append((consumer, partition, spans))
            self._retry_ms = self._context.now_ms + _FETCH_RETRY_MS
            return []
        effects = [each for block in outcome.blocks for each in self._send(consumer, partition, block)]
        if outcome.rest:
            effects += self._read_spans(consumer, partition, outcome.rest)
        else:
            del self._pending_reads[consumer, partition]
            for later in waiting:
                effects += self._deliver(consumer, partition, later)
        lost = (self.handle(events.Lost(partition, *gap)) for gap in outcome.missing)
        return effects + [each for effect in lost for each in effect]

    def _send(self, consumer: str, partition: int, block: Block) -> list[Effect]:
        endpoint = self.endpoints.get(consumer)
        if endpoint is None or not len(block) or not self._is_allowed(endpoint):
            return []
        if endpoint.blocks:
            return [Send(endpoint.client, endpoint.records(partition, block))]
        frames = (
            endpoint.message(self._metadata(partition, block, row), block.payload(row), self._context.new_id())
            for row in range(len(block))
        )
        return [Send(endpoint.client, b"".join(frames))]

    def _is_allowed(self, endpoint: ConsumerEndpoint) -> bool:
        """Return whether a consumer may still consume the topic. Checked at every delivery, as a permission may end
        before the consumer is removed."""
        access = self._context.access
        if not access.enabled:
            return True
        principal = ANONYMOUS if endpoint.connection is None else endpoint.connection.principal
        return access.allows(principal, Operation.CONSUME, self._resource)

    def _metadata(self, partition: int, block: Block, row: int) -> dict[str, Any]:
        """Return the fields of the JSON line in a `message` frame."""
        record = block.record(row)
        message = record.message
        topic = self.topic.catalog_topic
        name = f"/{topic.name.namespace}/{topic.name.partition(partition, topic.partitions)}"
        fields: dict[str, Any] = {
            "request_id": message.request_id,
            "msg_id": {
                "producer_id": message.producer_id,
                "topic_name": name,
                "broker_addr": self._context.address,
                "topic_offset": record.offset,
            },
            "publish_time": record.publish_time_ms,
            "producer_name": message.producer_name,
            "subscription_name": self.name,
            "attributes": message.attributes,
            "id": format_id(record.id),
            "partition": partition,
            "type": message.type,
            "delivery_attempt": self.machine.attempt(partition, record.offset),
        }
        if message.key is not None:
            fields |= _key_field(message.key)
        if message.schema is not None:
            fields |= {"schema_id": message.schema.id, "schema_version": message.schema.version}
        return fields

    # description

    def describe(self) -> dict[str, Any]:
        machine, now_ms = self.machine, self._context.now_ms
        partitions = [self._describe_partition(partition) for partition in machine.cursors]
        return {
            "topic": str(self.topic.name),
            "subscription": self.name,
            "type": machine.options.kind.value,
            "internal": self.is_internal,
            "paused": machine.paused,
            "lag": sum(partition["lag"] for partition in partitions),
            "in_flight": sum(consumer.in_flight for consumer in machine.consumers.values()),
            "state": self._state(),
            "reported_at": self.reported_at,
            "consumers": [
                {
                    "name": consumer.name,
                    "serviceId": endpoint.client if (endpoint := self.endpoints.get(consumer.id)) else None,
                    "address": self._address_of(consumer.id),
                    "active": machine.active in (None, consumer.id),
                    "in_flight": consumer.in_flight,
                    "in_flight_bytes": consumer.in_flight_bytes,
                    "window": {"messages": consumer.window, "bytes": consumer.window_bytes},
                    "ack_rate": round(consumer.acks.per_second(now_ms), 1),
                }
                for consumer in machine.consumers.values()
            ],
            "partitions": partitions,
            "delivered": machine.delivered,
            "dropped": machine.dropped,
            "lost": machine.lost,
        }

    def _state(self) -> list[str]:
        """Return sentences that say why the subscription does not move, or else that it moves or has nothing to do."""
        return stall_reasons(
            self.machine,
            now_ms=self._context.now_ms,
            reported_at=self.reported_at,
            last_error=self.last_error,
            time_of=lambda at_ms: iso_time(self._context.unix_ms_of(at_ms)),
            address_of=self._address_of,
        )

    def _address_of(self, consumer: str) -> str:
        """Return the address of a consumer's connection; empty if that is not known."""
        endpoint = self.endpoints.get(consumer)
        return "" if endpoint is None or endpoint.connection is None else endpoint.connection.address

    def _describe_partition(self, partition: int) -> dict[str, Any]:
        cursor = self.machine.cursors[partition]
        return {
            "partition": partition,
            "floor": cursor.floor,
            "next_offset": cursor.end,
            "lag": cursor.backlog,
            "acked_above": list(cursor.acked),
            "waiting": cursor.waiting.count,
            "failing": len(cursor.failures),
        }


def _key_field(key: bytes) -> dict[str, str]:
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": b64encode(key).decode()}


def _slots(block: Block) -> Any:
    keyed = (block.columns[:, at.FLAGS] & at.FLAG_KEY) != 0
    return np.where(keyed, (block.key_hashes().astype(np.uint64) % np.uint64(SLOTS)).astype(np.int64), NO_KEY)


def _runs(block: Block, matching: Any, overhead: int) -> Iterator[OffsetRun]:
    """Yield the records where `matching` is True, as runs of consecutive offsets. Each record's size is its bytes plus
    `overhead`."""
    if not len(block):
        return
    first = int(block.columns[0, at.OFFSET])
    sizes = block.columns[:, at.END] - block.columns[:, at.START] + overhead
    edges = np.flatnonzero(np.diff(np.concatenate(([False], matching, [False])))).tolist()
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        ends = np.cumsum(sizes[start:stop])
        yield OffsetRun(first + start, first + stop, int(ends[-1]), cast("Sequence[int]", ends))
