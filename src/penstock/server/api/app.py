"""The HTTP application: matches the route, authenticates and authorises the client, and encodes the answer.

An answer does not depend on the pieces in which a request arrived. Every error, even an unexpected one, is answered
with a code, in the shape of the route's dialect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.broker.access.audit import AuditTrail
from penstock.broker.access.policy import ADMINISTRATION, SERVER, AuditedAction, Operation, Origin, Principal, Resource
from penstock.core.errors import PenstockError, ServiceUnavailable
from penstock.server.api.bodies import (
    RequestBodies,
    check_content,
    check_encoding,
    decode_body,
    error_response,
    negotiate_media,
)
from penstock.server.api.errors import JSON, Dialect, is_own
from penstock.server.api.request import (
    ApiRequest,
    Backend,
    EncodedAnswer,
    RequestServices,
    SentHeaders,
    StreamedList,
    action_of,
)
from penstock.server.api.routing import RAW, SCOPE_ROUTE, Route, RouteTable, quoted, read_query
from penstock.server.http_scope import WHOLE, body_bytes, header, raw_path
from penstock.server.resources.fair_queue import REQUESTER, Requester, requester_name
from penstock.server.security.credentials import identify
from penstock.server.security.credentials import origin as origin_of

_LOG: Final = logging.getLogger(__name__)
_NO_BODY: Final = nullcontext()


class Api:
    """The ASGI application for a table of routes. `services` are the objects that handlers keep between requests, at
    most one of each class."""

    def __init__(
        self,
        backend: Backend,
        table: RouteTable,
        *services: object,
        redact: Callable[[PenstockError], PenstockError] = lambda error: error,
    ) -> None:
        """Build the application for the routes in `table`. `backend` is the broker's side; `redact` returns an error
        without what clients must not see."""
        self._backend = backend
        self._redact = redact
        self._table = table
        self._services = RequestServices(table, *services)
        self._bodies = RequestBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except asyncio.CancelledError:  # the broker stops, and this took longer than the grace time
            answer = error_response(ServiceUnavailable("the broker stops: ask again when it is back"), scope)
        with suppress(asyncio.CancelledError):
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        dialect: Dialect | None = None
        try:
            route, path_params = self._table.find(scope["method"], raw_path(scope))
            scope[SCOPE_ROUTE] = route.path
            dialect = route.dialect
            return await self._handle(route, path_params, scope, receive, negotiate_media(scope, dialect))
        except PenstockError as error:
            refused = self._redact(error)
        except Exception:
            _LOG.exception("unhandled error in an HTTP request", extra={"path": quoted(raw_path(scope))})
            refused = PenstockError("a defect: the broker's log has more")
        return error_response(refused, scope, dialect, more=accepts_extensions(scope))

    async def _handle(
        self, route: Route, path_params: dict[str, Any], scope: Scope, receive: Receive, media: str
    ) -> Response:
        principal, origin = await identify(self._backend, scope), origin_of(scope)
        permission, trail = route.permission, AuditTrail(self._backend.access, principal, origin)
        REQUESTER.set(Requester(requester_name(principal, origin.address)))
        try:
            trail.expect(permission.operation, SERVER, action_of(scope))
            checked = self._check(route, path_params, scope, principal, origin)
            if checked is not None:
                trail.expect(permission.operation, checked, action_of(scope))
            query = _query(route, scope)
            async with self._body(route, scope, receive) as raw:
                body = _read_as(route.body, raw)
                request = ApiRequest(
                    backend=self._backend,
                    services=self._services,
                    principal=principal,
                    origin=origin,
                    path_params=path_params,
                    query=query,
                    body=body,
                    scope=scope,
                    receive=receive,
                    trail=trail,
                    accepts_extensions=accepts_extensions(scope),
                    headers=SentHeaders(scope, route.headers),
                )
                if checked is not None:  # only now the whole action is known
                    trail.add(permission.operation, checked, request.audited(permission.operation))
                answer = await route.handler(request)
        except PenstockError as error:
            trail.end(error)  # also for a body that could not be read
            raise
        except asyncio.CancelledError:
            trail.end(ServiceUnavailable("the broker stops"))
            raise
        trail.end()
        return encoded(answer, media, route.status)

    def _check(
        self, route: Route, path_params: dict[str, Any], scope: Scope, principal: Principal, origin: Origin
    ) -> Resource | None:
        """Authorise the client, before the body is read. A client without permission learns nothing else about what is
        wrong with its request.

        Returns the resource that was checked; None if the handler checks it. Without access control nothing is checked,
        and the result is the resource for the audit log.
        """
        access, permission = self._backend.access, route.permission
        if not access.enabled:
            return _administered_resource(route, path_params, scope)
        if permission.operation is not Operation.PUBLIC:
            access.check(principal, Operation.CONNECT, SERVER, origin)
        if not permission.checked:
            return None
        resource = permission.resource(_query(route, scope) if permission.query else path_params)
        access.require(principal, permission.operation, resource, origin, AuditedAction(action_of(scope)))
        return resource

    def _body(self, route: Route, scope: Scope, receive: Receive) -> AbstractAsyncContextManager[bytearray | None]:
        """Return a context that reads the body, or one that returns None if the route has no body. The bytes count as
        held until the context ends."""
        if route.body is None:
            return _NO_BODY
        _check_body_headers(route.body, route.dialect, scope)
        declared, whole = body_bytes(scope), WHOLE in scope
        return self._bodies.read(receive, route.body_bytes_max, declared, whole=whole)


def _administered_resource(route: Route, path_params: dict[str, Any], scope: Scope) -> Resource | None:
    """Return the resource of an administrative action for the audit log, on a server without access control. None for
    other actions, and for an invalid name: the handler refuses that."""
    if route.permission.operation in ADMINISTRATION and route.permission.checked:
        with suppress(PenstockError):
            return route.permission.resource(_query(route, scope) if route.permission.query else path_params)
    return None


def _read_as(kind: Any, raw: bytearray | None) -> Any:
    """Return the body decoded to the type `kind`; as bytes if that is `RAW`; None without a body."""
    if raw is None:
        return None
    return bytes(raw) if kind is RAW else decode_body(raw, kind)


def _query(route: Route, scope: Scope) -> dict[str, Any]:
    return read_query(str(scope["query_string"], "latin-1"), route.query, only=is_own(route.path))


def _check_body_headers(kind: Any, dialect: Dialect, scope: Scope) -> None:
    encoding = header(scope, b"content-encoding")
    if kind is RAW:
        check_encoding(encoding)
    else:
        check_content(header(scope, b"content-type"), encoding, dialect)


def accepts_extensions(scope: Scope) -> bool:
    """Return True if answers to this client may have fields that the registry's dialect does not define. Some registry
    clients fail on unknown fields.

    Newer registry clients announce in a header that they accept such fields. Clients that accept plain JSON are not
    registry clients, and accept them as well.
    """
    if (header(scope, b"confluent-accept-unknown-properties") or "").lower() == "true":
        return True
    accept = header(scope, b"accept") or ""
    return JSON in accept and "schemaregistry" not in accept


def encoded(answer: object, media: str, status: int) -> Response:
    match answer:
        case Response():
            return answer
        case EncodedAnswer(body, fixed, headers):
            return Response(body, status, headers, media_type=fixed or media)
        case StreamedList():
            return StreamedResponse(answer, media)
        case _:
            return Response(msgspec.json.encode(answer), status, media_type=media)


class StreamedResponse(Response):
    """A response whose list is encoded piece by piece while it is sent."""

    def __init__(self, pieces: Iterable[bytes], media: str) -> None:
        super().__init__(None, media_type=media)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # let other tasks run
        await send({"type": "http.response.body", "body": b""})
