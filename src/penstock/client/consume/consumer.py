"""The consumer: messages of a durable subscription, or of a reader, as they lie on disk, verified on arrival."""

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
"""The time that acknowledgements gather before they are sent."""
_CONFIRM_SECONDS: Final = 1.0
_RANGES_AT_ONCE: Final = 10_000
"""The most ranges in one acknowledgement: a tenth of what the broker accepts."""
_PARTITION_DIGITS: Final = 12
_GAPS_MAX: Final = 1_000
"""The most gaps that a consumer remembers: `penstock segment verify` shows all of a log that has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Messages that a consumer will not get: those of a partition from offset `start` up to, and without, `stop`."""

    partition: int
    start: int
    stop: int
    messages: int
    """The number of them that were not acknowledged before."""

    reason: str
    """`retention`, or `damaged: ...`."""

    def __str__(self) -> str:
        last = self.stop - 1
        offsets = f"offset {self.start}" if self.start == last else f"offsets {self.start} to {last}"
        return f"{offsets} of partition {self.partition}: {self.reason}"


class Consumer(Generic[V]):
    """A consumer: iterate over it, or take batches, and acknowledge. Leaving it ends it; the subscription stays.

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
        """The batch that the current messages come from."""

        self._waiting = asyncio.Event()
        self._reason: PenstockError | None = None
        self._closed = False
        self._acks: dict[int, OffsetSet] = {}
        self._acks_through: dict[int, int] = {}
        self._ack_timer: asyncio.TimerHandle | None = None
        self._unconfirmed: dict[int, OffsetSet] = {}
        self._unconfirmed_through: dict[int, int] = {}
        """Offsets acknowledged and not known to be durable: above, ranges; here, everything up to an offset."""

        self._late = 0
        """The number of acknowledgements that came too late and were not reported by `flush` yet."""

        self._confirming = asyncio.Lock()
        self.handed_over: deque[StreamMessage[V]] = deque()
        """Messages that the blocking client has fetched, in another thread, and its caller not yet taken."""

        self._maintenance: asyncio.Task[None] | None = None
        self.lost = 0
        """The number of messages that cannot be delivered, since this consumer began."""

        self.gaps: deque[Gap] = deque(maxlen=_GAPS_MAX)
        """The last gaps that make up `lost`."""

        self._ack_timeout = 30.0
        self._next: dict[int, int] = {}
        """The offset behind the last message taken, by partition."""

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
        """Send acknowledgements, and unsubscribe."""
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
        """Verify a block and queue it for delivery."""
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
        """Drop messages that were not taken: the broker sends them again. A reader goes on behind those that were."""
        for waiting in (self._arrived, self._current, self.handed_over):
            waiting.clear()
        if not self.spec.subscription and self._next:
            places = {str(partition): offset for partition, offset in self._next.items()}
            options = json.loads(self.spec.options) | {"from": places}
            self.spec = replace(self.spec, options=json.dumps(options))
            self._protocol.subscribe(self.spec)

    def position_moved(self, positions: Mapping[str, int]) -> None:
        """Drop messages and acknowledgements of partitions that were moved by a seek, from here or elsewhere."""
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
        """Note messages that the broker cannot deliver, and warn of them."""
        gap = Gap(**{name: fields[name] for name in Gap.__slots__})
        self.lost += gap.messages
        self.gaps.append(gap)
        _LOG.warning("%s: messages are missing: %s", self._topic, gap)

    def end(self, reason: PenstockError | None) -> None:
        """End the consumer: no more messages will come."""
        self._reason, self._closed = self._reason or reason, True
        if self._maintenance is not None:
            self._maintenance.cancel()
        self._waiting.set()

    # receiving

    async def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """Return messages that arrived together, or the rest of them; None if the subscription is over. Raises
        `TimeoutError`."""
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
        """Return the oldest batch. It stays queued until its schemas are known: it is not taken before, and a lost
        connection drops it."""
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
        """Return a batch as a `pyarrow.RecordBatch`, without copying payloads. It can be acknowledged as it is."""
        batch = await self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    async def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """Return the next message; None if the subscription is over. Raises `TimeoutError`."""
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
        """Acknowledge: it is not delivered again. Gathered and soon sent; `flush` waits until it is durable."""
        self.ack_offsets(*offsets_of(done))

    def ack_offsets(self, partition: int, spans: list[tuple[int, int]]) -> None:
        """Acknowledge offsets of a partition."""
        ranges = self._acks.setdefault(partition, OffsetSet())
        for start, stop in spans:
            ranges.add(start, stop)
        self._schedule_acks()

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Acknowledge everything of its partition up to and including this message; exclusive and failover only."""
        self.ack_offsets_through(message.partition, message.offset)

    def ack_offsets_through(self, partition: int, offset: int) -> None:
        """Acknowledge everything of a partition up to and including an offset."""
        self._acks_through[partition] = max(offset, self._acks_through.get(partition, -1))
        self._schedule_acks()

    async def nack(
        self,
        failed: StreamMessage | Batch | pa.RecordBatch,
        *,
        delay: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Have it delivered again, after the usual backoff or `delay`; after too many failures it becomes a dead
        letter."""
        partition, spans = offsets_of(failed)
        fields: dict[str, Any] = {"partition": partition, "ranges": spans}
        if delay is not None:
            fields["delay_ms"] = round(delay * 1000)
        if reason:
            fields["reason"] = reason
        await self._call_subscription(Action.NACK, fields)

    async def flush(self) -> None:
        """Wait until every acknowledgement so far is durable.

        Raises the error that prevented it: `NotOwner` if some came too late, and their messages are delivered again.
        """
        self._send_acks()
        await self._confirm()
        late, self._late = self._late, 0
        if late:
            raise NotOwner(f"{late} acknowledgements came too late: those messages are delivered again", late=late)

    async def _confirm(self) -> None:
        """Wait until acknowledgements are durable. Those for which that fails stay unconfirmed."""
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
        """Move the subscription to `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id.
        Messages that have arrived are dropped."""
        fields: dict[str, Any] = {"position": position_field(position, "position")}
        self._send_acks()
        if partition is not None:
            fields["partition"] = partition
        await self._call_subscription(Action.SEEK, fields)

    async def pause(self) -> None:
        """Stop delivery to every consumer of the subscription, until it is resumed."""
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
        """Send acknowledgements now, without waiting for an answer: the broker makes them durable soon, and `flush`
        asks for that."""
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
        """Extend the ack deadlines of messages not yet taken, which begin when they are, and confirm acknowledgements
        now and then, so that little is left for `flush`."""
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
