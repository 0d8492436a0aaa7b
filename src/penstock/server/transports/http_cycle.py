"""One HTTP/1.1 request and its response, as uvicorn handles them, with a fast path for the usual case.

The fast path is for a body that has come whole, and for a response in one piece; everything else is left to uvicorn.
Every response goes through h11, which refuses invalid HTTP/1.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, RequestResponseCycle

_HEADS_KNOWN: Final = 64
"""The most response heads that are cached. Each contains the date, so it is of use for one second."""
_END: Final = h11.EndOfMessage()

_Header = tuple[bytes, bytes]


class RequestCycle(RequestResponseCycle):
    """One request while it is being answered. It overrides what uvicorn does with a body that has come whole, and with
    a response in one piece."""

    _is_taken = False
    """True once the last piece of the body was handed to the application."""

    async def receive(self) -> Any:
        """Return the next ASGI message of the request. If the rest of the body has come, it is returned at once, in one
        piece."""
        if self._is_taken or self.more_body or self.disconnected or self.response_complete:
            message: Any = await super().receive()
            self._is_taken = message["type"] == "http.disconnect" or not message["more_body"]
            return message
        self._is_taken = True
        self.message_event.clear()
        self.flow.resume_reading()
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Any) -> None:
        """Send an ASGI message of the response. A head, and a body in one piece, take the fast path."""
        if self.flow.write_paused or self.disconnected or self.access_log or self.response_complete:
            await super().send(message)
        elif not self.response_started and message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif self.response_started and message["type"] == "http.response.body" and not message.get("more_body", False):
            self._end(message.get("body", b""))
        else:
            await super().send(message)

    def _start(self, status: int, headers: Any) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        sent = (*self.default_headers, *headers)
        if CLOSE_HEADER in self.scope["headers"] and CLOSE_HEADER not in sent:
            sent = (*sent, CLOSE_HEADER)
        self.transport.write(self.conn.send(_head(status, sent)))

    def _end(self, body: bytes) -> None:
        data = self.conn.send(h11.Data(data=b"" if self.scope["method"] == "HEAD" else body))
        self.response_complete = True
        self.message_event.set()
        self.transport.write(data + self.conn.send(_END))
        if self.conn.our_state is h11.MUST_CLOSE or not self.keep_alive:
            self.conn.send(h11.ConnectionClosed())
            self.transport.close()
        self.on_response()


@lru_cache(maxsize=_HEADS_KNOWN)
def _head(status: int, headers: tuple[_Header, ...]) -> h11.Response:
    """Return a response head that h11 has validated. Cached, because validating the headers is the slowest part of a
    short response."""
    return h11.Response(status_code=status, headers=list(headers), reason=STATUS_PHRASES[status])
