"""What each message needs: one row for every action of the wire and every system topic, and no way past them.

A system topic without a row is refused, and so is an action. Rows of HTTP say theirs where they stand.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.broker.access.audit import AuditTrail, audited_action
from penstock.broker.access.policy import (
    ADMINISTRATION,
    ANONYMOUS,
    SERVER,
    AccessPolicy,
    Operation,
    Resource,
    ResourceKind,
    unauthorized,
)
from penstock.broker.base import request_fields as read
from penstock.broker.base.request_fields import Fields
from penstock.broker.live.connections import Client
from penstock.broker.live.routing import LiveKind
from penstock.core.errors import Forbidden, PenstockError
from penstock.core.names import TopicName
from penstock.protocol.actions import Action
from penstock.protocol.notices import HEARTBEAT

AUTHENTICATE: Final = "system.client.authenticate"


@dataclass(frozen=True, slots=True)
class RequiredPermission:
    """What whoever sends this must be allowed, and to what."""

    operation: Operation
    kind: ResourceKind = ResourceKind.SERVER
    field: str = ""
    """The field of the payload that names it; of an action, the topic of its header."""

    checked_by_handler: bool = False
    """What it is about is known only to whoever answers it, who checks. Here, one need only be known."""


def _topic(operation: Operation) -> RequiredPermission:
    return RequiredPermission(operation, ResourceKind.TOPIC, "topic")


def _subject(operation: Operation) -> RequiredPermission:
    return RequiredPermission(operation, ResourceKind.SUBJECT, "subject")


_CONNECT: Final = RequiredPermission(Operation.CONNECT)
_VIEW: Final = RequiredPermission(Operation.SERVER_VIEW)
_SERVER: Final = RequiredPermission(Operation.SERVER_MANAGE)

ACTION_PERMISSIONS: Final[dict[Action, RequiredPermission]] = {
    Action.PUBLISH: _topic(Operation.PUBLISH),
    Action.APPEND: _topic(Operation.PUBLISH),
    Action.MESSAGE: _topic(Operation.PUBLISH),
    Action.REQUEST: _topic(Operation.REQUEST),
    Action.RESPONSE: _CONNECT,  # only to a request that was sent to this very connection
    Action.SUBSCRIBE: RequiredPermission(
        Operation.CONSUME, ResourceKind.TOPIC, checked_by_handler=True
    ),  # or to respond, by what it asks for
    Action.UNSUBSCRIBE: _CONNECT,
    Action.ACK: _topic(Operation.CONSUME),
    Action.NACK: _topic(Operation.CONSUME),
    Action.SEEK: RequiredPermission(
        Operation.CONSUME, ResourceKind.TOPIC, checked_by_handler=True
    ),  # or to manage, where another consumes it
    Action.RECORDS: _CONNECT,  # which then hears that only the broker sends it
}

LIVE_OPERATIONS: Final = {LiveKind.PUBLISH: Operation.CONSUME, LiveKind.REQUEST: Operation.RESPOND}
"""What a live subscription needs: when it is made, and again when its topic's routes are found."""

SYSTEM_TOPIC_PERMISSIONS: Final[dict[str, RequiredPermission]] = {
    HEARTBEAT: RequiredPermission(Operation.PUBLIC),
    AUTHENTICATE: RequiredPermission(Operation.PUBLIC),
    "system.service.register": _CONNECT,
    "system.service.list": _VIEW,
    "system.service.subscriptions": RequiredPermission(
        Operation.SERVER_VIEW, checked_by_handler=True
    ),  # one's own are one's own
    "system.topic.subscribe": RequiredPermission(Operation.CONSUME, ResourceKind.TOPIC, checked_by_handler=True),
    "system.topic.unsubscribe": _CONNECT,
    "system.topic.list": _VIEW,
    "system.topic.subscriptions": _VIEW,
    "system.log.subscribe": _VIEW,
    "system.log.unsubscribe": _CONNECT,
    "system.metrics": _VIEW,
    "system.topic.create": _topic(Operation.CREATE),
    "system.topic.describe": _topic(Operation.DESCRIBE),
    "system.topic.alter": _topic(Operation.ALTER),
    "system.topic.delete": _topic(Operation.DELETE),
    "system.topic.catalog": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # shows what one may see
    "system.namespace": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.NAMESPACE, checked_by_handler=True
    ),  # or to alter, where it changes it
    "system.producer.register": _topic(Operation.PUBLISH),
    "system.subscription.list": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # shows what one may see
    "system.subscription.describe": _topic(Operation.DESCRIBE),
    "system.subscription.seek": _topic(Operation.MANAGE),
    "system.subscription.report": _topic(Operation.CONSUME),
    "system.subscription.pause": _topic(Operation.MANAGE),
    "system.subscription.resume": _topic(Operation.MANAGE),
    "system.subscription.delete": _topic(Operation.MANAGE),
    "system.subscription.skip": _topic(Operation.MANAGE),
    "system.schema.register": _subject(Operation.SCHEMA_WRITE),
    "system.schema.lookup": _subject(Operation.SCHEMA_READ),
    "system.schema.get": RequiredPermission(
        Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True
    ),  # by its id, of any that has it
    "system.schema.subjects": RequiredPermission(
        Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True
    ),  # shows what one may see
    "system.schema.versions": _subject(Operation.SCHEMA_READ),
    "system.schema.check": _subject(Operation.SCHEMA_READ),
    "system.schema.compare": RequiredPermission(Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True),
    "system.schema.delete": _subject(Operation.SCHEMA_DELETE),
    "system.schema.undelete": _subject(Operation.SCHEMA_DELETE),
    "system.schema.deprecate": _subject(Operation.SCHEMA_WRITE),
    "system.schema.describe": _subject(Operation.SCHEMA_WRITE),
    "system.schema.config": RequiredPermission(
        Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True
    ),  # or to write, where it changes it
    "system.schema.export": RequiredPermission(Operation.SCHEMA_READ),
    "system.schema.import": RequiredPermission(Operation.SCHEMA_WRITE),
    "system.message.browse": _topic(Operation.BROWSE),
    "system.message.get": _topic(Operation.BROWSE),
    "system.message.publish": _topic(Operation.PUBLISH),
    "system.subscription.create": _topic(Operation.CONSUME),
    "system.deadletter.browse": _topic(Operation.BROWSE),
    "system.deadletter.get": _topic(Operation.BROWSE),
    "system.deadletter.redrive": _topic(Operation.MANAGE),
    "system.deadletter.drop": _topic(Operation.MANAGE),
    "system.deadletter.list": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # shows what one may see
    "system.namespace.list": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # shows what one may see
    "system.connection.list": _VIEW,
    "system.connection.close": _SERVER,
    "system.key.create": _SERVER,
    "system.key.list": _SERVER,
    "system.key.revoke": _SERVER,
    "system.access.grant": _SERVER,
    "system.access.revoke": _SERVER,
    "system.access.show": _SERVER,
}


def check_identified(access: AccessPolicy, client: Client, topic: str) -> None:
    """Before anything else is said of a system topic: whoever is not known hears that. Raises `Unauthorized`."""
    if access.enabled:
        _check_identified(access, client, SYSTEM_TOPIC_PERMISSIONS.get(topic, _CONNECT))


def trail_of(access: AccessPolicy, client: Client, topic: str) -> AuditTrail:
    """The trail of a message to a system topic, whose fields nobody has looked at yet."""
    trail = AuditTrail(access, client.principal, client.origin)
    trail.expect(SYSTEM_TOPIC_PERMISSIONS.get(topic, _CONNECT).operation, SERVER, topic)
    return trail


def check_system(access: AccessPolicy, client: Client, topic: str, fields: Fields, trail: AuditTrail) -> None:
    """Before a system topic is answered: what of it belongs into the audit log. Raises what it is refused with."""
    rule = SYSTEM_TOPIC_PERMISSIONS.get(topic)
    if not access.enabled:
        _note(trail, rule, topic, fields)
        return
    if rule is None:
        raise _no_rule(topic)
    _check_identified(access, client, rule)
    if not rule.checked_by_handler:
        resource, audited = _named(rule, fields), audited_action(rule.operation, topic, fields)
        access.require(client.principal, rule.operation, resource, client.origin, audited)
        trail.add(rule.operation, resource, audited)


def _note(trail: AuditTrail, rule: RequiredPermission | None, topic: str, fields: Fields) -> None:
    """Where everybody may everything: whoever answers says what is wrong with a name."""
    if rule is None or rule.checked_by_handler or rule.operation not in ADMINISTRATION:
        return
    with suppress(PenstockError):
        trail.add(rule.operation, _named(rule, fields), audited_action(rule.operation, topic, fields))


def check_action(access: AccessPolicy, client: Client, action: Action, topic: TopicName | None) -> None:
    """Before a message that is not to a system topic is looked at. Raises what it is refused with."""
    rule = ACTION_PERMISSIONS.get(action)
    if rule is None:
        raise _no_rule(action.value)
    _check_identified(access, client, rule)
    if rule.checked_by_handler:
        return
    resource = SERVER if rule.kind is ResourceKind.SERVER or topic is None else Resource.topic(topic)
    access.check(client.principal, rule.operation, resource, client.origin)


def _check_identified(access: AccessPolicy, client: Client, rule: RequiredPermission) -> None:
    """Who has not said who they are hears that, and nothing of what else may be wrong."""
    if rule.operation is Operation.PUBLIC:
        return
    if client.principal is ANONYMOUS:
        access.check(client.principal, rule.operation, SERVER, client.origin)
    if not access.is_live(client.principal):
        raise unauthorized(client.principal)


def _named(rule: RequiredPermission, fields: Fields) -> Resource:
    match rule.kind:
        case ResourceKind.TOPIC:
            return Resource.topic(read.topic_name(fields, rule.field))
        case ResourceKind.SUBJECT:
            return Resource.subject(read.text(fields, rule.field))
        case ResourceKind.NAMESPACE:
            return Resource.namespace(read.text(fields, rule.field))
        case _:
            return SERVER


def _no_rule(what: str) -> PenstockError:
    return Forbidden(f"nothing says who may {what}: it is refused to everybody")
