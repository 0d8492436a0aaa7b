"""What answers requests is given, and what it may give back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from starlette.types import Receive, Scope

from penstock.broker.access.audit import Trail, deed_of
from penstock.broker.access.policy import Access, Deed, Operation, Origin, Principal, Resource
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure
from penstock.server.api.routing import SCOPE_ROUTE, Parameter
from penstock.server.http_scope import header

_Result = TypeVar("_Result")
_Service = TypeVar("_Service")


class Backend(Protocol):
    """Where the broker is asked. What it refuses is raised as `PenstockError`."""

    @property
    def registry(self) -> Registry: ...

    @property
    def access(self) -> Access: ...

    async def run(self, procedure: Procedure[_Result]) -> _Result: ...

    async def ask(self, topic: str, fields: dict[str, Any], principal: Principal) -> Any:
        """As a `request` to one of the broker's own topics."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """An answer as it is sent."""

    body: bytes
    media: str | None = None
    """What it is, if the client has no say in that."""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StreamedList:
    """A list that may be large: each of it is encoded when there is room to send it."""

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
    """What rooms keep from one request to the next, one of a kind."""

    def __init__(self, *services: object) -> None:
        self._services: dict[type[Any], Any] = {type(each): each for each in services}

    def get(self, kind: type[_Service]) -> _Service | None:
        """None where this server has none."""
        found: _Service | None = self._services.get(kind)
        return found


def action_of(scope: Scope) -> str:
    """The method and the path of the row, without what was written in the place of its variables."""
    return f"{scope['method']} {scope.get(SCOPE_ROUTE, '')}"


def _fields_of(body: object) -> dict[str, Any]:
    if not isinstance(body, Struct):
        return {}
    return {name: getattr(body, name) for name in body.__struct_fields__}


class SentHeaders(Mapping[str, str | None]):
    """Those headers that a row names, as they were sent; None for one that was not."""

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
    """One request, understood."""

    backend: Backend
    services: RequestServices
    principal: Principal
    """Who asks."""
    origin: Origin
    """From where, for the audit log."""
    path_params: dict[str, Any]
    """What the path names."""
    query: dict[str, Any]
    body: Any
    """As the row wants it: decoded, or the bytes."""
    scope: Scope
    receive: Receive
    trail: Trail
    """What of it belongs into the audit log."""
    accepts_extensions: bool = True
    """Whether the client takes fields that the dialect does not have."""
    headers: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def registry(self) -> Registry:
        """The schema registry of the broker."""
        return self.backend.registry

    def service(self, kind: type[_Service]) -> _Service:
        """What a room keeps. It is there: the application was made with it."""
        found = self.services.get(kind)
        if found is None:
            raise LookupError(f"the application was made without {kind.__name__}")
        return found

    def check(self, operation: Operation, resource: Resource) -> None:
        """Raises `Unauthorized` or `Forbidden`."""
        deed = self.deed(operation)
        self.backend.access.require(self.principal, operation, resource, self.origin, deed)
        self.trail.add(operation, resource, deed)

    def deed(self, operation: Operation) -> Deed:
        """What is asked for, for the audit log."""
        return deed_of(operation, action_of(self.scope), self.query, _fields_of(self.body), self.path_params)

    async def run(self, procedure: Procedure[_Result]) -> _Result:
        """Carry out a procedure of the registry, and return its result."""
        return await self.backend.run(procedure)

    async def ask(self, topic: str, fields: dict[str, Any]) -> Any:
        """The answer of a system topic to whoever asks here."""
        return await self.backend.ask(topic, fields, self.principal)
