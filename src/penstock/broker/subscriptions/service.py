"""Consuming: durable subscriptions and readers, as clients ask for them. Subscribe, ack, nack, seek, leave."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

from penstock.broker.access.policy import Operation, Resource
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, Work
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Desk, Reply
from penstock.broker.live.connections import Client
from penstock.broker.subscriptions import machine as sub
from penstock.broker.subscriptions.block_cache import BlockCache
from penstock.broker.subscriptions.cursors import Ledger
from penstock.broker.subscriptions.delivery import Delivery, Seat
from penstock.broker.topics.schema_rejections import NotThere
from penstock.broker.topics.topics import Stream, Streams
from penstock.core.errors import InvalidRequest, PenstockError, QuotaExceeded, TopicNotSupported
from penstock.core.limits import KIB, MIB, QUOTED_CHARS_MAX, WireLimits
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName
from penstock.core.offsets import Offset
from penstock.core.positions import AtOffset, Position
from penstock.protocol.header import Header
from penstock.storage.catalog.subscriptions import (
    WAIT_MS_MAX,
    Cursor,
    Subscription,
    SubscriptionKind,
    SubscriptionOptions,
    check_subscription_name,
)
from penstock.storage.catalog.topics import Exhausted
from penstock.storage.log.append_result import AppendResult

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 1 * MIB
WINDOW_MESSAGES_MAX: Final = 100_000
"""In flight at one consumer: what is remembered of each until it is acknowledged."""
_WINDOW_BYTES_MIN: Final = 64 * KIB
_CONSUMER_CHARS_MAX: Final = 128
_REASON_CHARS_MAX: Final = 1_024
"""Why a message was refused: kept with it until it is a dead letter."""

_LOG: Final = logging.getLogger(__name__)

DURABLE_OPTIONS: Final = (
    "subscription",
    "type",
    "from",
    "window",
    "format",
    "filter",
    "consumer",
    "ack_timeout_ms",
    "backoff_ms",
    "backoff_ms_max",
    "redeliveries",
    "exhausted",
)
"""A `subscribe` with any of these is not live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a `subscribe` asks for."""

    topic: TopicName
    name: str | None
    """None for a reader, whose place nobody keeps."""

    given: Fields
    """Options of the subscription that were named."""

    start: Position | dict[int, Position]
    consumer: str
    window: int
    window_bytes: int
    blocks: bool


def parse_wish(name: TopicName, fields: Fields, client: Client) -> Wish:
    """Raises `InvalidRequest` naming the option that cannot be."""
    read.check_known(fields, DURABLE_OPTIONS)
    subscription = None
    if "subscription" in fields:
        subscription = read.text(fields, "subscription")
        check_subscription_name(subscription)
    given_window = fields.get("window", {})
    if not isinstance(given_window, dict):
        raise InvalidRequest('window is {"messages": 1000, "bytes": 1048576}', field="window")
    window = {f"window.{each}": value for each, value in given_window.items()}
    read.check_known(window, ("window.messages", "window.bytes"))
    form = read.text(fields, "format", "message")
    if form not in ("message", "records"):
        raise InvalidRequest("format is message or records", field="format", given=form)
    consumer = read.text(fields, "consumer", client.name or client.id)
    if len(consumer) > _CONSUMER_CHARS_MAX:
        raise InvalidRequest(f"A consumer's name has at most {_CONSUMER_CHARS_MAX} characters", field="consumer")
    return Wish(
        topic=name,
        name=subscription,
        given=_given_options(fields),
        start=read.places(fields.get("from", "latest"), "from"),
        consumer=consumer,
        window=read.number(window, "window.messages", WINDOW_MESSAGES, at_least=1, at_most=WINDOW_MESSAGES_MAX),
        window_bytes=read.number(window, "window.bytes", WINDOW_BYTES, at_least=1),
        blocks=form == "records",
    )


def _given_options(fields: Fields) -> Fields:
    """Those that are kept with the subscription, under the names they have there."""
    given: Fields = {}
    if "type" in fields:
        given["kind"] = _choice(SubscriptionKind, read.text(fields, "type"), "type")
    if "exhausted" in fields:
        given["exhausted"] = _choice(Exhausted, read.text(fields, "exhausted"), "exhausted")
    for name in ("ack_timeout_ms", "backoff_ms", "backoff_ms_max", "redeliveries"):
        if name in fields:
            given[name] = read.number(fields, name)
    wanted = fields.get("filter", {})
    if not isinstance(wanted, dict):
        raise InvalidRequest('filter is {"type": ["order.*"], "key": ["customer-*"]}', field="filter")
    read.check_known(wanted, ("type", "key"))
    for name, stored in (("type", "types"), ("key", "keys")):
        if name in wanted:
            given[stored] = read.texts(wanted, name)
    _options(given)  # refuses what cannot be
    return given


def _options(given: Fields) -> SubscriptionOptions:
    chosen: Fields = {"kind": SubscriptionKind.EXCLUSIVE} | given
    return SubscriptionOptions(**chosen)


def _choice(kind: Any, given: str, field: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        raise InvalidRequest(f"{field} is one of {', '.join(kind)}", field=field, given=given) from None


@dataclass(frozen=True, slots=True)
class Taken:
    """What a connection consumes, as which consumer, with how many bytes in flight."""

    delivery: Delivery
    consumer: str
    window_bytes: int


class Consuming:
    """All durable subscriptions and readers, and who consumes them."""

    def __init__(
        self,
        streams: Streams,
        desk: Desk,
        limits: WireLimits,
        bury: Callable[[Delivery, sub.Bury], list[Effect]],
    ) -> None:
        self._streams = streams
        self._catalog = streams.store.catalog
        self._desk = desk
        self._limits = limits
        self._bury = bury
        self.ledger = Ledger(self._catalog, desk)
        self._cache = BlockCache()
        self._of_client: dict[str, dict[tuple[TopicName, str], Taken]] = {}

        self._due: list[tuple[int, int, Delivery]] = []
        self._scheduled: dict[int, int] = {}
        self._serial = count()
        self._readers = count(-1, -1)
        self._restore()

    def _restore(self) -> None:
        cursors: dict[int, dict[int, Cursor]] = {}
        for (uid, partition), cursor in self._catalog.load_all_cursors().items():
            cursors.setdefault(uid, {})[partition] = cursor
        by_uid = {stream.topic.topic_uid: stream for stream in self._streams}
        for found in self._catalog.list_subscriptions():
            self._add(by_uid[found.topic_uid], found, cursors.get(found.subscription_uid, {}))

    def _add(self, stream: Stream, found: Subscription, cursors: dict[int, Cursor]) -> Delivery:
        ends = {number: int(log.next_offset) for number, log in enumerate(stream.logs)}
        for number, cursor in cursors.items():
            if cursor.floor > ends[number]:  # without syncs, a power cut may take messages that were acknowledged
                _LOG.warning("a cursor was ahead of its log", extra={"topic": str(stream.name), "partition": number})
                cursors[number] = Cursor(floor=Offset(ends[number]))
        group = sub.Group(found.options, cursors, ends, paused=found.paused)
        delivery = self._delivery(stream, found.name, found.subscription_uid, group, self.ledger)
        stream.deliveries[found.name] = delivery
        return delivery

    def _delivery(self, stream: Stream, name: str, uid: int, group: sub.Group, ledger: Ledger | None) -> Delivery:
        return Delivery(
            stream,
            name,
            uid,
            group,
            desk=self._desk,
            ledger=ledger,
            cache=self._cache,
            bury=self._bury,
            handled=self._schedule,
        )

    # time

    def _schedule(self, delivery: Delivery) -> None:
        due_ms = delivery.next_due_ms()
        if due_ms is not None and due_ms < self._scheduled.get(delivery.uid, due_ms + 1):
            self._scheduled[delivery.uid] = due_ms
            heapq.heappush(self._due, (due_ms, next(self._serial), delivery))

    def next_due_ms(self) -> int | None:
        due = [each for each in (self._due[0][0] if self._due else None, self.ledger.due_ms) if each is not None]
        return min(due, default=None)

    def tick(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._due and self._due[0][0] <= self._desk.now_ms:
            due_ms, _, delivery = heapq.heappop(self._due)
            if self._scheduled.get(delivery.uid) == due_ms:  # otherwise it is due earlier, and was
                del self._scheduled[delivery.uid]
                effects += delivery.tick()
        if self.ledger.due_ms is not None and self.ledger.due_ms <= self._desk.now_ms:
            effects += self.ledger.flush()
        return effects

    def grown(self, stream: Stream, partition: int, appended: Sequence[AppendResult]) -> list[Effect]:
        """Blocks are on disk, behind each other."""
        end = int(appended[-1].offset) + appended[-1].records
        effects: list[Effect] = []
        with stream.fresh(partition, appended):
            for delivery in stream.deliveries.values():
                effects += delivery.handle(sub.Grown(partition, end))
        return effects

    # finding

    def find(self, topic: TopicName, name: str) -> Delivery:
        """Raises `InvalidRequest` if there is no such subscription."""
        stream = self._streams.find(topic)
        found = stream.deliveries.get(name)
        if found is None:
            known = sorted(each for each in stream.deliveries if not stream.deliveries[each].is_reader)[:10]
            raise NotThere(
                f"{topic} has no subscription {name[:QUOTED_CHARS_MAX]}; it has: {', '.join(known) or 'none'}",
                subscription=name,
            )
        return found

    def __iter__(self) -> Any:
        return (each for stream in self._streams for each in stream.deliveries.values() if not each.is_reader)

    # subscribing

    def subscribe(self, client: Client, header: Header, wish: Wish, reply: Reply) -> list[Effect]:
        return self._streams.ensure(wish.topic, partial(self._with_stream, client, header, wish, reply))

    def _with_stream(
        self, client: Client, header: Header, wish: Wish, reply: Reply, stream: Stream | PenstockError
    ) -> list[Effect]:
        if isinstance(stream, PenstockError):
            return reply(stream)
        try:
            return self._subscribe(client, header, wish, reply, stream)
        except PenstockError as error:
            return reply(error)

    def _subscribe(self, client: Client, header: Header, wish: Wish, reply: Reply, stream: Stream) -> list[Effect]:
        if not stream.kept:
            raise TopicNotSupported(
                f"{stream.name} is a live topic: it keeps nothing to read later; subscribe without options"
            )
        join = partial(self._join, client, header, wish, reply)
        if wish.name is None:
            options = SubscriptionOptions(
                kind=SubscriptionKind.EXCLUSIVE,
                exhausted=Exhausted.BLOCK,
                types=wish.given.get("types", ()),
                keys=wish.given.get("keys", ()),
            )
            opened = partial(self._open_reader, stream, options, join, reply)
            return [Work(lambda: starts_of(stream, wish.start), opened, reads=True)]
        found = stream.deliveries.get(wish.name)
        if found is not None:
            _check_same(found.group.options, wish)
            return join(found, created=False)
        options = _options(_defaults(stream) | wish.given)
        _check_dead_letters(stream, options)
        create = partial(self._create, stream, wish, options)
        return [Work(create, partial(self._created, stream, wish, join, reply))]

    def _create(
        self, stream: Stream, wish: Wish, options: SubscriptionOptions
    ) -> tuple[Subscription, dict[int, Cursor]]:
        """In the catalog's thread."""
        assert wish.name is not None  # noqa: S101 - readers are not created
        starts = {number: Offset(offset) for number, offset in starts_of(stream, wish.start).items()}
        made = self._catalog.create_subscription(stream.topic, wish.name, options, starts)
        return made, {number: Cursor(floor=offset) for number, offset in starts.items()}

    def _created(
        self,
        stream: Stream,
        wish: Wish,
        join: Callable[..., list[Effect]],
        reply: Reply,
        outcome: tuple[Subscription, dict[int, Cursor]] | PenstockError,
    ) -> list[Effect]:
        found = stream.deliveries.get(wish.name or "")
        if found is not None:  # somebody else created it meanwhile
            try:
                _check_same(found.group.options, wish)
            except PenstockError as error:
                return reply(error)
            return join(found, created=False)
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return join(self._add(stream, *outcome), created=True)

    def create(self, stream: Stream, wish: Wish, reply: Reply) -> list[Effect]:
        """A subscription that nobody consumes yet. One that is there must be as it was asked for."""
        join = partial(self._made, reply)
        found = stream.deliveries.get(wish.name or "")
        if found is not None:
            _check_same(found.group.options, wish)
            return join(found, created=False)
        options = _options(_defaults(stream) | wish.given)
        _check_dead_letters(stream, options)
        created = partial(self._created, stream, wish, join, reply)
        return [Work(partial(self._create, stream, wish, options), created)]

    def _made(self, reply: Reply, delivery: Delivery, *, created: bool) -> list[Effect]:
        try:
            self._check_there(delivery.stream)
        except PenstockError as error:
            return reply(error)
        return reply({"created": created} | delivery.described())

    def count(self, client: Client) -> int:
        """How many durable subscriptions and readers a connection consumes."""
        return len(self._of_client.get(client.id, {}))

    def ensure(
        self,
        stream: Stream,
        name: str,
        starts: Mapping[int, Offset],
        then: Callable[[Delivery | PenstockError], list[Effect]],
    ) -> list[Effect]:
        """Go on with a subscription; one that is not there is made, as nobody has asked for anything else."""
        known = stream.deliveries.get(name)
        if known is not None:
            return then(known)
        options = _options(_defaults(stream))

        def create() -> tuple[Subscription, dict[int, Cursor]]:
            made = self._catalog.create_subscription(stream.topic, name, options, starts)
            return made, {number: Cursor(floor=offset) for number, offset in starts.items()}

        def created(outcome: tuple[Subscription, dict[int, Cursor]] | PenstockError) -> list[Effect]:
            found = stream.deliveries.get(name)
            if found is not None:  # somebody else created it meanwhile
                return then(found)
            try:
                self._check_there(stream)
            except PenstockError as error:
                return then(error)
            return then(outcome if isinstance(outcome, PenstockError) else self._add(stream, *outcome))

        return [Work(create, created)]

    def _open_reader(
        self,
        stream: Stream,
        options: SubscriptionOptions,
        join: Callable[..., list[Effect]],
        reply: Reply,
        outcome: dict[int, int] | PenstockError,
    ) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        cursors = {number: Cursor(floor=Offset(offset)) for number, offset in outcome.items()}
        ends = {number: int(log.next_offset) for number, log in enumerate(stream.logs)}
        uid = next(self._readers)
        name = f"reader~{-uid}"  # no subscription has such a name
        delivery = self._delivery(stream, name, uid, sub.Group(options, cursors, ends, expires=False), None)
        stream.deliveries[name] = delivery
        return join(delivery, created=True)

    def _join(
        self, client: Client, header: Header, wish: Wish, reply: Reply, delivery: Delivery, *, created: bool
    ) -> list[Effect]:
        key = (delivery.stream.name, delivery.name)
        try:
            if not client.connected:
                raise InvalidRequest("the connection is gone")
            self._check_there(delivery.stream)
            self._desk.access.check(
                client.principal, Operation.CONSUME, Resource.topic(delivery.stream.name), client.origin
            )  # once more: what was waited for may have taken long
            mine = self._consumed(client)
            if len(mine) + len(client.subscriptions) >= self._limits.subscriptions_max:
                raise QuotaExceeded(
                    f"Too many subscriptions: a connection has at most {self._limits.subscriptions_max}",
                    subscriptions_max=self._limits.subscriptions_max,
                )
            if key in mine:
                raise InvalidRequest(f"this connection consumes {delivery.name} of {wish.topic} already")
            window_bytes = self._grant(client, wish)
            seat = Seat(
                consumer=self._desk.new_id(),
                client=client.id,
                topic=header.topic,
                parent=header.request_id,
                blocks=wish.blocks,
                stream_id=self._desk.new_id(),
                holder=client,
            )
            effects = delivery.join(seat, wish.consumer, wish.window, window_bytes)
        except PenstockError as error:
            if delivery.is_reader:
                delivery.stream.deliveries.pop(delivery.name, None)
            return reply(error)
        # However small the window, one message is always in flight.
        mine[key] = Taken(delivery, seat.consumer, max(window_bytes, _WINDOW_BYTES_MIN))
        group = delivery.group
        answer = {
            "subscription": delivery.name,
            "type": group.options.kind.value,
            "created": created,
            "consumer": wish.consumer,
            "active": group.active in (None, seat.consumer),
            "window": {"messages": wish.window, "bytes": window_bytes},
            "partitions": [{"partition": each, "floor": lane.floor} for each, lane in group.lanes.items()],
            "ack_timeout_ms": group.options.ack_timeout_ms,
        }
        return [*reply(answer), *effects]

    def _check_there(self, stream: Stream) -> None:
        if self._streams.get(stream.name) is not stream:
            raise TopicNotSupported(f"{stream.name} was deleted meanwhile", topic=str(stream.name))

    def _consumed(self, client: Client) -> dict[tuple[TopicName, str], Taken]:
        """What this connection consumes; what another has taken over since is forgotten."""
        mine = self._of_client.setdefault(client.id, {})
        for key in [key for key, each in mine.items() if each.consumer not in each.delivery.group.consumers]:
            del mine[key]
        return mine

    def _grant(self, client: Client, wish: Wish) -> int:
        """As many bytes in flight as may wait for one connection: what it does not read must not be its end."""
        most = self._limits.output_bytes_max // 2
        left = most - sum(each.window_bytes for each in self._of_client.get(client.id, {}).values())
        if left < min(_WINDOW_BYTES_MIN, most):
            raise QuotaExceeded(
                f"the windows of one connection take at most {most} bytes together: ask for smaller ones, or connect"
                " once more",
                output_bytes_max=self._limits.output_bytes_max,
            )
        return min(wish.window_bytes, left)

    # leaving

    def consumes(self, client: Client, topic: TopicName, name: object) -> bool:
        """Whether this connection is a consumer of it."""
        found = self._of_client.get(client.id, {}).get((topic, str(name)))
        return found is not None and found.consumer in found.delivery.group.consumers

    def take_back(self, client: Client, may: Callable[[TopicName], bool]) -> list[Effect]:
        """It consumes no more of what it may no longer consume; what was in flight goes to others."""
        effects: list[Effect] = []
        mine = self._of_client.get(client.id, {})
        for key in [key for key in mine if not may(key[0])]:
            taken = mine.pop(key)
            effects += taken.delivery.dismiss(taken.consumer, "it may no longer be consumed by this connection")
            effects += self._leave(taken)
        return effects

    def unsubscribe(self, client: Client, topic: TopicName, name: str) -> list[Effect] | None:
        """None if this connection does not consume it."""
        found = self._of_client.get(client.id, {}).pop((topic, name), None)
        return None if found is None else self._leave(found)

    def disconnect(self, client: Client) -> list[Effect]:
        return [each for found in self._of_client.pop(client.id, {}).values() for each in self._leave(found)]

    def _leave(self, taken: Taken) -> list[Effect]:
        delivery = taken.delivery
        if not delivery.is_reader:
            return delivery.leave(taken.consumer)
        delivery.stream.deliveries.pop(delivery.name, None)
        delivery.end("closed")
        return []

    def end(self, delivery: Delivery, reason: str) -> list[Effect]:
        """It is deleted: nobody consumes it any more."""
        delivery.stream.deliveries.pop(delivery.name, None)
        self.ledger.forget(delivery.uid)
        for seat in delivery.seats.values():
            self._of_client.get(seat.client, {}).pop((delivery.stream.name, delivery.name), None)
        return delivery.end(reason)

    # acknowledging

    def _mine(self, client: Client, topic: TopicName, fields: Fields) -> tuple[Delivery, str]:
        name = read.text(fields, "subscription")
        found = self._of_client.get(client.id, {}).get((topic, name))
        if found is None or found.consumer not in found.delivery.group.consumers:
            self.find(topic, name)
            raise InvalidRequest(f"this connection does not consume {name} of {topic}", subscription=name)
        return found.delivery, found.consumer

    def ack(self, client: Client, topic: TopicName, fields: Fields, reply: Reply, *, confirm: bool) -> list[Effect]:
        """`confirm`: somebody waits until it is durable; otherwise it is soon."""
        read.check_known(fields, ("subscription", "partition", *_ACK_FORMS))
        _check_one_form(fields)
        delivery, consumer = self._mine(client, topic, fields)
        partition = read.number(fields, "partition", 0)
        if "cumulative" in fields:
            asked = min(read.number(fields, "cumulative") + 1, delivery.group.lane(partition).end)
            effects = delivery.handle(sub.AckThrough(consumer, partition, asked - 1))
        elif "extend" in fields:
            spans = read.spans({"ranges": fields["extend"]})
            effects = delivery.handle(sub.Extend(consumer, partition, spans))
            taken = delivery.settled
            return [*effects, *reply({"extended": taken, "ignored": _asked(spans) - taken})]
        else:
            spans = read.spans(fields)
            effects = delivery.handle(sub.Ack(consumer, partition, spans))
            asked = _asked(spans)
        taken, before = delivery.settled, delivery.settled_before
        answer = {"acked": taken, "already": before, "ignored": asked - taken - before}
        return [*effects, *self.ledger.confirm(reply, answer)] if confirm else effects

    def nack(self, client: Client, topic: TopicName, fields: Fields, reply: Reply, *, confirm: bool) -> list[Effect]:
        read.check_known(fields, ("subscription", "partition", "offsets", "ranges", "delay_ms", "reason"))
        delivery, consumer = self._mine(client, topic, fields)
        spans = read.spans(fields)
        delay_ms = read.number(fields, "delay_ms", at_most=WAIT_MS_MAX) if "delay_ms" in fields else None
        reason = read.text(fields, "reason", "refused by the consumer")[:_REASON_CHARS_MAX]
        event = sub.Nack(consumer, read.number(fields, "partition", 0), spans, delay_ms, reason)
        effects = delivery.handle(event)
        taken = delivery.settled
        answer = {"nacked": taken, "ignored": _asked(spans) - taken}
        return [*effects, *self.ledger.confirm(reply, answer)] if confirm else effects

    def seek(self, client: Client, topic: TopicName, fields: Fields, reply: Reply) -> list[Effect]:
        """To a place: in one partition, or in all. A reader is its own connection's alone."""
        read.check_known(fields, ("subscription", "position", "partition", "topic"))
        delivery = self.find(topic, read.text(fields, "subscription"))
        if delivery.is_reader:
            self._mine(client, topic, fields)
        place = read.place(fields.get("position"), "position")
        partition = read.number(fields, "partition") if "partition" in fields else None

        def found(outcome: dict[int, int] | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return reply(outcome)
            effects = delivery.handle(sub.Seek(outcome))
            answer = {"subscription": delivery.name, "positions": {str(key): value for key, value in outcome.items()}}
            return [*effects, *self.ledger.confirm(reply, answer)]

        return [Work(lambda: starts_of(delivery.stream, place, partition), found, reads=True)]


_ACK_FORMS: Final = ("offsets", "ranges", "cumulative", "extend")


def _check_one_form(fields: Fields) -> None:
    """An ack speaks of messages in one way, lest one of several is overlooked; offsets and ranges are one."""
    given = [form for form in _ACK_FORMS if form in fields]
    if len(given) > 1 and given != ["offsets", "ranges"]:
        raise InvalidRequest(
            "An ack has offsets and ranges, or cumulative, or extend, and one of these alone: not"
            f" {', '.join(given[:-1])} and {given[-1]}",
            field=given[-1],
        )


def _asked(spans: list[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in spans)


def starts_of(stream: Stream, place: Position | dict[int, Position], partition: int | None = None) -> dict[int, int]:
    """Where a place is in each partition now. Raises `OffsetOutOfRange` for an offset that is not there."""
    if isinstance(place, dict):
        if set(place) != set(range(len(stream.logs))):
            raise InvalidRequest(f"{stream.name} has partitions 0 to {len(stream.logs) - 1}: name a place in each")
        return {number: int(stream.logs[number].offset_of(each)) for number, each in place.items()}
    numbers = range(len(stream.logs)) if partition is None else [partition]
    if partition is not None and not 0 <= partition < len(stream.logs):
        raise InvalidRequest(f"{stream.name} has partitions 0 to {len(stream.logs) - 1}, not {partition}")
    if isinstance(place, AtOffset) and len(numbers) > 1:
        raise InvalidRequest(
            f"{stream.name} has {len(numbers)} partitions, each with offsets of its own: name the partition too"
        )
    return {number: int(stream.logs[number].offset_of(place)) for number in numbers}


def _defaults(stream: Stream) -> Fields:
    """What the topic says of its subscriptions. Dead letters have no dead letters of their own."""
    settings = stream.topic.settings
    found: Fields = {"exhausted": Exhausted.BLOCK} if is_dead_letters(stream.name) else {}
    if settings.redeliveries is not None:
        found["redeliveries"] = settings.redeliveries
    if settings.exhausted is not None:
        found["exhausted"] = settings.exhausted
    return found


def is_dead_letters(name: TopicName) -> bool:
    return name.namespace.endswith(DEAD_LETTER_SUFFIX)


def _check_dead_letters(stream: Stream, options: SubscriptionOptions) -> None:
    if options.exhausted is Exhausted.DEAD_LETTER and is_dead_letters(stream.name):
        raise InvalidRequest(
            f"{stream.name} holds dead letters, and has none of its own: exhausted is block or drop", field="exhausted"
        )


_PUBLIC: Final = {"kind": "type", "types": "filter", "keys": "filter"}


def _check_same(options: SubscriptionOptions, wish: Wish) -> None:
    """A subscription does not change because somebody joins it."""
    for name, value in wish.given.items():
        if getattr(options, name) != value:
            field = _PUBLIC.get(name, name)
            raise InvalidRequest(
                f"subscription {wish.name} of {wish.topic} has {field} {_shown(getattr(options, name))}, not"
                f" {_shown(value)}: leave it out, or delete the subscription and create it anew",
                field=field,
            )


def _shown(value: Any) -> str:
    return ", ".join(value) or "nothing" if isinstance(value, tuple) else str(value)
