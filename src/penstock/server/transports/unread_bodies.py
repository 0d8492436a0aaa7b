"""Bodies that nobody reads: a request that was answered before all of it had come, and what becomes of its connection.

To read on only in order to find the next request would hold a place for a body that may never come, and to close on
unread bytes would have the answer thrown away before it was read. So the answer says that the connection ends, and what
still comes is read for a moment and dropped.
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
"""Of an unread body behind which a connection goes on: it has come by the time somebody has read the answer."""

LINGER_SECONDS: Final = 2.0
"""For the other side to see the answer and stop sending."""

_CLOSE: Final = ((b"connection", b"close"),)


class UnreadBodyGuard:
    """An application whose answers end the connection where much of the request has not been read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _has_come(scope):
            return self._app(scope, receive, send)
        exchange = _Exchange(body_bytes(scope), receive, send)
        return self._app(scope, exchange.receive, exchange.send)


def _has_come(scope: Scope) -> bool:
    """Whether there is no body, or one of a declared length that is here before anybody is asked."""
    declared = body_bytes(scope)
    if declared is None:
        return header(scope, b"transfer-encoding") is None
    return declared == 0 or WHOLE in scope


class _Exchange:
    """One request with a body, and its answer."""

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
        """What has not come in all the time that it had will not come now."""
        if self._is_read:
            return False
        return self._declared is None or self._declared > DROPPED_BYTES_MAX or status == HTTPStatus.REQUEST_TIMEOUT

    async def _discard(self) -> None:
        while not self._is_read:
            await self.receive()
