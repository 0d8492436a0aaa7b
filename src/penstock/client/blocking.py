"""The same client without asyncio: its event loop runs in a thread of its own, and every call waits for it."""

from __future__ import annotations

import asyncio
import os
import queue
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from penstock.client import aio
from penstock.client.core import PAYLOAD_BYTES_MAX, Message, Payload
from penstock.core.errors import PenstockError, ServiceUnavailable

_T = TypeVar("_T")
_AT_ONCE: Final = 2000
"""Payloads taken from the caller at a time: they are taken in its own thread, which may be slow or use this client."""
_WORKERS_MAX: Final = 64
_IDLE_SECONDS: Final = 10.0


class _Workers:
    """Threads for callbacks and handlers, as many as are needed up to a bound. None of them keeps the program alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[Message], _T], message: Message) -> Future[_T]:
        done: Future[_T] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(function(message))
            except BaseException as error:
                done.set_exception(error)

        with self._lock:
            if self._idle <= self._work.qsize() and self._count < _WORKERS_MAX:
                self._count += 1
                threading.Thread(target=self._run, name="penstock-worker", daemon=True).start()
        self._work.put(work)
        return done

    def _run(self) -> None:
        """Until there has been nothing to do for a while."""
        while True:
            with self._lock:
                self._idle += 1
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                work = None
            with self._lock:
                self._idle -= 1
                if work is None:
                    self._count -= 1
                    return
            work()


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.workers = _Workers()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Its result. Ctrl-C, and a timeout, cancel it."""
        if self._loop.is_closed() or os.getpid() != self._process:
            work.close()
            gone = "is closed" if self._loop.is_closed() else "was made in another process: each needs its own"
            raise ServiceUnavailable(f"the client {gone}")
        future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def connect(
    url: str | None = None,
    *,
    name: str | None = None,
    description: str = "",
    timeout: float = 10.0,
    reconnect: bool = True,
    payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    tls: ssl.SSLContext | None = None,
    tls_ca: Path | str | None = None,
    tls_cert: Path | str | None = None,
    tls_key: Path | str | None = None,
) -> Client:
    """As `penstock.aio.connect`, connected on return: `with penstock.connect() as client: ...`."""
    loop = _Loop()

    async def start() -> aio.AsyncClient:
        return await aio.connect(
            url,
            name=name,
            description=description,
            timeout=timeout,
            reconnect=reconnect,
            payload_bytes_max=payload_bytes_max,
            tls=tls,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
        )

    try:
        return Client(loop, loop.run(start()))
    except BaseException:
        loop.stop()
        raise


class _Held:
    """Something that lasts until it is closed, or left."""

    def __init__(self, loop: _Loop, inner: aio.Serving | aio.Subscription) -> None:
        self._loop = loop
        self._inner = inner

    def close(self) -> None:
        with suppress(ServiceUnavailable):  # the client is closed: so is this
            self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class Serving(_Held):
    """A topic being served. Leave it to stop."""


class Subscription(_Held):
    """Messages of one pattern, in order: iterate over it, or `get` one. Leave it to end it."""

    _inner: aio.Subscription

    def __init__(self, loop: _Loop, inner: aio.Subscription) -> None:
        super().__init__(loop, inner)

    @property
    def pattern(self) -> str:
        return str(self._inner.pattern)

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if the subscription is over. Raises `TimeoutError`."""
        return self._loop.run(self._inner.get(timeout))

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message


class Client:
    """One connection to a broker, made again when it breaks. Made by `penstock.connect`; any thread may use it."""

    def __init__(self, loop: _Loop, inner: aio.AsyncClient) -> None:
        self._loop = loop
        self._inner = inner
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        return self._inner.connected

    def close(self) -> None:
        """Send what was written, and end."""
        if self._open:
            self._open = False
            self._loop.run(self._inner.close())
            self._loop.stop()

    def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> None:
        """Returns when the broker has passed the message on. Raises `NoRouteFound` if nobody would have received it."""
        self._loop.run(self._inner.publish(topic, payload, version=version))

    def publish_many(self, topic: str, payloads: Iterable[Payload], *, version: str = "1.0.0") -> int:
        """Publish in order, many at a time; how many. At the first that fails no more are sent, and it is raised."""
        confirmed, rest = 0, iter(payloads)
        try:
            while part := list(islice(rest, _AT_ONCE)):
                confirmed += self._loop.run(self._inner.publish_many(topic, part, version=version))
        except PenstockError as error:
            error.details["confirmed"] = confirmed + int(str(error.details.get("confirmed", 0)))
            raise
        return confirmed

    def request(
        self, topic: str, payload: Payload = b"", *, version: str = "1.0.0", timeout: float | None = None
    ) -> bytes:
        """The answer of whoever serves the topic. Raises its error, `NoRouteFound`, or `Timeout`."""
        return self._loop.run(self._inner.request(topic, payload, version=version, timeout=timeout))

    def register(self, name: str, description: str = "") -> None:
        """Be listed as a service. Done again on every new connection."""
        self._loop.run(self._inner.register(name, description))

    def ping(self) -> float:
        """Seconds to the broker and back."""
        return self._loop.run(self._inner.ping())

    def subscribe(self, pattern: str, callback: Callable[[Message], object] | None = None) -> Subscription:
        """Live messages of a topic or a pattern, from now on. A callback is called in the client's own thread."""
        called = None if callback is None else _in_thread(self._loop, callback)
        return Subscription(self._loop, self._loop.run(_awaited(self._inner.subscribe(pattern, called))))

    def respond(self, pattern: str, handler: Callable[[Message], Payload], *, priority: int = 0) -> Serving:
        """Serve a topic, each request in a thread: what the handler returns is the answer."""
        pending = self._inner.respond(pattern, _in_thread(self._loop, handler), priority=priority)
        return Serving(self._loop, self._loop.run(_awaited(pending)))


async def _awaited(pending: Awaitable[_T]) -> _T:
    return await pending


def _in_thread(loop: _Loop, function: Callable[[Message], _T]) -> Callable[[Message], Coroutine[Any, Any, _T]]:
    """It may wait, and call this very client, without holding up the event loop."""

    async def called(message: Message) -> _T:
        return await asyncio.wrap_future(loop.workers.submit(function, message))

    return called
