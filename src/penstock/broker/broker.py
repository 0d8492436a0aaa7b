"""The broker: routes every message, and answers it.

It takes events (a client connected, sent a message, left; time passed) and returns effects. `now_ms` is a monotonic
clock; the time of day, which only people need, comes from a `Clock`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final

from penstock.broker.access.policy import ANONYMOUS, AccessPolicy, BadCredentials, Principal, Resource
from penstock.broker.access_enforcement import AccessEnforcer
from penstock.broker.admin import operations
from penstock.broker.base.effects import Close, Effect, Send
from penstock.broker.base.metrics import COUNTED, Metrics
from penstock.broker.base.redaction import PathRedactor
from penstock.broker.base.replies import FAILURE, SUCCESS, json_bytes, own_message, publish, request, response
from penstock.broker.base.request_fields import Fields, check_known, read_fields
from penstock.broker.context import BrokerContext, Reply
from penstock.broker.durable import DurableBroker
from penstock.broker.live.connections import Client, Clients
from penstock.broker.live.rate_limits import RateLimiter
from penstock.broker.live.requests import OpenRequest, OpenRequests
from penstock.broker.live.routing import LiveKind, Routes
from penstock.broker.permissions import LIVE_OPERATIONS, check_action
from penstock.broker.topics.topics import AutoCreate
from penstock.core.clock import Clock, iso_time
from penstock.core.errors import (
    InvalidRequest,
    NoRouteFound,
    PenstockError,
    QuotaExceeded,
    ServiceUnavailable,
    Timeout,
    TopicNotSupported,
)
from penstock.core.limits import WireLimits
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.actions import ACTION_RULES, Action
from penstock.protocol.batch_reader import PublishBatch
from penstock.protocol.frames import Frame, RejectedFrame
from penstock.protocol.header import NO_HEADER, Head, Header
from penstock.protocol.notices import CLOSING, HEARTBEAT, INITIALIZE, LOG
from penstock.storage.store import Store

_LOG: Final = logging.getLogger(__name__)
_SECOND_MS: Final = 1000
_LIVE_OPTIONS: Final = ("action", "priority")
_STORING: Final = (Action.PUBLISH, Action.APPEND, Action.MESSAGE)
_SUBSCRIBING: Final = (Action.SUBSCRIBE, Action.UNSUBSCRIBE)


class Broker:
    """Live publish/subscribe, request/response, and the system topics."""

    def __init__(
        self,
        limits: WireLimits,
        clock: Clock,
        random: Random,
        *,
        now_ms: int = 0,
        probe: Callable[[], dict[str, float]] = dict,
        store: Store | None = None,
        auto_create: AutoCreate = AutoCreate.RELIABLE,
        access: AccessPolicy | None = None,
    ) -> None:
        """Create a broker. Without a store all topics are live; without `access` every client may do everything.
        `probe` returns further metrics, by name."""
        self._limits = limits
        self._random = random
        self._probe = probe
        self._counted_ms = now_ms
        self._draining = False
        self.context = BrokerContext(clock, random, now_ms, access)
        self._routes = Routes(random)
        self._requests = OpenRequests(limits.requests_open_max)
        self.rate_limiter = RateLimiter(connection=limits.connection_rate_max, topic=limits.topic_rate_max)
        self.clients = Clients(retry_ms=limits.heartbeat_retry_ms, deregister_ms=limits.heartbeat_deregister_ms)
        self.durable: DurableBroker | None = None
        if store is not None:
            self.context.redactor = PathRedactor(str(store.root))
            self.durable = DurableBroker(
                store, self.context, self._routes, self.rate_limiter, limits, auto_create=auto_create
            )
        self.enforcer = AccessEnforcer(self.context, self.clients, self._routes)
        if self.durable is not None:
            self.durable.enforce_access(self.enforcer)

    @property
    def access(self) -> AccessPolicy:
        return self.context.access

    @property
    def metrics(self) -> Metrics:
        return self.context.metrics

    # connections

    def connect(
        self, address: str, now_ms: int, *, principal: Principal = ANONYMOUS, surface: str = "tcp"
    ) -> tuple[Client, list[Effect]]:
        """Accept a connection. Returns the client, and the effect that sends it the first frame. Raises
        `ServiceUnavailable` if there are too many connections, or the broker is stopping."""
        self.context.now_ms = now_ms
        if len(self.clients) >= self._limits.connections_max or self._draining:
            self.metrics.add("connection.rejected")
            why = "the broker is stopping" if self._draining else f"at most {self._limits.connections_max} connections"
            raise ServiceUnavailable(f"Connection refused: {why}; try again later")
        client = Client(id=self.context.new_id(), address=address, connected_ms=now_ms, heard_ms=now_ms)
        client.bucket = self.rate_limiter.for_connection(now_ms)
        client.principal, client.surface = principal, surface
        self.clients.add(client)
        self.metrics.add("connection.connected")
        _LOG.info("connected", extra={"client": client.id, "address": address})
        return client, [Send(client.id, own_message(INITIALIZE, b"{}"))]

    def disconnect(self, client: Client, now_ms: int, reason: str = "closed by the client") -> list[Effect]:
        """Remove a connection and its subscriptions. Requests that it should have responded to fail. Does nothing if it
        was removed before."""
        self.context.now_ms = now_ms
        if self.clients.remove(client.id) is None:
            return []
        client.connected = False
        for kind, pattern in client.subscriptions:
            self._routes.remove(kind, pattern, client.id)
        self._requests.abandon_requester(client.id)
        self.metrics.add("connection.disconnected")
        if client.name:
            self.metrics.add("registry.unregistration")
        _LOG.info("disconnected", extra={"client": client.id, "address": client.address, "reason": reason})
        effects = [
            effect
            for open_request in self._requests.close_of_server(client.id)
            for effect in self._server_gone(open_request)
        ]
        return effects if self.durable is None else [*effects, *self.durable.disconnect(client)]

    def _server_gone(self, open_request: OpenRequest) -> list[Effect]:
        error = ServiceUnavailable(
            f"The service that was to answer {open_request.header.topic} disconnected",
            targetServiceId=open_request.server,
        )
        return self._fail_request(open_request, error)

    def _fail_request(self, open_request: OpenRequest, error: PenstockError) -> list[Effect]:
        self.metrics.add("router.request.error")
        return [
            self.context.answer(
                open_request.requester,
                open_request.header.head,
                open_request.header.request_id,
                self.context.error(error),
            )
        ]

    def drain(self, now_ms: int, grace_ms: int) -> list[Effect]:
        """Refuse new connections and requests, and tell all clients that the broker stops in `grace_ms`."""
        self.context.now_ms = now_ms
        self._draining = True
        payload = json_bytes({"reason": "the broker is stopping", "graceMs": grace_ms})
        frame = own_message(CLOSING, payload)
        return [Send(client.id, frame) for client in self.clients]

    @property
    def is_draining(self) -> bool:
        """True while the broker stops: new connections and requests are refused."""
        return self._draining

    @property
    def requests_open(self) -> int:
        """The number of requests that wait for a response."""
        return len(self._requests)

    @property
    def idle(self) -> bool:
        """True if no request waits for a response, and no write waits for the disk."""
        return len(self._requests) == 0 and (self.durable is None or self.durable.idle)

    def abandon_requests(self, now_ms: int) -> list[Effect]:
        """Fail all open requests, because the broker stops before they were answered."""
        self.context.now_ms = now_ms
        error = ServiceUnavailable("The broker stops before this was answered; try again later")
        return [
            effect for open_request in self._requests.close_all() for effect in self._fail_request(open_request, error)
        ]

    def close(self) -> None:
        """Save what is not saved yet. Waits for the disk. The broker must not be used afterwards."""
        if self.durable is not None:
            self.durable.close()

    # messages and results

    def ask(
        self,
        topic: str,
        fields: Fields,
        reply: Reply,
        now_ms: int,
        principal: Principal = ANONYMOUS,
        waits: Callable[[], bool] = lambda: True,
    ) -> list[Effect]:
        """Handle a request to a system topic that did not come through a connection. `waits` returns whether the caller
        still waits for the reply."""
        self.context.now_ms = now_ms
        caller = Client(
            id="",
            address="",
            connected_ms=now_ms,
            heard_ms=now_ms,
            connected=False,
            request_alive=waits,
            principal=principal,
        )
        try:
            return operations.ask(self, caller, topic, fields, reply)
        except PenstockError as error:
            return reply(error)

    def resume(self, done: Callable[[Any], list[Effect]], outcome: Any, now_ms: int) -> list[Effect]:
        """Continue an effect with its outcome, a value or an error. Returns the effects that follow."""
        return self.resume_all([(done, outcome)], now_ms)

    def resume_all(self, results: Iterable[tuple[Callable[[Any], list[Effect]], Any]], now_ms: int) -> list[Effect]:
        """Call many continuations with their outcomes. Subscribers are woken once for all of them."""
        self.context.now_ms = max(self.context.now_ms, now_ms)
        effects = [effect for done, outcome in results for effect in self._resumed(done, outcome)]
        return effects if self.durable is None else [*effects, *self.durable.wake_subscribers()]

    def _resumed(self, done: Callable[[Any], list[Effect]], outcome: Any) -> list[Effect]:
        try:
            return done(outcome)
        except Exception:
            _LOG.exception("unhandled error in a continuation")
            return []

    def receive(
        self, client: Client, items: Iterable[PublishBatch | Frame | RejectedFrame], now_ms: int
    ) -> Iterator[list[Effect]]:
        """Handle messages of one client, in order, and yield the effects of each as soon as they are known."""
        for item in items:
            # Other clients may have had their turns since these messages came.
            self.context.now_ms = max(self.context.now_ms, now_ms)
            client.heard_ms, client.heartbeat_pending = now_ms, False
            yield self._handle(client, item)

    def _handle(self, client: Client, item: PublishBatch | Frame | RejectedFrame) -> list[Effect]:
        match item:
            case PublishBatch():
                return self._publish(client, item)
            case Frame():
                return self._handle_frame(client, item)
            case RejectedFrame():
                return self._reject(client, item)

    def note_activity(self, client: Client, now_ms: int) -> None:
        """Note that a connection is alive, by input that is no message: a ping, or a pong, which answers a
        heartbeat."""
        client.heard_ms, client.heartbeat_pending = now_ms, False

    def _reject(self, client: Client, rejected: RejectedFrame) -> list[Effect]:
        self.metrics.add_messages(1, 0, 0)
        salvage = rejected.salvage
        _LOG.debug("rejected", extra={"client": client.id, "error": rejected.error.message})
        over = not self.rate_limiter.allow(client.bucket, None, self.context.now_ms) and not rejected.fatal
        payload = self.context.failure(client, self.rate_limiter.exceeded() if over else rejected.error)
        answer = Send(
            client.id, response(salvage.topic, salvage.version, salvage.request_id or self.context.new_id(), payload)
        )
        return [answer, Close(client.id, rejected.error)] if rejected.fatal else [answer]

    def _handle_frame(self, client: Client, frame: Frame) -> list[Effect]:
        header = frame.header
        size = len(frame.payload)
        self.metrics.add_messages(1, size, size)
        if header.action in COUNTED:
            self.metrics.add(f"router.{header.action.value}")
        if header.parent_id is not None:
            _LOG.debug(
                "traced",
                extra={
                    "client": client.id,
                    "action": header.action.value,
                    "topic": header.topic,
                    "request_id": header.request_id,
                    "parent_id": header.parent_id,
                },
            )
        try:
            if not self.rate_limiter.allow(client.bucket, None, self.context.now_ms):
                raise self.rate_limiter.exceeded()
            return self._perform(client, frame)
        except PenstockError as error:
            return self._reject_frame(client, header, error)
        except Exception:
            _LOG.exception("unhandled error in a message", extra={"client": client.id, "topic": header.topic})
            return self._reject_frame(client, header, PenstockError("The broker failed on this message"))

    def _reject_frame(self, client: Client, header: Header, error: PenstockError) -> list[Effect]:
        self.metrics.count_error(header.action)
        answer = self.context.answer(client.id, header.head, header.request_id, self.context.failure(client, error))
        return [answer, Close(client.id, error)] if isinstance(error, BadCredentials) else [answer]

    def _perform(self, client: Client, frame: Frame) -> list[Effect]:
        head = frame.header.head
        if self.access.enabled and (not head.is_system or head.action in _SUBSCRIBING):
            self._check(client, head)
        match frame.header.action:
            case Action.SUBSCRIBE:
                return self._subscribe_frame(client, frame)
            case Action.UNSUBSCRIBE:
                return self._unsubscribe_frame(client, frame)
            case _ if head.is_system:
                return operations.answer(self, client, frame)
            case Action.PUBLISH:
                return self._publish_one(client, frame)
            case Action.REQUEST:
                return self._request(client, frame)
            case Action.RESPONSE:
                return self._response(client, frame)
            case action if not ACTION_RULES[action].from_client:
                raise InvalidRequest(f"Only the broker sends {action.value}", action=action.value)
            case _ if self.durable is not None:
                return self.durable.handle(client, frame)
            case action:
                raise TopicNotSupported(
                    f"{head.topic} is a live topic: {action.value} needs a durable one", action=action.value
                )

    def _check(self, client: Client, head: Head) -> None:
        """Raise `Unauthorized` or `Forbidden` if the client may not send the message or create its topic."""
        topic = None if isinstance(head.name, TopicPattern) else head.destination
        check_action(self.access, client, head.action, topic)
        if self.durable is not None and topic is not None and head.action in _STORING:
            self.durable.check_create(client, topic)

    def _answered(self, client: Client, frame: Frame, payload: bytes, *, always: bool = False) -> list[Effect]:
        """Return the answer to a frame, if the frame has a request id. With `always`, answer without one too, as the
        protocol's first version did."""
        if frame.header.request_id is None and not always:
            return []
        return [self.context.answer(client.id, frame.header.head, frame.header.request_id, payload)]

    # publish

    def _publish(self, client: Client, batch: PublishBatch) -> list[Effect]:
        self.metrics.add_messages(len(batch), batch.payload_bytes, batch.largest_bytes)
        self.metrics.add("router.publish", len(batch))
        first_id = self.context.new_id()
        effects: list[Effect] = []
        allowed = self.rate_limiter.allowed(client.bucket, batch, self.context.now_ms)
        if allowed is not None:
            effects.append(self._refuse(client, batch.selected(~allowed), first_id, self.rate_limiter.exceeded()))
            batch = batch.selected(allowed)
        kept: dict[TopicName, list[int]] = {}
        routed: dict[tuple[str, ...], list[int]] = {}
        enforced = self.access.enabled
        for number, head, count in batch.counts():
            denied = self._denied(client, head) if enforced else None
            if denied is not None:
                effects.append(self._refuse(client, batch.with_heads((number,)), first_id, denied))
                continue
            subscribers = () if head.is_system else self._routes.subscribers(head.destination)
            if self._is_durable(head):
                kept.setdefault(head.destination, []).append(number)
            elif subscribers:
                routed.setdefault(subscribers, []).append(number)
            else:
                effects.append(self._refuse(client, batch.with_heads((number,)), first_id, self._no_route(head, count)))
        if kept and self.durable is not None:
            for name, numbers in kept.items():
                effects += self.durable.publish(client, name, batch.with_heads(numbers))
        return [*self._deliver(client, batch, routed, first_id), *effects] if routed else effects

    def _denied(self, client: Client, head: Head) -> PenstockError | None:
        try:
            self._check(client, head)
        except PenstockError as error:
            return error
        return None

    def _is_durable(self, head: Head) -> bool:
        return self.durable is not None and not head.is_system and self.durable.is_durable(head.destination)

    def _no_route(self, head: Head, count: int) -> PenstockError:
        if head.is_system:
            return operations.wrong_action(head)
        self.metrics.add("router.publish.dropped", count)
        refused = None if self.durable is None else self.durable.publish_error(head.destination)
        return refused or NoRouteFound(f"No subscribers for topic {head.topic}")

    def _deliver(
        self, client: Client, batch: PublishBatch, routed: dict[tuple[str, ...], list[int]], first_id: str
    ) -> list[Effect]:
        """Send every subscriber its messages, in their order of arrival, and answer the sender. `routed` has the
        numbers of heads, by the subscribers that get them."""
        effects: list[Effect] = []
        for numbers, subscribers in _by_recipients(routed).items():
            chosen = batch.with_heads(numbers)
            frames = chosen.delivery_frames(first_id)
            effects += [Send(subscriber, frames) for subscriber in subscribers]
            self.metrics.add("live.delivered", len(chosen) * len(subscribers))
        answered = batch.with_heads([number for numbers in routed.values() for number in numbers]).expecting_answers()
        if len(answered):
            effects.append(Send(client.id, answered.answer_frames(first_id, SUCCESS)))
        return effects

    def _refuse(self, client: Client, batch: PublishBatch, first_id: str, error: PenstockError) -> Effect:
        """Answer every message of a batch with an error, also one without a request id: none is dropped silently."""
        self.metrics.add("router.publish.error", len(batch))
        return Send(client.id, batch.answer_frames(first_id, self.context.failure(client, error, len(batch))))

    def _publish_one(self, client: Client, frame: Frame) -> list[Effect]:
        """Publish a message that is not part of a batch. Raises `QuotaExceeded`, or `NoRouteFound` if a live topic has
        no subscriber."""
        head = frame.header.head
        if not self.rate_limiter.allow(None, head.destination, self.context.now_ms):
            raise self.rate_limiter.exceeded()
        if self.durable is not None and self._is_durable(head):
            return self.durable.handle(client, frame)
        subscribers = self._routes.subscribers(head.destination)
        if not subscribers:
            raise self._no_route(head, 1)
        delivered = publish(head.topic, head.version, self.context.new_id(), frame.payload)
        self.metrics.add("live.delivered", len(subscribers))
        return [*(Send(subscriber, delivered) for subscriber in subscribers), *self._answered(client, frame, SUCCESS)]

    # request and response

    def _request(self, client: Client, frame: Frame) -> list[Effect]:
        header = frame.header
        if self._draining:
            raise ServiceUnavailable("The broker is stopping: no new requests; try again later")
        server = self._routes.server(header.head.destination)
        if server is None:
            self.metrics.add("router.request.dropped")
            raise NoRouteFound(f"No subscribers for topic {header.topic}")
        deadline_ms = self.context.now_ms + (header.timeout_ms or self._limits.request_timeout_ms)
        opened = OpenRequest(self.context.new_id(), client.id, server, header, deadline_ms)
        self._requests.add(opened)
        return [Send(server, request(header.topic, header.version, opened.id, frame.payload))]

    def _response(self, client: Client, frame: Frame) -> list[Effect]:
        answered = self._requests.answer(frame.header.request_id, client.id)
        if answered is None:
            return []
        return [
            self.context.answer(answered.requester, answered.header.head, answered.header.request_id, frame.payload)
        ]

    # subscriptions

    def _subscribe_frame(self, client: Client, frame: Frame) -> list[Effect]:
        pattern, fields = _subscription(frame)
        if self.durable is not None and self.durable.is_durable_subscription(fields):
            return self.durable.subscribe(client, frame, fields)
        check_known(fields, _LIVE_OPTIONS)
        kinds = operations.parse_kinds({"action": "publish"} | fields)
        self.subscribe(client, kinds, pattern, operations.parse_priority(fields))
        return self._answered(client, frame, SUCCESS)

    def _unsubscribe_frame(self, client: Client, frame: Frame) -> list[Effect]:
        pattern, fields = _subscription(frame)
        if self.durable is not None and self.durable.is_durable_subscription(fields):
            return self.durable.unsubscribe(client, frame, fields)
        check_known(fields, _LIVE_OPTIONS)
        kinds = operations.parse_kinds({"action": "both"} | fields)
        return self._answered(client, frame, SUCCESS if self.unsubscribe(client, kinds, pattern) else FAILURE)

    def subscribe(self, client: Client, kinds: tuple[LiveKind, ...], pattern: TopicPattern, priority: int) -> None:
        """Subscribe a client to a live pattern from the next message on, or change its priority."""
        for kind in kinds if self.access.enabled else ():
            self.access.check(client.principal, LIVE_OPERATIONS[kind], Resource.topic(pattern), client.origin)
        new = sum((kind, pattern) not in client.subscriptions for kind in kinds)
        if len(client.subscriptions) + new > self._limits.subscriptions_max:
            raise QuotaExceeded(
                f"Too many subscriptions: a connection has at most {self._limits.subscriptions_max}",
                subscriptions_max=self._limits.subscriptions_max,
            )
        for kind in kinds:
            client.subscriptions[kind, pattern] = priority
            self._routes.add(kind, pattern, client.id, priority)

    def unsubscribe(self, client: Client, kinds: tuple[LiveKind, ...], pattern: TopicPattern) -> bool:
        """End live subscriptions of these kinds to this pattern. Returns False if there was none."""
        subscribed = [kind for kind in kinds if (kind, pattern) in client.subscriptions]
        for kind in subscribed:
            del client.subscriptions[kind, pattern]
            self._routes.remove(kind, pattern, client.id)
        return bool(subscribed)

    def register(self, client: Client, name: str, description: str) -> None:
        client.name, client.description = name, description
        self.metrics.add("registry.registration")
        _LOG.info("registered", extra={"client": client.id, "service": name})

    # time

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due: time out requests, send heartbeats, close connections that stayed silent."""
        self.context.now_ms = now_ms
        effects = self.enforcer.tick()
        for late in self._requests.expire(now_ms):
            self.metrics.add("router.request.timeout")
            effects += self._fail_request(late, Timeout("Request timed out", targetServiceId=late.server))
        if now_ms - self._counted_ms >= _SECOND_MS:
            self._counted_ms = now_ms
            self.metrics.second_passed()
            effects += self._heartbeats(now_ms)
            if self.durable is not None:
                self.durable.second_passed()
        return effects if self.durable is None else [*effects, *self.durable.tick()]

    def next_due_ms(self) -> int:
        """Return the time at which `tick` must be called next."""
        due = self._counted_ms + _SECOND_MS
        deadline = self._requests.next_deadline_ms()
        due = self.enforcer.next_due_ms(due if deadline is None else min(due, deadline))
        return due if self.durable is None else min(due, self.durable.next_due_ms())

    def _heartbeats(self, now_ms: int) -> list[Effect]:
        ask, gone = self.clients.silent(now_ms)
        effects: list[Effect] = []
        for client in ask:
            client.heartbeat_pending = True
            effects.append(Send(client.id, own_message(HEARTBEAT, b"{}", self.context.new_id(), Action.REQUEST)))
        for client in gone:
            error = Timeout(f"Nothing was heard for {(now_ms - client.heard_ms) // 1000} s; closing the connection")
            effects += [self.closing_error(client, error), Close(client.id, error)]
        return effects

    def closing_error(self, client: Client, error: PenstockError) -> Send:
        """Return the effect that sends a client the error for which its connection is about to be closed."""
        return Send(client.id, self.error_frame(error))

    def error_frame(self, error: PenstockError) -> bytes:
        """Return the frame of an error that is not the answer to a particular message."""
        return response(NO_HEADER.topic, NO_HEADER.version, self.context.new_id(), self.context.error(error))

    # logs and metrics

    def log(self, level: str, text: str, facts: dict[str, Any]) -> list[Effect]:
        """Send a line of the log to the clients whose log filter matches."""
        if not self.clients.loggers:
            return []
        followers = [
            client
            for client in self.clients.loggers.values()
            if client.log_filter and client.log_filter.matches(level, text)
        ]
        if not followers:
            return []
        entry = {"timestamp": iso_time(self.context.unix_ms()), "level": level, "message": text}
        frame = own_message(LOG, json_bytes(entry | ({"details": facts} if facts else {})), self.context.new_id())
        return [Send(client.id, frame) for client in followers]

    def metric_values(self) -> dict[str, float]:
        """Return all metrics, by name."""
        values = self._probe() | self.metrics.to_dict()
        values["registry.count"] = sum(bool(client.name) for client in self.clients)
        values["connection.active"] = len(self.clients)
        values["router.request.open"] = len(self._requests)
        if self.durable is not None:
            values |= self.durable.topics.store.meter.totals()
        for client in self.clients:
            if client.name:
                values[f"registry.service.{{serviceid:{client.id}}}.error.count"] = client.errors
                values[f"registry.service.{{serviceid:{client.id}}}.uptime"] = (
                    self.context.now_ms - client.connected_ms
                ) // 1000
        return values

    @property
    def answer_bytes_max(self) -> int:
        """The most bytes of a list in an answer: the largest message, less the frame around the list."""
        return self._limits.answer_bytes_max


def _by_recipients(routed: dict[tuple[str, ...], list[int]]) -> dict[tuple[int, ...], list[str]]:
    """Return subscribers by the numbers of all heads that they get. Subscribers with the same heads share one batch,
    which is then built once. `routed` has head numbers by subscribers."""
    heads: dict[str, list[int]] = {}
    for subscribers, numbers in routed.items():
        for subscriber in subscribers:
            heads.setdefault(subscriber, []).extend(numbers)
    recipients: dict[tuple[int, ...], list[str]] = {}
    for subscriber, numbers in heads.items():
        recipients.setdefault(tuple(sorted(numbers)), []).append(subscriber)
    return recipients


def _subscription(frame: Frame) -> tuple[TopicPattern, Fields]:
    """Return the topic and the options of a `subscribe` or `unsubscribe` frame."""
    pattern = TopicPattern.parse(frame.header.topic)
    operations.refuse_system(pattern)
    return pattern, read_fields(frame.payload)
