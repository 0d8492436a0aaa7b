"""The producer: it gathers messages into blocks and sends them. Each message is stored once, however often the
connection breaks.

Messages gather while blocks are in flight, so blocks grow with the load. An unconfirmed block is sent again, on the
next connection too, under the same request ids; by these the broker recognises duplicates.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from penstock.client.produce.batch_input import checked_keys, checked_payloads, numbered_errors
from penstock.client.produce.in_flight import BLOCKS_SENT, BlockSender, OutgoingBlock
from penstock.client.produce.in_flight import Sent as Sent
from penstock.client.serde.values import V
from penstock.client.wire.connection import Connection, error_copy
from penstock.client.wire.protocol import BLOCK_BYTES_MAX, ClientProtocol, as_bytes
from penstock.core.errors import InvalidRequest, NotOwner, PayloadTooLarge, PenstockError, ServiceUnavailable
from penstock.core.limits import KEY_BYTES_MAX
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef, checked_bytes, draft_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.serde.encoder import ValueEncoder

_LOG: Final = logging.getLogger(__name__)
BATCH_MESSAGES: Final = 2500
BATCH_BYTES: Final = 512 * 1024
"""The largest size of a block, in bytes, that one group commit takes without splitting it."""
_UNCONFIRMED_BYTES: Final = 8 * 1024 * 1024
"""The bytes of unconfirmed and gathered messages above which `send` waits."""
_RECORD_BYTES: Final = 100
"""The approximate size of a record in bytes, without payload, key and attributes."""

_Kind = tuple[str, "Mapping[str, str] | None", "SchemaRef | None"]
_Message = tuple[bytes, "bytes | None", str, "Mapping[str, str] | None", "SchemaRef | None"]


class Producer(Generic[V]):
    """A producer for one topic. Use it with `async with`, which flushes at the end and raises the first failure.

    With a `name` it is the same producer whenever it comes back, in another process too; only the one that registered
    last may write. Without a name it is a new producer. With an `encoder` it sends values; without one payloads, which
    are `bytes` or `str`.
    """

    def __init__(
        self,
        connection: Connection,
        protocol: ClientProtocol,
        topic: str,
        *,
        encoder: ValueEncoder | None = None,
        name: str | None = None,
        access: str = "exclusive",
        type: str = "",  # noqa: A002 - the name in the protocol
        linger: float = 0.0,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
        timeout: float = 60.0,
    ) -> None:
        TopicName.parse(topic)
        if not 1 <= batch_messages <= 100_000 or not 1 <= batch_bytes <= BLOCK_BYTES_MAX // 2:
            raise InvalidRequest(f"a batch has 1 to 100000 messages and 1 to {BLOCK_BYTES_MAX // 2} bytes")
        self.topic = topic
        self.name = name or ""
        self.producer_id = 0
        self._connection = connection
        self._protocol = protocol
        self._encoder = encoder
        self._access = access
        self._type = type
        self._linger = linger
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._loop = asyncio.get_running_loop()
        self._session = str(uuid.uuid4())
        self._next_request = 1
        self.last_request_id = 0
        """The highest request id of this producer that the broker knew when it registered: stored, or being stored."""

        self._payload_bytes_max = BLOCK_BYTES_MAX
        self._checked: _Kind | None = None
        self._kind_bytes = 0
        """The size in bytes of the type and the attributes of the last message."""

        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._gathering: list[_Message] = []
        self._gathered_bytes = 0
        self._open: OutgoingBlock | None = None
        self._unconfirmed_bytes = 0
        self._scheduled = False
        self._room = asyncio.Event()
        self._room.set()
        self._sender = BlockSender(
            connection,
            protocol,
            topic,
            timeout=timeout,
            register=self._register_again,
            gather=self._gather,
            resolved=self._block_resolved,
        )
        self._fatal: PenstockError | None = None
        self._pump: asyncio.Task[None] | None = None

    # opening and closing

    async def start(self) -> Self:
        """Register at the broker. From then on only this producer may write under its name; an earlier one is ended."""
        await self._register(resume=False)
        self._pump = asyncio.create_task(self._run())
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """End at once. Messages that are not confirmed fail for their senders, though the broker may have stored them:
        call `flush` first."""
        self._end(ServiceUnavailable("the producer is closed"))
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _register_again(self) -> None:
        await self._register(resume=True)

    async def _register(self, *, resume: bool) -> None:
        fields: dict[str, Any] = {"topic": self.topic, "access": self._access, "session": self._session}
        if self.name:
            fields["name"] = self.name
        elif self.producer_id:
            fields["producer_id"] = self.producer_id
        if resume:
            fields["resume"] = True
        payload = json.dumps(fields).encode()
        answer = json.loads(await self._connection.call(self._protocol.request("system.producer.register", payload)))
        self._sender.generation = self._connection.generation
        self._sender.partitions, self._sender.window = answer["partitions"], answer["window"]
        self.producer_id = answer["producer_id"]
        self._payload_bytes_max = answer["payload_bytes_max"]
        self._batch_messages = min(self._batch_messages, self._sender.window // BLOCKS_SENT)
        self._batch_bytes = min(self._batch_bytes, answer["block_bytes_max"] // 2)
        if not resume:
            self.last_request_id = answer["last_request_id"]
            self._next_request = self.last_request_id + 1

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        return self._sender.partitions

    @property
    def window(self) -> int:
        """The number of its latest messages that the broker recognises as duplicates if they are sent again."""
        return self._sender.window

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload that the topic accepts, in bytes."""
        return self._payload_bytes_max

    # sending

    async def send(
        self,
        value: V,
        *,
        key: bytes | str | None = None,
        type: str | None = None,  # noqa: A002
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
    ) -> Sent:
        """Send a message. Waits only while too many bytes are unconfirmed; the message is on disk when the result is
        awaited.

        Raises `SchemaRejected` for a value that does not fit the producer's schema, `PayloadTooLarge`, and the error
        that ended the producer.
        """
        if not self._room.is_set():
            await self._room.wait()
        return self.put(value, key=key, type=type, attributes=attributes, schema=schema)

    def put(
        self,
        value: V,
        *,
        key: bytes | str | None = None,
        type: str | None = None,  # noqa: A002
        attributes: Mapping[str, str] | None = None,
        schema: SchemaRef | None = None,
    ) -> Sent:
        """Add a message to the current block without waiting, from any thread. Raises as `send` does."""
        if self._encoder is not None:
            data, schema = self._encoder.encode(value), self._stamp(schema)
        else:
            data = value if isinstance(value, bytes) else as_bytes(value)  # type: ignore[arg-type]
        raw = key.encode() if isinstance(key, str) else key
        kind = (self._type if type is None else type, attributes, schema)
        self._check_message(data, raw, kind)
        with self._lock:
            self._check()
            block = self._open
            if block is None:
                block = self._open = OutgoingBlock(self._loop.create_future())
            self._gathering.append((data, raw, *kind))
            self._gathered_bytes += len(data) + _RECORD_BYTES + len(raw or b"") + self._kind_bytes
            index = len(self._gathering) - 1
            if index + 1 >= self._batch_messages or self._gathered_bytes >= self._batch_bytes:
                self._close_block()
            self._update_room()
            self._wake()
        return Sent([block], index, 1, single=True)

    def _stamp(self, schema: SchemaRef | None) -> SchemaRef | None:
        """Return the schema that a message will name: that of the encoder, or `schema` without an encoder. Raises
        `InvalidRequest` if there are both."""
        if self._encoder is None:
            return schema
        if schema is not None:
            raise InvalidRequest("a producer with a schema writes with that one: make another for another")
        return self._encoder.schema

    def _check_message(self, data: bytes, key: bytes | None, kind: _Kind) -> None:
        """Check one message before it joins a block. Otherwise an invalid one would make the whole block fail."""
        self._check_size(len(data))
        if key is not None:
            checked_bytes(key, "key", KEY_BYTES_MAX)
        if kind != self._checked:
            encoded = draft_bytes(Message(payload=b"", type=kind[0], attributes=kind[1] or {}, schema=kind[2]))
            self._checked, self._kind_bytes = kind, len(encoded) - _RECORD_BYTES

    def _check_size(self, size: int) -> None:
        if size > self._payload_bytes_max:
            raise PayloadTooLarge(
                f"a payload of {self.topic} has at most {self._payload_bytes_max} bytes, not {size}",
                limit=self._payload_bytes_max,
            )

    def _update_room(self) -> None:
        """Make `send` wait from now on if too many bytes are unconfirmed."""
        if self._unconfirmed_bytes + self._gathered_bytes > _UNCONFIRMED_BYTES:
            self._room.clear()

    async def send_many(
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

        Raises `SchemaRejected` for a value that does not fit the schema, `PayloadTooLarge`, and `InvalidRequest` for a
        value that is not a payload or a wrong number of keys. In all these cases no message is sent.
        """
        own_keys = checked_keys(keys, len(values))
        payloads, stamp = self._encode_all(values), self._stamp(schema)
        parts: list[OutgoingBlock] = []
        for start, stop in self._block_ranges(payloads, own_keys):
            await self._room.wait()
            with self._lock:
                self._check()
                self._close_block()
                part = OutgoingBlock(self._loop.create_future())
                part_keys = None if own_keys is None else own_keys[start:stop]
                draft = Draft.of_payloads(
                    payloads[start:stop],
                    keys=part_keys,
                    type=self._type if type is None else type,
                    attributes=attributes,
                    schema=stamp,
                    producer_name=self.name,
                    producer_id=self.producer_id,
                    first_request_id=self._next_request,
                )
                self._queue_block(part, draft, part_keys)
                self._wake()
            parts.append(part)
            await asyncio.sleep(0)
        return Sent(parts, 0, len(payloads), single=False)

    def _encode_all(self, values: Sequence[Any]) -> Sequence[bytes]:
        payloads = checked_payloads(values) if self._encoder is None else self._encoder.encode_all(values)
        if max(map(len, payloads), default=0) > self._payload_bytes_max:
            for number, payload in enumerate(payloads):
                with numbered_errors(number):
                    self._check_size(len(payload))
        return payloads

    def _block_ranges(
        self, payloads: Sequence[bytes], keys: Sequence[bytes | None] | None
    ) -> Iterator[tuple[int, int]]:
        """Yield the ranges of messages that make up one block each: the first index, and the one after the last."""
        sizes = map(len, payloads)
        if keys is not None:
            sizes = (size + len(key or b"") for size, key in zip(sizes, keys, strict=True))  # type: ignore[assignment]
        ends = list(accumulate(sizes))
        start, before = 0, 0
        while start < len(ends):
            stop = min(start + self._batch_messages, len(ends))
            room = self._batch_bytes - _RECORD_BYTES * (stop - start)
            stop = max(start + 1, bisect_right(ends, before + max(0, room), start, stop))
            yield start, stop
            start, before = stop, ends[stop - 1]

    async def send_arrow(self, batch: pa.RecordBatch, *, numbered: bool = False) -> Sent:
        """Send the rows of a batch with a `value` column, and optionally `key`, `type`, `attributes`, `schema_id` and
        `schema_version`. A producer with a schema encodes the values, and every message names that schema.

        With `numbered`, the column `request_id` has the request id of each row, in increasing order. Rows that were
        sent before, even on another connection, are then recognised as duplicates if they are among the last `window`
        messages.
        """
        if self._encoder is not None:
            batch = self._encoder.encode_arrow(batch)
        parts: list[OutgoingBlock] = []
        rows = max(1, min(self._batch_messages, batch.num_rows * self._batch_bytes // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            await self._room.wait()
            piece = batch.slice(start, rows)
            with self._lock:
                self._check()
                self._close_block()
                draft = Draft.from_arrow(
                    piece,
                    producer_name=self.name,
                    producer_id=self.producer_id,
                    first_request_id=None if numbered else self._next_request,
                )
                part = OutgoingBlock(self._loop.create_future())
                keys = piece.column("key").to_pylist() if "key" in batch.schema.names and self.partitions > 1 else None
                self._queue_block(part, draft, keys)
                if numbered:
                    self._next_request = piece.column("request_id")[-1].as_py() + 1
                self._wake()
            parts.append(part)
            await asyncio.sleep(0)
        return Sent(parts, 0, batch.num_rows, single=False)

    async def flush(self) -> None:
        """Send what is gathered and wait until every message so far is confirmed. Raises the first failure since the
        last flush."""
        with self._lock:
            self._close_block()
            unresolved = self._sender.unresolved()
            self._wake()
        for block in unresolved:
            await asyncio.shield(block.done)
        failed = self._sender.take_failure()
        if failed is not None:
            raise error_copy(failed)

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        await self._room.wait()

    @property
    def open(self) -> bool:
        return self._fatal is None

    # gathering, under the lock

    def _check(self) -> None:
        if self._fatal is not None:
            raise error_copy(self._fatal)

    def _close_block(self) -> None:
        """Encode the gathered messages as a block with the next request ids, and queue it. If encoding fails, the block
        fails with that error."""
        block, self._open = self._open, None
        if block is None:
            return
        gathered, self._gathering = self._gathering, []
        self._gathered_bytes = 0
        try:
            draft = self._draft(gathered)
        except PenstockError as error:
            block.count = len(gathered)
            self._sender.add_failed(block, error)
            return
        self._queue_block(block, draft, [message[1] for message in gathered] if self.partitions > 1 else None)

    def _draft(self, gathered: list[_Message]) -> Draft:
        first = gathered[0]
        if all(message[2:] == first[2:] for message in gathered):
            keys = [message[1] for message in gathered]
            return Draft.of_payloads(
                [message[0] for message in gathered],
                keys=keys if any(key is not None for key in keys) else None,
                type=first[2],
                attributes=first[3],
                schema=first[4],
                producer_name=self.name,
                producer_id=self.producer_id,
                first_request_id=self._next_request,
            )
        messages = (
            Message(
                payload=payload,
                key=key,
                type=kind,
                attributes=attributes or {},
                schema=schema,
                producer_name=self.name,
                producer_id=self.producer_id,
                request_id=number,
            )
            for number, (payload, key, kind, attributes, schema) in enumerate(gathered, self._next_request)
        )
        return Draft.of(messages).with_checksums()

    def _queue_block(self, block: OutgoingBlock, draft: Draft, keys: Sequence[bytes | None] | None) -> None:
        block.block, block.count, block.first, block.keys = draft.data, draft.count, self._next_request, keys
        block.size = len(draft.data)
        self._next_request += draft.count
        self._sender.add(block)
        self._unconfirmed_bytes += block.size
        self._update_room()

    def _wake(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        soon = self._loop.call_soon if threading.get_ident() == self._thread else self._loop.call_soon_threadsafe
        soon(self._start_linger)

    def _start_linger(self) -> None:
        """Wake the sender after the linger time, in the event loop. Messages that are gathered until then go into the
        same block."""
        if self._linger > 0:
            self._loop.call_later(self._linger, self._go)
        else:
            self._go()

    def _go(self) -> None:
        self._scheduled = False
        self._sender.work.set()

    # in the event loop

    async def _run(self) -> None:
        try:
            await self._sender.run()
        except asyncio.CancelledError:
            raise
        except PenstockError as error:
            self._end(error)
        except Exception as error:
            _LOG.exception("unhandled error in the producer of %s", self.topic)
            self._end(PenstockError(f"the producer failed: {type(error).__name__}: {error}"))

    def _gather(self) -> None:
        with self._lock:
            self._close_block()

    def _block_resolved(self, block: OutgoingBlock) -> None:
        with self._lock:
            self._unconfirmed_bytes -= block.size
            if self._unconfirmed_bytes + self._gathered_bytes <= _UNCONFIRMED_BYTES:
                self._room.set()

    def fenced(self) -> None:
        """End this producer with `NotOwner`, because another one has registered under its name."""
        self._end(NotOwner(f"producer {self.name or self.producer_id} of {self.topic} was taken over by another"))

    def _end(self, error: PenstockError) -> None:
        """End the producer: everything not confirmed fails with `error`, and later calls raise it."""
        if self._fatal is None:
            self._fatal = error
        self._gather()
        self._sender.end(error)
        self._room.set()
