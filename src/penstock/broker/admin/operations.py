"""The system topics: one table row for each. Handlers of registration, live subscriptions, lists, logs, metrics and
heartbeats are here, others in neighbouring modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import re2

from penstock.broker.access.audit import AuditTrail
from penstock.broker.access.policy import SERVER, Operation
from penstock.broker.admin import access, connections, dead_letters, messages, schemas, topics
from penstock.broker.base.effects import Effect, RunRegistryProcedure
from penstock.broker.base.replies import FAILURE, SUCCESS, encode_list, json_bytes
from penstock.broker.base.request_fields import Fields, read_fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client, LogFilter, Pattern
from penstock.broker.live.routing import LiveKind
from penstock.broker.permissions import AUTHENTICATE, check_identified, check_system, trail_of
from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest, MalformedMessage, PenstockError, ServiceUnavailable, TopicNotSupported
from penstock.core.limits import (
    LIST_ENTRIES_MAX,
    LOG_PATTERN_CHARS_MAX,
    SERVICE_DESCRIPTION_CHARS_MAX,
    SERVICE_NAME_CHARS_MAX,
)
from penstock.core.names import DEFAULT_NAMESPACE, TopicPattern
from penstock.protocol.actions import Action
from penstock.protocol.frames import Frame
from penstock.protocol.header import Head, is_request_id
from penstock.protocol.notices import HEARTBEAT

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.durable import DurableBroker

LEVELS: Final = ("debug", "info", "warn", "error")
_LIVE_KINDS: Final = {
    "publish": (LiveKind.PUBLISH,),
    "request": (LiveKind.REQUEST,),
    "both": (LiveKind.PUBLISH, LiveKind.REQUEST),
}
_PRIORITY_MAX: Final = 2**31 - 1
_INVALID_CREDENTIALS: Final = 'Missing or invalid token: expected {"token": "a key or a token"}'

Handler = Callable[["Broker", Client, Fields], bytes]
DurableHandler = Callable[["DurableBroker", Client, Fields, Reply], list[Effect]]
"""A handler that needs durable topics. It calls its `Reply` when the outcome is known, often after the disk has
answered."""
BrokerHandler = Callable[["Broker", Client, Fields, Reply], list[Effect]]
"""A handler that needs the whole broker, because it affects other connections than the one that sent the request."""


@dataclass(frozen=True, slots=True)
class SystemTopic:
    """The row of one system topic: its handler, which is one of the first three fields, and how its messages are read.

    `missing` is the text of the error for a payload that is not a JSON object.
    """

    handle: Handler | None = None
    durable_handler: DurableHandler | None = None
    broker_handler: BrokerHandler | None = None
    missing: str = "The payload must be a JSON object"
    actions: tuple[Action, ...] = field(default=(Action.REQUEST,))
    reads_payload: bool = True
    secret: bool = False
    """True if the payload may contain a secret: errors then repeat nothing of it."""

    without_connection: bool = False
    """True if a request may come without a connection, as those over HTTP do. Only rows with `handle` need it."""


def answer(broker: Broker, client: Client, frame: Frame) -> list[Effect]:
    """Handle a message to a system topic, and return the effects, with the answer if it is a request. Raises the error
    to answer with."""
    topic = _canonical_topic(frame.header.head)
    check_identified(broker.access, client, topic)
    if frame.header.action not in _actions(topic):
        raise wrong_action(frame.header.head)
    row = TOPICS.get(topic)
    if row is None:
        raise TopicNotSupported(f"Unknown system message topic: {topic}")
    trail = trail_of(broker.access, client, topic)
    fields = _read_payload(row, frame.payload, trail) if row.reads_payload else {}
    reply = broker.context.reply(client, frame.header, always=True)
    if row.durable_handler is not None or row.broker_handler is not None:
        return _with_deadline(broker, frame, ask(broker, client, topic, fields, reply))
    check_system(broker.access, client, topic, fields, trail)
    payload = row.handle(broker, client, fields) if row.handle is not None else SUCCESS
    return reply(payload) if frame.header.action is Action.REQUEST else []


def _with_deadline(broker: Broker, frame: Frame, effects: list[Effect]) -> list[Effect]:
    """Add the timeout of a request to the registry procedures among its effects: one that has not begun by then is
    dropped."""
    timeout_ms = frame.header.timeout_ms
    if timeout_ms is None:
        return effects
    until_ms = broker.context.now_ms + timeout_ms
    return [
        effect._replace(until_ms=until_ms) if isinstance(effect, RunRegistryProcedure) else effect for effect in effects
    ]


def _read_payload(topic: SystemTopic, payload: bytes, trail: AuditTrail) -> Fields:
    try:
        return read_fields(payload, topic.missing)
    except PenstockError as error:
        trail.end(error)
        if topic.secret and isinstance(error, MalformedMessage):
            raise MalformedMessage(error.message) from None
        raise


def ask(broker: Broker, client: Client, topic: str, fields: Fields, reply: Reply) -> list[Effect]:
    """Check the permission of a request to a system topic, which may come without a connection, and call its handler.
    The result goes to `reply`. Raises the error to answer with."""
    row = TOPICS.get(topic)
    if row is None:
        raise TopicNotSupported(f"Unknown system message topic: {topic}")
    if row.durable_handler is not None and broker.durable is None:
        raise TopicNotSupported(f"{topic}: this broker keeps no topics")
    client.trail = trail = trail_of(broker.access, client, topic)
    try:
        check_system(broker.access, client, topic, fields, trail)
        return _run_handler(broker, client, topic, fields, trail.closing(reply))
    except PenstockError as error:
        trail.end(error)
        raise
    finally:
        client.trail = None


def _run_handler(broker: Broker, client: Client, topic: str, fields: Fields, reply: Reply) -> list[Effect]:
    row = TOPICS[topic]
    if row.durable_handler is not None and broker.durable is not None:
        return row.durable_handler(broker.durable, client, fields, reply)
    if row.broker_handler is not None:
        return row.broker_handler(broker, client, fields, reply)
    if row.handle is None or not row.without_connection:
        raise TopicNotSupported(f"{topic}: only a connection can ask this")
    return reply(row.handle(broker, client, fields))


def wrong_action(head: Head) -> InvalidRequest:
    topic = _canonical_topic(head)
    expected = " or ".join(action.value.upper() for action in _actions(topic))
    return InvalidRequest(f"Invalid action, expected {expected} for {topic}", action=head.action.value, topic=topic)


def _canonical_topic(head: Head) -> str:
    """Return the topic as `TOPICS` spells it: in lower case, without the prefix `/default/`."""
    return head.topic.lower().removeprefix(f"/{DEFAULT_NAMESPACE}/")


def _actions(topic: str) -> tuple[Action, ...]:
    row = TOPICS.get(topic)
    return (Action.REQUEST,) if row is None else row.actions


def _given_values(fields: Fields, *names: str) -> Fields:
    """Return the values of these fields, which an error repeats; None for an absent field."""
    return {name: fields.get(name) for name in names}


def _heartbeat(_broker: Broker, _client: Client, _fields: Fields) -> bytes:
    return SUCCESS


def _authenticate(broker: Broker, client: Client, fields: Fields) -> bytes:
    """Set the principal of a connection to the one that its token proves. While access control is off, the token is not
    checked."""
    token = fields.get("token")
    if not isinstance(token, str) or len(fields) > 1:
        raise InvalidRequest(_INVALID_CREDENTIALS, field="token")
    if not broker.access.enabled:
        return json_bytes({"status": "success", "principal": client.principal.name})
    principal = broker.enforcer.authenticate(client, token)
    until = {} if principal.expires_ms is None else {"expires_ms": principal.expires_ms}
    return json_bytes({"status": "success", "principal": principal.name} | until)


# services


def _register(broker: Broker, client: Client, fields: Fields) -> bytes:
    name, description = fields.get("name"), fields.get("description")
    if not (isinstance(name, str) and name and isinstance(description, str) and description):
        raise InvalidRequest("Missing or invalid name or description", **_given_values(fields, "name", "description"))
    if len(name) > SERVICE_NAME_CHARS_MAX:
        raise InvalidRequest("Name of service is too long", name=name)
    if len(description) > SERVICE_DESCRIPTION_CHARS_MAX:
        raise InvalidRequest("Description of service is too long", description=description)
    broker.register(client, name, description)
    return SUCCESS


def _list_services(broker: Broker, _client: Client, _fields: Fields) -> bytes:
    broker.metrics.add("registry.discovery")
    clients = sorted(broker.clients, key=lambda client: (not client.name, client.name, client.id))
    return encode_list(
        broker.answer_bytes_max, "services", (_service(broker, client) for client in clients), len(clients)
    )


def _service(broker: Broker, client: Client) -> Fields:
    return {
        "id": client.id,
        "name": client.name,
        "description": client.description,
        "connectedAt": iso_time(broker.context.unix_ms_of(client.connected_ms)),
        "lastHeartbeat": iso_time(broker.context.unix_ms_of(client.heard_ms)),
    }


def _service_subscriptions(broker: Broker, client: Client, fields: Fields) -> bytes:
    wanted = fields.get("serviceId", client.id)
    if not isinstance(wanted, str) or not is_request_id(wanted):
        raise InvalidRequest("Invalid serviceId", serviceId=wanted)
    if wanted.lower() != client.id:
        broker.access.check(client.principal, Operation.SERVER_VIEW, SERVER, client.origin)
    target = broker.clients.get(wanted.lower())
    if target is None:
        raise ServiceUnavailable(f"Service {wanted} not found")
    entries = [
        {"action": kind.value, "topic": display_pattern(pattern)} | _priority(kind, priority)
        for (kind, pattern), priority in target.subscriptions.items()
    ]
    return encode_list(broker.answer_bytes_max, "subscriptions", entries, len(entries))


def display_pattern(pattern: TopicPattern) -> str:
    """Return the bare name of a pattern in the default namespace, and the full name of any other."""
    return pattern.pattern if pattern.namespace == DEFAULT_NAMESPACE else str(pattern)


def _priority(kind: LiveKind, priority: int) -> Fields:
    return {"priority": priority} if kind is LiveKind.REQUEST else {}


# topics


def parse_pattern(text: object, **details: object) -> TopicPattern:
    if not isinstance(text, str) or not text:
        raise InvalidRequest("Missing or invalid topic", **details)
    try:
        pattern = TopicPattern.parse(text)
    except TopicNotSupported as error:
        raise InvalidRequest("Missing or invalid topic", reason=error.message, **details) from None
    refuse_system(pattern)
    return pattern


def refuse_system(pattern: TopicPattern) -> None:
    if pattern.is_system:
        raise InvalidRequest("Unable to subscribe to restricted topic", topic=display_pattern(pattern))


def parse_kinds(fields: Fields) -> tuple[LiveKind, ...]:
    action = fields.get("action")
    kinds = _LIVE_KINDS.get(action.lower()) if isinstance(action, str) else None
    if kinds is None:
        raise InvalidRequest("Missing or invalid action", **_given_values(fields, "action"))
    return kinds


def parse_priority(fields: Fields) -> int:
    """Read the priority of a live subscription, 0 if it has none. It matters for requests only; for published messages
    it is accepted and ignored. Raises `InvalidRequest`."""
    priority = fields.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _PRIORITY_MAX:
        raise InvalidRequest("Invalid priority", priority=priority)
    return priority


def _subscribe(broker: Broker, client: Client, fields: Fields) -> bytes:
    kinds = parse_kinds(fields)
    pattern = parse_pattern(fields.get("topic"), **_given_values(fields, "topic"))
    broker.subscribe(client, kinds, pattern, parse_priority(fields))
    return SUCCESS


def _unsubscribe(broker: Broker, client: Client, fields: Fields) -> bytes:
    kinds = parse_kinds(fields)
    pattern = parse_pattern(fields.get("topic"), **_given_values(fields, "topic"))
    return SUCCESS if broker.unsubscribe(client, kinds, pattern) else FAILURE


def _list_topics(broker: Broker, _client: Client, _fields: Fields) -> bytes:
    return _list_patterns(broker, "topics")


def _list_subscriptions(broker: Broker, _client: Client, _fields: Fields) -> bytes:
    return _list_patterns(broker, "subscriptions")


def _list_patterns(broker: Broker, what: str) -> bytes:
    """Encode a list of all live topic patterns with their subscribers. `what` is the name of the list in the answer."""
    subscribers: dict[tuple[str, str], list[Fields]] = {}
    for client in broker.clients:
        for (kind, pattern), priority in client.subscriptions.items():
            entry = {"serviceId": client.id} | _priority(kind, priority)
            subscribers.setdefault((display_pattern(pattern), kind.value), []).append(entry)
    entries = (_subscribers(topic, kind, subscribers[topic, kind]) for topic, kind in sorted(subscribers))
    return encode_list(broker.answer_bytes_max, what, entries, len(subscribers))


def _subscribers(topic: str, kind: str, subscribers: list[Fields]) -> Fields:
    entry = {"action": kind, "topic": topic, "subscribers": subscribers[:LIST_ENTRIES_MAX]}
    cut = {"truncated": True, "total": len(subscribers)} if len(subscribers) > LIST_ENTRIES_MAX else {}
    return entry | cut


# logs and metrics


def compile_pattern(text: object, what: str) -> Pattern:
    """Compile a regular expression with RE2, whose matching time is linear in the text. Raises `InvalidRequest`, in
    which `what` says where the expression was used."""
    options = re2.Options()
    options.log_errors = False
    try:
        if not isinstance(text, str) or len(text) > LOG_PATTERN_CHARS_MAX:
            raise InvalidRequest(f"Invalid {what} regex", regex=text)
        compiled: Pattern = re2.compile(text, options)
    except re2.error:
        raise InvalidRequest(f"Invalid {what} regex", regex=text) from None
    return compiled


def _log_subscribe(broker: Broker, client: Client, fields: Fields) -> bytes:
    levels = fields.get("levels", ["error"])
    if not isinstance(levels, list):
        raise InvalidRequest("Invalid log levels", levels=levels)
    for level in levels:
        if level not in LEVELS:
            raise InvalidRequest("Invalid log level", level=level)
    regex = fields.get("regex")
    pattern = None if regex is None else compile_pattern(regex, "log")
    broker.clients.filter_logs(client, LogFilter(frozenset(levels), pattern))
    return SUCCESS


def _log_unsubscribe(broker: Broker, client: Client, _fields: Fields) -> bytes:
    broker.clients.filter_logs(client, None)
    return SUCCESS


def _metrics(broker: Broker, _client: Client, fields: Fields) -> bytes:
    show_all, only = fields.get("showAll", True), fields.get("paramFilter", {})
    if not isinstance(show_all, bool):
        raise InvalidRequest("Invalid showAll: expected true or false", showAll=show_all)
    if not isinstance(only, dict) or not all(isinstance(value, str) for value in only.values()):
        raise InvalidRequest("Invalid paramFilter: expected an object of strings", paramFilter=only)
    regex = None if fields.get("filter") is None else compile_pattern(fields["filter"], "filter")
    metrics = broker.metric_values()
    if only:
        marks = [f"{{{name.lower()}:{value}}}" for name, value in only.items()]
        metrics = {
            name: value
            for name, value in metrics.items()
            if all(mark in name for mark in marks) or (show_all and "{" not in name)
        }
    if regex is not None:
        metrics = {name: value for name, value in metrics.items() if regex.search(name) is not None}
    return json_bytes({"metrics": _cut_to_size(metrics, broker.answer_bytes_max)})


def _cut_to_size(metrics: dict[str, float], room: int) -> dict[str, float]:
    """Return the first metrics that fit into `room` bytes. Metrics of single services come last, so they are cut
    first."""
    size, shown = 0, {}
    for name, value in metrics.items():
        size += len(name) + len(repr(value)) + len('"":,')
        if size > room:
            break
        shown[name] = value
    return shown


TOPICS: Final[dict[str, SystemTopic]] = {
    HEARTBEAT: SystemTopic(_heartbeat, actions=(Action.REQUEST, Action.RESPONSE), reads_payload=False),
    AUTHENTICATE: SystemTopic(_authenticate, missing=_INVALID_CREDENTIALS, secret=True),
    "system.service.register": SystemTopic(_register, missing="Missing or invalid name or description"),
    "system.service.list": SystemTopic(_list_services, without_connection=True),
    "system.service.subscriptions": SystemTopic(_service_subscriptions, without_connection=True),
    "system.topic.subscribe": SystemTopic(_subscribe, missing="Missing or invalid action"),
    "system.topic.unsubscribe": SystemTopic(_unsubscribe, missing="Missing or invalid action"),
    "system.topic.list": SystemTopic(_list_topics),
    "system.topic.subscriptions": SystemTopic(_list_subscriptions),
    "system.log.subscribe": SystemTopic(_log_subscribe),
    "system.log.unsubscribe": SystemTopic(_log_unsubscribe),
    "system.metrics": SystemTopic(_metrics, without_connection=True),
    **{topic: SystemTopic(broker_handler=broker_handler) for topic, broker_handler in connections.TOPICS.items()},
} | {
    topic: SystemTopic(durable_handler=handle)
    for table in (topics.TOPICS, access.TOPICS, schemas.TOPICS, messages.TOPICS, dead_letters.TOPICS)
    for topic, handle in table.items()
}
