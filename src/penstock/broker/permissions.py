"""The permissions that messages need: a row for each action of the wire protocol and each system topic.

While access control is on, an action or a system topic without a row is refused. HTTP routes name their permissions
elsewhere.
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
    """The operation that the sender must be allowed to do, and the kind of resource that it concerns."""

    operation: Operation
    kind: ResourceKind = ResourceKind.SERVER
    field: str = ""
    """The payload field that names the resource. Actions do not use it: their resource is the topic of the header."""

    checked_by_handler: bool = False
    """True if only the handler knows the resource, and checks the permission. Before that, the sender need only be
    authenticated."""


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
    ),  # or RESPOND, depending on its kind
    Action.UNSUBSCRIBE: _CONNECT,
    Action.ACK: _topic(Operation.CONSUME),
    Action.NACK: _topic(Operation.CONSUME),
    Action.SEEK: RequiredPermission(
        Operation.CONSUME, ResourceKind.TOPIC, checked_by_handler=True
    ),  # or MANAGE, where another connection consumes the subscription
    Action.RECORDS: _CONNECT,  # always answered with the error that only the broker sends it
}

LIVE_OPERATIONS: Final = {LiveKind.PUBLISH: Operation.CONSUME, LiveKind.REQUEST: Operation.RESPOND}
"""The operation that each kind of live subscription needs. It is checked at the `subscribe`, and again when routes are
looked up."""

SYSTEM_TOPIC_PERMISSIONS: Final[dict[str, RequiredPermission]] = {
    HEARTBEAT: RequiredPermission(Operation.PUBLIC),
    AUTHENTICATE: RequiredPermission(Operation.PUBLIC),
    "system.service.register": _CONNECT,
    "system.service.list": _VIEW,
    "system.service.subscriptions": RequiredPermission(
        Operation.SERVER_VIEW, checked_by_handler=True
    ),  # a client may always list its own
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
    ),  # lists visible topics only
    "system.namespace": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.NAMESPACE, checked_by_handler=True
    ),  # or ALTER, where it changes settings
    "system.producer.register": _topic(Operation.PUBLISH),
    "system.subscription.list": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # lists visible topics only
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
    ),  # by its id, through any subject that has it
    "system.schema.subjects": RequiredPermission(
        Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True
    ),  # lists visible subjects only
    "system.schema.versions": _subject(Operation.SCHEMA_READ),
    "system.schema.check": _subject(Operation.SCHEMA_READ),
    "system.schema.compare": RequiredPermission(Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True),
    "system.schema.delete": _subject(Operation.SCHEMA_DELETE),
    "system.schema.undelete": _subject(Operation.SCHEMA_DELETE),
    "system.schema.deprecate": _subject(Operation.SCHEMA_WRITE),
    "system.schema.describe": _subject(Operation.SCHEMA_WRITE),
    "system.schema.config": RequiredPermission(
        Operation.SCHEMA_READ, ResourceKind.SUBJECT, checked_by_handler=True
    ),  # or SCHEMA_WRITE, where it changes them
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
    ),  # lists visible topics only
    "system.namespace.list": RequiredPermission(
        Operation.DESCRIBE, ResourceKind.TOPIC, checked_by_handler=True
    ),  # lists visible topics only
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
    """Raise `Unauthorized` if the client is not authenticated but must be. Called first, so that such a client learns
    nothing from other errors."""
    if access.enabled:
        _check_identified(access, client, SYSTEM_TOPIC_PERMISSIONS.get(topic, _CONNECT))


def trail_of(access: AccessPolicy, client: Client, topic: str) -> AuditTrail:
    """Begin the audit trail of a message to a system topic. Its fields are not read yet."""
    trail = AuditTrail(access, client.principal, client.origin)
    trail.expect(SYSTEM_TOPIC_PERMISSIONS.get(topic, _CONNECT).operation, SERVER, topic)
    return trail


def check_system(access: AccessPolicy, client: Client, topic: str, fields: Fields, trail: AuditTrail) -> None:
    """Check the permission that a system topic needs, and add the action to the audit trail. Raises `Unauthorized` or
    `Forbidden`."""
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
    """Add the action to the audit trail while access control is off. A wrong name of the resource is left out here; the
    handler reports it."""
    if rule is None or rule.checked_by_handler or rule.operation not in ADMINISTRATION:
        return
    with suppress(PenstockError):
        trail.add(rule.operation, _named(rule, fields), audited_action(rule.operation, topic, fields))


def check_action(access: AccessPolicy, client: Client, action: Action, topic: TopicName | None) -> None:
    """Check the permission of a message to an ordinary topic, before the message is parsed further. Raises
    `Unauthorized` or `Forbidden`."""
    rule = ACTION_PERMISSIONS.get(action)
    if rule is None:
        raise _no_rule(action.value)
    _check_identified(access, client, rule)
    if rule.checked_by_handler:
        return
    resource = SERVER if rule.kind is ResourceKind.SERVER or topic is None else Resource.topic(topic)
    access.check(client.principal, rule.operation, resource, client.origin)


def _check_identified(access: AccessPolicy, client: Client, rule: RequiredPermission) -> None:
    """Raise `Unauthorized` for a client that is not authenticated, or whose credentials have expired, unless the
    operation is public."""
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
