"""The asyncio client. Nothing is dropped in silence: a call returns when the broker has confirmed it, or raises."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from penstock.client.connection import Connection
from penstock.client.core import (
    PAYLOAD_BYTES_MAX,
    Asked,
    Core,
    Delivered,
    Event,
    Message,
    Payload,
    Wanted,
    milliseconds,
)
from penstock.client.urls import Address, parse_url, tls_context
from penstock.core.clock import SystemClock, iso_time, now_ms
from penstock.core.errors import InvalidRequest, PenstockError, QuotaExceeded, ServiceUnavailable, Timeout
from penstock.core.limits import MIB
from penstock.core.names import TopicPattern

_LOG: Final = logging.getLogger(__name__)
_WAITING_MAX: Final = 65_536
_WAITING_BYTES_MAX: Final = 64 * MIB
"""Messages of one subscription, and their bytes, that nobody has taken yet; then only answers are read."""
_HALF: Final = 0.5
_OVERFULL: Final = 4
"""So many times that, and the subscription ends with an error: it does not keep up."""
_HANDLERS_MAX: Final = 1000
"""Requests being answered at once; more are refused."""
_GOODBYE_SECONDS: Final = 2.0
"""For handlers to finish when the client is closed."""
_REQUEST_GRACE_SECONDS: Final = 2.0
"""The broker itself says when a request has timed out; we wait a little longer for it to say so."""
_WINDOW: Final = 512
"""Messages of `publish_many` that wait for their confirmation at once."""

Handler = Callable[[Message], Payload | Awaitable[Payload]]
Callback = Callable[[Message], object]


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
) -> AsyncClient:
    """A client of the broker at `url` (`tcp://host:port`, `tls://host:port`). Use it with `async with`, or `await` it.

    `name` registers it as a service. `timeout` bounds connecting, every call that is no request, and how long a call
    waits for a connection that is being made again. `payload_bytes_max` is what the broker takes: whoever sends it more
    loses the connection.
    """
    address = parse_url(url)
    if not address.secure and any(given is not None for given in (tls, tls_ca, tls_cert, tls_key)):
        raise InvalidRequest(f"{address} does not speak TLS: use tls:// for it")
    if address.secure and tls is None:
        tls = tls_context(tls_ca, tls_cert, tls_key)
    service = None if name is None else (name, description or name)
    core = Core(payload_bytes_max)
    return AsyncClient(address, core, tls=tls, service=service, timeout=timeout, again=reconnect)


class Subscription:
    """Messages of one pattern, in order: iterate over it, or give `subscribe` a callback. Leave it to end it."""

    def __init__(
        self,
        pattern: TopicPattern,
        *,
        leave: Callable[[Subscription], Awaitable[None]],
        room: Callable[[], None],
    ) -> None:
        self.pattern = pattern
        self._leave = leave
        self._has_room = room
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._reason: PenstockError | None = None
        self._closed = False

    @property
    def _fill(self) -> float:
        """How full it is: 1 is full."""
        return max(len(self._waiting) / _WAITING_MAX, self._bytes / _WAITING_BYTES_MAX)

    @property
    def full(self) -> bool:
        return self._fill >= 1 and not self._closed

    def put(self, message: Message) -> None:
        if self._closed:
            return
        self._waiting.append(message)
        self._bytes += len(message.payload)
        self._arrived.set()
        if self._fill >= _OVERFULL:
            error = QuotaExceeded(f"too slow: {len(self._waiting)} messages of {self.pattern} wait to be taken")
            self.end(error)

    def end(self, reason: PenstockError | None) -> None:
        """No more will come; what has arrived can still be taken."""
        self._reason, self._closed = reason, True
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._waiting:
            if self._reason is not None:
                raise self._reason
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        before = self._fill
        message = self._waiting.popleft()
        self._bytes -= len(message.payload)
        if before >= _HALF > self._fill:  # not at every message: it looks at all subscriptions
            self._has_room()
        return message

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if the subscription is over. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout):
            return await anext(self, None)

    async def close(self) -> None:
        if not self._closed:
            self.end(None)
            await self._leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


_Closing = TypeVar("_Closing", bound="Subscription | Serving")


class Pending(Generic[_Closing]):
    """What comes when it is awaited, or what `async with` enters and closes again."""

    def __init__(self, work: Coroutine[Any, Any, _Closing]) -> None:
        self._work = work
        self._come: _Closing | None = None

    def __await__(self) -> Generator[Any, None, _Closing]:
        return self._work.__await__()

    def __aiter__(self: Pending[Subscription]) -> AsyncIterator[Message]:
        """`async for` takes it at its word: it subscribes, iterates, and ends with the loop."""
        return self._messages()

    async def _messages(self: Pending[Subscription]) -> AsyncIterator[Message]:
        async with self as subscription:
            async for message in subscription:
                yield message

    async def __aenter__(self) -> _Closing:
        self._come = await self
        return self._come

    async def __aexit__(self, *_exception: object) -> None:
        if self._come is not None:
            await self._come.close()


class Serving:
    """A topic being served. Leave it to stop."""

    def __init__(self, leave: Callable[[], Awaitable[None]]) -> None:
        self._leave = leave

    async def close(self) -> None:
        await self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


class AsyncClient:
    """One connection to a broker, made again when it breaks. Made by `connect`."""

    def __init__(
        self,
        address: Address,
        core: Core,
        *,
        tls: ssl.SSLContext | None,
        service: tuple[str, str] | None,
        timeout: float,
        again: bool,
    ) -> None:
        self._core = core
        self._connection = Connection(
            address,
            self._core,
            tls=tls,
            timeout=timeout,
            again=again,
            handle=self._handle,
            refused=self._refused,
            over=self._end_subscriptions,
        )
        self._service = service
        self._started = False
        self._subscriptions: dict[TopicPattern, list[Subscription]] = {}
        self._handlers: dict[TopicPattern, Handler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answering: set[asyncio.Task[Any]] = set()
        self._subscribing = asyncio.Lock()

    # coming and going

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _start(self) -> Self:
        await self._connection.start()
        if self._service is not None and not self._started:
            try:
                await self.register(*self._service)
            except BaseException:
                await self._connection.close()
                raise
        self._started = True
        return self

    @property
    def connected(self) -> bool:
        return self._connection.open

    async def close(self) -> None:
        """Let handlers finish, send what was written, and end. Calls that still wait are told, iterators end."""
        mine = asyncio.current_task()
        try:
            if answering := self._answering - {mine}:
                await asyncio.wait(answering, timeout=_GOODBYE_SECONDS)
            await self._connection.close()
            others = [task for task in self._tasks if task is not mine]
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others)
        finally:
            self._end_subscriptions(None)

    def _end_subscriptions(self, reason: PenstockError | None) -> None:
        for listening in self._subscriptions.values():
            for subscription in listening:
                subscription.end(reason)

    # calls

    async def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> None:
        """Returns when the broker has passed the message on. Raises `NoRouteFound` if nobody would have received it."""
        await self._connection.call(self._core.publish(topic, payload, version))

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, version: str = "1.0.0") -> int:
        """Publish in order, many at a time; how many.

        At the first that fails no more are sent, and it is raised; its `details` say how many before it were
        `confirmed`. Up to 511 after it may have been sent.
        """
        window: deque[asyncio.Future[bytes]] = deque()
        confirmed = 0
        try:
            for payload in payloads:
                if len(window) >= _WINDOW:
                    await self._connection.answer(window.popleft())
                    confirmed += 1
                window.append(await self._connection.send(self._core.publish(topic, payload, version)))
            while window:
                await self._connection.answer(window.popleft())
                confirmed += 1
        except PenstockError as error:
            error.details["confirmed"] = confirmed
            raise
        finally:
            for waiting in window:
                waiting.cancel()
        return confirmed

    async def request(
        self, topic: str, payload: Payload = b"", *, version: str = "1.0.0", timeout: float | None = None
    ) -> bytes:
        """The answer of whoever serves the topic. Raises its error, `NoRouteFound`, or `Timeout`."""
        timeout_ms = None if timeout is None else milliseconds(timeout)
        call = self._core.request(topic, payload, version, timeout_ms)
        return await self._connection.call(call, (timeout or self._connection.timeout) + _REQUEST_GRACE_SECONDS)

    async def register(self, name: str, description: str = "") -> None:
        """Be listed as a service. Done again on every new connection."""
        await self._connection.call(self._core.register(name, description or name))
        self._core.registered(name, description or name)

    async def ping(self) -> float:
        """Seconds to the broker and back."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._connection.call(self._core.heartbeat())
        return loop.time() - began

    # subscriptions

    def subscribe(self, pattern: str, callback: Callback | None = None) -> Pending[Subscription]:
        """Live messages of a topic or a pattern (`+` one level, `#` the rest), from now on. Await it, or `async with`.

        With a callback, it is called for each in turn; it may be a coroutine function. Without one, iterate.
        """
        return Pending(self._subscribe(pattern, callback))

    async def _subscribe(self, pattern: str, callback: Callback | None) -> Subscription:
        wanted = Wanted(TopicPattern.parse(pattern), "publish")
        subscription = Subscription(wanted.pattern, leave=self._unsubscribe, room=self._read_or_not)
        async with self._subscribing:
            listening = self._subscriptions.get(wanted.pattern, [])
            if not listening:
                await self._want(wanted)
            self._subscriptions[wanted.pattern] = [*listening, subscription]
        if callback is not None:
            self._spawn(self._call_back(subscription, callback))
        return subscription

    def respond(self, pattern: str, handler: Handler, *, priority: int = 0) -> Pending[Serving]:
        """Serve a topic: what the handler returns is the answer. Await it, or `async with`.

        An error of Penstock's that it raises is the answer too; of any other only the kind is told.
        """
        return Pending(self._respond_to(pattern, handler, priority))

    async def _respond_to(self, pattern: str, handler: Handler, priority: int) -> Serving:
        wanted = Wanted(TopicPattern.parse(pattern), "request", priority)
        async with self._subscribing:
            if wanted.pattern in self._handlers:
                raise InvalidRequest(f"{pattern} is served already by this client")
            self._handlers[wanted.pattern] = handler  # a request may come before the answer to our own
            try:
                await self._want(wanted)
            except BaseException:
                del self._handlers[wanted.pattern]
                raise

        async def leave() -> None:
            async with self._subscribing:
                if self._handlers.pop(wanted.pattern, None) is not None:
                    await self._unwant(wanted)

        return Serving(leave)

    async def _want(self, wanted: Wanted) -> None:
        """Where this fails the broker may have heard of it all the same: it is told that nothing is wanted."""
        try:
            await self._connection.call(self._core.subscribe(wanted))
        except BaseException:
            self._connection.write(self._core.unsubscribe(wanted).data)
            raise

    async def _unwant(self, wanted: Wanted) -> None:
        call = self._core.unsubscribe(wanted)
        if self.connected:
            with suppress(ServiceUnavailable, Timeout):  # a connection that is gone has no subscriptions
                await self._connection.call(call)

    async def _unsubscribe(self, subscription: Subscription) -> None:
        async with self._subscribing:
            listening = [each for each in self._subscriptions.get(subscription.pattern, ()) if each is not subscription]
            if listening:
                self._subscriptions[subscription.pattern] = listening
            elif self._subscriptions.pop(subscription.pattern, None) is not None:
                await self._unwant(Wanted(subscription.pattern, "publish"))
        self._read_or_not()

    def _refused(self, wanted: Wanted, error: PenstockError) -> None:
        """The broker would not have it again on a new connection."""
        self._core.unsubscribe(wanted)
        if wanted.kind == "request":
            self._handlers.pop(wanted.pattern, None)
            _LOG.error("%s is not served any more: %s", wanted.pattern, error.message)
        for subscription in self._subscriptions.pop(wanted.pattern, ()) if wanted.kind == "publish" else ():
            subscription.end(error)

    # what arrives

    def _handle(self, event: Event) -> None:
        match event:
            case Delivered(message, patterns):
                self._deliver(message, patterns)
            case Asked(message, pattern):
                self._serve(message, pattern)

    def _deliver(self, message: Message, patterns: tuple[TopicPattern, ...]) -> None:
        for pattern in patterns:
            for subscription in self._subscriptions.get(pattern, ()):
                subscription.put(message)
                if subscription.full:
                    self._connection.hold_reading(hold=True)

    def _read_or_not(self) -> None:
        """Whether a subscription is full."""
        full = any(each.full for listening in self._subscriptions.values() for each in listening)
        self._connection.hold_reading(hold=full)

    async def _call_back(self, subscription: Subscription, callback: Callback) -> None:
        try:
            async for message in subscription:
                try:
                    result = callback(message)
                    if isawaitable(result):
                        await result
                except Exception:
                    _LOG.exception("the callback of %s failed on a message of %s", subscription.pattern, message.topic)
        except PenstockError as error:
            _LOG.error("no more messages of %s: %s", subscription.pattern, error.message)

    def _serve(self, message: Message, pattern: TopicPattern | None) -> None:
        handler = None if pattern is None else self._handlers.get(pattern)
        if handler is None:
            self._respond_error(message, ServiceUnavailable(f"{message.topic} is not served here any more"))
        elif len(self._answering) >= _HANDLERS_MAX:
            self._respond_error(message, ServiceUnavailable(f"This service answers {_HANDLERS_MAX} requests already"))
        else:
            task = self._spawn(self._respond(message, handler))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _respond(self, message: Message, handler: Handler) -> None:
        try:
            result = handler(message)
            answer = await result if isawaitable(result) else result
            self._connection.write(self._core.respond(message, answer))
        except PenstockError as error:
            self._respond_error(message, error)
        except Exception as error:
            _LOG.exception("the handler of %s failed", message.topic)
            self._respond_error(message, PenstockError(f"The service failed: {type(error).__name__}"))

    def _respond_error(self, message: Message, error: PenstockError) -> None:
        self._connection.write(self._core.respond_error(message, error, iso_time(now_ms(SystemClock()))))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
