"""The HTTP/1.1 parser: h11 with limits on the head, on small chunks, and on the events of one turn.

h11 parses all its input at once, and accepts whatever makes some sense. Here a turn is a few dozen events, so that one
connection does not hold up the event loop, and ambiguous requests are refused. Bytes in, events out: no socket and no
clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11

from penstock.core.limits import ATTRIBUTES_MAX, KIB

HEAD_BYTES_MAX: Final = 32 * KIB
"""The largest head: the longest subject, with every byte of it escaped, and some credentials."""

HEADERS_MAX: Final = ATTRIBUTES_MAX + 64
"""The most headers: every attribute of a message may be one, and browsers behind a few proxies send forty."""

CHUNKS_MAX: Final = 20_000
"""The most small chunks of a body: a client that streams NDJSON may send every line as a chunk of its own."""

CHUNK_BYTES_MEAN_MIN: Final = 64
"""The least mean size of more chunks than that: below it, most of what is read is not the body."""

EVENTS_PER_TURN: Final = 64
"""The events of one turn: some milliseconds of work."""

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_NOT_HTTP: Final = "not HTTP/1.1"


class RequestRejected(h11.RemoteProtocolError):
    """A request that is refused, with a status and a sentence. Its connection ends."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message, error_status_hint=status)
        self.status = status
        self.message = message

    @classmethod
    def of(cls, error: BaseException | None) -> RequestRejected:
        """Return the error with our own words; the same however the bytes were split."""
        if isinstance(error, RequestRejected):
            return error
        hint = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        if hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return head_too_large(HEAD_BYTES_MAX)
        return cls(HTTPStatus.BAD_REQUEST, _NOT_HTTP)


def head_too_large(most: int) -> RequestRejected:
    return RequestRejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {most} bytes")


class Parser(h11.Connection):
    """The requests of one connection. `head_received` gets each head first, and may refuse or replace it."""

    def __init__(self, head_received: Callable[[h11.Request], h11.Request]) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)
        self.head_bytes_max = HEAD_BYTES_MAX
        self.cut_short = False
        """True if the turn ended before all input was parsed."""

        self._head_received = head_received
        self._events = 0
        self._chunks = 0
        self._chunk_bytes = 0

    def begin_turn(self) -> None:
        self._events, self.cut_short = 0, False

    @property
    def is_finished(self) -> bool:
        """True if further input is ignored."""
        return self.their_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    def next_event(self) -> Any:
        """Return the next event, as `h11.Connection` does; `NEED_DATA` also at the end of a turn. Raises
        `RequestRejected`."""
        if self._events >= EVENTS_PER_TURN:
            self.cut_short = True
            return h11.NEED_DATA
        self._events += 1
        state = self.their_state
        if state is h11.IDLE:
            if not self._check_head():
                return h11.NEED_DATA
        elif state is h11.DONE and not self.trailing_data[0]:
            return h11.NEED_DATA
        event = super().next_event()
        # Not `isinstance`: events are abstract classes, for which it takes as long as parsing one.
        if type(event) is h11.Request:
            _check_framing(event)
            self._chunks = self._chunk_bytes = 0
            return self._head_received(event)
        if type(event) is h11.Data:
            self._check_chunks(event)
        return event

    def _check_head(self) -> bool:
        """Check the size of the head before it is parsed: h11 has no limit for a head that comes in one piece.

        Returns False if nothing has come.
        """
        waiting, _ = self.trailing_data
        if not waiting:
            return False
        end = _HEAD_END.search(waiting)
        size = len(waiting) if end is None else end.end()
        if size > self.head_bytes_max:
            raise head_too_large(self.head_bytes_max)
        if waiting.count(b"\n", 0, size) > HEADERS_MAX + 2:  # and the request line and the empty line
            raise RequestRejected(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {HEADERS_MAX} headers"
            )
        return True

    def _check_chunks(self, event: h11.Data) -> None:
        self._chunks += event.chunk_start
        self._chunk_bytes += len(event.data)
        if self._chunks > CHUNKS_MAX and self._chunk_bytes < self._chunks * CHUNK_BYTES_MEAN_MIN:
            raise RequestRejected(
                HTTPStatus.BAD_REQUEST,
                f"a body of more than {CHUNKS_MAX} chunks has {CHUNK_BYTES_MEAN_MIN} bytes or more in each, on average:"
                " send larger ones",
            )


def _check_framing(request: h11.Request) -> None:
    """Refuse two lengths: if a proxy believes the other one, a body to it is the next request to us."""
    names = {name.lower() for name, _ in request.headers.raw_items()}
    if names.issuperset((b"content-length", b"transfer-encoding")):
        raise RequestRejected(
            HTTPStatus.BAD_REQUEST, "a request has either Content-Length or Transfer-Encoding, not both"
        )
