"""The HTTP/1.1 parser: h11, with limits on the size of heads, on small chunks, and on the number of events in one turn.

h11 parses all its input at once, and accepts requests that can be understood in two ways. Here a turn is a few dozen
events, so that one connection does not hold up the event loop, and ambiguous requests are refused. Bytes in, events
out: no socket and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11

from penstock.core.limits import ATTRIBUTES_MAX, KIB

HEAD_BYTES_MAX: Final = 32 * KIB
"""The largest head of a request: room for the longest subject with every byte escaped, and some credentials."""

HEADERS_MAX: Final = ATTRIBUTES_MAX + 64
"""The most headers of a request: each attribute of a message may be one, and a browser behind a few proxies sends
forty."""

CHUNKS_MAX: Final = 20_000
"""The most chunks of a body, unless they are large enough on average (see `CHUNK_BYTES_MEAN_MIN`). A client that
streams NDJSON may send each line as a chunk."""

CHUNK_BYTES_MEAN_MIN: Final = 64
"""The least mean size in bytes of the chunks, for a body with more than `CHUNKS_MAX` of them. With smaller chunks most
of the input would be chunk headers rather than body."""

EVENTS_PER_TURN: Final = 64
"""The most events in one turn: some milliseconds of work."""

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_NOT_HTTP: Final = "not HTTP/1.1"


class RequestRejected(h11.RemoteProtocolError):
    """A request that is refused. It has the status and the message of the answer, after which the connection ends."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message, error_status_hint=status)
        self.status = status
        self.message = message

    @classmethod
    def of(cls, error: BaseException | None) -> RequestRejected:
        """Return h11's error as a refusal in our own words, so that the answer does not depend on how the input was
        split. A `RequestRejected` is returned unchanged."""
        if isinstance(error, RequestRejected):
            return error
        hint = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
        if hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return head_too_large(HEAD_BYTES_MAX)
        return cls(HTTPStatus.BAD_REQUEST, _NOT_HTTP)


def head_too_large(most: int) -> RequestRejected:
    return RequestRejected(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {most} bytes")


class Parser(h11.Connection):
    """The parser of the requests of one connection. `head_received` is called with each head, and returns the request
    to go on with; it refuses one by raising `RequestRejected`."""

    def __init__(self, head_received: Callable[[h11.Request], h11.Request]) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)
        self.head_bytes_max = HEAD_BYTES_MAX
        self.cut_short = False
        """True if the turn ended, because it had its number of events, before all input was parsed."""

        self._head_received = head_received
        self._events = 0
        self._chunks = 0
        self._chunk_bytes = 0

    def begin_turn(self) -> None:
        self._events, self.cut_short = 0, False

    @property
    def is_finished(self) -> bool:
        """True if further input is ignored, because the connection ends after this request or after an error."""
        return self.their_state in (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)

    def next_event(self) -> Any:
        """Return the next event, as `h11.Connection` does. At the end of a turn returns `NEED_DATA` and sets
        `cut_short`. Raises `RequestRejected`."""
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
        """Check the size of a head, and the number of its headers, before h11 parses it: h11 has no limit for a head
        that comes in one piece.

        Returns False if no input is there yet. Raises `RequestRejected` for a head over a limit.
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
    """Refuse a request that gives its length twice. If a proxy goes by the other length than we do, a part of the body
    would become a further request here. Raises `RequestRejected`."""
    names = {name.lower() for name, _ in request.headers.raw_items()}
    if names.issuperset((b"content-length", b"transfer-encoding")):
        raise RequestRejected(
            HTTPStatus.BAD_REQUEST, "a request has either Content-Length or Transfer-Encoding, not both"
        )
