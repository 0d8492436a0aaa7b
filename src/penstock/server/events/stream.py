"""A stream of events to one reader: chunks, as fast as the reader takes them, and heartbeats in between.

Only the chunk that is being sent is held for a reader. Its position in all partitions is a single message id, which
every event carries. A reader that comes back with the id of its last event misses nothing and gets nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.broker.access.policy import Operation, Principal, Resource
from penstock.broker.base.effects import Effect
from penstock.broker.reads.feed import FeedRequest, FeedStart, cursor_text
from penstock.broker.reads.merge import ReadPositions
from penstock.core.errors import PenstockError, StorageFailed
from penstock.core.limits import KIB
from penstock.server.events.state import EventService
from penstock.server.events.stream_formats import ERROR, GAP, StreamChunk, StreamFormat, StreamWriter
from penstock.server.transports.http import ABORT, CLOSE

_LOG: Final = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 15
"""The default number of seconds between two heartbeats: shorter than the timeout of proxies."""
RETRY_MS: Final = 1_000
"""The milliseconds after which a browser reconnects."""
_WRITE_BYTES: Final = 64 * KIB
"""The bytes that are handed to the connection at a time. At most twice as many wait there if the reader takes nothing.
"""
_PACE_SECONDS: Final = 0.01
"""The least time between two chunks of live messages, so that a hundred readers do not all wake for every single
message."""
_EXPIRED_SECONDS: Final = 0.5
"""The time after the end of a reader's credentials until the stream checks them: access control sets its clock only now
and then."""
_REFUSED_SECONDS: Final = 1.0
"""The time for a reader that has lost its permission to take the notice that says so. After it the connection is
aborted."""
_DELETED_SECONDS: Final = 0.25
"""The wait before a failed read is tried again. If the topic's files are gone because it is being deleted, that is
known everywhere by then."""
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """The parameters of one request for a stream."""

    feed: FeedRequest
    form: StreamFormat
    start: FeedStart
    until: int | None
    """The position at which the stream ends; None if it goes on with new messages."""
    limit: int | None
    heartbeat: float | None
    principal: Principal
    client: str
    """The client for whom this stream counts in the limit of streams: a principal's name, or the address of an
    anonymous client."""


class EventStream(Response):
    """The response that streams events until `until` or `limit` is reached, the client disconnects, or the stream is
    ended."""

    def __init__(self, events: EventService, request: StreamRequest) -> None:
        super().__init__(None, headers=_HEADERS, media_type=request.form.media)
        del self.headers["content-length"]
        self._events = events
        self._request = request
        self._writer = StreamWriter(request.form)
        self._position = self._reported = request.start.after
        self._resumed = request.start.resumed
        self._remaining = request.limit
        self._log_positions: ReadPositions = {}
        self._resource = Resource.topic(request.feed.topics)
        self._wake_future: asyncio.Future[None] | None = None
        self._disconnected = False
        self._wake_requested = False
        self._refused = False
        self._abort: Callable[[], None] = lambda: None
        self._cut_timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        state = scope.get("state") or {}
        if scope["method"] != "HEAD":
            self._abort = state.get(ABORT, self._abort)
            watching = asyncio.ensure_future(self._watch(receive))
            self._events.register(self, self._request.client, self._recheck)
            try:
                await self._run(send)
            finally:
                self._events.unregister(self)
                watching.cancel()
                if self._cut_timer is not None:
                    self._cut_timer.cancel()
        await send({"type": "http.response.body", "body": b""})
        if self._refused and CLOSE in state:  # as over TCP: a client that may no longer read is disconnected
            state[CLOSE]()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._disconnected = True
        self._wake()

    def _abort_slow(self) -> None:
        """Cut the reader off, because the memory for its chunk is needed for others. When it reconnects, it goes on
        from the last id that it has read."""
        _LOG.warning(
            "event stream cut off: memory is short, and its reader has taken nothing for longest",
            extra={"reader": self._request.client, "topics": str(self._request.feed.topics)},
        )
        self._disconnected = True
        self._abort()

    def _recheck(self) -> None:
        """Wake the stream to check whether it must end: the broker stops, or permissions have changed. A reader that
        may no longer read is aborted a little later."""
        self._wake()
        if not self._may_read() and self._cut_timer is None:
            self._cut_timer = asyncio.get_running_loop().call_later(_REFUSED_SECONDS, self._abort)

    def _wake(self, _outcome: object = None) -> list[Effect]:
        self._wake_requested = True
        if self._wake_future is not None and not self._wake_future.done():
            self._wake_future.set_result(None)
        return []

    async def _run(self, send: Send) -> None:
        self._sent_at = time.monotonic()
        await self._write(send, self._preamble())
        try:
            while not self._is_over():
                self._wake_requested = False
                self._check()
                chunk = await self._next()
                if chunk is None:
                    await self._wait()
                else:
                    await self._send(send, chunk)
                if self._heartbeat_due() <= 0:
                    await self._write(send, self._heartbeat())
        except PenstockError as error:
            self._refused = not self._may_read()
            await self._write(send, self._writer.note(ERROR, self._events.hub.broker.context.redact(error).as_dict()))
        await self._write(send, self._progress())

    def _preamble(self) -> bytes:
        """Return the first bytes of the stream: for server-sent events, the time until a reconnect, and the id to
        resume from if the reader disconnects before the first event. A notice of a gap follows if the reader's id is
        ahead of everything that is stored."""
        start = self._request.start
        place = "" if start.resumed and not start.ahead else _id_line(start.after)
        said = b"" if self._request.form.is_lines else f"retry: {RETRY_MS}\n{place}\n".encode()
        if not start.ahead:
            return said
        facts = {"reason": "the id is ahead of everything that is stored here", "certain": False}
        return said + self._writer.note(GAP, facts)

    def _is_over(self) -> bool:
        until = self._request.until
        at_end = until is not None and self._position >= until
        return self._disconnected or self._events.closing or self._remaining == 0 or at_end

    def _check(self) -> None:
        """Check that the client may still read the topics. Raises the refusal. Called for every chunk."""
        if not self._may_read():
            raise self._events.hub.access.refusal(self._request.principal, Operation.CONSUME, self._resource)

    def _may_read(self) -> bool:
        return self._events.hub.access.allows(self._request.principal, Operation.CONSUME, self._resource)

    # the next chunk

    async def _next(self) -> StreamChunk | None:
        """Return the next chunk; None if nothing is stored behind the current position yet."""
        try:
            return await self._chunk()
        except StorageFailed:  # the topic may be being deleted: the second attempt leaves it out
            await asyncio.sleep(_DELETED_SECONDS)
            return await self._chunk()

    async def _chunk(self) -> StreamChunk | None:
        selection = self._events.feeds.select(self._request.feed)
        if selection.until <= self._position:
            return None
        return await self._events.chunk(
            self._request.feed,
            self._request.form,
            selection,
            self._position,
            self._log_positions,
            resumed=self._resumed,
        )

    async def _send(self, send: Send, chunk: StreamChunk) -> None:
        """Send the chunk, or as many of its events as the stream's limit allows. The position advances only after all
        of the chunk was sent."""
        self._check()
        count = len(chunk.ends) if self._remaining is None else min(self._remaining, len(chunk.ends))
        body = memoryview(chunk.body)
        if count < len(chunk.ends):
            body = body[: chunk.ends[count - 1] if count else 0]
        with self._events.chunks.sending(chunk, self._abort_slow) as moved:
            for start in range(0, len(body), _WRITE_BYTES):
                await self._write(send, body[start : start + _WRITE_BYTES])
                moved()
        self._events.sent(count)
        if self._remaining is not None:
            self._remaining -= count
        if count == len(chunk.ends):
            self._position, self._log_positions, self._resumed = chunk.after, chunk.positions, False
        if count:
            self._reported = self._position

    async def _wait(self) -> None:
        """Wait for a new message, for a call of `_wake`, or for the next deadline. Returns at once if `_wake` was
        called since the last check."""
        if self._wake_requested:
            return
        loop = asyncio.get_running_loop()
        self._wake_future = loop.create_future()
        stop = self._events.feeds.wait(self._request.feed, self._wake)
        patience = self._max_wait()
        timer = None if patience is None else loop.call_later(patience, self._wake)
        try:
            await self._wake_future
        finally:
            stop()
            if timer is not None:
                timer.cancel()
        since = time.monotonic() - self._sent_at
        if since < _PACE_SECONDS:
            await asyncio.sleep(_PACE_SECONDS - since)

    def _heartbeat_due(self) -> float:
        """Return the seconds until a heartbeat is due; infinity without heartbeats. It is checked after every chunk as
        well: messages may come all the time and the filter match none of them."""
        if self._request.heartbeat is None:
            return math.inf
        return self._sent_at + self._request.heartbeat - time.monotonic()

    def _max_wait(self) -> float | None:
        """Return the seconds until the next heartbeat, or the end of the client's credentials if that is sooner; None
        if there is neither."""
        due = [] if self._request.heartbeat is None else [self._heartbeat_due()]
        if self._request.principal.expires_ms is not None and self._events.hub.access.enabled:
            left = (self._request.principal.expires_ms - self._events.hub.access.now_ms) / 1000
            due.append(max(left, _PACE_SECONDS) + _EXPIRED_SECONDS)
        return min(due, default=None)

    def _heartbeat(self) -> bytes:
        return b"\n" if self._request.form.is_lines else self._progress() or b": heartbeat\n\n"

    def _progress(self) -> bytes:
        """Return a heartbeat with the current position as its id, if that has moved past messages that the filter does
        not match. Otherwise, and for JSON lines, returns empty bytes."""
        if self._reported == self._position or self._request.form.is_lines or self._remaining == 0:
            return b""
        self._reported = self._position
        return f": heartbeat\n{_id_line(self._position)}\n".encode()

    async def _write(self, send: Send, body: Any) -> None:
        if len(body) and not self._disconnected:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            self._sent_at = time.monotonic()


def _id_line(after: int) -> str:
    """Return the line `id:` with a position. Empty before the first message: a reader without an id starts there
    anyway."""
    return f"id: {cursor_text(after)}\n" if after >= 0 else ""
