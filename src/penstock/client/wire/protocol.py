"""The client's side of the wire protocol, without sockets, clock or tasks: it encodes calls to bytes, and decodes
received bytes to events."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.errors import InvalidRequest, MalformedMessage, PenstockError, error_from_dict
from penstock.core.limits import BLOCK_BYTES_CEILING, WireLimits
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.actions import Action
from penstock.protocol.frames import (
    Frame,
    FrameLimits,
    FrameReader,
    RejectedFrame,
    check_payload,
    encode_frame,
    frame_bytes,
)
from penstock.protocol.header import NO_HEADER, Header, header
from penstock.protocol.notices import ACTIVE, CLOSING, ENDED, FENCED, GAP, HEARTBEAT, INITIALIZE, SOUGHT

_FROM_BROKER: Final = FrameLimits(payload_bytes_max=BLOCK_BYTES_CEILING)
"""The limits of frames from a broker: the largest that any broker can be configured to send."""

PAYLOAD_BYTES_MAX: Final = WireLimits().payload_bytes_max
"""The largest payload, in bytes, that a broker accepts unless it is configured otherwise."""

BLOCK_BYTES_MAX: Final = WireLimits().block_bytes_max

_NOTICES: Final = (ENDED, ACTIVE, SOUGHT, GAP, FENCED)
_REMEMBERED: Final = 10_000

Payload = bytes | bytearray | memoryview | str


@dataclass(frozen=True, slots=True)
class Message:
    """A live message, or a request to be answered."""

    topic: str
    """The topic, in the spelling of its sender."""

    payload: bytes
    version: str
    id: str
    """The id that the broker gave to this delivery."""

    @property
    def text(self) -> str:
        return self.payload.decode()

    def json(self) -> Any:
        return json.loads(self.payload)


# events


@dataclass(frozen=True, slots=True)
class Greeted:
    """The event that the broker has accepted the connection."""


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The response to the call with the id `request_id`; `error` is set if the call failed."""

    request_id: str
    payload: bytes
    error: PenstockError | None


@dataclass(frozen=True, slots=True)
class MessageReceived:
    message: Message
    to: tuple[TopicPattern, ...]
    """The patterns of our subscriptions that match the message's topic."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request for a topic that this client serves. `to` is the pattern of the handler; None if it is not served any
    more."""

    message: Message
    to: TopicPattern | None


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """A message, or a block of messages, of the durable subscription with the id `subscribe_id`."""

    subscribe_id: str
    header: Header
    payload: bytes


@dataclass(frozen=True, slots=True)
class NoticeReceived:
    """A notice from the broker about a subscription or a producer of this client."""

    topic: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The event that the transport is lost. Another will be opened unless the client does not reconnect."""


@dataclass(frozen=True, slots=True)
class ReplyDue:
    """The event that the broker has sent a heartbeat, which must be answered with these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnding:
    """The event that the broker is about to close the connection; or, if `unreadable`, that its bytes are not valid and
    the connection must be aborted."""

    error: PenstockError
    unreadable: bool = False


Event = (
    Greeted
    | ResponseReceived
    | MessageReceived
    | RequestReceived
    | RecordsReceived
    | NoticeReceived
    | ConnectionLost
    | ReplyDue
    | ConnectionEnding
)


@dataclass(frozen=True, slots=True)
class SubscriptionSpec:
    """A subscription, with all that is needed to make it again on every new connection."""

    pattern: TopicPattern
    kind: str
    priority: int | None = None
    subscribe_id: str = ""
    """The id of a durable subscription's consumer. It is the same on every connection: the broker marks messages with
    it."""

    subscription: str = ""
    options: str = ""
    """The options of a durable subscription, as JSON."""


@dataclass(frozen=True, slots=True)
class BrokerCall:
    """An encoded call: send `data`, then wait for the `ResponseReceived` with this `request_id`."""

    request_id: str
    data: bytes = field(repr=False)
    """The encoded frame. It is left out of the repr, since it may contain a token."""


def as_bytes(payload: Payload) -> bytes:
    """Return a payload as bytes; text is encoded as UTF-8. Raises `TypeError` for other types, which are never
    converted silently."""
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes or str, not {type(payload).__name__}: json.dumps makes a str of most things")


def milliseconds(timeout: float) -> int:
    """Convert a timeout in seconds to milliseconds, at least 1. Raises `InvalidRequest` if it is not a positive finite
    number."""
    seconds: object = timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidRequest(f"a timeout is a number of seconds above 0, not {timeout!r}")
    return max(1, round(timeout * 1000))


class ClientProtocol:
    """The protocol state of a client over successive connections. Subscriptions are kept for the next connection; calls
    are not."""

    def __init__(self, payload_bytes_max: int = PAYLOAD_BYTES_MAX) -> None:
        self._limits = FrameLimits(payload_bytes_max=payload_bytes_max, block_bytes_max=BLOCK_BYTES_MAX)
        self._reader = FrameReader(_FROM_BROKER)
        self._subscriptions: dict[tuple[str, TopicPattern | str], SubscriptionSpec] = {}
        self._matching: dict[str, tuple[TopicPattern, ...]] = {}
        self._service: tuple[str, str] | None = None

    # calls

    def publish(self, topic: str, payload: Payload, version: str = "1.0.0") -> BrokerCall:
        if isinstance(topic, str):
            TopicName.parse(topic)
        return self._call(Action.PUBLISH, topic, as_bytes(payload), version)

    def request(
        self, topic: str, payload: Payload, version: str = "1.0.0", timeout_ms: int | None = None
    ) -> BrokerCall:
        return self._call(Action.REQUEST, topic, as_bytes(payload), version, timeout_ms)

    def subscribe(self, spec: SubscriptionSpec) -> BrokerCall:
        self._subscriptions[_key(spec)] = spec
        self._matching.clear()
        return self._subscribe_call(spec)

    def forget(self, spec: SubscriptionSpec) -> None:
        """Remove a subscription, so that it is not made again on the next connection."""
        self._subscriptions.pop(_key(spec), None)
        self._matching.clear()

    def append(self, topic: str, block: bytes) -> BrokerCall:
        return self._call(Action.APPEND, topic, block)

    def subscription_call(self, action: Action, topic: str, fields: dict[str, Any]) -> BrokerCall:
        """Encode an ack, a nack or a seek."""
        return self._call(action, topic, _json(fields))

    def unsubscribe(self, spec: SubscriptionSpec) -> BrokerCall:
        self.forget(spec)
        ends = {"subscription": spec.subscription} if spec.subscribe_id else {"action": spec.kind}
        return self._call(Action.UNSUBSCRIBE, str(spec.pattern), _json(ends))

    def one_way(self, action: Action, topic: str, fields: dict[str, Any]) -> bytes:
        """Encode an ack, a nack or a seek without a request id: the broker responds only if it refuses it."""
        return encode_frame(header(action, topic), _json(fields))

    def register(self, name: str, description: str) -> BrokerCall:
        """Encode the registration of a service. Call `remember_service` once the broker has confirmed it."""
        payload = _json({"name": name, "description": description})
        return self._call(Action.REQUEST, "system.service.register", payload)

    def remember_service(self, name: str, description: str) -> None:
        """Remember the service, so that it is registered again on every new connection."""
        self._service = (name, description)

    def authenticate(self, token: str) -> BrokerCall:
        """Encode the credentials. A client that has a token must send this as the first frame of a connection."""
        return self._call(Action.REQUEST, "system.client.authenticate", _json({"token": token}))

    def heartbeat(self) -> BrokerCall:
        return self._call(Action.REQUEST, HEARTBEAT, b"{}")

    def respond(self, request: Message, payload: Payload) -> bytes:
        """Encode the response to a request. Raises `PayloadTooLarge` if it is larger than the broker accepts."""
        answer = as_bytes(payload)
        check_payload(len(answer), self._limits, Action.RESPONSE)
        return frame_bytes(f"response:{request.topic}:{request.version}:{request.id}".encode(), answer)

    def respond_error(self, request: Message, error: PenstockError, timestamp: str) -> bytes:
        return self.respond(request, _json({"error": error.as_dict() | {"timestamp": timestamp}}))

    def _subscribe_call(self, spec: SubscriptionSpec) -> BrokerCall:
        if spec.subscribe_id:
            header_ = header(Action.SUBSCRIBE, str(spec.pattern), request_id=spec.subscribe_id)
            return BrokerCall(spec.subscribe_id, encode_frame(header_, spec.options.encode()))
        options: dict[str, Any] = {"action": spec.kind}
        if spec.priority is not None:
            options["priority"] = spec.priority
        return self._call(Action.SUBSCRIBE, str(spec.pattern), _json(options))

    def _call(
        self, action: Action, topic: str, payload: bytes, version: str = "1.0.0", timeout_ms: int | None = None
    ) -> BrokerCall:
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a str, not {type(topic).__name__}")
        request_id = str(uuid.uuid4())
        check_payload(len(payload), self._limits, action)
        try:
            header_ = header(action, topic, version, request_id, timeout_ms=timeout_ms)
        except MalformedMessage as error:
            raise InvalidRequest(error.message, **error.details) from None
        return BrokerCall(request_id, encode_frame(header_, payload))

    # connections

    def connection_made(self) -> None:
        """Begin a new connection: drop the bytes of an incomplete frame from the last one."""
        self._reader = FrameReader(_FROM_BROKER)

    def restore_calls(self) -> list[tuple[SubscriptionSpec | None, BrokerCall]]:
        """Return the calls that register the service and make the subscriptions again on a new connection. Each comes
        with its subscription; None for the service."""
        calls: list[tuple[SubscriptionSpec | None, BrokerCall]] = []
        if self._service is not None:
            calls.append((None, self.register(*self._service)))
        return [*calls, *((spec, self._subscribe_call(spec)) for spec in self._subscriptions.values())]

    def has_subscription(self, spec: SubscriptionSpec) -> bool:
        return self._subscriptions.get(_key(spec)) == spec

    def receive(self, data: bytes) -> Iterator[Event]:
        self._reader.receive_data(data)
        while (item := self._reader.next_frame()) is not None:
            if isinstance(item, RejectedFrame):
                yield ConnectionEnding(item.error, unreadable=True)
                return
            yield from self._event(item)

    def _event(self, frame: Frame) -> Iterator[Event]:
        match frame.header.action:
            case Action.RESPONSE:
                yield from _answer(frame)
            case Action.PUBLISH:
                yield from self._published(frame)
            case Action.REQUEST:
                yield self._requested(frame)
            case Action.RECORDS | Action.MESSAGE:
                yield RecordsReceived(frame.header.parent_id or "", frame.header, frame.payload)
            case action:
                error = MalformedMessage(f"the broker sent {action.value}, which was not asked for")
                yield ConnectionEnding(error, unreadable=True)

    def _published(self, frame: Frame) -> Iterator[Event]:
        topic = frame.header.topic.lower()
        if topic == INITIALIZE:
            yield Greeted()
        elif topic == CLOSING:
            reason = _read_json(frame.payload).get("reason", "the broker is stopping")
            yield ConnectionEnding(error_from_dict({"code": "SERVICE_UNAVAILABLE", "message": str(reason)}))
        elif topic in _NOTICES:
            yield NoticeReceived(topic, _read_json(frame.payload))
        else:
            yield MessageReceived(_message(frame), self._patterns(topic))

    def _requested(self, frame: Frame) -> Event:
        message = _message(frame)
        if frame.header.topic.lower() == HEARTBEAT:
            return ReplyDue(self.respond(message, b'{"status":"success"}'))
        name = TopicName.parse(frame.header.topic)
        serving = [
            spec for spec in self._subscriptions.values() if spec.kind == "request" and spec.pattern.matches(name)
        ]
        best = max(serving, key=lambda spec: spec.priority or 0, default=None)
        return RequestReceived(message, None if best is None else best.pattern)

    def _patterns(self, topic: str) -> tuple[TopicPattern, ...]:
        patterns = self._matching.get(topic)
        if patterns is None:
            if len(self._matching) >= _REMEMBERED:
                self._matching.clear()
            name = TopicName.parse(topic)
            listening = (spec.pattern for spec in self._subscriptions.values() if spec.kind == "publish")
            patterns = self._matching[topic] = tuple(pattern for pattern in listening if pattern.matches(name))
        return patterns


def _key(spec: SubscriptionSpec) -> tuple[str, TopicPattern | str]:
    return spec.kind, spec.subscribe_id or spec.pattern


def _message(frame: Frame) -> Message:
    return Message(frame.header.topic, frame.payload, frame.header.version, frame.header.request_id or "")


def _answer(frame: Frame) -> Iterator[Event]:
    error = _error(frame.payload)
    if error is not None and frame.header.topic == NO_HEADER.topic:
        yield ConnectionEnding(error)  # the last frame before the broker closes the connection
    elif frame.header.request_id is not None:
        yield ResponseReceived(frame.header.request_id, frame.payload, error)


def _error(payload: bytes) -> PenstockError | None:
    """Return the error in a response; None if it is not an error."""
    if not payload.startswith(b'{"error"'):
        return None
    described = _read_json(payload).get("error")
    return error_from_dict(described) if isinstance(described, dict) else None


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _read_json(payload: bytes) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
