"""Unread bodies: requests that were answered before all of their body had come.

After such an answer the connection cannot simply go on: reading the rest of the body to reach the next request would
keep a slot busy for a body that may never come. It cannot simply be closed either: TCP discards an answer on the way if
a connection is closed with unread bytes. So the answer says that the connection ends (`Connection: close`), and further
input is read and dropped for a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.limits import KIB
from penstock.server.http_scope import WHOLE, body_bytes, header
from penstock.server.security.response_headers import with_missing_headers

DROPPED_BYTES_MAX: Final = 64 * KIB
"""The largest declared size of a body that may stay unread without ending the connection. So little has usually come by
the time the client has read the answer."""

LINGER_SECONDS: Final = 2.0
"""The time for which input is dropped after the answer: the client can see the answer and stop sending."""

_CLOSE: Final = ((b"connection", b"close"),)


class UnreadBodyGuard:
    """ASGI middleware that ends a connection after an answer if a large part of the request's body was not read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _has_come(scope):
            return self._app(scope, receive, send)
        exchange = _Exchange(body_bytes(scope), receive, send)
        return self._app(scope, exchange.receive, exchange.send)


def _has_come(scope: Scope) -> bool:
    """Return True if the request has no body, or if all of its body has come already."""
    declared = body_bytes(scope)
    if declared is None:
        return header(scope, b"transfer-encoding") is None
    return declared == 0 or WHOLE in scope


class _Exchange:
    """A request with a body, of which it is known how much was read, and its answer."""

    def __init__(self, declared: int | None, receive: Receive, send: Send) -> None:
        self._declared = declared
        self._receive = receive
        self._send = send
        self._is_read = False
        self._ends = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_read = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._ends = self._ends_connection(message["status"])
            if self._ends:
                message["headers"] = with_missing_headers(message.get("headers", ()), _CLOSE)
        elif self._ends and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def _ends_connection(self, status: int) -> bool:
        """Return True if the connection must end after this answer: the body was not read, and it is large, of unknown
        size, or too late (status 408)."""
        if self._is_read:
            return False
        return self._declared is None or self._declared > DROPPED_BYTES_MAX or status == HTTPStatus.REQUEST_TIMEOUT

    async def _discard(self) -> None:
        while not self._is_read:
            await self.receive()
