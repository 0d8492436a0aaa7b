"""The application: finds the row, sees who asks and whether they may, and writes the answer.

An answer never depends on how a request was sent, and nothing that is sent makes the server fail: what is wrong has a
code, in the shape of the row's dialect.
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

from penstock.broker.access.audit import Trail
from penstock.broker.access.policy import ADMINISTRATION, SERVER, Deed, Operation, Origin, Principal, Resource
from penstock.core.errors import PenstockError, ServiceUnavailable
from penstock.server.api.bodies import Bodies, check_content, check_encoding, decode_body, negotiated, refusal
from penstock.server.api.errors import JSON, Dialect, is_own
from penstock.server.api.request import Call, Desk, Encoded, Parts, Pieces, SentHeaders, action_of
from penstock.server.api.routing import RAW, ROUTE, Row, Table, quoted, read_query
from penstock.server.http_scope import WHOLE, body_bytes, header, raw_path
from penstock.server.resources.fair_queue import REQUESTER, Requester, requester_name
from penstock.server.security.credentials import identify
from penstock.server.security.credentials import origin as origin_of

_LOG: Final = logging.getLogger(__name__)
_NO_BODY: Final = nullcontext()


class Api:
    """An application for any ASGI server: the rows of a table, and what their rooms keep."""

    def __init__(
        self,
        desk: Desk,
        table: Table,
        *parts: object,
        told: Callable[[PenstockError], PenstockError] = lambda error: error,
    ) -> None:
        """`told`: an error as clients may see it."""
        self._desk = desk
        self._told = told
        self._table = table
        self._parts = Parts(table, *parts)
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except asyncio.CancelledError:  # the broker stops, and this took longer than it waits
            answer = refusal(ServiceUnavailable("the broker stops: ask again when it is back"), scope)
        with suppress(asyncio.CancelledError):
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        dialect: Dialect | None = None
        try:
            row, named = self._table.find(scope["method"], raw_path(scope))
            scope[ROUTE] = row.path
            dialect = row.dialect
            return await self._handle(row, named, scope, receive, negotiated(scope, dialect))
        except PenstockError as error:
            refused = self._told(error)
        except Exception:
            _LOG.exception("a defect in the API", extra={"path": quoted(raw_path(scope))})
            refused = PenstockError("a defect: the broker's log has more")
        return refusal(refused, scope, dialect, more=takes_more(scope))

    async def _handle(self, row: Row, named: dict[str, Any], scope: Scope, receive: Receive, media: str) -> Response:
        principal, origin = await identify(self._desk, scope), origin_of(scope)
        needs, trail = row.needs, Trail(self._desk.access, principal, origin)
        REQUESTER.set(Requester(requester_name(principal, origin.address)))
        try:
            trail.expect(needs.operation, SERVER, action_of(scope))
            checked = self._check(row, named, scope, principal, origin)
            if checked is not None:
                trail.expect(needs.operation, checked, action_of(scope))
            query = _query(row, scope)
            async with self._body(row, scope, receive) as raw:
                body = _read_as(row.body, raw)
                call = Call(
                    desk=self._desk,
                    parts=self._parts,
                    principal=principal,
                    origin=origin,
                    named=named,
                    query=query,
                    body=body,
                    scope=scope,
                    receive=receive,
                    trail=trail,
                    more=takes_more(scope),
                    headers=SentHeaders(scope, row.headers),
                )
                if checked is not None:  # and only now it is known what exactly it is that is asked for
                    trail.add(needs.operation, checked, call.deed(needs.operation))
                answer = await row.handler(call)
        except PenstockError as error:
            trail.end(error)  # also of one that could not be read
            raise
        except asyncio.CancelledError:
            trail.end(ServiceUnavailable("the broker stops"))
            raise
        trail.end()
        return encoded(answer, media, row.status)

    def _check(
        self, row: Row, named: dict[str, Any], scope: Scope, principal: Principal, origin: Origin
    ) -> Resource | None:
        """Before a body is read. Whoever is not known hears that, and nothing of what else may be wrong.

        What it is about; None where the handler checks that.
        """
        access, needs = self._desk.access, row.needs
        if not access.enabled:
            return _meant(row, named, scope)
        if needs.operation is not Operation.PUBLIC:
            access.check(principal, Operation.CONNECT, SERVER, origin)
        if not needs.checked:
            return None
        resource = needs.resource(_query(row, scope) if needs.query else named)
        access.require(principal, needs.operation, resource, origin, Deed(action_of(scope)))
        return resource

    def _body(self, row: Row, scope: Scope, receive: Receive) -> AbstractAsyncContextManager[bytearray | None]:
        """What was sent, where the row wants it. Counted among all bodies for as long as it is worked on."""
        if row.body is None:
            return _NO_BODY
        _check_written(row.body, row.dialect, scope)
        declared, whole = body_bytes(scope), WHOLE in scope
        return self._bodies.read(receive, row.body_bytes_max, declared, whole=whole)


def _meant(row: Row, named: dict[str, Any], scope: Scope) -> Resource | None:
    """What is administered where everybody may everything; the handler says what is wrong with a name."""
    if row.needs.operation in ADMINISTRATION and row.needs.checked:
        with suppress(PenstockError):
            return row.needs.resource(_query(row, scope) if row.needs.query else named)
    return None


def _read_as(kind: Any, raw: bytearray | None) -> Any:
    """A body as its row wants it."""
    if raw is None:
        return None
    return bytes(raw) if kind is RAW else decode_body(raw, kind)


def _query(row: Row, scope: Scope) -> dict[str, Any]:
    return read_query(str(scope["query_string"], "latin-1"), row.query, only=is_own(row.path))


def _check_written(kind: Any, dialect: Dialect, scope: Scope) -> None:
    encoding = header(scope, b"content-encoding")
    if kind is RAW:
        check_encoding(encoding)
    else:
        check_content(header(scope, b"content-type"), encoding, dialect)


def takes_more(scope: Scope) -> bool:
    """Whether fields may be added to what the registry's dialect has: some clients of it fail on any they do not know.

    Newer ones say that they do not; and whoever asks for plain JSON is none of them.
    """
    if (header(scope, b"confluent-accept-unknown-properties") or "").lower() == "true":
        return True
    accept = header(scope, b"accept") or ""
    return JSON in accept and "schemaregistry" not in accept


def encoded(answer: object, media: str, status: int) -> Response:
    match answer:
        case Response():
            return answer
        case Encoded(body, fixed, headers):
            return Response(body, status, headers, media_type=fixed or media)
        case Pieces():
            return Streamed(answer, media)
        case _:
            return Response(msgspec.json.encode(answer), status, media_type=media)


class Streamed(Response):
    """Written as fast as it is read."""

    def __init__(self, pieces: Iterable[bytes], media: str) -> None:
        super().__init__(None, media_type=media)
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # others come in between
        await send({"type": "http.response.body", "body": b""})
