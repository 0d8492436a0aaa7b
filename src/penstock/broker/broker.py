"""The broker: what becomes of each message that comes in.

It is told what happened (a client came, sent, left; time passed) and returns what is to be done. `now_ms` is a clock
that only goes forward; the time of day, for people, comes from a `Clock`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final

from penstock.broker import system
from penstock.broker.clients import Client, Clients
from penstock.broker.effects import Close, Effect, Send
from penstock.broker.metrics import Metrics
from penstock.broker.quota import Rates
from penstock.broker.replies import (
    CLOSING,
    FAILURE,
    HEARTBEAT,
    INITIALIZE,
    LOG,
    SUCCESS,
    error_payload,
    json_bytes,
    own_message,
    publish,
    request,
    response,
)
from penstock.broker.requests import OpenRequest, OpenRequests
from penstock.broker.routing import Kind, Routes
from penstock.core.clock import Clock, iso_time
from penstock.core.clock import now_ms as clock_ms
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
from penstock.core.names import TopicPattern
from penstock.protocol.actions import VERBS, Action
from penstock.protocol.blocks import Batch
from penstock.protocol.frames import Frame, Rejected
from penstock.protocol.header import NOTHING_READ, Head, Header

_LOG: Final = logging.getLogger(__name__)
_SECOND_MS: Final = 1000
_COUNTED: Final = (Action.PUBLISH, Action.REQUEST, Action.RESPONSE)
_ID_TAIL_MAX: Final = 0x7FFFFFFFFFFF  # half of what the last group of an id holds: the rest is for counting up


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
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._random = random
        self._probe = probe
        self._now_ms = now_ms
        self._counted_ms = now_ms
        self._draining = False
        self._routes = Routes(random)
        self._requests = OpenRequests(limits.requests_open_max)
        self._rates = Rates(connection=limits.connection_rate_max, topic=limits.topic_rate_max)
        self.clients = Clients(retry_ms=limits.heartbeat_retry_ms, deregister_ms=limits.heartbeat_deregister_ms)
        self.metrics = Metrics()

    # what happens to connections

    def connect(self, address: str, now_ms: int) -> tuple[Client, list[Effect]]:
        """A new connection; the broker speaks first. Raises `ServiceUnavailable` if there are too many."""
        self._now_ms = now_ms
        if len(self.clients) >= self._limits.connections_max or self._draining:
            self.metrics.add("connection.rejected")
            why = "the broker is stopping" if self._draining else f"at most {self._limits.connections_max} connections"
            raise ServiceUnavailable(f"Connection refused: {why}; try again later")
        client = Client(id=self._new_id(), address=address, connected_ms=now_ms, heard_ms=now_ms)
        client.bucket = self._rates.for_connection(now_ms)
        self.clients.add(client)
        self.metrics.add("connection.connected")
        _LOG.info("connected", extra={"client": client.id, "address": address})
        return client, [Send(client.id, own_message(INITIALIZE, b"{}"))]

    def disconnect(self, client: Client, now_ms: int, reason: str = "closed by the client") -> list[Effect]:
        """The connection is gone: its subscriptions go, and whoever waits for its answer is told at once."""
        self._now_ms = now_ms
        if self.clients.remove(client.id) is None:
            return []
        for kind, pattern in client.subscriptions:
            self._routes.remove(kind, pattern, client.id)
        self._requests.requester_gone(client.id)
        self.metrics.add("connection.disconnected")
        if client.name:
            self.metrics.add("registry.unregistration")
        _LOG.info("disconnected", extra={"client": client.id, "address": client.address, "reason": reason})
        return [each for lost in self._requests.server_gone(client.id) for each in self._lost(lost)]

    def _lost(self, lost: OpenRequest) -> list[Effect]:
        error = ServiceUnavailable(
            f"The service that was to answer {lost.header.topic} disconnected", targetServiceId=lost.server
        )
        return self._failed(lost, error)

    def _failed(self, lost: OpenRequest, error: PenstockError) -> list[Effect]:
        self.metrics.add("router.request.error")
        return [self._answer(lost.requester, lost.header.head, lost.header.request_id, self._error(error))]

    def drain(self, now_ms: int, grace_ms: int) -> list[Effect]:
        """No new connections and no new requests from now on; everybody is told."""
        self._now_ms = now_ms
        self._draining = True
        payload = json_bytes({"reason": "the broker is stopping", "graceMs": grace_ms})
        frame = own_message(CLOSING, payload)
        return [Send(client.id, frame) for client in self.clients]

    @property
    def idle(self) -> bool:
        """Nobody waits for an answer."""
        return len(self._requests) == 0

    def abandon(self, now_ms: int) -> list[Effect]:
        """There is no more time: whoever still waits for an answer is told that none will come."""
        self._now_ms = now_ms
        error = ServiceUnavailable("The broker stops before this was answered; try again later")
        return [each for lost in self._requests.all_gone() for each in self._failed(lost, error)]

    # what comes in

    def receive(self, client: Client, items: Iterable[Batch | Frame | Rejected], now_ms: int) -> Iterator[list[Effect]]:
        """Messages of one client, in order; what each of them brings about, as soon as it is known."""
        for item in items:
            self._now_ms = max(self._now_ms, now_ms)  # others may have had their turns since these came
            client.heard_ms, client.asked = now_ms, False
            yield self._handle(client, item)

    def _handle(self, client: Client, item: Batch | Frame | Rejected) -> list[Effect]:
        match item:
            case Batch():
                return self._publish(client, item)
            case Frame():
                return self._frame(client, item)
            case Rejected():
                return self._reject(client, item)

    def heard(self, client: Client, now_ms: int) -> None:
        """Something came that is not a message: a sign of life."""
        client.heard_ms, client.asked = now_ms, False

    def _reject(self, client: Client, rejected: Rejected) -> list[Effect]:
        self.metrics.saw(1, 0, 0)
        found = rejected.salvage
        _LOG.debug("rejected", extra={"client": client.id, "error": rejected.error.message})
        over = not self._rates.allow(client.bucket, None, self._now_ms) and not rejected.fatal
        payload = self._failure(client, self._rates.exceeded() if over else rejected.error)
        answer = Send(client.id, response(found.topic, found.version, found.request_id or self._new_id(), payload))
        return [answer, Close(client.id, rejected.error)] if rejected.fatal else [answer]

    def _frame(self, client: Client, frame: Frame) -> list[Effect]:
        header = frame.header
        size = len(frame.payload)
        self.metrics.saw(1, size, size)
        if header.action in _COUNTED:
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
            if not self._rates.allow(client.bucket, None, self._now_ms):
                raise self._rates.exceeded()
            return self._act(client, frame)
        except PenstockError as error:
            return self._failed_frame(client, header, error)
        except Exception:
            _LOG.exception("a defect in the broker", extra={"client": client.id, "topic": header.topic})
            return self._failed_frame(client, header, PenstockError("The broker failed on this message"))

    def _failed_frame(self, client: Client, header: Header, error: PenstockError) -> list[Effect]:
        self._count_error(header.action)
        return [self._answer(client.id, header.head, header.request_id, self._failure(client, error))]

    def _act(self, client: Client, frame: Frame) -> list[Effect]:
        match frame.header.action:
            case Action.SUBSCRIBE:
                return self._answered(client, frame, self._subscribe_frame(client, frame))
            case Action.UNSUBSCRIBE:
                return self._answered(client, frame, self._unsubscribe_frame(client, frame))
            case _ if frame.header.head.is_system:
                payload = system.answer(self, client, frame)
                return [] if payload is None else self._answered(client, frame, payload, always=True)
            case Action.PUBLISH:
                return self._publish_one(client, frame)
            case Action.REQUEST:
                return self._request(client, frame)
            case Action.RESPONSE:
                return self._response(client, frame)
            case action if not VERBS[action].from_client:
                raise InvalidRequest(f"Only the broker sends {action.value}", action=action.value)
            case action:
                raise TopicNotSupported(
                    f"{frame.header.topic} is a live topic: {action.value} needs a durable one", action=action.value
                )

    def _answered(self, client: Client, frame: Frame, payload: bytes, *, always: bool = False) -> list[Effect]:
        """The answer, where one was asked for; `always`: the founding protocol answers a request also without an id."""
        if frame.header.request_id is None and not always:
            return []
        return [self._answer(client.id, frame.header.head, frame.header.request_id, payload)]

    def _answer(self, client_id: str, head: Head, request_id: str | None, payload: bytes) -> Send:
        return Send(client_id, response(head.topic, head.version, request_id or self._new_id(), payload))

    # publish

    def _publish(self, client: Client, batch: Batch) -> list[Effect]:
        self.metrics.saw(len(batch), batch.payload_bytes, batch.largest_bytes)
        self.metrics.add("router.publish", len(batch))
        first_id = self._new_id()
        effects: list[Effect] = []
        allowed = self._rates.allowed(client.bucket, batch, self._now_ms)
        if allowed is not None:
            effects.append(self._refuse(client, batch.where(~allowed), first_id, self._rates.exceeded()))
            batch = batch.where(allowed)
        routed: dict[tuple[str, ...], list[int]] = {}
        for number, head, count in batch.counts():
            subscribers = () if head.is_system else self._routes.subscribers(head.destination)
            if subscribers:
                routed.setdefault(subscribers, []).append(number)
            else:
                effects.append(self._refuse(client, batch.of((number,)), first_id, self._no_route(head, count)))
        return [*self._deliver(client, batch, routed, first_id), *effects] if routed else effects

    def _no_route(self, head: Head, count: int) -> PenstockError:
        if head.is_system:
            return system.wrong_action(head)
        self.metrics.add("router.publish.dropped", count)
        return NoRouteFound(f"No subscribers for topic {head.topic}")

    def _deliver(
        self, client: Client, batch: Batch, routed: dict[tuple[str, ...], list[int]], first_id: str
    ) -> list[Effect]:
        """To each subscriber its messages, in the order in which they came. `routed`: which heads go to whom."""
        effects: list[Effect] = []
        for numbers, subscribers in _alike(routed).items():
            frames = batch.of(numbers).deliveries(first_id)
            effects += [Send(each, frames) for each in subscribers]
        answered = batch.of([number for numbers in routed.values() for number in numbers]).with_ids()
        if len(answered):
            effects.append(Send(client.id, answered.answers(first_id, SUCCESS)))
        return effects

    def _refuse(self, client: Client, batch: Batch, first_id: str, error: PenstockError) -> Effect:
        """The same error to each, also to those without a request id: nothing is dropped in silence."""
        self.metrics.add("router.publish.error", len(batch))
        return Send(client.id, batch.answers(first_id, self._failure(client, error, len(batch))))

    def _publish_one(self, client: Client, frame: Frame) -> list[Effect]:
        """One that came alone, or with a parent id."""
        head = frame.header.head
        if not self._rates.allow(None, head.destination, self._now_ms):
            raise self._rates.exceeded()
        subscribers = self._routes.subscribers(head.destination)
        if not subscribers:
            self.metrics.add("router.publish.dropped")
            raise NoRouteFound(f"No subscribers for topic {head.topic}")
        delivered = publish(head.topic, head.version, self._new_id(), frame.payload)
        return [*(Send(each, delivered) for each in subscribers), *self._answered(client, frame, SUCCESS)]

    # request and response

    def _request(self, client: Client, frame: Frame) -> list[Effect]:
        header = frame.header
        if self._draining:
            raise ServiceUnavailable("The broker is stopping: no new requests; try again later")
        server = self._routes.server(header.head.destination)
        if server is None:
            self.metrics.add("router.request.dropped")
            raise NoRouteFound(f"No subscribers for topic {header.topic}")
        deadline_ms = self._now_ms + (header.timeout_ms or self._limits.request_timeout_ms)
        opened = OpenRequest(self._new_id(), client.id, server, header, deadline_ms)
        self._requests.add(opened)
        return [Send(server, request(header.topic, header.version, opened.id, frame.payload))]

    def _response(self, client: Client, frame: Frame) -> list[Effect]:
        answered = self._requests.answer(frame.header.request_id, client.id)
        if answered is None:
            return []
        return [self._answer(answered.requester, answered.header.head, answered.header.request_id, frame.payload)]

    # subscriptions

    def _subscribe_frame(self, client: Client, frame: Frame) -> bytes:
        pattern, fields = _subscription(frame)
        kinds = system.parse_kinds({"action": "publish"} | fields)
        self.subscribe(client, kinds, pattern, system.parse_priority(fields, kinds))
        return SUCCESS

    def _unsubscribe_frame(self, client: Client, frame: Frame) -> bytes:
        pattern, fields = _subscription(frame)
        kinds = system.parse_kinds({"action": "both"} | fields)
        return SUCCESS if self.unsubscribe(client, kinds, pattern) else FAILURE

    def subscribe(self, client: Client, kinds: tuple[Kind, ...], pattern: TopicPattern, priority: int) -> None:
        """Live, from the next message on. A second time, it changes the priority."""
        new = sum((kind, pattern) not in client.subscriptions for kind in kinds)
        if len(client.subscriptions) + new > self._limits.subscriptions_max:
            raise QuotaExceeded(
                f"Too many subscriptions: a connection has at most {self._limits.subscriptions_max}",
                subscriptions_max=self._limits.subscriptions_max,
            )
        for kind in kinds:
            client.subscriptions[kind, pattern] = priority
            self._routes.add(kind, pattern, client.id, priority)

    def unsubscribe(self, client: Client, kinds: tuple[Kind, ...], pattern: TopicPattern) -> bool:
        """False if there was nothing to end."""
        found = [kind for kind in kinds if (kind, pattern) in client.subscriptions]
        for kind in found:
            del client.subscriptions[kind, pattern]
            self._routes.remove(kind, pattern, client.id)
        return bool(found)

    def register(self, client: Client, name: str, description: str) -> None:
        client.name, client.description = name, description
        self.metrics.add("registry.registration")
        _LOG.info("registered", extra={"client": client.id, "service": name})

    # time

    def tick(self, now_ms: int) -> list[Effect]:
        """What is due: timeouts, heartbeats, the end of those that stayed silent."""
        self._now_ms = now_ms
        effects: list[Effect] = []
        for late in self._requests.expire(now_ms):
            self.metrics.add("router.request.timeout")
            effects += self._failed(late, Timeout("Request timed out", targetServiceId=late.server))
        if now_ms - self._counted_ms >= _SECOND_MS:
            self._counted_ms = now_ms
            self.metrics.second_passed()
            effects += self._heartbeats(now_ms)
        return effects

    def next_due_ms(self) -> int:
        """When `tick` has something to do again."""
        due = self._counted_ms + _SECOND_MS
        deadline = self._requests.next_deadline_ms()
        return due if deadline is None else min(due, deadline)

    def _heartbeats(self, now_ms: int) -> list[Effect]:
        ask, gone = self.clients.silent(now_ms)
        effects: list[Effect] = []
        for client in ask:
            client.asked = True
            effects.append(Send(client.id, own_message(HEARTBEAT, b"{}", self._new_id(), Action.REQUEST)))
        for client in gone:
            error = Timeout(f"Nothing was heard for {(now_ms - client.heard_ms) // 1000} s; closing the connection")
            effects += [self.last_word(client, error), Close(client.id, error)]
        return effects

    def last_word(self, client: Client, error: PenstockError) -> Send:
        """Why the connection is about to be closed."""
        return Send(client.id, self.refusal(error))

    def refusal(self, error: PenstockError) -> bytes:
        """An error that answers nothing in particular."""
        return response(NOTHING_READ.topic, NOTHING_READ.version, self._new_id(), self._error(error))

    # what others ask

    def log(self, level: str, text: str, facts: dict[str, Any]) -> list[Effect]:
        """A log line, to those who subscribed to such lines."""
        if not self.clients.loggers:
            return []
        wanted = [
            each for each in self.clients.loggers.values() if each.log_filter and each.log_filter.matches(level, text)
        ]
        if not wanted:
            return []
        entry = {"timestamp": iso_time(clock_ms(self._clock)), "level": level, "message": text}
        frame = own_message(LOG, json_bytes(entry | ({"details": facts} if facts else {})), self._new_id())
        return [Send(each.id, frame) for each in wanted]

    def measured(self) -> dict[str, float]:
        """Every metric there is, by name."""
        found = self._probe() | self.metrics.shown()
        found["registry.count"] = sum(bool(each.name) for each in self.clients)
        found["connection.active"] = len(self.clients)
        found["router.request.open"] = len(self._requests)
        for client in self.clients:
            if client.name:
                found[f"registry.service.{{serviceid:{client.id}}}.error.count"] = client.errors
                found[f"registry.service.{{serviceid:{client.id}}}.uptime"] = (
                    self._now_ms - client.connected_ms
                ) // 1000
        return found

    @property
    def answer_bytes_max(self) -> int:
        """What fits into one message beside the frame of a list."""
        return max(self._limits.payload_bytes_max - 256, 1024)

    def unix_ms_of(self, at_ms: int) -> int:
        """The time of day when the clock that only goes forward showed this."""
        return clock_ms(self._clock) - (self._now_ms - at_ms)

    # parts

    def _count_error(self, action: Action) -> None:
        if action in _COUNTED:
            self.metrics.add(f"router.{action.value}.error")

    def _failure(self, client: Client, error: PenstockError, count: int = 1) -> bytes:
        client.errors += count
        self.metrics.add("router.message.error", count)
        return self._error(error)

    def _error(self, error: PenstockError) -> bytes:
        return error_payload(error, clock_ms(self._clock))

    def _new_id(self) -> str:
        """A UUID4. There is room to count up its last group within one read of a socket."""
        bits = self._random.getrandbits(122)
        tail = bits & _ID_TAIL_MAX
        variant = 0x8000 | (bits >> 48 & 0x3FFF)
        return f"{bits >> 90:08x}-{bits >> 74 & 0xFFFF:04x}-4{bits >> 62 & 0xFFF:03x}-{variant:04x}-{tail:012x}"


def _alike(routed: dict[tuple[str, ...], list[int]]) -> dict[tuple[int, ...], list[str]]:
    """The same the other way round: those who get the same heads together, so that each batch is composed once."""
    wanted: dict[str, list[int]] = {}
    for subscribers, numbers in routed.items():
        for each in subscribers:
            wanted.setdefault(each, []).extend(numbers)
    alike: dict[tuple[int, ...], list[str]] = {}
    for each, numbers in wanted.items():
        alike.setdefault(tuple(sorted(numbers)), []).append(each)
    return alike


def _subscription(frame: Frame) -> tuple[TopicPattern, system.Fields]:
    """What a `subscribe` or `unsubscribe` frame is about."""
    pattern = TopicPattern.parse(frame.header.topic)
    system.refuse_system(pattern)
    fields = system.read_fields(frame.payload)
    if "subscription" in fields:
        raise InvalidRequest("Durable subscriptions are not served yet: leave out `subscription` for a live one")
    unknown = sorted(fields.keys() - {"action", "priority"})
    if unknown:
        raise InvalidRequest("Unknown option: a live subscription has action and priority", option=unknown[0])
    return pattern, fields
