"""The consumer: it receives blocks of messages of a durable subscription, or of a reader, and verifies their checksums
on arrival."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from penstock.client.consume.messages import Batch as Batch
from penstock.client.consume.messages import BatchOrigin, offsets_of
from penstock.client.consume.messages import StreamMessage as StreamMessage
from penstock.client.consume.positions import Start, position_field
from penstock.client.serde.decoder import ValueDecoder
from penstock.client.serde.values import V
from penstock.client.wire.connection import Connection
from penstock.client.wire.protocol import ClientProtocol, RecordsReceived, SubscriptionSpec
from penstock.core.errors import MalformedMessage, NotOwner, PenstockError, ServiceUnavailable, Timeout
from penstock.core.offset_set import OffsetSet
from penstock.protocol.actions import Action
from penstock.record import layout as at
from penstock.record.block import scan

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger(__name__)
_ACK_SECONDS: Final = 0.005
"""The time for which acknowledgements are collected before they are sent together."""
_CONFIRM_SECONDS: Final = 1.0
_RANGES_AT_ONCE: Final = 10_000
"""The most ranges of offsets in one acknowledgement: a tenth of what the broker accepts."""
_PARTITION_DIGITS: Final = 12
_GAPS_MAX: Final = 1_000
"""The most gaps that a consumer remembers. `penstock segment verify` lists all damage of a log that has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Messages that a consumer will not get: offsets `start` to `stop` of a partition, without `stop`."""

    partition: int
    start: int
    stop: int
    messages: int
    """The number of messages in the gap that the subscription had not acknowledged."""

    reason: str
    """The reason: `retention`, or a text that begins with `damaged: `."""

    def __str__(self) -> str:
        last = self.stop - 1
        offsets = f"offset {self.start}" if self.start == last else f"offsets {self.start} to {last}"
        return f"{offsets} of partition {self.partition}: {self.reason}"


class Consumer(Generic[V]):
    """A consumer: iterate over it, or receive batches, and acknowledge them. Use it with `async with`, which closes it
    at the end; the subscription and its cursor stay at the broker.

    After a lost connection, messages that were not acknowledged are delivered again.
    """

    def __init__(
        self,
        connection: Connection,
        protocol: ClientProtocol,
        spec: SubscriptionSpec,
        *,
        decoder: ValueDecoder,
        leave: Callable[[Consumer], None],
    ) -> None:
        self.spec = spec
        self.subscription = spec.subscription
        self.active = True
        """False while another consumer of a failover subscription is the active one."""

        self.created = False
        """True if this consumer created the subscription; False if it goes on from the cursor of an existing one."""

        self._connection = connection
        self._protocol = protocol
        self._decoder = decoder
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._topic = str(spec.pattern)
        self._arrived: deque[Batch[V]] = deque()
        self._current: deque[StreamMessage[V]] = deque()
        self._opened: Batch[V] | None = None
        """The batch from which the messages in `_current` come."""

        self._waiting = asyncio.Event()
        self._reason: PenstockError | None = None
        self._closed = False
        self._acks: dict[int, OffsetSet] = {}
        self._acks_through: dict[int, int] = {}
        self._ack_timer: asyncio.TimerHandle | None = None
        self._unconfirmed: dict[int, OffsetSet] = {}
        self._unconfirmed_through: dict[int, int] = {}
        """Acknowledged offsets that are not known to be durable yet, by partition. `_unconfirmed` has ranges of
        offsets; `_unconfirmed_through` has the offset up to which (inclusive) everything was acknowledged."""

        self._late = 0
        """The number of acknowledgements that the broker ignored because they came too late, and that `flush` has not
        reported yet."""

        self._confirming = asyncio.Lock()
        self.handed_over: deque[StreamMessage[V]] = deque()
        """Messages that the blocking client has fetched and its caller has not taken yet. The caller takes them in
        another thread."""

        self._maintenance: asyncio.Task[None] | None = None
        self.lost = 0
        """The number of messages that could not be delivered since this consumer was created."""

        self.gaps: deque[Gap] = deque(maxlen=_GAPS_MAX)
        """The gaps in which those messages were, the oldest first; only the last 1,000."""

        self._ack_timeout = 30.0
        self._next: dict[int, int] = {}
        """The offset after the last message that the caller has taken, by partition."""

        self.partitions = 1

    async def start(self) -> Self:
        await self._connection.ready()  # a subscription made before that would be made twice
        answer = json.loads(await self._connection.call(self._protocol.subscribe(self.spec)))
        self.subscription = answer["subscription"]
        self.partitions = len(answer["partitions"])
        self.active = answer["active"]
        self.created = answer["created"]
        self._ack_timeout = answer["ack_timeout_ms"] / 1000
        self._next = {cursor["partition"]: cursor["floor"] for cursor in answer["partitions"]}
        self._maintenance = asyncio.create_task(self._maintain())
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send acknowledgements, wait until they are durable, and unsubscribe. Does nothing on a closed consumer.

        If an acknowledgement is not confirmed, that is only logged: its message is delivered again to a later consumer.
        """
        if self._closed:
            return
        try:
            await self.flush()
        except PenstockError as error:
            _LOG.info("%s: what is not confirmed is delivered again: %s", self._topic, error.message)
        finally:
            self.end(None)
            self._leave(self)
        if self._connection.open:
            call = self._protocol.unsubscribe(
                SubscriptionSpec(self.spec.pattern, "durable", None, "-", self.subscription)
            )
            self._protocol.forget(self.spec)
            try:
                await self._connection.call(call)
            except (ServiceUnavailable, Timeout):
                return  # a lost connection has no consumers
        else:
            self._protocol.forget(self.spec)

    # called by the client

    def records_received(self, event: RecordsReceived) -> None:
        """Verify a block and queue it as a batch. A block that does not verify ends the consumer with
        `MalformedMessage`."""
        if self._closed:
            return
        block, stop = scan(event.payload)
        if stop.reason != at.AT_END:
            self.end(MalformedMessage(f"the broker sent a block that does not verify: record {len(block)}: {stop}"))
            return
        partition = int((event.header.request_id or "0")[-_PARTITION_DIGITS:], 16)
        self._arrived.append(Batch(block, BatchOrigin(self._topic, partition, self.subscription)))
        self._waiting.set()

    def connection_lost(self) -> None:
        """Drop messages that the caller has not taken: the broker sends them again. A reader, for which the broker
        keeps no cursor, subscribes again after the last messages that were taken."""
        for waiting in (self._arrived, self._current, self.handed_over):
            waiting.clear()
        if not self.spec.subscription and self._next:
            places = {str(partition): offset for partition, offset in self._next.items()}
            options = json.loads(self.spec.options) | {"from": places}
            self.spec = replace(self.spec, options=json.dumps(options))
            self._protocol.subscribe(self.spec)

    def position_moved(self, positions: Mapping[str, int]) -> None:
        """Drop the queued messages and unsent acknowledgements of partitions that a seek has moved, by this consumer or
        another. `positions` has the new offset by partition."""
        for partition, offset in ((int(number), offset) for number, offset in positions.items()):
            self._next[partition] = offset
            self._arrived = deque(item for item in self._arrived if item.partition != partition)
            for waiting in (self._current, self.handed_over):
                kept = [item for item in waiting.copy() if item.partition != partition]
                waiting.clear()
                waiting.extend(kept)
            for ranges in (self._acks, self._unconfirmed):
                ranges.pop(partition, None)
            for through in (self._acks_through, self._unconfirmed_through):
                through.pop(partition, None)

    def gap_reported(self, fields: Mapping[str, Any]) -> None:
        """Record messages that the broker cannot deliver, in `lost` and `gaps`, and log a warning."""
        gap = Gap(**{name: fields[name] for name in Gap.__slots__})
        self.lost += gap.messages
        self.gaps.append(gap)
        _LOG.warning("%s: messages are missing: %s", self._topic, gap)

    def end(self, reason: PenstockError | None) -> None:
        """End the consumer: no more messages will come. Those that have arrived can still be taken; then receiving
        raises `reason`, or returns None if there is no reason."""
        self._reason, self._closed = self._reason or reason, True
        if self._maintenance is not None:
            self._maintenance.cancel()
        self._waiting.set()

    # receiving

    async def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """Return the next messages of one partition that arrived together; None if the consumer was closed.

        If `receive` has taken some messages of a batch, return the rest of that batch. Raises `TimeoutError` after
        `timeout` seconds without a message, or the error that ended the subscription.
        """
        if self._current and self._opened is not None:
            left = self._opened.last(len(self._current))
            self._current.clear()
            self._next[left.partition] = left.offsets[-1] + 1
            return left
        try:
            async with asyncio.timeout(timeout):
                batch = await self._next_batch()
        except TimeoutError:
            raise TimeoutError(f"no message within {timeout:g} s") from None
        if batch is not None:
            self._next[batch.partition] = batch.offsets[-1] + 1
        return batch

    async def _next_batch(self) -> Batch[V] | None:
        """Return the oldest batch, after fetching the schemas that its messages name; None if the consumer was closed.

        The batch stays queued while its schemas are fetched. If the connection is lost meanwhile, it is dropped like
        all queued batches, and the broker sends it again. Raises the error that ended the subscription.
        """
        while not self._closed or self._arrived:
            if not self._arrived:
                self._waiting.clear()
                await self._waiting.wait()
                continue
            batch = self._arrived[0]
            if batch.origin.decoder is None:
                batch.origin.decoder = await self._decoder.batch_decoder(batch)
            if self._arrived and self._arrived[0] is batch:
                return self._arrived.popleft()
        if self._reason is not None:
            raise self._reason
        return None

    async def receive_arrow(
        self, timeout: float | None = None, columns: Iterable[str] | None = None
    ) -> pa.RecordBatch[V] | None:
        """Return the next batch as a `pyarrow.RecordBatch`, without copying payloads; None if the consumer was closed.

        The result can be passed to `ack` and `nack`. `columns` selects columns; default: all. Raises as `receive_batch`
        does.
        """
        batch = await self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    async def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """Return the next message; None if the consumer was closed. Raises `TimeoutError` after `timeout` seconds
        without a message, or the error that ended the subscription."""
        while not self._current:
            batch = await self.receive_batch(timeout)
            if batch is None:
                return None
            self._opened = batch
            self._current.extend(batch.messages)
        return self._take_message()

    def _take_message(self) -> StreamMessage[V]:
        message = self._current.popleft()
        self._next[message.partition] = message.offset + 1
        return message

    def __aiter__(self) -> AsyncIterator[StreamMessage[V]]:
        return self

    async def __anext__(self) -> StreamMessage[V]:
        message = self._take_message() if self._current else await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    # acknowledging

    def ack(self, done: StreamMessage | Batch | pa.RecordBatch) -> None:
        """Acknowledge a message or a batch, so that it is not delivered again. Returns at once: the acknowledgement is
        sent within milliseconds, together with others. Call `flush` to wait until it is durable."""
        self.ack_offsets(*offsets_of(done))

    def ack_offsets(self, partition: int, spans: list[tuple[int, int]]) -> None:
        """Acknowledge ranges of offsets of a partition, each a pair of its first offset and the offset after its last
        one."""
        ranges = self._acks.setdefault(partition, OffsetSet())
        for start, stop in spans:
            ranges.add(start, stop)
        self._schedule_acks()

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Acknowledge this message and every earlier one of its partition. Only for exclusive and failover
        subscriptions."""
        self.ack_offsets_through(message.partition, message.offset)

    def ack_offsets_through(self, partition: int, offset: int) -> None:
        """Acknowledge every message of a partition up to and including `offset`."""
        self._acks_through[partition] = max(offset, self._acks_through.get(partition, -1))
        self._schedule_acks()

    async def nack(
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
        partition, spans = offsets_of(failed)
        fields: dict[str, Any] = {"partition": partition, "ranges": spans}
        if delay is not None:
            fields["delay_ms"] = round(delay * 1000)
        if reason:
            fields["reason"] = reason
        await self._call_subscription(Action.NACK, fields)

    async def flush(self) -> None:
        """Send acknowledgements and wait until all so far are durable.

        Raises `NotOwner` if some came too late: the broker has taken their messages back, and delivers them again.
        Raises the error of the connection if they could not be confirmed.
        """
        self._send_acks()
        await self._confirm()
        late, self._late = self._late, 0
        if late:
            raise NotOwner(f"{late} acknowledgements came too late: those messages are delivered again", late=late)

    async def _confirm(self) -> None:
        """Wait until the acknowledgements that were sent are durable. If that fails, it raises the error, and those not
        confirmed stay recorded for the next call."""
        async with self._confirming:
            for partition in list(self._unconfirmed):
                ranges = list(self._unconfirmed.get(partition, ()))
                for start in range(0, len(ranges), _RANGES_AT_ONCE):
                    await self._confirm_ranges(partition, ranges[start : start + _RANGES_AT_ONCE])
            for partition, offset in list(self._unconfirmed_through.items()):
                await self._confirm_through(partition, offset)

    async def _confirm_ranges(self, partition: int, ranges: list[tuple[int, int]]) -> None:
        answer = await self._call_subscription(Action.ACK, {"partition": partition, "ranges": ranges})
        self._late += answer["ignored"]
        left = self._unconfirmed.get(partition)
        if left is not None:
            for start, stop in ranges:
                left.remove(start, stop)
            if not left:
                self._unconfirmed.pop(partition, None)

    async def _confirm_through(self, partition: int, offset: int) -> None:
        answer = await self._call_subscription(Action.ACK, {"partition": partition, "cumulative": offset})
        self._late += answer["ignored"]
        if self._unconfirmed_through.get(partition) == offset:
            del self._unconfirmed_through[partition]

    async def seek(self, position: Start, *, partition: int | None = None) -> None:
        """Move the subscription, or one partition of it, to a position: `earliest`, `latest`, an offset, a time (a
        `datetime`, or ISO 8601) or a message id.

        Messages that have arrived and were not taken are dropped. Raises `InvalidRequest` for a position that is not
        valid.
        """
        fields: dict[str, Any] = {"position": position_field(position, "position")}
        self._send_acks()
        if partition is not None:
            fields["partition"] = partition
        await self._call_subscription(Action.SEEK, fields)

    async def pause(self) -> None:
        """Stop delivery to every consumer of the subscription until `resume` is called."""
        await self._ask("system.subscription.pause")

    async def resume(self) -> None:
        await self._ask("system.subscription.resume")

    async def _ask(self, topic: str) -> None:
        payload = json.dumps({"topic": self._topic, "subscription": self.subscription})
        await self._connection.call(self._protocol.request(topic, payload))

    async def _call_subscription(self, action: Action, fields: dict[str, Any]) -> dict[str, Any]:
        call = self._protocol.subscription_call(action, self._topic, {"subscription": self.subscription} | fields)
        answer: dict[str, Any] = json.loads(await self._connection.call(call))
        return answer

    def _schedule_acks(self) -> None:
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(_ACK_SECONDS, self._send_acks)

    def _send_acks(self) -> None:
        """Send the collected acknowledgements now, without waiting for a response. They count as unconfirmed until
        `_confirm` has asked the broker about them."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        acks, self._acks = self._acks, {}
        through, self._acks_through = self._acks_through, {}
        for partition, ranges in acks.items():
            self._send_one_way({"partition": partition, "ranges": list(ranges)})
            unconfirmed = self._unconfirmed.setdefault(partition, OffsetSet())
            for start, stop in ranges:
                unconfirmed.add(start, stop)
        for partition, offset in through.items():
            self._send_one_way({"partition": partition, "cumulative": offset})
            self._unconfirmed_through[partition] = offset

    def _send_one_way(self, fields: dict[str, Any]) -> None:
        data = self._protocol.one_way(Action.ACK, self._topic, {"subscription": self.subscription} | fields)
        self._connection.write(data)

    async def _maintain(self) -> None:
        """Extend the ack deadlines of messages that the caller has not taken yet, so that their deadline begins when
        they are taken. Also confirm acknowledgements about once a second, so that little is left for `flush` to wait
        for."""
        while True:
            await asyncio.sleep(min(_CONFIRM_SECONDS, self._ack_timeout / 3))
            self._extend_ack_deadlines()
            try:
                await self._confirm()
            except PenstockError as error:
                _LOG.info("%s: acknowledgements are not confirmed yet: %s", self._topic, error.message)

    def _extend_ack_deadlines(self) -> None:
        spans: dict[int, OffsetSet] = {}
        for batch in self._arrived:
            for start, stop in batch.spans():
                spans.setdefault(batch.partition, OffsetSet()).add(start, stop)
        for message in (*self._current, *self.handed_over.copy()):
            spans.setdefault(message.partition, OffsetSet()).add(message.offset, message.offset + 1)
        for partition, ranges in spans.items():
            self._send_one_way({"partition": partition, "extend": list(ranges)[:_RANGES_AT_ONCE]})
