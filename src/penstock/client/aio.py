"""The asyncio client. Every call either returns after the broker has confirmed it, or raises."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, overload

from penstock.client.consume.positions import Start, position_field
from penstock.client.endpoints import Endpoints
from penstock.client.live import Pending, Serving, Subscription
from penstock.client.produce.receipts import Receipt, receipt_of
from penstock.client.serde.schemas import Serde, Source
from penstock.client.serde.values import V
from penstock.client.wire.address import Address, parse_url, tls_context
from penstock.client.wire.connection import Connection
from penstock.client.wire.credentials import Secret, Token, find_secret
from penstock.client.wire.protocol import (
    PAYLOAD_BYTES_MAX,
    ClientProtocol,
    ConnectionLost,
    Event,
    Message,
    MessageReceived,
    NoticeReceived,
    Payload,
    RecordsReceived,
    RequestReceived,
    SubscriptionSpec,
    milliseconds,
)
from penstock.core.clock import SystemClock, iso_time, now_ms
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, Timeout
from penstock.core.limits import MIB
from penstock.core.names import TopicPattern

if TYPE_CHECKING:
    from penstock.client.consume.consumer import Consumer
    from penstock.client.produce.producer import Producer

_LOG: Final = logging.getLogger(__name__)
_HANDLERS_MAX: Final = 1000
"""The most requests that are handled at a time. Further ones are refused with `ServiceUnavailable`."""
_GOODBYE_SECONDS: Final = 2.0
"""The time in seconds that request handlers have to finish when the client is closed."""
_REQUEST_GRACE_SECONDS: Final = 2.0
"""The time in seconds to wait beyond the request's timeout: the broker itself reports a request that has timed out."""
WINDOW_MESSAGES: Final = 50_000
WINDOW_BYTES: Final = 2 * MIB
"""The default limits of messages and bytes in flight at a consumer. They keep a fast consumer busy, and are half of
what one connection may have."""
_WINDOW: Final = 512
"""The most messages of `publish_many` that wait for confirmation at a time."""

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
    token: Token | None = None,
    token_file: Path | str | None = None,
) -> AsyncClient:
    """Create a client of the broker at `url` (`tcp://host:port` or `tls://host:port`). Use it with `async with`, or
    `await` it; only then it connects.

    `name` registers the client as a service. `timeout`, in seconds, limits connecting, every call but `request`, and
    the time that a call waits for a reconnect. `payload_bytes_max` is the broker's limit: the broker closes the
    connection of a client that sends more. `token` is a key or a token, or a function that returns one for each
    connection; `token_file` is a file with one. Without either, PENSTOCK_TOKEN and PENSTOCK_TOKEN_FILE are used. Raises
    `InvalidRequest`.
    """
    address = parse_url(url)
    if not address.secure and any(option is not None for option in (tls, tls_ca, tls_cert, tls_key)):
        raise InvalidRequest(f"{address} does not speak TLS: use tls:// for it")
    if address.secure and tls is None:
        tls = tls_context(tls_ca, tls_cert, tls_key)
    service = None if name is None else (name, description or name)
    protocol, secret = ClientProtocol(payload_bytes_max), find_secret(token, token_file)
    return AsyncClient(address, protocol, tls=tls, secret=secret, service=service, timeout=timeout, reconnect=reconnect)


class AsyncClient:
    """A client of a broker, created by `connect`. Its connection is reopened when it breaks."""

    def __init__(
        self,
        address: Address,
        protocol: ClientProtocol,
        *,
        tls: ssl.SSLContext | None,
        secret: Secret | None = None,
        service: tuple[str, str] | None,
        timeout: float,
        reconnect: bool,
    ) -> None:
        self._protocol = protocol
        self._connection = Connection(
            address,
            self._protocol,
            tls=tls,
            secret=secret,
            timeout=timeout,
            reconnect=reconnect,
            on_event=self._handle,
            on_refused=self._subscription_refused,
            on_end=self._end_subscriptions,
        )
        self._endpoints = Endpoints(self._connection, self._protocol, self.ask)
        self._service = service
        self._started = False
        self._subscriptions: dict[TopicPattern, list[Subscription]] = {}
        self._handlers: dict[TopicPattern, Handler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answering: set[asyncio.Task[Any]] = set()
        self._subscribing = asyncio.Lock()

    # opening and closing

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
        """True if the connection to the broker is open now."""
        return self._connection.open

    async def close(self) -> None:
        """Let request handlers finish, for up to two seconds, send written bytes, and close the connection. Calls that
        still wait raise `ServiceUnavailable`; iterators end."""
        mine = asyncio.current_task()
        try:
            await self._endpoints.close_producers()
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
        self._endpoints.end(reason)

    # calls

    async def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> Receipt | None:
        """Publish a message. Return its receipt when it is on disk; for a live topic, return None when the broker has
        passed it on to subscribers.

        Raises `NoRouteFound` if the topic is live and has no subscriber.
        """
        return receipt_of(await self._connection.call(self._protocol.publish(topic, payload, version)))

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, version: str = "1.0.0") -> int:
        """Publish messages in order, many in flight at a time; return their number once all are confirmed.

        Stops at the first failure and raises it; `confirmed` in its `details` is the number of messages confirmed
        before it. Up to 511 messages after the failed one may have been published.
        """
        window: deque[asyncio.Future[bytes]] = deque()
        confirmed = 0
        try:
            for payload in payloads:
                if len(window) >= _WINDOW:
                    await self._connection.answer(window.popleft())
                    confirmed += 1
                window.append(await self._connection.send(self._protocol.publish(topic, payload, version)))
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
        """Send a request and return the response of the service. `timeout` is in seconds.

        Raises the error with which the service responded, `NoRouteFound` if there is no service, or `Timeout`.
        """
        timeout_ms = None if timeout is None else milliseconds(timeout)
        call = self._protocol.request(topic, payload, version, timeout_ms)
        return await self._connection.call(call, (timeout or self._connection.timeout) + _REQUEST_GRACE_SECONDS)

    async def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to a system topic and return its answer, such as `ask("system.topic.describe", {"topic":
        "orders"})`. Raises the error in the answer."""
        try:
            payload = json.dumps(dict(facts or {}), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{error.object!r} is not valid Unicode") from None
        answer: dict[str, Any] = json.loads(await self.request(topic, payload))
        return answer

    async def register(self, name: str, description: str = "") -> None:
        """Register this client as a service, now and on every new connection."""
        await self._connection.call(self._protocol.register(name, description or name))
        self._protocol.remember_service(name, description or name)

    async def ping(self) -> float:
        """Return the time in seconds of a round trip to the broker."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._connection.call(self._protocol.heartbeat())
        return loop.time() - began

    # subscriptions

    def subscribe(self, pattern: str, callback: Callback | None = None) -> Pending[Subscription]:
        """Subscribe to messages of a topic, or of a pattern (`+` is one level, `#` the rest), that are published from
        now on. Use it with `await`, `async with` or `async for`.

        `callback`, which may be a coroutine function, is called for one message after another. Without it, iterate.
        """
        return Pending(self._subscribe(pattern, callback))

    async def _subscribe(self, pattern: str, callback: Callback | None) -> Subscription:
        spec = SubscriptionSpec(TopicPattern.parse(pattern), "publish")
        subscription = Subscription(spec.pattern, leave=self._unsubscribe, room=self._pause_or_resume_reading)
        async with self._subscribing:
            listening = self._subscriptions.get(spec.pattern, [])
            if not listening:
                await self._subscribe_on_broker(spec)
            self._subscriptions[spec.pattern] = [*listening, subscription]
        if callback is not None:
            self._spawn(self._call_back(subscription, callback))
        return subscription

    def respond(self, pattern: str, handler: Handler, *, priority: int = 0) -> Pending[Serving]:
        """Serve requests for a topic or a pattern: the result of `handler` is the response. Use it with `await` or
        `async with`.

        If the handler raises a `PenstockError`, that is the response; of any other exception only the type is sent.
        """
        return Pending(self._respond_to(pattern, handler, priority))

    async def _respond_to(self, pattern: str, handler: Handler, priority: int) -> Serving:
        spec = SubscriptionSpec(TopicPattern.parse(pattern), "request", priority)
        async with self._subscribing:
            if spec.pattern in self._handlers:
                raise InvalidRequest(f"{pattern} is served already by this client")
            self._handlers[spec.pattern] = handler  # a request may arrive before the response to our subscribe
            try:
                await self._subscribe_on_broker(spec)
            except BaseException:
                del self._handlers[spec.pattern]
                raise

        async def leave() -> None:
            async with self._subscribing:
                if self._handlers.pop(spec.pattern, None) is not None:
                    await self._unsubscribe_on_broker(spec)

        return Serving(leave)

    async def _subscribe_on_broker(self, spec: SubscriptionSpec) -> None:
        """Subscribe at the broker. If the call fails, the broker may still have subscribed us, so an unsubscribe is
        sent too."""
        try:
            await self._connection.call(self._protocol.subscribe(spec))
        except BaseException:
            self._connection.write(self._protocol.unsubscribe(spec).data)
            raise

    async def _unsubscribe_on_broker(self, spec: SubscriptionSpec) -> None:
        call = self._protocol.unsubscribe(spec)
        if self.connected:
            with suppress(ServiceUnavailable, Timeout):  # a lost connection has no subscriptions
                await self._connection.call(call)

    async def _unsubscribe(self, subscription: Subscription) -> None:
        async with self._subscribing:
            listening = [
                other for other in self._subscriptions.get(subscription.pattern, ()) if other is not subscription
            ]
            if listening:
                self._subscriptions[subscription.pattern] = listening
            elif self._subscriptions.pop(subscription.pattern, None) is not None:
                await self._unsubscribe_on_broker(SubscriptionSpec(subscription.pattern, "publish"))
        self._pause_or_resume_reading()

    def _subscription_refused(self, spec: SubscriptionSpec, error: PenstockError) -> None:
        """End the local subscriptions of `spec`, which the broker has refused on a new connection."""
        self._protocol.forget(spec)
        self._endpoints.subscription_refused(spec, error)
        if spec.kind == "request":
            self._handlers.pop(spec.pattern, None)
            _LOG.error("%s is not served any more: %s", spec.pattern, error.message)
        for subscription in self._subscriptions.pop(spec.pattern, ()) if spec.kind == "publish" else ():
            subscription.end(error)

    # producers and consumers

    @overload
    def producer(self, topic: str, *, schema: None = None, **options: Any) -> Pending[Producer[Payload]]: ...

    @overload
    def producer(self, topic: str, *, schema: type[V], **options: Any) -> Pending[Producer[V]]: ...

    @overload
    def producer(self, topic: str, **options: Any) -> Pending[Producer[Any]]: ...

    def producer(
        self,
        topic: str,
        *,
        schema: Source | None = None,
        subject: str | None = None,
        register: bool = True,
        framing: str | None = None,
        **options: Any,
    ) -> Pending[Producer[Any]]:
        """Create a producer for a durable topic. It sends messages in blocks; each is stored once. Use it with `await`
        or `async with`.

        Options: `name` (with it, the same producer after a restart), `type` (of messages that are sent without one),
        `linger` (seconds for which messages gather), `batch_messages`, `batch_bytes`, `access` (`exclusive`, or
        `shared` for programs that number their messages together), `timeout` (seconds for which a block is sent again).

        With a `schema` it sends values instead of payloads. The schema is a type, an `AvroSchema`, `JsonSchema` or
        `ProtobufSchema`, `UseLatest` or `Pinned`. It is registered under `subject`, by default the topic's own; with
        `register=False` it must be registered already. `framing="confluent"` writes payloads that clients of other
        registries can read.
        """
        serde = Serde(source=schema, subject=subject, register=register, framing=framing)
        return Pending(self._endpoints.open_producer(topic, serde, options))

    @overload
    def consumer(
        self, topic: str, subscription: str | None = None, *, schema: type[V], **options: Any
    ) -> Pending[Consumer[V]]: ...

    @overload
    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Pending[Consumer[Any]]: ...

    def consumer(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        type: str | None = None,  # noqa: A002 - the name in the protocol
        start: Start = "latest",
        name: str | None = None,
        window: int = WINDOW_MESSAGES,
        window_bytes: int = WINDOW_BYTES,
        filter_types: Iterable[str] = (),
        filter_keys: Iterable[str] = (),
        schema: Source | None = None,
        subject: str | None = None,
        framing: str | None = None,
        **options: Any,
    ) -> Pending[Consumer[Any]]:
        """Create a consumer of a durable subscription, which is created at position `start` if it does not exist. Use
        it with `await` or `async with`.

        `start` is `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id. Without
        `subscription` it is a reader: it begins at `start`, and the broker keeps no cursor. `type` is `exclusive`,
        `failover`, `shared` or `key_shared`. `name` is the consumer's name: a later consumer of the same name takes
        over from this one. Options: `ack_timeout_ms`, `backoff_ms`, `backoff_ms_max`, `redeliveries`, `exhausted`.

        With a `schema`, values are converted to it, whichever schema they were written with; `value` raises for one
        that does not fit. `framing="confluent"` reads payloads that clients of other registries wrote; `"auto"` reads
        those and plain ones.
        """
        request: dict[str, Any] = {
            "from": position_field(start, "start"),
            "format": "records",
            "window": {"messages": window, "bytes": window_bytes},
            "consumer": name or str(uuid.uuid4()),
        } | options
        if subscription is not None:
            request["subscription"] = subscription
        if type is not None:
            request["type"] = type
        filters = {"type": list(filter_types), "key": list(filter_keys)}
        if any(filters.values()):
            request["filter"] = {key: globs for key, globs in filters.items() if globs}
        serde = Serde(source=schema, subject=subject, framing=framing)
        return Pending(self._endpoints.open_consumer(topic, subscription or "", serde, request))

    # events

    def _handle(self, event: Event) -> None:
        match event:
            case MessageReceived(message, patterns):
                self._deliver(message, patterns)
            case RequestReceived(message, pattern):
                self._serve(message, pattern)
            case RecordsReceived():
                self._endpoints.records_received(event)
            case NoticeReceived():
                self._endpoints.notice_received(event)
            case ConnectionLost():
                self._endpoints.connection_lost()

    def _deliver(self, message: Message, patterns: tuple[TopicPattern, ...]) -> None:
        for pattern in patterns:
            for subscription in self._subscriptions.get(pattern, ()):
                subscription.put(message)
                if subscription.full:
                    self._connection.hold_reading(hold=True)

    def _pause_or_resume_reading(self) -> None:
        """Stop reading from the connection while a subscription is full, and resume when none is."""
        full = any(subscription.full for listening in self._subscriptions.values() for subscription in listening)
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
            self._connection.write(self._protocol.respond(message, answer))
        except PenstockError as error:
            self._respond_error(message, error)
        except Exception as error:
            _LOG.exception("the handler of %s failed", message.topic)
            self._respond_error(message, PenstockError(f"The service failed: {type(error).__name__}"))

    def _respond_error(self, message: Message, error: PenstockError) -> None:
        self._connection.write(self._protocol.respond_error(message, error, iso_time(now_ms(SystemClock()))))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
