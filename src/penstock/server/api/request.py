"""The request as handlers get it, and the answers that they may return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from starlette.types import Receive, Scope

from penstock.broker.access.audit import AuditTrail, audited_action
from penstock.broker.access.policy import AccessPolicy, AuditedAction, Operation, Origin, Principal, Resource
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure
from penstock.server.api.routing import SCOPE_ROUTE, Parameter
from penstock.server.http_scope import header

_Result = TypeVar("_Result")
_Service = TypeVar("_Service")


class Backend(Protocol):
    """The broker as handlers see it. Refusals are raised as `PenstockError`."""

    @property
    def registry(self) -> Registry: ...

    @property
    def access(self) -> AccessPolicy: ...

    async def run(self, procedure: Procedure[_Result]) -> _Result: ...

    async def ask(self, topic: str, fields: dict[str, Any], principal: Principal) -> Any:
        """Send a request to a system topic for a client, as a `request` on the wire would, and return the answer."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """An answer that a handler has encoded already."""

    body: bytes
    media: str | None = None
    """The media type; None for the one that the client prefers."""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StreamedList:
    """A JSON list of any length. An item is encoded only when there is room to send it. `begin` and `end` are the text
    around the items."""

    begin: bytes
    items: Iterable[bytes]
    end: bytes

    def __iter__(self) -> Iterator[bytes]:
        before = self.begin
        for item in self.items:
            yield before + item
            before = b","
        yield self.end if before == b"," else self.begin + self.end


class RequestServices:
    """Objects that handlers keep between requests, at most one of each class."""

    def __init__(self, *services: object) -> None:
        self._services: dict[type[Any], Any] = {type(service): service for service in services}

    def get(self, kind: type[_Service]) -> _Service | None:
        """Return the service of this class; None if this server has none."""
        service: _Service | None = self._services.get(kind)
        return service


def action_of(scope: Scope) -> str:
    """Return the method and the path of the route, such as `GET /subjects/{subject}`, for the audit log: without the
    values of its parameters."""
    return f"{scope['method']} {scope.get(SCOPE_ROUTE, '')}"


def _fields_of(body: object) -> dict[str, Any]:
    if not isinstance(body, Struct):
        return {}
    return {name: getattr(body, name) for name in body.__struct_fields__}


class SentHeaders(Mapping[str, str | None]):
    """The headers that a route declares, by name, as text. The value is None for a header that was not sent."""

    __slots__ = ("_named", "_scope")

    def __init__(self, scope: Scope, named: Iterable[Parameter]) -> None:
        self._scope = scope
        self._named = named

    def __getitem__(self, name: str) -> str | None:
        return header(self._scope, name.encode())

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in self._named)

    def __len__(self) -> int:
        return len(tuple(self._named))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request as its handler gets it: the client is authenticated, and the parameters and the body are decoded."""

    backend: Backend
    services: RequestServices
    principal: Principal
    """The authenticated client."""
    origin: Origin
    """The transport and the address of the client, for the audit log."""
    path_params: dict[str, Any]
    """The values of the path's parameters."""
    query: dict[str, Any]
    body: Any
    """The body as the route declares it: decoded, or the bytes."""
    scope: Scope
    receive: Receive
    trail: AuditTrail
    """The entry that this request will add to the audit log."""
    accepts_extensions: bool = True
    """True if the client accepts fields that the registry's dialect does not define."""
    headers: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def registry(self) -> Registry:
        """The schema registry of the broker."""
        return self.backend.registry

    def service(self, kind: type[_Service]) -> _Service:
        """Return the service of this class. It must be one that the application was created with."""
        service = self.services.get(kind)
        if service is None:
            raise LookupError(f"the application was made without {kind.__name__}")
        return service

    def check(self, operation: Operation, resource: Resource) -> None:
        """Check that the client may do `operation` with `resource`. Raises `Unauthorized` or `Forbidden` if not."""
        audited = self.audited(operation)
        self.backend.access.require(self.principal, operation, resource, self.origin, audited)
        self.trail.add(operation, resource, audited)

    def audited(self, operation: Operation) -> AuditedAction:
        """Return the description of this request's action for the audit log."""
        return audited_action(operation, action_of(self.scope), self.query, _fields_of(self.body), self.path_params)

    async def run(self, procedure: Procedure[_Result]) -> _Result:
        """Carry out a procedure of the registry, and return its result. Raises the error that ended it."""
        return await self.backend.run(procedure)

    async def ask(self, topic: str, fields: dict[str, Any]) -> Any:
        """Send a request to a system topic for this client, and return the answer. Raises the broker's refusal."""
        return await self.backend.ask(topic, fields, self.principal)
