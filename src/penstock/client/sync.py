"""The blocking client: the asyncio client in an event loop of its own thread; every call waits for it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, overload

from penstock.client import aio
from penstock.client.consume.positions import Start
from penstock.client.live import Subscription as AioSubscription
from penstock.client.loop_thread import LoopThread
from penstock.client.produce.receipts import Receipt
from penstock.client.serde.values import V
from penstock.client.wire.credentials import Token
from penstock.client.wire.protocol import PAYLOAD_BYTES_MAX, Message, Payload
from penstock.core.errors import PenstockError, ServiceUnavailable

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.consume.consumer import Batch as Batch
    from penstock.client.consume.consumer import Consumer as AioConsumer
    from penstock.client.consume.consumer import Gap as Gap
    from penstock.client.consume.consumer import StreamMessage as StreamMessage
    from penstock.client.produce.producer import Producer as AioProducer
    from penstock.client.produce.producer import Sent as AioSent
    from penstock.record.message import SchemaRef

_T = TypeVar("_T")
_AT_ONCE: Final = 2000
"""Payloads taken from the caller's iterable at a time, in the caller's thread: it may be slow, or use this client."""


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
) -> Client:
    """Connect: as `penstock.aio.connect`, and connected on return: `with penstock.connect() as client: ...`."""
    loop = LoopThread()

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
            token=token,
            token_file=token_file,
        )

    try:
        return Client(loop, loop.run(start()))
    except BaseException:
        loop.stop()
        raise


class _AsyncCloseable(Protocol):
    async def close(self) -> None: ...


class _ClosedOnExit:
    """A resource that is closed by `close`, or on leaving its `with`."""

    def __init__(self, loop: LoopThread, inner: _AsyncCloseable) -> None:
        self._loop = loop
        self._inner = inner

    def close(self) -> None:
        with suppress(ServiceUnavailable):  # the client is closed, and this with it
            self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class Serving(_ClosedOnExit):
    """A topic being served. Leaving it ends it."""


class Subscription(_ClosedOnExit):
    """Messages of one pattern, in order: iterate over it, or `get` one. Leaving it ends it."""

    _inner: AioSubscription

    def __init__(self, loop: LoopThread, inner: AioSubscription) -> None:
        super().__init__(loop, inner)

    @property
    def pattern(self) -> str:
        """The topic or pattern that was subscribed to."""
        return str(self._inner.pattern)

    def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if the subscription is over. Raises `TimeoutError`."""
        return self._loop.run(self._inner.get(timeout))

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message


class Sent:
    """Messages on their way: one or several. A failure that is not looked at here is raised by `flush`."""

    def __init__(self, loop: LoopThread, inner: AioSent) -> None:
        self._loop = loop
        self._inner = inner

    def result(self, timeout: float | None = None) -> Any:
        """Wait until every message is on disk; return the receipt, or the list of them. Raises the failure, or
        `TimeoutError`."""
        return self._loop.run(_await(self._inner), timeout)

    def stored(self, timeout: float | None = None) -> None:
        """Wait as `result` does, without making receipts."""
        self._loop.run(self._inner.stored(), timeout)

    def outcomes(self, timeout: float | None = None) -> list[Receipt | PenstockError]:
        """Return the outcome of each message: its receipt, or the error that kept it from being stored."""
        return self._loop.run(self._inner.outcomes(), timeout)


class Producer(_ClosedOnExit, Generic[V]):
    """A producer: messages for a topic, in blocks, each stored once. Leaving it flushes, and raises the
    first failure."""

    _inner: AioProducer[V]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    @property
    def producer_id(self) -> int:
        """The number that the broker gave this producer."""
        return self._inner.producer_id

    @property
    def last_request_id(self) -> int:
        """The highest request id that the broker knew of this producer when it registered."""
        return self._inner.last_request_id

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._inner.partitions

    @property
    def window(self) -> int:
        """The number of its last messages that the broker recognises when they are sent again."""
        return self._inner.window

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that the broker takes."""
        return self._inner.payload_bytes_max

    def send(
        self,
        value: V,
        *,
        key: bytes | str | None = None,
        type: str | None = None,  # noqa: A002 - the name in the protocol
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
    ) -> Sent:
        """Send a message; returns when there is room for more. Raises `SchemaRejected` for a value that
        does not fit."""
        if not self._inner.has_room:
            self._loop.run(self._inner.wait_for_room())
        return Sent(self._loop, self._inner.put(value, key=key, type=type, attributes=attributes, schema=schema))

    def send_many(
        self,
        values: Sequence[V],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        type: str | None = None,  # noqa: A002
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
    ) -> Sent:
        """Send many messages of one type, in order; the fastest way from Python objects. `keys`: one for each value."""
        work = self._inner.send_many(values, keys=keys, type=type, attributes=attributes, schema=schema)
        return Sent(self._loop, self._loop.run(work))

    def send_arrow(self, batch: pa.RecordBatch, *, numbered: bool = False) -> Sent:
        """Send the rows of a batch with a `value` column; `numbered` as for the producer of `penstock.aio`."""
        return Sent(self._loop, self._loop.run(self._inner.send_arrow(batch, numbered=numbered)))

    def flush(self) -> None:
        """Wait until every message is on disk. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())


class Consumer(_ClosedOnExit, Generic[V]):
    """A consumer of a durable subscription, or a reader: iterate, and acknowledge messages."""

    _inner: AioConsumer[V]

    def __init__(self, loop: LoopThread, inner: AioConsumer[V]) -> None:
        super().__init__(loop, inner)
        self._current = inner.handed_over
        self._opened: Batch[V] | None = None

    @property
    def subscription(self) -> str:
        """The name of the durable subscription."""
        return self._inner.subscription

    @property
    def created(self) -> bool:
        """True if this consumer created the subscription; False if it goes on from the cursor of an existing one."""
        return self._inner.created

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._inner.partitions

    @property
    def lost(self) -> int:
        """The number of messages that cannot be delivered, since this consumer began: damaged, or dropped
        by retention."""
        return self._inner.lost

    @property
    def gaps(self) -> list[Gap]:
        """The last gaps that make up `lost`."""
        return list(self._inner.gaps.copy())

    def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """Return messages that arrived together, or the rest of them; None if the subscription is over. Raises
        `TimeoutError`."""
        left = len(self._current)
        if left and self._opened is not None:
            self._current.clear()
            return self._opened.last(left)
        return self._loop.run(self._inner.receive_batch(timeout))

    def receive_arrow(
        self, timeout: float | None = None, columns: Iterable[str] | None = None
    ) -> pa.RecordBatch | None:
        """Return a batch as a `pyarrow.RecordBatch`, which can be acknowledged as it is."""
        batch = self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """Return the next message; None if the subscription is over. Raises `TimeoutError`."""
        while True:
            with suppress(IndexError):  # the client's own thread may empty it
                return self._current.popleft()
            batch = self.receive_batch(timeout)
            if batch is None:
                return None
            self._opened = batch
            self._current.extend(batch.messages)

    def __iter__(self) -> Iterator[StreamMessage[V]]:
        while (message := self.receive()) is not None:
            yield message

    def ack(self, done: StreamMessage | Batch | pa.RecordBatch) -> None:
        """Acknowledge: it is not delivered again. `flush` waits until that is durable, and raises if it is not."""
        from penstock.client.consume.messages import offsets_of

        self._loop.call(self._inner.ack_offsets, *offsets_of(done))

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Acknowledge everything of its partition up to and including this message; exclusive and failover only."""
        self._loop.call(self._inner.ack_offsets_through, message.partition, message.offset)

    def nack(
        self,
        failed: StreamMessage | Batch | pa.RecordBatch,
        *,
        delay: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Have it delivered again, after the usual backoff or `delay`; after too many failures it becomes a dead
        letter."""
        self._loop.run(self._inner.nack(failed, delay=delay, reason=reason))

    def flush(self) -> None:
        """Wait until every acknowledgement is durable."""
        self._loop.run(self._inner.flush())

    def seek(self, position: Start, *, partition: int | None = None) -> None:
        """Move the subscription to `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a
        message id."""
        self._loop.run(self._inner.seek(position, partition=partition))

    def pause(self) -> None:
        """Stop delivery to every consumer of the subscription, until it is resumed."""
        self._loop.run(self._inner.pause())

    def resume(self) -> None:
        """Resume delivery to all consumers of the subscription."""
        self._loop.run(self._inner.resume())


class Client:
    """A connection to a broker, reopened when it breaks. Created by `penstock.connect`; any thread may use it."""

    def __init__(self, loop: LoopThread, inner: aio.AsyncClient) -> None:
        self._loop = loop
        self._inner = inner
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        """Return whether the connection to the broker is open now."""
        return self._inner.connected

    def close(self) -> None:
        """Send written bytes and end."""
        if self._open:
            self._open = False
            self._loop.run(self._inner.close())
            self._loop.stop()

    def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> Receipt | None:
        """Publish a message: returns when it is on disk, with its receipt; None for a live topic, when the broker has
        passed it on.

        Raises `NoRouteFound` if the topic is live and has no subscriber.
        """
        return self._loop.run(self._inner.publish(topic, payload, version=version))

    @overload
    def producer(self, topic: str, *, schema: None = None, **options: Any) -> Producer[Payload]: ...

    @overload
    def producer(self, topic: str, *, schema: type[V], **options: Any) -> Producer[V]: ...

    @overload
    def producer(self, topic: str, **options: Any) -> Producer[Any]: ...

    def producer(self, topic: str, **options: Any) -> Producer[Any]:
        """Create a producer, as `AsyncClient.producer` does."""
        return Producer(self._loop, self._loop.run(_await_call(lambda: self._inner.producer(topic, **options))))

    @overload
    def consumer(
        self, topic: str, subscription: str | None = None, *, schema: type[V], **options: Any
    ) -> Consumer[V]: ...

    @overload
    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]: ...

    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]:
        """Create a consumer, as `AsyncClient.consumer` does."""
        return Consumer(
            self._loop, self._loop.run(_await_call(lambda: self._inner.consumer(topic, subscription, **options)))
        )

    def publish_many(self, topic: str, payloads: Iterable[Payload], *, version: str = "1.0.0") -> int:
        """Publish in order, many at a time; return the number of messages. Stops at the first failure and raises it."""
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
        """Send a request and return the response of the service. Raises its error, `NoRouteFound`, or `Timeout`."""
        return self._loop.run(self._inner.request(topic, payload, version=version, timeout=timeout))

    def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a system topic: `ask("system.topic.describe", {"topic": "orders"})`. Raises
        its error."""
        return self._loop.run(self._inner.ask(topic, facts))

    def topics(self, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        """Iterate over topics in the order of their names, as `system.topic.catalog` describes them."""
        fields = {} if namespace is None else {"namespace": namespace}
        page: dict[str, Any] = {"truncated": True}
        while page.get("truncated"):
            page = self.ask("system.topic.catalog", fields)
            yield from page["topics"]
            if not page["topics"]:
                return
            fields["after"] = page["topics"][-1]["topic"]

    def register(self, name: str, description: str = "") -> None:
        """Register as a service, now and on every new connection."""
        self._loop.run(self._inner.register(name, description))

    def ping(self) -> float:
        """Return the seconds to the broker and back."""
        return self._loop.run(self._inner.ping())

    def subscribe(self, pattern: str, callback: Callable[[Message], object] | None = None) -> Subscription:
        """Subscribe to live messages of a topic or a pattern, from now on. A callback runs in a thread of
        the client."""
        called = None if callback is None else _in_thread(self._loop, callback)
        return Subscription(self._loop, self._loop.run(_await(self._inner.subscribe(pattern, called))))

    def respond(self, pattern: str, handler: Callable[[Message], Payload], *, priority: int = 0) -> Serving:
        """Serve a topic, each request in a thread: the result of the handler is the response."""
        pending = self._inner.respond(pattern, _in_thread(self._loop, handler), priority=priority)
        return Serving(self._loop, self._loop.run(_await(pending)))


async def _await_call(make: Callable[[], Awaitable[_T]]) -> _T:
    """Call a function in the event loop and await its result."""
    return await make()


async def _await(pending: Awaitable[_T]) -> _T:
    return await pending


def _in_thread(loop: LoopThread, function: Callable[[Message], _T]) -> Callable[[Message], Coroutine[Any, Any, _T]]:
    """Wrap a function so that it runs in a thread: it may wait, and call this very client, without blocking
    the loop."""

    async def called(message: Message) -> _T:
        return await asyncio.wrap_future(loop.workers.submit(function, message))

    return called
