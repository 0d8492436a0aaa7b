"""The speed of events over HTTP: publishing durably, compared with a bare handler that only syncs; and streaming to a
hundred readers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from penstock.bench import Figure
from penstock.bench.stream import best_in_turns
from penstock.bench.wire import CORES, pinned_to
from penstock.core.errors import Timeout
from penstock.record.kernels import kernel_cache
from penstock.testing import RunningBroker

CONNECTIONS: Final = 64
READERS: Final = 100
WANTED: Final = 100_000
"""The wanted speed in events per second, over all readers together."""
_PAYLOAD: Final = b'{"order":"o-12345","customer":4711,"cents":1999,"note":"%s"}' % (b"x" * 40)
_ANSWER_SECONDS: Final = 60.0
_TOPIC: Final = "bench.events"
_LIVE: Final = "bench.live"


def measure(folder: Path, *, requests: int = 60_000, events: int = 50_000, rounds: int = 3) -> Iterator[Figure]:
    """Yield all figures. All servers keep their files in `folder`."""
    kernel_cache.load_all()
    with ExitStack() as stack:
        with pinned_to(CORES[1:]):
            broker = stack.enter_context(
                RunningBroker("--ws-port", "off", "--http-port", "0", "--log-level", "error", data=folder / "data")
            )
            bare = stack.enter_context(_bare(folder / "bare"))
        port = int(broker.http_url.rpartition(":")[2])
        with pinned_to(CORES[:1]):
            yield _publishing(port, bare, requests, rounds)
            yield _reading(port, events, rounds)
            yield _following(port, events // 10, rounds)


@contextmanager
def _bare(file: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "penstock.bench.bare_http", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        try:
            assert process.stdout is not None  # noqa: S101
            yield int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()


def _publishing(port: int, bare: int, requests: int, rounds: int) -> Figure:
    sides = {"Penstock": partial(_post_rate, port, requests), "bare": partial(_post_rate, bare, requests)}
    best = best_in_turns(sides, rounds)
    return Figure(
        name=f"durable publish over HTTP, {CONNECTIONS} connections",
        value=best["Penstock"],
        unit="events/s",
        reference="a bare Starlette handler that syncs groups",
        reference_value=best["bare"],
        ratio=best["Penstock"] / best["bare"],
    )


def _reading(port: int, events: int, rounds: int) -> Figure:
    """Measure how fast events that were published before are streamed."""
    uvloop.run(_fill_topic(port, _TOPIC, events))
    path = f"/api/events?topic={_TOPIC}&from=earliest&follow=false"
    return _fan_out("read back", max(uvloop.run(_stream_rate(port, path, events)) for _ in range(rounds)))


def _following(port: int, events: int, rounds: int) -> Figure:
    """Measure how fast events are streamed while they are published."""
    speeds = (uvloop.run(_follow_rate(port, f"{_LIVE}{number}", events)) for number in range(rounds))
    return _fan_out("as it happens", max(speeds))


def _fan_out(what: str, speed: float) -> Figure:
    return Figure(
        name=f"SSE to {READERS} readers, {what}",
        value=speed,
        unit="events/s",
        reference="wanted",
        reference_value=WANTED,
        ratio=speed / WANTED,
    )


# ---- bare clients


class RepeatedRequest(asyncio.Protocol):
    """A client that sends the same request `times` times, each after the response to the one before; then it sets
    `done`."""

    def __init__(self, request: bytes, times: int, done: asyncio.Future[None]) -> None:
        self._request = request
        self._left = times
        self._done = done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank or len(body) < _length(head):
            return
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(Timeout(f"refused: {head!r} {body!r}"))
            return
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._transport.close()
            self._done.set_result(None)


def _length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.index(b"content-length:") + len(b"content-length:")
    return int(lowered[start:].split(b"\r\n", 1)[0])


def _post(path: str, body: bytes, media: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _post_rate(port: int, requests: int) -> float:
    """Return the number of requests per second that the server at `port` answers."""
    request = _post("/api/events?type=order.created&topic=bench.posts", _PAYLOAD, "application/octet-stream")

    async def run() -> float:
        await _send_requests(port, [(request, 1)])
        began = time.perf_counter()
        await _send_requests(port, [(request, requests // CONNECTIONS)] * CONNECTIONS)
        return requests / (time.perf_counter() - began)

    return uvloop.run(run())


async def _send_requests(port: int, asked: list[tuple[bytes, int]]) -> None:
    loop = asyncio.get_running_loop()
    waiting = []
    for request, times in asked:
        done: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(partial(RepeatedRequest, request, times, done), "127.0.0.1", port)
        waiting.append(done)
    async with asyncio.timeout(_ANSWER_SECONDS):
        await asyncio.gather(*waiting)


async def _fill_topic(port: int, topic: str, events: int) -> None:
    lines = 1000
    batch = _post(f"/api/events?topic={topic}&type=order.created&lines=payload", (_PAYLOAD + b"\n") * lines, _LINES)
    await _send_requests(port, [(batch, max(1, events // lines))])


_LINES: Final = "application/x-ndjson"


class EventReader(asyncio.Protocol):
    """A client that reads a stream of server-sent events, and sets `done` after `events` of them."""

    def __init__(self, path: str, events: int, begun: asyncio.Future[None], done: asyncio.Future[None]) -> None:
        self._path = path
        self._left = events
        self._begun = begun
        self._done = done
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        self._left -= data.count(_MARK)
        self._tail = data[-len(_MARK) + 1 :]
        if not self._begun.done():
            self._begun.set_result(None)
        if self._left <= 0 and not self._done.done():
            self._transport.close()
            self._done.set_result(None)


_MARK: Final = b"\nevent: "


async def _start_readers(
    port: int, path: str, events: int
) -> tuple[list[asyncio.Future[None]], list[asyncio.Future[None]]]:
    loop = asyncio.get_running_loop()
    begun: list[asyncio.Future[None]] = [loop.create_future() for _ in range(READERS)]
    done: list[asyncio.Future[None]] = [loop.create_future() for _ in range(READERS)]
    for one, other in zip(begun, done, strict=True):
        await loop.create_connection(partial(EventReader, path, events, one, other), "127.0.0.1", port)
    return begun, done


async def _stream_rate(port: int, path: str, events: int) -> float:
    began = time.perf_counter()
    _, done = await _start_readers(port, path, events)
    async with asyncio.timeout(_ANSWER_SECONDS):
        await asyncio.gather(*done)
    return events * READERS / (time.perf_counter() - began)


async def _follow_rate(port: int, topic: str, events: int) -> float:
    begun, done = await _start_readers(port, f"/api/events?topic={topic}&from=latest", events)
    await asyncio.gather(*begun)
    request = _post(f"/api/events?topic={topic}&type=order.created", _PAYLOAD, "application/octet-stream")
    began = time.perf_counter()
    async with asyncio.timeout(_ANSWER_SECONDS):
        await _send_requests(port, [(request, -(-events // CONNECTIONS))] * CONNECTIONS)
        await asyncio.gather(*done)
    return events * READERS / (time.perf_counter() - began)
