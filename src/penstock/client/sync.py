"""The same client without asyncio: its event loop runs in a thread of its own, and every call waits for it."""

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
"""Payloads taken from the caller at a time: they are taken in its own thread, which may be slow or use this client."""


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
    """As `penstock.aio.connect`, connected on return: `with penstock.connect() as client: ...`."""
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
    """Something that lasts until it is closed, or left."""

    def __init__(self, loop: LoopThread, inner: _AsyncCloseable) -> None:
        self._loop = loop
        self._inner = inner

    def close(self) -> None:
        with suppress(ServiceUnavailable):  # the client is closed: so is this
            self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class Serving(_ClosedOnExit):
    """A topic being served. Leave it to stop."""


class Subscription(_ClosedOnExit):
    """Messages of one pattern, in order: iterate over it, or `get` one. Leave it to end it."""

    _inner: AioSubscription

    def __init__(self, loop: LoopThread, inner: AioSubscription) -> None:
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


class Sent:
    """A message, or several, on the way. Not asking is fine: `flush` tells."""

    def __init__(self, loop: LoopThread, inner: AioSent) -> None:
        self._loop = loop
        self._inner = inner

    def result(self, timeout: float | None = None) -> Any:
        """The receipt, or the list of them, once all is on disk. Raises why it is not, or `TimeoutError`."""
        return self._loop.run(_await(self._inner), timeout)

    def stored(self, timeout: float | None = None) -> None:
        """Until all is on disk, as `result`, without the receipts."""
        self._loop.run(self._inner.stored(), timeout)

    def outcomes(self, timeout: float | None = None) -> list[Receipt | PenstockError]:
        """What became of each message: its receipt, or the error that kept it from being stored."""
        return self._loop.run(self._inner.outcomes(), timeout)


class Producer(_ClosedOnExit, Generic[V]):
    """Messages for a topic, in blocks, each stored once. Leaving it flushes, and raises what failed."""

    _inner: AioProducer[V]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    @property
    def producer_id(self) -> int:
        return self._inner.producer_id

    @property
    def last_request_id(self) -> int:
        """The highest number that the broker knew of it when it came."""
        return self._inner.last_request_id

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return self._inner.partitions

    @property
    def window(self) -> int:
        """How many of its last messages the broker recognises when they are sent again."""
        return self._inner.window

    @property
    def payload_bytes_max(self) -> int:
        return self._inner.payload_bytes_max

    def send(
        self,
        value: V,
        *,
        key: bytes | str | None = None,
        type: str | None = None,  # noqa: A002 - the word of the trade
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
    ) -> Sent:
        """Take a message; returns when there is room for more. Raises `SchemaRejected` for what does not fit."""
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
        """Take many messages of one kind, in order; the quickest way from Python objects. `keys`: one for each."""
        work = self._inner.send_many(values, keys=keys, type=type, attributes=attributes, schema=schema)
        return Sent(self._loop, self._loop.run(work))

    def send_arrow(self, batch: pa.RecordBatch, *, numbered: bool = False) -> Sent:
        """Take the rows of a batch with a `value` column; `numbered` as for the producer of `penstock.aio`."""
        return Sent(self._loop, self._loop.run(self._inner.send_arrow(batch, numbered=numbered)))

    def flush(self) -> None:
        """Until everything is on disk. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())


class Consumer(_ClosedOnExit, Generic[V]):
    """Messages of a durable subscription, or of a reader: iterate, and acknowledge what is done."""

    _inner: AioConsumer[V]

    def __init__(self, loop: LoopThread, inner: AioConsumer[V]) -> None:
        super().__init__(loop, inner)
        self._current = inner.handed_over
        self._opened: Batch[V] | None = None

    @property
    def subscription(self) -> str:
        return self._inner.subscription

    @property
    def created(self) -> bool:
        """Whether the subscription came to be with this consumer: one that was there goes on where it was."""
        return self._inner.created

    @property
    def partitions(self) -> int:
        """How many the topic has."""
        return self._inner.partitions

    @property
    def lost(self) -> int:
        """Messages that cannot be delivered, since this consumer came: they are damaged, or retention dropped them."""
        return self._inner.lost

    @property
    def gaps(self) -> list[Gap]:
        """Where those are, the last ones of them."""
        return list(self._inner.gaps.copy())

    def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """What arrived together, or is left of it; None if the subscription is over. Raises `TimeoutError`."""
        left = len(self._current)
        if left and self._opened is not None:
            self._current.clear()
            return self._opened.last(left)
        return self._loop.run(self._inner.receive_batch(timeout))

    def receive_arrow(
        self, timeout: float | None = None, columns: Iterable[str] | None = None
    ) -> pa.RecordBatch | None:
        """The same as a `pyarrow.RecordBatch`, which can be acknowledged as it is."""
        batch = self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """The next message; None if the subscription is over. Raises `TimeoutError`."""
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
        """Done with: it is not delivered again. `flush` waits until that is durable, and raises if it is not."""
        from penstock.client.consume.messages import offsets_of

        self._loop.call(self._inner.ack_offsets, *offsets_of(done))

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Everything of its partition up to and with this one; exclusive and failover only."""
        self._loop.call(self._inner.ack_offsets_through, message.partition, message.offset)

    def nack(
        self,
        failed: StreamMessage | Batch | pa.RecordBatch,
        *,
        delay: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Not done: deliver it again, after the usual pause or this one; too often, and it is a dead letter."""
        self._loop.run(self._inner.nack(failed, delay=delay, reason=reason))

    def flush(self) -> None:
        """Until every acknowledgement is durable."""
        self._loop.run(self._inner.flush())

    def seek(self, position: Start, *, partition: int | None = None) -> None:
        """Go on from `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id."""
        self._loop.run(self._inner.seek(position, partition=partition))

    def pause(self) -> None:
        """Have nothing more delivered, to any consumer, until it is resumed."""
        self._loop.run(self._inner.pause())

    def resume(self) -> None:
        self._loop.run(self._inner.resume())


class Client:
    """One connection to a broker, made again when it breaks. Made by `penstock.connect`; any thread may use it."""

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
        return self._inner.connected

    def close(self) -> None:
        """Send what was written, and end."""
        if self._open:
            self._open = False
            self._loop.run(self._inner.close())
            self._loop.stop()

    def publish(self, topic: str, payload: Payload = b"", *, version: str = "1.0.0") -> Receipt | None:
        """Returns when the message is on disk, and where; or, for a live topic, when it has been passed on: None then.

        Raises `NoRouteFound` if the topic is live and nobody would have received it.
        """
        return self._loop.run(self._inner.publish(topic, payload, version=version))

    @overload
    def producer(self, topic: str, *, schema: None = None, **options: Any) -> Producer[Payload]: ...

    @overload
    def producer(self, topic: str, *, schema: type[V], **options: Any) -> Producer[V]: ...

    @overload
    def producer(self, topic: str, **options: Any) -> Producer[Any]: ...

    def producer(self, topic: str, **options: Any) -> Producer[Any]:
        """As `AsyncClient.producer`."""
        return Producer(self._loop, self._loop.run(_await_call(lambda: self._inner.producer(topic, **options))))

    @overload
    def consumer(
        self, topic: str, subscription: str | None = None, *, schema: type[V], **options: Any
    ) -> Consumer[V]: ...

    @overload
    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]: ...

    def consumer(self, topic: str, subscription: str | None = None, **options: Any) -> Consumer[Any]:
        """As `AsyncClient.consumer`."""
        return Consumer(
            self._loop, self._loop.run(_await_call(lambda: self._inner.consumer(topic, subscription, **options)))
        )

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

    def ask(self, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a system topic answers: `ask("system.topic.describe", {"topic": "orders"})`. Raises its error."""
        return self._loop.run(self._inner.ask(topic, facts))

    def topics(self, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        """The topics there are, in the order of their names, as `system.topic.catalog` describes them."""
        wanted = {} if namespace is None else {"namespace": namespace}
        found: dict[str, Any] = {"truncated": True}
        while found.get("truncated"):
            found = self.ask("system.topic.catalog", wanted)
            yield from found["topics"]
            if not found["topics"]:
                return
            wanted["after"] = found["topics"][-1]["topic"]

    def register(self, name: str, description: str = "") -> None:
        """Be listed as a service. Done again on every new connection."""
        self._loop.run(self._inner.register(name, description))

    def ping(self) -> float:
        """Seconds to the broker and back."""
        return self._loop.run(self._inner.ping())

    def subscribe(self, pattern: str, callback: Callable[[Message], object] | None = None) -> Subscription:
        """Live messages of a topic or a pattern, from now on. A callback is called in the client's own thread."""
        called = None if callback is None else _in_thread(self._loop, callback)
        return Subscription(self._loop, self._loop.run(_await(self._inner.subscribe(pattern, called))))

    def respond(self, pattern: str, handler: Callable[[Message], Payload], *, priority: int = 0) -> Serving:
        """Serve a topic, each request in a thread: what the handler returns is the answer."""
        pending = self._inner.respond(pattern, _in_thread(self._loop, handler), priority=priority)
        return Serving(self._loop, self._loop.run(_await(pending)))


async def _await_call(make: Callable[[], Awaitable[_T]]) -> _T:
    """What is made in the event loop itself."""
    return await make()


async def _await(pending: Awaitable[_T]) -> _T:
    return await pending


def _in_thread(loop: LoopThread, function: Callable[[Message], _T]) -> Callable[[Message], Coroutine[Any, Any, _T]]:
    """It may wait, and call this very client, without holding up the event loop."""

    async def called(message: Message) -> _T:
        return await asyncio.wrap_future(loop.workers.submit(function, message))

    return called
