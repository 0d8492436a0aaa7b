"""Unread bodies: requests that were answered before all of their body had come.

Reading on only to find the next request would hold a slot for a body that may never come, and closing with unread bytes
would make TCP discard the answer. So the answer says that the connection ends, and further input is read for a moment
and dropped.
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
"""The largest unread body after which a connection goes on: it has come by the time the client has read the answer."""

LINGER_SECONDS: Final = 2.0
"""The time for the client to see the answer and stop sending."""

_CLOSE: Final = ((b"connection", b"close"),)


class UnreadBodyGuard:
    """ASGI middleware whose answers end the connection if much of the body has not been read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _has_come(scope):
            return self._app(scope, receive, send)
        exchange = _Exchange(body_bytes(scope), receive, send)
        return self._app(scope, exchange.receive, exchange.send)


def _has_come(scope: Scope) -> bool:
    """Return whether there is no body, or all of it is there before it is received."""
    declared = body_bytes(scope)
    if declared is None:
        return header(scope, b"transfer-encoding") is None
    return declared == 0 or WHOLE in scope


class _Exchange:
    """A request with a body, and its answer."""

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
        """Return whether the connection ends after this answer: a body that timed out will not come now."""
        if self._is_read:
            return False
        return self._declared is None or self._declared > DROPPED_BYTES_MAX or status == HTTPStatus.REQUEST_TIMEOUT

    async def _discard(self) -> None:
        while not self._is_read:
            await self.receive()
