"""Operations, roles and bindings: which permissions there are, and how they are written.

A binding is a role within a scope, `publisher@topic:/shop/orders.#`. It is the same text in a command, in a token, in a
file and in the catalog. This module does not know which principals hold bindings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.core.names import TopicName, TopicPattern
from penstock.schema.registry.models import parse_subject

ONE_LEVEL: Final = "+"
THE_REST: Final = "#"
ANY_TEXT: Final = "*"
SCOPE_CHARS_MAX: Final = 512
"""The most characters of a scope: enough for a kind, a namespace and a topic. A subject may have half of them."""


class Operation(StrEnum):
    """An operation that needs permission. Its name is in audit logs and in documentation, and is never changed."""

    PUBLISH = "topic.publish"
    CONSUME = "topic.consume"
    BROWSE = "topic.browse"
    DESCRIBE = "topic.describe"
    CREATE = "topic.create"
    ALTER = "topic.alter"
    DELETE = "topic.delete"
    MANAGE = "subscription.manage"
    """Seek, pause, resume, skip, delete; redrive and drop dead letters."""

    REQUEST = "service.request"
    RESPOND = "service.respond"
    SCHEMA_READ = "schema.read"
    SCHEMA_WRITE = "schema.write"
    SCHEMA_DELETE = "schema.delete"
    SERVER_VIEW = "server.view"
    """See connections, services, metrics and logs."""

    SERVER_MANAGE = "server.manage"
    """Manage keys and bindings, and disconnect clients."""

    CONNECT = "server.connect"
    """Operations that every authenticated principal may do: name its service, end its own subscriptions, and see lists
    that show only what it may see."""

    PUBLIC = "public"
    """Operations that everybody may do, without authentication: heartbeats, authentication, health checks."""


class ResourceKind(StrEnum):
    """The kind of resource that an operation concerns."""

    SERVER = "server"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    SUBJECT = "subject"


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource that an operation concerns. A topic may be a pattern: it stands for all topics that match."""

    kind: ResourceKind
    name: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def topic(cls, name: TopicName | TopicPattern) -> Resource:
        return cls(ResourceKind.TOPIC, str(name))

    @classmethod
    def subject(cls, text: str) -> Resource:
        """Create the resource of a subject. Its name is normalized as the registry does it. Raises `RegistryError` for
        an invalid name."""
        return cls(ResourceKind.SUBJECT, parse_subject(text))

    @classmethod
    def namespace(cls, name: str) -> Resource:
        return cls(ResourceKind.NAMESPACE, name.lower())

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name[:QUOTED_CHARS_MAX]}" if self.name else "the server"


SERVER: Final = Resource(ResourceKind.SERVER)

_READS: Final = frozenset({Operation.DESCRIBE, Operation.SCHEMA_READ})
_SCHEMAS: Final = frozenset({Operation.SCHEMA_READ, Operation.SCHEMA_WRITE, Operation.SCHEMA_DELETE})

ROLES: Final[dict[str, frozenset[Operation]]] = {
    "viewer": _READS | {Operation.SERVER_VIEW},
    "publisher": _READS | {Operation.PUBLISH, Operation.REQUEST},
    "consumer": _READS | {Operation.CONSUME, Operation.BROWSE},
    "responder": _READS | {Operation.RESPOND},
    "registrar": _SCHEMAS,
    "operator": _READS
    | _SCHEMAS
    | {
        Operation.BROWSE,
        Operation.CREATE,
        Operation.ALTER,
        Operation.DELETE,
        Operation.MANAGE,
        Operation.SERVER_VIEW,
    },
    "admin": frozenset(Operation),
}
"""The operations that each role allows within its scope. `CONNECT` and `PUBLIC` need no role."""

ADMINISTRATION: Final = frozenset(
    {
        Operation.CREATE,
        Operation.ALTER,
        Operation.DELETE,
        Operation.MANAGE,
        Operation.SCHEMA_WRITE,
        Operation.SCHEMA_DELETE,
        Operation.SERVER_MANAGE,
    }
)
"""The operations that are written to the audit log even if they are allowed. Denials are always written."""

_SUBJECT_CHARS_MAX: Final = 255
_SUBJECT: Final = re.compile(rf"[^\x00-\x1f\x7f]{{1,{_SUBJECT_CHARS_MAX}}}")


@dataclass(frozen=True, slots=True)
class Scope:
    """The resources that a role applies to: all, one namespace, or the topics or subjects that match a pattern."""

    kind: ResourceKind
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Parse `server`, `namespace:shop`, `topic:orders.#`, `subject:orders-*`. Raises `InvalidRequest`."""
        kind, colon, name = text.partition(":")
        if (
            len(text) > SCOPE_CHARS_MAX
            or kind not in tuple(ResourceKind)
            or bool(colon) != (kind != ResourceKind.SERVER)
        ):
            raise InvalidRequest(
                f"a scope is server, namespace:NAME, topic:PATTERN or subject:PATTERN, not '{text[:QUOTED_CHARS_MAX]}'",
                field="scope",
            )
        return cls(ResourceKind(kind), _PATTERNS[ResourceKind(kind)](name))

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.pattern}" if self.pattern else self.kind.value

    def covers(self, resource: Resource) -> bool:
        """Return whether the whole resource is in this scope. A topic pattern is covered only if all its topics are."""
        if self.kind is ResourceKind.SERVER:
            return True
        if self.kind is ResourceKind.NAMESPACE:
            return _namespace_of(resource) == self.pattern
        if self.kind is not resource.kind:
            return False
        return (covers_topic if self.kind is ResourceKind.TOPIC else covers_subject)(self.pattern, resource.name)


def _namespace_of(resource: Resource) -> str | None:
    if resource.kind is ResourceKind.NAMESPACE:
        return resource.name
    return resource.name[1:].partition("/")[0] if resource.kind is ResourceKind.TOPIC else None


def covers_topic(pattern: str, name: str) -> bool:
    """Return whether every topic that `name` stands for matches `pattern`. `name` may be a pattern too. Both are full
    names, with their namespace."""
    mine, theirs = pattern.replace("/", ".").split("."), name.replace("/", ".").split(".")
    for index, level in enumerate(mine):
        if level == THE_REST:
            return len(theirs) > index
        if index >= len(theirs) or theirs[index] == THE_REST:
            return False
        if level not in (ONE_LEVEL, theirs[index]):
            return False
    return len(mine) == len(theirs)


def covers_subject(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern in which `*` stands for any text, also for none. Takes linear time."""
    first, *rest = pattern.split(ANY_TEXT)
    if not rest:
        return name == first
    last = rest.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    start, end = len(first), len(name) - len(last)
    for part in rest:
        at = name.find(part, start, end)
        if at < 0:
            return False
        start = at + len(part)
    return True


def _server(_name: str) -> str:
    return ""


def _topic(text: str) -> str:
    try:
        return str(TopicPattern.parse(text))
    except TopicNotSupported as error:
        raise InvalidRequest(f"scope topic:{text[:QUOTED_CHARS_MAX]}: {error.message}", field="scope") from None


def _namespace(text: str) -> str:
    try:
        return TopicName(text, "any").namespace
    except TopicNotSupported as error:
        raise InvalidRequest(f"scope namespace:{text[:QUOTED_CHARS_MAX]}: {error.message}", field="scope") from None


def _subject(text: str) -> str:
    if not _SUBJECT.fullmatch(text):
        raise InvalidRequest(
            f"scope subject: a pattern of 1 to {_SUBJECT_CHARS_MAX} printable characters, * for any text", field="scope"
        )
    return text


_PATTERNS: Final = {
    ResourceKind.SERVER: _server,
    ResourceKind.NAMESPACE: _namespace,
    ResourceKind.TOPIC: _topic,
    ResourceKind.SUBJECT: _subject,
}


@dataclass(frozen=True, slots=True)
class Binding:
    """A role, and the scope that it applies to."""

    role: str
    scope: Scope

    @classmethod
    def parse(cls, text: str) -> Binding:
        """Parse `publisher@topic:orders.#`. A role without a scope applies everywhere. Raises `InvalidRequest`."""
        role, at, scope = text.partition("@")
        return cls.of(role, scope if at else ResourceKind.SERVER.value)

    @classmethod
    def of(cls, role: str, scope: str) -> Binding:
        if role not in ROLES:
            raise InvalidRequest(
                f"'{role[:QUOTED_CHARS_MAX]}' is not a role: choose from {', '.join(ROLES)}", field="role"
            )
        return cls(role, Scope.parse(scope))

    def __str__(self) -> str:
        return f"{self.role}@{self.scope}"

    def allows(self, operation: Operation, resource: Resource) -> bool:
        return operation in ROLES[self.role] and self.scope.covers(resource)
