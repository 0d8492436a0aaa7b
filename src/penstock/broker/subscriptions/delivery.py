"""Delivery: a subscription's decisions carried out. Reads what it fetches, sends what it delivers, saves its cursor."""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from penstock.broker.access.policy import ANONYMOUS, Operation, Resource
from penstock.broker.base.effects import Effect, Send, Work
from penstock.broker.base.replies import json_bytes, own_message
from penstock.broker.context import Desk
from penstock.broker.reads.offset_reads import Found, read_spans
from penstock.broker.subscriptions import machine as sub
from penstock.broker.subscriptions.block_cache import BlockCache, rows_of
from penstock.broker.subscriptions.cursors import Ledger
from penstock.broker.subscriptions.partition import Piece
from penstock.broker.subscriptions.ready_queue import NO_KEY, SLOTS
from penstock.broker.subscriptions.stall_reasons import reasons
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
    from penstock.broker.topics.topics import Stream

_VERSION: Final = "1.0.0"
_MESSAGE_BYTES: Final = 512
"""About what the line before a `message` takes."""
_REPLACED_MAX: Final = 1_000
"""Consumers that come back after so many others were replaced are taken for new ones."""
_FETCH_BYTES_MIN: Final = 64 * 1024
_FETCH_AGAIN_MS: Final = 1_000
_NONE_REPLACED: Final[deque[str]] = deque(maxlen=0)
"""One for all of which nobody was replaced yet: an empty deque takes most of a KiB."""

_Waiting = deque[tuple[Span, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A consumer's place: where its messages go, and in which form."""

    consumer: str
    client: str
    topic: str
    """As the subscriber spelled it."""

    parent: str | None
    """The id of its `subscribe`."""

    blocks: bool
    """Whether it wants `records`, or `message`."""

    stream_id: str
    """The id of `records` frames: its last group is the partition."""

    holder: Client | None = None
    """Who sits there."""

    def records(self, partition: int, block: Block) -> bytes:
        parent = f":{self.parent}" if self.parent else ""
        head = f"records:{self.topic}:{_VERSION}:{self.stream_id[:-12]}{partition:012x}{parent}"
        return frame_bytes(head.encode(), block.raw)

    def message(self, metadata: dict[str, Any], payload: memoryview, message_id: str) -> bytes:
        parent = f":{self.parent}" if self.parent else ""
        head = f"message:{self.topic}:{_VERSION}:{message_id}{parent}"
        return frame_bytes(head.encode(), b"".join((json_bytes(metadata), b"\n", payload)))


@dataclass(frozen=True, slots=True)
class Fetched:
    """One read, as a subscription looks at it."""

    block: Block
    pieces: list[Piece]
    slots: list[int]
    next_offset: int
    gaps: Sequence[Gap] = ()


class Delivery:
    """One durable subscription, or one reader, at work."""

    def __init__(
        self,
        stream: Stream,
        name: str,
        uid: int,
        group: sub.Group,
        *,
        desk: Desk,
        ledger: Ledger | None,
        cache: BlockCache,
        bury: Callable[[Delivery, sub.Bury], list[Effect]],
        handled: Callable[[Delivery], None],
    ) -> None:
        self.stream = stream
        self.name = name
        self.uid = uid
        self.group = group
        self.seats: dict[str, Seat] = {}
        self.ended = False
        self.settled = 0
        """How many the last ack or nack was about,"""

        self.settled_before = 0
        """and how many of what it spoke of had been acknowledged before."""

        self.trouble: PenstockError | None = None
        """Why nothing could be read, or buried, last time."""

        self._again_ms: int | None = None
        self._reading: dict[tuple[str, int], _Waiting] = {}
        """Consumers for whom something is being read, and what waits for it."""

        self._unread: list[tuple[str, int, Sequence[Span]]] = []
        """Of these, what could not be read, and is tried again."""

        self._replaced = _NONE_REPLACED
        """Consumers, by the ids of their `subscribe`, whose place another has taken: they do not take it back."""

        self._desk = desk
        self._ledger = ledger
        self._cache = cache
        self._bury = bury
        self._handled = handled
        self._resource = Resource.topic(stream.name)

    @property
    def _in_blocks(self) -> bool:
        """Whether all consumers want `records`: a `message` takes time to write, and more room."""
        return all(seat.blocks for seat in self.seats.values())

    @property
    def is_internal(self) -> bool:
        """Whether it is the broker's own."""
        return is_redrive_subscription(self.stream.name, self.name)

    @property
    def is_reader(self) -> bool:
        """It has no cursor that anybody keeps."""
        return self._ledger is None

    # consumers

    def join(self, seat: Seat, name: str, window: int, window_bytes: int) -> list[Effect]:
        """Raises `NotOwner` where somebody else has it."""
        if seat.parent in self._replaced:
            raise NotOwner(f"{self.name}: another connection has taken this consumer's place")
        self.seats[seat.consumer] = seat
        try:
            return self.handle(sub.Connect(seat.consumer, name, window, window_bytes))
        except PenstockError:
            del self.seats[seat.consumer]
            raise

    def dismiss(self, consumer: str, reason: str) -> list[Effect]:
        """Tell a consumer, which is about to leave, that it is none any more."""
        seat = self.seats.get(consumer)
        return [] if seat is None else [self._ended(seat, reason)]

    def leave(self, consumer: str) -> list[Effect]:
        self.seats.pop(consumer, None)
        return self.handle(sub.Disconnect(consumer))

    def end(self, reason: str) -> list[Effect]:
        """The subscription is gone; its consumers are told."""
        self.ended = True
        for partition in self.group.lanes:
            self._cache.drop((self.uid, partition))
        seats, self.seats = self.seats, {}
        return [self._ended(seat, reason) for seat in seats.values()]

    def _ended(self, seat: Seat, reason: str) -> Send:
        return Send(seat.client, self._notice(ENDED, seat, {"reason": reason}))

    def _notice(self, topic: str, seat: Seat, facts: dict[str, Any]) -> bytes:
        body = {"topic": seat.topic, "subscription": self.name, "subscribeId": seat.parent} | facts
        return own_message(topic, json_bytes(body))

    def was_reported(self, partitions: Iterable[int]) -> list[Effect]:
        """Somebody who reads the files says how far that is, of these partitions."""
        for partition in partitions:
            self.group.lanes[partition].reported_ms = self._desk.unix_ms_of(self._desk.now_ms)
        return [effect for partition in partitions for effect in self._do(sub.Save(partition))]

    @property
    def reported_at(self) -> str | None:
        """When somebody who reads the files last said how far that is; None if nobody has."""
        last_ms = max(lane.reported_ms for lane in self.group.lanes.values())
        return iso_time(last_ms) if last_ms else None

    # time

    def next_due_ms(self) -> int | None:
        due = [each for each in (self.group.next_due_ms(), self._again_ms) if each is not None]
        return min(due, default=None)

    def tick(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._again_ms is not None and self._again_ms <= self._desk.now_ms:
            self._again_ms = None
            unread, self._unread = self._unread, []
            for consumer, partition, spans in unread:
                if (consumer, partition) in self._reading:
                    effects += self._read_spans(consumer, partition, spans)
        return [*effects, *self.handle(sub.Tick())]

    # events

    def handle(self, event: sub.Event) -> list[Effect]:
        """What the group decides, done. Raises what it refuses."""
        if self.ended:
            return []
        decided = self.group.handle(event, self._desk.now_ms)
        before = self._sought(event) if isinstance(event, sub.Seek) else []
        effects = [*before, *(effect for each in decided for effect in self._do(each))]
        self._handled(self)
        for each in decided:
            if isinstance(each, sub.Deliver) and self.group.is_drained(each.partition):
                self._cache.drop((self.uid, each.partition))
        return effects

    def _do(self, effect: sub.Effect) -> list[Effect]:
        match effect:
            case sub.Deliver(consumer, partition, spans):
                return self._deliver(consumer, partition, spans)
            case sub.Fetch(partition, offset):
                return self._fetch(partition, offset)
            case sub.Save(partition):
                if self._ledger is not None:
                    self._ledger.mark((self.uid, partition), self.group.lanes[partition].cursor)
                return []
            case sub.Settled(messages, before):
                self.settled, self.settled_before = messages, before
                return []
            case sub.Bury():
                return self._bury_once_saved(effect)
            case sub.Promote(consumer):
                return self._promoted(consumer)
            case sub.Evict(consumer):
                return self._evicted(consumer)
            case sub.Missing(partition, gap, messages):
                return self._missed(partition, gap, messages)

    def _bury_once_saved(self, asked: sub.Bury) -> list[Effect]:
        """That it had its last delivery is durable first: however soon the broker is killed, nobody gets it again."""
        if self._ledger is None:
            return self._bury(self, asked)

        def saved(outcome: object) -> list[Effect]:
            if self.ended or asked.seek != self.group.lanes[asked.partition].seeks:
                return []
            if isinstance(outcome, PenstockError):
                self.trouble = outcome
                return self.handle(sub.Buried(asked.partition, asked.offset, stored=False, seek=asked.seek))
            return self._bury(self, asked)

        return self._ledger.confirm(saved, None)

    def _evicted(self, consumer: str) -> list[Effect]:
        gone = self.seats.pop(consumer, None)
        if gone is None:
            return []
        if gone.parent is not None and all(seat.parent != gone.parent for seat in self.seats.values()):
            if self._replaced is _NONE_REPLACED:
                self._replaced = deque(maxlen=_REPLACED_MAX)
            self._replaced.append(gone.parent)
        return [self._ended(gone, "another connection took its place")]

    def _sought(self, event: sub.Seek) -> list[Effect]:
        """What was delivered before is of no interest any more: said before anything else is delivered."""
        self._reading = {key: waiting for key, waiting in self._reading.items() if key[1] not in event.starts}
        facts = {"positions": {str(partition): offset for partition, offset in event.starts.items()}}
        return [Send(seat.client, self._notice(SOUGHT, seat, facts)) for seat in self.seats.values()]

    def _missed(self, partition: int, gap: Gap, messages: int) -> list[Effect]:
        """Tell every consumer of messages that none of them will get."""
        facts = {"partition": partition, **gap._asdict(), "messages": messages}
        return [
            Send(seat.client, self._notice(GAP, seat, facts)) for seat in self.seats.values() if self._may_have(seat)
        ]

    def _promoted(self, consumer: str) -> list[Effect]:
        seat = self.seats.get(consumer)
        if seat is None or self.group.options.kind is not SubscriptionKind.FAILOVER:
            return []
        return [Send(seat.client, self._notice(ACTIVE, seat, {"active": True}))]

    # reading

    def _fetch(self, partition: int, offset: int) -> list[Effect]:
        """What was stored this very moment need not be read."""
        block = self.stream.at_hand(partition, offset)
        if block is not None:
            return self._fetched(partition, offset, self._look(block, int(block.offsets.stop)))
        room = sum(max(0, each.window_bytes - each.in_flight_bytes) for each in self.group.consumers.values())
        size = min(READ_BYTES if self._in_blocks else _FETCH_BYTES_MIN, max(_FETCH_BYTES_MIN, room))
        read = partial(self._read, self.stream.logs[partition], offset, size)
        return [Work(read, partial(self._fetched, partition, offset), reads=True)]

    def _read(self, log: Log, offset: int, size: int) -> Fetched:
        """In another thread: the log, and nothing that changes here."""
        chunk = log.read(offset, bytes_max=size)
        return self._look(chunk.block, int(chunk.next_offset), gaps_of(chunk.damages))

    def _look(self, block: Block, next_offset: int, gaps: Sequence[Gap] = ()) -> Fetched:
        options = self.group.options
        wanted = np.ones(len(block), np.bool_)
        if options.types or options.keys:
            wanted = block.matching(options.types, options.keys)
        slots: list[int] = []
        if options.kind is SubscriptionKind.KEY_SHARED:
            slots = _slots(block)[wanted].tolist()
        overhead = 0 if self._in_blocks else _MESSAGE_BYTES
        return Fetched(block, list(_pieces(block, wanted, overhead)), slots, next_offset, gaps)

    def _fetched(self, partition: int, offset: int, outcome: Fetched | PenstockError) -> list[Effect]:
        if self.ended:
            return []
        if isinstance(outcome, Fetched):
            self.trouble = None
            self._cache.put((self.uid, partition), outcome.block)
            pieces, slots, gaps = outcome.pieces, outcome.slots, outcome.gaps
            return self.handle(sub.Supplied(partition, offset, pieces, outcome.next_offset, slots, gaps))
        first = int(self.stream.logs[partition].first_offset)
        if isinstance(outcome, OffsetOutOfRange) and offset < first:
            return self.handle(sub.Lost(partition, offset, first))  # retention was quicker
        self.trouble = outcome
        lane = self.group.lanes[partition]
        if lane.fetching and lane.fetched == offset:
            lane.fetching = False  # it is asked for again with the next tick
            self._again_ms = self._desk.now_ms + _FETCH_AGAIN_MS
            self._handled(self)
        return []

    # sending

    def _deliver(self, consumer: str, partition: int, spans: tuple[Span, ...]) -> list[Effect]:
        """At once if it is at hand; else it is read, and what is delivered meanwhile waits for it."""
        waiting = self._reading.get((consumer, partition))
        if waiting is not None:
            waiting.append(spans)
            return []
        cached = self._cache.get((self.uid, partition))
        found = None if cached is None else rows_of(cached, spans)
        if found is not None:
            return self._send(consumer, partition, found)
        self._reading[consumer, partition] = deque()
        return self._read_spans(consumer, partition, spans)

    def _read_spans(self, consumer: str, partition: int, spans: Sequence[Span]) -> list[Effect]:
        read = partial(read_spans, self.stream.logs[partition], spans)
        waiting = self._reading[consumer, partition]
        return [Work(read, partial(self._read_again, consumer, partition, spans, waiting), reads=True)]

    def _read_again(
        self, consumer: str, partition: int, spans: Sequence[Span], waiting: _Waiting, outcome: Found | PenstockError
    ) -> list[Effect]:
        if self._reading.get((consumer, partition)) is not waiting:
            return []  # somebody sought elsewhere meanwhile
        if consumer not in self.seats:
            del self._reading[consumer, partition]
            return []
        if isinstance(outcome, PenstockError):
            self.trouble = outcome
            self._unread.append((consumer, partition, spans))
            self._again_ms = self._desk.now_ms + _FETCH_AGAIN_MS
            return []
        effects = [each for block in outcome.blocks for each in self._send(consumer, partition, block)]
        if outcome.rest:
            effects += self._read_spans(consumer, partition, outcome.rest)
        else:
            del self._reading[consumer, partition]
            for later in waiting:
                effects += self._deliver(consumer, partition, later)
        lost = (self.handle(sub.Lost(partition, *gap)) for gap in outcome.missing)
        return effects + [each for effect in lost for each in effect]

    def _send(self, consumer: str, partition: int, block: Block) -> list[Effect]:
        seat = self.seats.get(consumer)
        if seat is None or not len(block) or not self._may_have(seat):
            return []
        if seat.blocks:
            return [Send(seat.client, seat.records(partition, block))]
        frames = (
            seat.message(self._metadata(partition, block, row), block.payload(row), self._desk.new_id())
            for row in range(len(block))
        )
        return [Send(seat.client, b"".join(frames))]

    def _may_have(self, seat: Seat) -> bool:
        """Asked again with every delivery: whoever may no longer consume is about to be dismissed."""
        access = self._desk.access
        if not access.enabled:
            return True
        holder = ANONYMOUS if seat.holder is None else seat.holder.principal
        return access.allows(holder, Operation.CONSUME, self._resource)

    def _metadata(self, partition: int, block: Block, row: int) -> dict[str, Any]:
        """The fields of a StreamMessage, but for its payload."""
        record = block.record(row)
        message = record.message
        topic = self.stream.topic
        name = f"/{topic.name.namespace}/{topic.name.partition(partition, topic.partitions)}"
        facts: dict[str, Any] = {
            "request_id": message.request_id,
            "msg_id": {
                "producer_id": message.producer_id,
                "topic_name": name,
                "broker_addr": self._desk.address,
                "topic_offset": record.offset,
            },
            "publish_time": record.publish_time_ms,
            "producer_name": message.producer_name,
            "subscription_name": self.name,
            "attributes": message.attributes,
            "id": format_id(record.id),
            "partition": partition,
            "type": message.type,
            "delivery_attempt": self.group.attempt(partition, record.offset),
        }
        if message.key is not None:
            facts |= _key_field(message.key)
        if message.schema is not None:
            facts |= {"schema_id": message.schema.id, "schema_version": message.schema.version}
        return facts

    # what people ask

    def described(self) -> dict[str, Any]:
        group, now_ms = self.group, self._desk.now_ms
        partitions = [self._lane_described(each) for each in group.lanes]
        return {
            "topic": str(self.stream.name),
            "subscription": self.name,
            "type": group.options.kind.value,
            "internal": self.is_internal,
            "paused": group.paused,
            "lag": sum(each["lag"] for each in partitions),
            "in_flight": sum(each.in_flight for each in group.consumers.values()),
            "state": self._state(),
            "reported_at": self.reported_at,
            "consumers": [
                {
                    "name": each.name,
                    "serviceId": seat.client if (seat := self.seats.get(each.id)) else None,
                    "address": self._address_of(each.id),
                    "active": group.active in (None, each.id),
                    "in_flight": each.in_flight,
                    "in_flight_bytes": each.in_flight_bytes,
                    "window": {"messages": each.window, "bytes": each.window_bytes},
                    "ack_rate": round(each.acks.a_second(now_ms), 1),
                }
                for each in group.consumers.values()
            ],
            "partitions": partitions,
            "delivered": group.delivered,
            "dropped": group.dropped,
            "lost": group.lost,
        }

    def _state(self) -> list[str]:
        """Why it does not move; or that it does, or has nothing to do."""
        return reasons(
            self.group,
            now_ms=self._desk.now_ms,
            reported_at=self.reported_at,
            trouble=self.trouble,
            time_of=lambda at_ms: iso_time(self._desk.unix_ms_of(at_ms)),
            address_of=self._address_of,
        )

    def _address_of(self, consumer: str) -> str:
        """Where its connection comes from; nothing where it is not known."""
        seat = self.seats.get(consumer)
        return "" if seat is None or seat.holder is None else seat.holder.address

    def _lane_described(self, partition: int) -> dict[str, Any]:
        lane = self.group.lanes[partition]
        return {
            "partition": partition,
            "floor": lane.floor,
            "next_offset": lane.end,
            "lag": lane.backlog,
            "acked_above": list(lane.settled),
            "waiting": lane.waiting.count,
            "failing": len(lane.failures),
        }


def _key_field(key: bytes) -> dict[str, str]:
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": b64encode(key).decode()}


def _slots(block: Block) -> Any:
    keyed = (block.columns[:, at.FLAGS] & at.FLAG_KEY) != 0
    return np.where(keyed, (block.key_hashes().astype(np.uint64) % np.uint64(SLOTS)).astype(np.int64), NO_KEY)


def _pieces(block: Block, wanted: Any, overhead: int) -> Iterator[Piece]:
    """Those that are wanted, as far as they lie behind each other, and what each takes on the wire."""
    if not len(block):
        return
    first = int(block.columns[0, at.OFFSET])
    sizes = block.columns[:, at.END] - block.columns[:, at.START] + overhead
    edges = np.flatnonzero(np.diff(np.concatenate(([False], wanted, [False])))).tolist()
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        ends = np.cumsum(sizes[start:stop])
        yield Piece(first + start, first + stop, int(ends[-1]), cast("Sequence[int]", ends))
