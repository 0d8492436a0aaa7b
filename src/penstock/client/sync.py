"""The blocking client. It runs the asyncio client in an event loop in a thread of its own; its methods block until the
asyncio call is done."""

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
"""The number of payloads taken from the caller's iterable at a time. They are taken in the caller's thread, since the
iterable may be slow, or use this client."""


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
    """Connect to a broker and return the client: `with penstock.connect() as client: ...`. The parameters are those of
    `penstock.aio.connect`. Raises `ServiceUnavailable` or `Timeout` if no broker answers."""
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
    """A resource that is closed by `close`, or at the end of its `with` block."""

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
    """A topic that this client serves. Use it with `with`, or call `close` to stop serving."""


class Subscription(_ClosedOnExit):
    """Messages of one pattern, in order: iterate over it, or call `get`. Use it with `with`, which unsubscribes at the
    end."""

    _inner: AioSubscription

    def __init__(self, loop: LoopThread, inner: AioSubscription) -> None:
        super().__init__(loop, inner)

    @property
    def pattern(self) -> str:
        """The topic or pattern of the subscription."""
        return str(self._inner.pattern)

    def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if the subscription was closed. Raises `TimeoutError` after `timeout` seconds,
        or the error that ended the subscription."""
        return self._loop.run(self._inner.get(timeout))

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message


class Sent:
    """One or several messages on their way to the broker. `flush` of the producer raises a failure too."""

    def __init__(self, loop: LoopThread, inner: AioSent) -> None:
        self._loop = loop
        self._inner = inner

    def result(self, timeout: float | None = None) -> Any:
        """Wait until every message is on disk; return the receipt, or the list of receipts. Raises the error of a
        message that was not stored, or `TimeoutError` after `timeout` seconds."""
        return self._loop.run(_await(self._inner), timeout)

    def stored(self, timeout: float | None = None) -> None:
        """Wait until every message is on disk. Raises as `result` does, but builds no receipts, which is faster."""
        self._loop.run(self._inner.stored(), timeout)

    def outcomes(self, timeout: float | None = None) -> list[Receipt | PenstockError]:
        """Wait for the outcome of each message and return them in order: its receipt, or the error for which it was not
        stored. Raises only `TimeoutError`."""
        return self._loop.run(self._inner.outcomes(), timeout)


class Producer(_ClosedOnExit, Generic[V]):
    """A producer for one topic. It sends messages in blocks; each is stored once. Use it with `with`, which flushes at
    the end and raises the first failure."""

    _inner: AioProducer[V]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    @property
    def producer_id(self) -> int:
        """The number that the broker gave to this producer."""
        return self._inner.producer_id

    @property
    def last_request_id(self) -> int:
        """The highest request id of this producer that the broker knew when it registered."""
        return self._inner.last_request_id

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._inner.partitions

    @property
    def window(self) -> int:
        """The number of its latest messages that the broker recognises as duplicates if they are sent again."""
        return self._inner.window

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that the topic accepts, in bytes."""
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
        """Send a message. Waits only while too many bytes are unconfirmed: call `result` to wait until the message is
        on disk.

        Raises `SchemaRejected` for a value that does not fit the producer's schema, `PayloadTooLarge`, and the error
        that ended the producer.
        """
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
        """Send many messages with the same type and attributes, in order. This is the fastest way to send Python
        objects. `keys` has one key, or None, for each value.

        Raises `SchemaRejected`, `PayloadTooLarge` or `InvalidRequest` for an invalid value or key: then no message is
        sent.
        """
        work = self._inner.send_many(values, keys=keys, type=type, attributes=attributes, schema=schema)
        return Sent(self._loop, self._loop.run(work))

    def send_arrow(self, batch: pa.RecordBatch, *, numbered: bool = False) -> Sent:
        """Send the rows of a batch with a `value` column. The other columns, and `numbered`, are those of `send_arrow`
        of the producer in `penstock.aio`."""
        return Sent(self._loop, self._loop.run(self._inner.send_arrow(batch, numbered=numbered)))

    def flush(self) -> None:
        """Wait until every message so far is on disk. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())


class Consumer(_ClosedOnExit, Generic[V]):
    """A consumer of a durable subscription, or a reader: iterate over it, and acknowledge messages. Use it with `with`,
    which closes it at the end; the subscription stays."""

    _inner: AioConsumer[V]

    def __init__(self, loop: LoopThread, inner: AioConsumer[V]) -> None:
        super().__init__(loop, inner)
        self._current = inner.handed_over
        self._opened: Batch[V] | None = None

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
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
        """The number of messages that could not be delivered since this consumer was created: they are damaged, or
        retention dropped them."""
        return self._inner.lost

    @property
    def gaps(self) -> list[Gap]:
        """The gaps in which the messages counted by `lost` were, the oldest first; only the last 1,000."""
        return list(self._inner.gaps.copy())

    def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """Return the next messages of one partition that arrived together; None if the consumer was closed.

        If `receive` has taken some messages of a batch, return the rest of that batch. Raises `TimeoutError` after
        `timeout` seconds without a message, or the error that ended the subscription.
        """
        left = len(self._current)
        if left and self._opened is not None:
            self._current.clear()
            return self._opened.last(left)
        return self._loop.run(self._inner.receive_batch(timeout))

    def receive_arrow(
        self, timeout: float | None = None, columns: Iterable[str] | None = None
    ) -> pa.RecordBatch | None:
        """Return the next batch as a `pyarrow.RecordBatch`, which can be passed to `ack`; None if the consumer was
        closed. Raises as `receive_batch` does."""
        batch = self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """Return the next message; None if the consumer was closed. Raises `TimeoutError` after `timeout` seconds
        without a message, or the error that ended the subscription."""
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
        """Acknowledge a message or a batch, so that it is not delivered again. Returns at once; call `flush` to wait
        until acknowledgements are durable."""
        from penstock.client.consume.messages import offsets_of

        self._loop.call(self._inner.ack_offsets, *offsets_of(done))

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Acknowledge this message and every earlier one of its partition. Only for exclusive and failover
        subscriptions."""
        self._loop.call(self._inner.ack_offsets_through, message.partition, message.offset)

    def nack(
        self,
        failed: StreamMessage | Batch | pa.RecordBatch,
        *,
        delay: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Report that processing a message or a batch failed, so that the broker delivers it again.

        It does so after `delay` seconds, or by default after the subscription's backoff. After too many failures the
        message becomes a dead letter with this `reason`.
        """
        self._loop.run(self._inner.nack(failed, delay=delay, reason=reason))

    def flush(self) -> None:
        """Wait until every acknowledgement so far is durable. Raises `NotOwner` if some came too late: their messages
        are delivered again."""
        self._loop.run(self._inner.flush())

    def seek(self, position: Start, *, partition: int | None = None) -> None:
        """Move the subscription, or one partition of it, to a position: `earliest`, `latest`, an offset, a time (a
        `datetime`, or ISO 8601) or a message id. Messages that have arrived and were not taken are dropped."""
        self._loop.run(self._inner.seek(position, partition=partition))

    def pause(self) -> None:
        """Stop delivery to every consumer of the subscription until `resume` is called."""
        self._loop.run(self._inner.pause())

    def resume(self) -> None:
        """Resume delivery to all consumers of the subscription."""
        self._loop.run(self._inner.resume())


class Client:
    """A client of a broker, created by `penstock.connect`. Its connection is reopened when it breaks; any thread may
    use it."""

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
        """True if the connection to the broker is open now."""
        return self._inner.connected

    def close(self) -> None:
        """Let request handlers finish, for up to two seconds, send written bytes, and close the connection."""
        if self._open:
            self._open = False
            self._loop.run(self._inner.close())
            self._loop.stop()

    def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> Receipt | None:
        """Publish a message. Return its receipt when it is on disk; for a live topic, return None when the broker has
        passed it on to subscribers.

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
        """Create a producer for a durable topic. The options are those of `AsyncClient.producer`."""
        return Producer(self._loop, self._loop.run(_await_call(lambda: self._inner.producer(topic, **options))))

    @overload
    def consumer(
        self, topic: str, subscription: str | None = None, *, schema: type[V], **options: Any
    ) -> Consumer[V]: ...

    @overload
    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]: ...

    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]:
        """Create a consumer of a durable subscription, or without `subscription` a reader. The options are those of
        `AsyncClient.consumer`."""
        return Consumer(
            self._loop, self._loop.run(_await_call(lambda: self._inner.consumer(topic, subscription, **options)))
        )

    def publish_many(self, topic: str, payloads: Iterable[Payload], *, version: str = "1.0.0") -> int:
        """Publish messages in order, many in flight at a time; return their number once all are confirmed. Stops at the
        first failure and raises it; `confirmed` in its `details` is the number confirmed before it."""
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
        """Send a request and return the response of the service. `timeout` is in seconds.

        Raises the error with which the service responded, `NoRouteFound` if there is no service, or `Timeout`.
        """
        return self._loop.run(self._inner.request(topic, payload, version=version, timeout=timeout))

    def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to a system topic and return its answer, such as `ask("system.topic.describe", {"topic":
        "orders"})`. Raises the error in the answer."""
        return self._loop.run(self._inner.ask(topic, facts))

    def topics(self, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        """Iterate over topics, of one namespace or of all, in the order of their names. Each is a dict as
        `system.topic.catalog` describes it."""
        fields = {} if namespace is None else {"namespace": namespace}
        page: dict[str, Any] = {"truncated": True}
        while page.get("truncated"):
            page = self.ask("system.topic.catalog", fields)
            yield from page["topics"]
            if not page["topics"]:
                return
            fields["after"] = page["topics"][-1]["topic"]

    def register(self, name: str, description: str = "") -> None:
        """Register this client as a service, now and on every new connection."""
        self._loop.run(self._inner.register(name, description))

    def ping(self) -> float:
        """Return the time in seconds of a round trip to the broker."""
        return self._loop.run(self._inner.ping())

    def subscribe(self, pattern: str, callback: Callable[[Message], object] | None = None) -> Subscription:
        """Subscribe to messages of a topic or a pattern that are published from now on. `callback` is called for each
        of them, in a thread of the client; without it, iterate."""
        called = None if callback is None else _in_thread(self._loop, callback)
        return Subscription(self._loop, self._loop.run(_await(self._inner.subscribe(pattern, called))))

    def respond(self, pattern: str, handler: Callable[[Message], Payload], *, priority: int = 0) -> Serving:
        """Serve requests for a topic or a pattern: the result of `handler` is the response. Each request runs in a
        thread."""
        pending = self._inner.respond(pattern, _in_thread(self._loop, handler), priority=priority)
        return Serving(self._loop, self._loop.run(_await(pending)))


async def _await_call(make: Callable[[], Awaitable[_T]]) -> _T:
    """Call a function in the event loop and return the awaited result."""
    return await make()


async def _await(pending: Awaitable[_T]) -> _T:
    return await pending


def _in_thread(loop: LoopThread, function: Callable[[Message], _T]) -> Callable[[Message], Coroutine[Any, Any, _T]]:
    """Wrap a function as a coroutine function that runs it in a thread of the pool. There it may block, and call this
    client, without blocking the loop."""

    async def called(message: Message) -> _T:
        return await asyncio.wrap_future(loop.workers.submit(function, message))

    return called
