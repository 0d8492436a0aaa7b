"""The subscriptions of a broker: clients subscribe, ack, nack, seek and leave here."""

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
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import BrokerContext, Reply
from penstock.broker.live.connections import Client
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.block_cache import BlockCache
from penstock.broker.subscriptions.cursors import CursorStore
from penstock.broker.subscriptions.delivery import ConsumerEndpoint, SubscriptionRunner
from penstock.broker.subscriptions.machine import SubscriptionMachine
from penstock.broker.subscriptions.requests import SubscribeRequest, check_same_options, subscription_options
from penstock.broker.topics.schema_rejections import NotFound
from penstock.broker.topics.topics import Topics, TopicState
from penstock.core.errors import InvalidRequest, PenstockError, QuotaExceeded, TopicNotSupported
from penstock.core.limits import KIB, QUOTED_CHARS_MAX, WireLimits
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName
from penstock.core.offsets import Offset
from penstock.core.positions import AtOffset, Position
from penstock.protocol.header import Header
from penstock.storage.catalog.subscriptions import (
    WAIT_MS_MAX,
    Cursor,
    StoredSubscription,
    SubscriptionKind,
    SubscriptionOptions,
)
from penstock.storage.catalog.topics import Exhausted
from penstock.storage.log.append_result import AppendResult

_WINDOW_BYTES_MIN: Final = 64 * KIB
_REASON_CHARS_MAX: Final = 1_024
"""The most characters of a nack's reason. It is kept with the message until that is a dead letter."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership:
    """One connection's consumer in a subscription, and the bytes that may be in flight there."""

    runner: SubscriptionRunner
    consumer: str
    window_bytes: int


class Subscriptions:
    """All durable subscriptions and readers, and the connections that consume them."""

    def __init__(
        self,
        topics: Topics,
        context: BrokerContext,
        limits: WireLimits,
        dead_letter: Callable[[SubscriptionRunner, events.DeadLetter], list[Effect]],
    ) -> None:
        self._topics = topics
        self._catalog = topics.store.catalog
        self._context = context
        self._limits = limits
        self._dead_letter = dead_letter
        self.cursor_store = CursorStore(self._catalog, context)
        self._cache = BlockCache()
        self._memberships: dict[str, dict[tuple[TopicName, str], Membership]] = {}

        self._due: list[tuple[int, int, SubscriptionRunner]] = []
        self._scheduled: dict[int, int] = {}
        self._serial = count()
        self._readers = count(-1, -1)
        self._restore()

    def _restore(self) -> None:
        cursors: dict[int, dict[int, Cursor]] = {}
        for (uid, partition), cursor in self._catalog.load_all_cursors().items():
            cursors.setdefault(uid, {})[partition] = cursor
        by_uid = {topic.uid: topic for topic in self._topics}
        for subscription in self._catalog.list_subscriptions():
            self._start_runner(
                by_uid[subscription.topic_uid], subscription, cursors.get(subscription.subscription_uid, {})
            )

    def _start_runner(
        self, topic: TopicState, subscription: StoredSubscription, cursors: dict[int, Cursor]
    ) -> SubscriptionRunner:
        ends = {number: int(log.next_offset) for number, log in enumerate(topic.logs)}
        for number, cursor in cursors.items():
            if cursor.floor > ends[number]:  # without syncs, a power cut may take messages that were acknowledged
                _LOG.warning("a cursor was ahead of its log", extra={"topic": str(topic.name), "partition": number})
                cursors[number] = Cursor(floor=Offset(ends[number]))
        machine = SubscriptionMachine(subscription.options, cursors, ends, paused=subscription.paused)
        runner = self._new_runner(topic, subscription.name, subscription.subscription_uid, machine, self.cursor_store)
        topic.subscriptions[subscription.name] = runner
        return runner

    def _new_runner(
        self, topic: TopicState, name: str, uid: int, machine: SubscriptionMachine, cursor_store: CursorStore | None
    ) -> SubscriptionRunner:
        return SubscriptionRunner(
            topic,
            name,
            uid,
            machine,
            context=self._context,
            cursor_store=cursor_store,
            cache=self._cache,
            dead_letter=self._dead_letter,
            reschedule=self._schedule,
        )

    # time

    def _schedule(self, runner: SubscriptionRunner) -> None:
        due_ms = runner.next_due_ms()
        if due_ms is not None and due_ms < self._scheduled.get(runner.uid, due_ms + 1):
            self._scheduled[runner.uid] = due_ms
            heapq.heappush(self._due, (due_ms, next(self._serial), runner))

    def next_due_ms(self) -> int | None:
        due = [each for each in (self._due[0][0] if self._due else None, self.cursor_store.due_ms) if each is not None]
        return min(due, default=None)

    def tick(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._due and self._due[0][0] <= self._context.now_ms:
            due_ms, _, runner = heapq.heappop(self._due)
            if (
                self._scheduled.get(runner.uid) == due_ms
            ):  # otherwise it was rescheduled for an earlier time, and has ticked
                del self._scheduled[runner.uid]
                effects += runner.tick()
        if self.cursor_store.due_ms is not None and self.cursor_store.due_ms <= self._context.now_ms:
            effects += self.cursor_store.flush()
        return effects

    def log_grown(self, topic: TopicState, partition: int, appended: Sequence[AppendResult]) -> list[Effect]:
        """Tell the subscriptions of a topic about blocks that are now on disk. The blocks must be consecutive."""
        end = int(appended[-1].offset) + appended[-1].records
        effects: list[Effect] = []
        with topic.lend_blocks(partition, appended):
            for runner in topic.subscriptions.values():
                effects += runner.handle(events.LogGrown(partition, end))
        return effects

    # lookup

    def find(self, topic_name: TopicName, name: str) -> SubscriptionRunner:
        """Return the runner of a subscription. Raises `NotFound` if the topic has none of this name,
        `TopicNotSupported` if there is no such topic."""
        topic = self._topics.find(topic_name)
        runner = topic.subscriptions.get(name)
        if runner is None:
            known = sorted(each for each in topic.subscriptions if not topic.subscriptions[each].is_reader)[:10]
            raise NotFound(
                f"{topic_name} has no subscription {name[:QUOTED_CHARS_MAX]}; it has: {', '.join(known) or 'none'}",
                subscription=name,
            )
        return runner

    def __iter__(self) -> Any:
        return (runner for topic in self._topics for runner in topic.subscriptions.values() if not runner.is_reader)

    # subscribing

    def subscribe(self, client: Client, header: Header, request: SubscribeRequest, reply: Reply) -> list[Effect]:
        return self._topics.get_or_create(request.topic, partial(self._with_topic, client, header, request, reply))

    def _with_topic(
        self, client: Client, header: Header, request: SubscribeRequest, reply: Reply, topic: TopicState | PenstockError
    ) -> list[Effect]:
        if isinstance(topic, PenstockError):
            return reply(topic)
        try:
            return self._subscribe(client, header, request, reply, topic)
        except PenstockError as error:
            return reply(error)

    def _subscribe(
        self, client: Client, header: Header, request: SubscribeRequest, reply: Reply, topic: TopicState
    ) -> list[Effect]:
        if not topic.is_durable:
            raise TopicNotSupported(
                f"{topic.name} is a live topic: it keeps nothing to read later; subscribe without options"
            )
        join = partial(self._join, client, header, request, reply)
        if request.name is None:
            options = SubscriptionOptions(
                kind=SubscriptionKind.EXCLUSIVE,
                exhausted=Exhausted.BLOCK,
                types=request.options.get("types", ()),
                keys=request.options.get("keys", ()),
            )
            opened = partial(self._open_reader, topic, options, join, reply)
            return [RunInThread(lambda: start_offsets(topic, request.start), opened, read_only=True)]
        runner = topic.subscriptions.get(request.name)
        if runner is not None:
            check_same_options(runner.machine.options, request)
            return join(runner, created=False)
        options = subscription_options(_defaults(topic) | request.options)
        _check_exhausted(topic, options)
        create = partial(self._create, topic, request, options)
        return [RunInThread(create, partial(self._created, topic, request, join, reply))]

    def _create(
        self, topic: TopicState, request: SubscribeRequest, options: SubscriptionOptions
    ) -> tuple[StoredSubscription, dict[int, Cursor]]:
        """Create the subscription in the catalog, durably. Runs in the catalog's thread."""
        assert request.name is not None  # noqa: S101 - readers are not created
        starts = {number: Offset(offset) for number, offset in start_offsets(topic, request.start).items()}
        subscription = self._catalog.create_subscription(topic.catalog_topic, request.name, options, starts)
        return subscription, {number: Cursor(floor=offset) for number, offset in starts.items()}

    def _created(
        self,
        topic: TopicState,
        request: SubscribeRequest,
        join: Callable[..., list[Effect]],
        reply: Reply,
        outcome: tuple[StoredSubscription, dict[int, Cursor]] | PenstockError,
    ) -> list[Effect]:
        runner = topic.subscriptions.get(request.name or "")
        if runner is not None:  # another request created it meanwhile
            try:
                check_same_options(runner.machine.options, request)
            except PenstockError as error:
                return reply(error)
            return join(runner, created=False)
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return join(self._start_runner(topic, *outcome), created=True)

    def create(self, topic: TopicState, request: SubscribeRequest, reply: Reply) -> list[Effect]:
        """Create a subscription without a consumer, and reply when it is durable. If it exists already, it must have
        the requested options; otherwise raises `InvalidRequest`."""
        join = partial(self._answer_created, reply)
        runner = topic.subscriptions.get(request.name or "")
        if runner is not None:
            check_same_options(runner.machine.options, request)
            return join(runner, created=False)
        options = subscription_options(_defaults(topic) | request.options)
        _check_exhausted(topic, options)
        created = partial(self._created, topic, request, join, reply)
        return [RunInThread(partial(self._create, topic, request, options), created)]

    def _answer_created(self, reply: Reply, runner: SubscriptionRunner, *, created: bool) -> list[Effect]:
        try:
            self._check_not_deleted(runner.topic)
        except PenstockError as error:
            return reply(error)
        return reply({"created": created} | runner.describe())

    def count(self, client: Client) -> int:
        """Return how many durable subscriptions and readers a connection consumes."""
        return len(self._memberships.get(client.id, {}))

    def get_or_create(
        self,
        topic: TopicState,
        name: str,
        starts: Mapping[int, Offset],
        then: Callable[[SubscriptionRunner | PenstockError], list[Effect]],
    ) -> list[Effect]:
        """Call `then` with the runner of a subscription, or with the error. If it does not exist, it is created with
        the topic's defaults, at `starts`."""
        known = topic.subscriptions.get(name)
        if known is not None:
            return then(known)
        options = subscription_options(_defaults(topic))

        def create() -> tuple[StoredSubscription, dict[int, Cursor]]:
            subscription = self._catalog.create_subscription(topic.catalog_topic, name, options, starts)
            return subscription, {number: Cursor(floor=offset) for number, offset in starts.items()}

        def created(outcome: tuple[StoredSubscription, dict[int, Cursor]] | PenstockError) -> list[Effect]:
            runner = topic.subscriptions.get(name)
            if runner is not None:  # another request created it meanwhile
                return then(runner)
            try:
                self._check_not_deleted(topic)
            except PenstockError as error:
                return then(error)
            return then(outcome if isinstance(outcome, PenstockError) else self._start_runner(topic, *outcome))

        return [RunInThread(create, created)]

    def _open_reader(
        self,
        topic: TopicState,
        options: SubscriptionOptions,
        join: Callable[..., list[Effect]],
        reply: Reply,
        outcome: dict[int, int] | PenstockError,
    ) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        cursors = {number: Cursor(floor=Offset(offset)) for number, offset in outcome.items()}
        ends = {number: int(log.next_offset) for number, log in enumerate(topic.logs)}
        uid = next(self._readers)
        name = f"reader~{-uid}"  # no subscription has such a name
        runner = self._new_runner(topic, name, uid, SubscriptionMachine(options, cursors, ends, expires=False), None)
        topic.subscriptions[name] = runner
        return join(runner, created=True)

    def _join(
        self,
        client: Client,
        header: Header,
        request: SubscribeRequest,
        reply: Reply,
        runner: SubscriptionRunner,
        *,
        created: bool,
    ) -> list[Effect]:
        key = (runner.topic.name, runner.name)
        try:
            if not client.connected:
                raise InvalidRequest("the connection is gone")
            self._check_not_deleted(runner.topic)
            self._context.access.check(
                client.principal, Operation.CONSUME, Resource.topic(runner.topic.name), client.origin
            )  # checked again: the steps before this may have taken long
            memberships = self._current_memberships(client)
            if len(memberships) + len(client.subscriptions) >= self._limits.subscriptions_max:
                raise QuotaExceeded(
                    f"Too many subscriptions: a connection has at most {self._limits.subscriptions_max}",
                    subscriptions_max=self._limits.subscriptions_max,
                )
            if key in memberships:
                raise InvalidRequest(f"this connection consumes {runner.name} of {request.topic} already")
            window_bytes = self._grant_window(client, request)
            endpoint = ConsumerEndpoint(
                consumer=self._context.new_id(),
                client=client.id,
                topic=header.topic,
                parent=header.request_id,
                blocks=request.blocks,
                stream_id=self._context.new_id(),
                connection=client,
            )
            effects = runner.join(endpoint, request.consumer, request.window, window_bytes)
        except PenstockError as error:
            if runner.is_reader:
                runner.topic.subscriptions.pop(runner.name, None)
            return reply(error)
        # However small the window, one message is always in flight.
        memberships[key] = Membership(runner, endpoint.consumer, max(window_bytes, _WINDOW_BYTES_MIN))
        machine = runner.machine
        answer = {
            "subscription": runner.name,
            "type": machine.options.kind.value,
            "created": created,
            "consumer": request.consumer,
            "active": machine.active in (None, endpoint.consumer),
            "window": {"messages": request.window, "bytes": window_bytes},
            "partitions": [{"partition": each, "floor": cursor.floor} for each, cursor in machine.cursors.items()],
            "ack_timeout_ms": machine.options.ack_timeout_ms,
        }
        return [*reply(answer), *effects]

    def _check_not_deleted(self, topic: TopicState) -> None:
        if self._topics.get(topic.name) is not topic:
            raise TopicNotSupported(f"{topic.name} was deleted meanwhile", topic=str(topic.name))

    def _current_memberships(self, client: Client) -> dict[tuple[TopicName, str], Membership]:
        """Return what a connection consumes now. Memberships that another connection has taken over are removed
        first."""
        memberships = self._memberships.setdefault(client.id, {})
        for key in [
            key
            for key, membership in memberships.items()
            if membership.consumer not in membership.runner.machine.consumers
        ]:
            del memberships[key]
        return memberships

    def _grant_window(self, client: Client, request: SubscribeRequest) -> int:
        """Return how many bytes may be in flight at a new consumer. All consumers of a connection together get at most
        half of its output queue, so that a connection is not closed just because a consumer does not read. Raises
        `QuotaExceeded` if too few are left."""
        bytes_max = self._limits.output_bytes_max // 2
        left = bytes_max - sum(membership.window_bytes for membership in self._memberships.get(client.id, {}).values())
        if left < min(_WINDOW_BYTES_MIN, bytes_max):
            raise QuotaExceeded(
                f"the windows of one connection take at most {bytes_max} bytes together: ask for smaller ones, or"
                " connect once more",
                output_bytes_max=self._limits.output_bytes_max,
            )
        return min(request.window_bytes, left)

    # leaving

    def consumes(self, client: Client, topic: TopicName, name: object) -> bool:
        """Return whether this connection is a consumer of the subscription now."""
        membership = self._memberships.get(client.id, {}).get((topic, str(name)))
        return membership is not None and membership.consumer in membership.runner.machine.consumers

    def revoke(self, client: Client, may: Callable[[TopicName], bool]) -> list[Effect]:
        """Remove the connection's consumers of topics for which `may` returns False. Their messages in flight go to
        other consumers."""
        effects: list[Effect] = []
        memberships = self._memberships.get(client.id, {})
        for key in [key for key in memberships if not may(key[0])]:
            membership = memberships.pop(key)
            effects += membership.runner.dismiss(membership.consumer, "it may no longer be consumed by this connection")
            effects += self._leave(membership)
        return effects

    def unsubscribe(self, client: Client, topic: TopicName, name: str) -> list[Effect] | None:
        """Remove the connection's consumer of a subscription. Returns None if it has none."""
        membership = self._memberships.get(client.id, {}).pop((topic, name), None)
        return None if membership is None else self._leave(membership)

    def disconnect(self, client: Client) -> list[Effect]:
        return [
            effect for membership in self._memberships.pop(client.id, {}).values() for effect in self._leave(membership)
        ]

    def _leave(self, membership: Membership) -> list[Effect]:
        runner = membership.runner
        if not runner.is_reader:
            return runner.leave(membership.consumer)
        runner.topic.subscriptions.pop(runner.name, None)
        runner.end("closed")
        return []

    def end(self, runner: SubscriptionRunner, reason: str) -> list[Effect]:
        """End a subscription that was deleted, and remove all its consumers, which are told the reason."""
        runner.topic.subscriptions.pop(runner.name, None)
        self.cursor_store.forget(runner.uid)
        for endpoint in runner.endpoints.values():
            self._memberships.get(endpoint.client, {}).pop((runner.topic.name, runner.name), None)
        return runner.end(reason)

    # acknowledging

    def _membership(self, client: Client, topic: TopicName, fields: Fields) -> tuple[SubscriptionRunner, str]:
        name = read.text(fields, "subscription")
        membership = self._memberships.get(client.id, {}).get((topic, name))
        if membership is None or membership.consumer not in membership.runner.machine.consumers:
            self.find(topic, name)
            raise InvalidRequest(f"this connection does not consume {name} of {topic}", subscription=name)
        return membership.runner, membership.consumer

    def ack(self, client: Client, topic: TopicName, fields: Fields, reply: Reply, *, confirm: bool) -> list[Effect]:
        """Acknowledge messages, or extend their ack timeout. With `confirm`, the reply comes once the cursor is
        durable. Without, there is no reply to an ack, and the cursor is saved some milliseconds later. An extension is
        not saved, and replied at once."""
        read.check_known(fields, ("subscription", "partition", *_ACK_FORMS))
        _check_one_form(fields)
        runner, consumer = self._membership(client, topic, fields)
        partition = read.number(fields, "partition", 0)
        if "cumulative" in fields:
            named = min(read.number(fields, "cumulative") + 1, runner.machine.cursor(partition).end)
            effects = runner.handle(events.AckThrough(consumer, partition, named - 1))
        elif "extend" in fields:
            spans = read.spans({"ranges": fields["extend"]})
            effects = runner.handle(events.Extend(consumer, partition, spans))
            extended = runner.last_counts.messages
            return [*effects, *reply({"extended": extended, "ignored": _message_count(spans) - extended})]
        else:
            spans = read.spans(fields)
            effects = runner.handle(events.Ack(consumer, partition, spans))
            named = _message_count(spans)
        acked, already = runner.last_counts
        answer = {"acked": acked, "already": already, "ignored": named - acked - already}
        return [*effects, *self.cursor_store.when_durable(reply, answer)] if confirm else effects

    def nack(self, client: Client, topic: TopicName, fields: Fields, reply: Reply, *, confirm: bool) -> list[Effect]:
        read.check_known(fields, ("subscription", "partition", "offsets", "ranges", "delay_ms", "reason"))
        runner, consumer = self._membership(client, topic, fields)
        spans = read.spans(fields)
        delay_ms = read.number(fields, "delay_ms", at_most=WAIT_MS_MAX) if "delay_ms" in fields else None
        reason = read.text(fields, "reason", "refused by the consumer")[:_REASON_CHARS_MAX]
        event = events.Nack(consumer, read.number(fields, "partition", 0), spans, delay_ms, reason)
        effects = runner.handle(event)
        nacked = runner.last_counts.messages
        answer = {"nacked": nacked, "ignored": _message_count(spans) - nacked}
        return [*effects, *self.cursor_store.when_durable(reply, answer)] if confirm else effects

    def seek(self, client: Client, topic: TopicName, fields: Fields, reply: Reply) -> list[Effect]:
        """Move a subscription to a position, in one partition or in all. The reply comes once that is durable. A
        reader, whose position is never saved, can be moved only by its own connection."""
        read.check_known(fields, ("subscription", "position", "partition", "topic"))
        runner = self.find(topic, read.text(fields, "subscription"))
        if runner.is_reader:
            self._membership(client, topic, fields)
        position = read.position(fields.get("position"), "position")
        partition = read.number(fields, "partition") if "partition" in fields else None

        def sought(outcome: dict[int, int] | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return reply(outcome)
            effects = runner.handle(events.Seek(outcome))
            answer = {"subscription": runner.name, "positions": {str(key): value for key, value in outcome.items()}}
            return [*effects, *self.cursor_store.when_durable(reply, answer)]

        return [RunInThread(lambda: start_offsets(runner.topic, position, partition), sought, read_only=True)]


_ACK_FORMS: Final = ("offsets", "ranges", "cumulative", "extend")


def _check_one_form(fields: Fields) -> None:
    """Raise `InvalidRequest` if an ack has more than one of these: offsets and ranges, which may come together; a
    cumulative offset; an extension. Otherwise one of them would be overlooked."""
    forms = [form for form in _ACK_FORMS if form in fields]
    if len(forms) > 1 and forms != ["offsets", "ranges"]:
        raise InvalidRequest(
            "An ack has offsets and ranges, or cumulative, or extend, and one of these alone: not"
            f" {', '.join(forms[:-1])} and {forms[-1]}",
            field=forms[-1],
        )


def _message_count(spans: list[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in spans)


def start_offsets(
    topic: TopicState, position: Position | dict[int, Position], partition: int | None = None
) -> dict[int, int]:
    """Return, by partition, the offset that a position means now; without `partition`, for all partitions. Reads the
    log. Raises `OffsetOutOfRange` for an offset that is not there, and `InvalidRequest` if the partitions do not
    fit."""
    if isinstance(position, dict):
        if set(position) != set(range(len(topic.logs))):
            raise InvalidRequest(f"{topic.name} has partitions 0 to {len(topic.logs) - 1}: name a place in each")
        return {number: int(topic.logs[number].offset_of(at)) for number, at in position.items()}
    numbers = range(len(topic.logs)) if partition is None else [partition]
    if partition is not None and not 0 <= partition < len(topic.logs):
        raise InvalidRequest(f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {partition}")
    if isinstance(position, AtOffset) and len(numbers) > 1:
        raise InvalidRequest(
            f"{topic.name} has {len(numbers)} partitions, each with offsets of its own: name the partition too"
        )
    return {number: int(topic.logs[number].offset_of(position)) for number in numbers}


def _defaults(topic: TopicState) -> Fields:
    """Return the options that the topic sets for its subscriptions. In a dead-letter topic exhausted messages block, as
    they cannot become dead letters again."""
    settings = topic.settings
    options: Fields = {"exhausted": Exhausted.BLOCK} if is_dead_letter_topic(topic.name) else {}
    if settings.redeliveries is not None:
        options["redeliveries"] = settings.redeliveries
    if settings.exhausted is not None:
        options["exhausted"] = settings.exhausted
    return options


def is_dead_letter_topic(name: TopicName) -> bool:
    return name.namespace.endswith(DEAD_LETTER_SUFFIX)


def _check_exhausted(topic: TopicState, options: SubscriptionOptions) -> None:
    if options.exhausted is Exhausted.DEAD_LETTER and is_dead_letter_topic(topic.name):
        raise InvalidRequest(
            f"{topic.name} holds dead letters, and has none of its own: exhausted is block or drop", field="exhausted"
        )
