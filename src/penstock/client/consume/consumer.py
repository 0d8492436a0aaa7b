"""A consumer: messages of a durable subscription, or of a reader, as they lie on disk, verified on arrival."""

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
"""How long acknowledgements gather before they are sent."""
_CONFIRM_SECONDS: Final = 1.0
_RANGES_AT_ONCE: Final = 10_000
"""A tenth of what the broker takes in one message."""
_PARTITION_DIGITS: Final = 12
_GAPS_MAX: Final = 1_000
"""Gaps that a consumer remembers: a log with more of them is looked at with `penstock segment verify`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Messages that a consumer will not get: those of a partition from offset `start` up to, and without, `stop`."""

    partition: int
    start: int
    stop: int
    messages: int
    """How many of them were not acknowledged before."""

    reason: str
    """`retention`, or `damaged: ...`."""

    def __str__(self) -> str:
        last = self.stop - 1
        offsets = f"offset {self.start}" if self.start == last else f"offsets {self.start} to {last}"
        return f"{offsets} of partition {self.partition}: {self.reason}"


class Consumer(Generic[V]):
    """Iterate over it, or take batches; acknowledge what is done. Leave it to end it: the subscription stays.

    After a broken connection what was not acknowledged is delivered again.
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
        """Whether the subscription came to be with this consumer: one that was there goes on where it was."""

        self._connection = connection
        self._protocol = protocol
        self._decoder = decoder
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._topic = str(spec.pattern)
        self._arrived: deque[Batch[V]] = deque()
        self._current: deque[StreamMessage[V]] = deque()
        self._opened: Batch[V] | None = None
        """Where the current ones come from."""

        self._waiting = asyncio.Event()
        self._reason: PenstockError | None = None
        self._closed = False
        self._acks: dict[int, OffsetSet] = {}
        self._acks_through: dict[int, int] = {}
        self._ack_timer: asyncio.TimerHandle | None = None
        self._unconfirmed: dict[int, OffsetSet] = {}
        self._unconfirmed_through: dict[int, int] = {}
        """Acknowledged, and not known to be durable."""

        self._late = 0
        """Acknowledgements that came too late, and were not told of yet."""

        self._confirming = asyncio.Lock()
        self.handed_over: deque[StreamMessage[V]] = deque()
        """Messages that somebody else, in another thread, has fetched and not yet taken."""

        self._maintenance: asyncio.Task[None] | None = None
        self.lost = 0
        """Messages that cannot be delivered, since this consumer came."""

        self.gaps: deque[Gap] = deque(maxlen=_GAPS_MAX)
        """Where those are, the last ones of them."""

        self._ack_timeout = 30.0
        self._next: dict[int, int] = {}
        """What comes after the last message that was taken, of each partition."""

        self.partitions = 1

    async def start(self) -> Self:
        await self._connection.ready()  # what is wanted before there is a link is made with it, and would be made twice
        answer = json.loads(await self._connection.call(self._protocol.subscribe(self.spec)))
        self.subscription = answer["subscription"]
        self.partitions = len(answer["partitions"])
        self.active = answer["active"]
        self.created = answer["created"]
        self._ack_timeout = answer["ack_timeout_ms"] / 1000
        self._next = {each["partition"]: each["floor"] for each in answer["partitions"]}
        self._maintenance = asyncio.create_task(self._maintain())
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send what was acknowledged, and leave."""
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
                return  # a connection that is gone consumes nothing
        else:
            self._protocol.forget(self.spec)

    # what the client calls

    def records_received(self, event: RecordsReceived) -> None:
        """A block has arrived."""
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
        """The connection is gone: what has not been taken will come again. A reader goes on behind what was taken."""
        for waiting in (self._arrived, self._current, self.handed_over):
            waiting.clear()
        if not self.spec.subscription and self._next:
            places = {str(partition): offset for partition, offset in self._next.items()}
            options = json.loads(self.spec.options) | {"from": places}
            self.spec = replace(self.spec, options=json.dumps(options))
            self._protocol.subscribe(self.spec)

    def position_moved(self, positions: Mapping[str, int]) -> None:
        """Somebody sought elsewhere: what came before is of no interest any more, nor what was said of it."""
        for partition, offset in ((int(number), offset) for number, offset in positions.items()):
            self._next[partition] = offset
            self._arrived = deque(each for each in self._arrived if each.partition != partition)
            for waiting in (self._current, self.handed_over):
                kept = [each for each in waiting.copy() if each.partition != partition]
                waiting.clear()
                waiting.extend(kept)
            for ranges in (self._acks, self._unconfirmed):
                ranges.pop(partition, None)
            for through in (self._acks_through, self._unconfirmed_through):
                through.pop(partition, None)

    def gap_reported(self, facts: Mapping[str, Any]) -> None:
        """Note messages that the broker cannot deliver, and warn of them."""
        gap = Gap(**{name: facts[name] for name in Gap.__slots__})
        self.lost += gap.messages
        self.gaps.append(gap)
        _LOG.warning("%s: messages are missing: %s", self._topic, gap)

    def end(self, reason: PenstockError | None) -> None:
        """No more will come."""
        self._reason, self._closed = self._reason or reason, True
        if self._maintenance is not None:
            self._maintenance.cancel()
        self._waiting.set()

    # receiving

    async def receive_batch(self, timeout: float | None = None) -> Batch[V] | None:
        """What arrived together, or is left of it; None if the subscription is over. Raises `TimeoutError`."""
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
        """The one that arrived first. It stays among those that did until it is known what its schemas mean: nobody
        has taken it yet, and it goes when the connection does."""
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
        """The same as a `pyarrow.RecordBatch`, without a copy of the payloads. It can be acknowledged as it is."""
        batch = await self.receive_batch(timeout)
        return None if batch is None else batch.to_arrow(columns)

    async def receive(self, timeout: float | None = None) -> StreamMessage[V] | None:
        """The next message; None if the subscription is over. Raises `TimeoutError`."""
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

    # settling

    def ack(self, done: StreamMessage | Batch | pa.RecordBatch) -> None:
        """Done with: it is not delivered again. Gathered and soon sent; `flush` waits until it is durable."""
        self.ack_offsets(*offsets_of(done))

    def ack_offsets(self, partition: int, spans: list[tuple[int, int]]) -> None:
        """The same, for offsets."""
        ranges = self._acks.setdefault(partition, OffsetSet())
        for start, stop in spans:
            ranges.add(start, stop)
        self._schedule_acks()

    def ack_cumulative(self, message: StreamMessage) -> None:
        """Everything of its partition up to and with this one; exclusive and failover only."""
        self.ack_offsets_through(message.partition, message.offset)

    def ack_offsets_through(self, partition: int, offset: int) -> None:
        """The same, for an offset."""
        self._acks_through[partition] = max(offset, self._acks_through.get(partition, -1))
        self._schedule_acks()

    async def nack(
        self,
        failed: StreamMessage | Batch | pa.RecordBatch,
        *,
        delay: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Not done: deliver it again, after the usual pause or this one; too often, and it is a dead letter."""
        partition, spans = offsets_of(failed)
        facts: dict[str, Any] = {"partition": partition, "ranges": spans}
        if delay is not None:
            facts["delay_ms"] = round(delay * 1000)
        if reason:
            facts["reason"] = reason
        await self._call_subscription(Action.NACK, facts)

    async def flush(self) -> None:
        """Until every acknowledgement so far is durable.

        Raises what kept it from being so: `NotOwner` if some came too late, and are delivered again to somebody.
        """
        self._send_acks()
        await self._confirm()
        late, self._late = self._late, 0
        if late:
            raise NotOwner(f"{late} acknowledgements came too late: those messages are delivered again", late=late)

    async def _confirm(self) -> None:
        """What was acknowledged and is not known to be durable: until it is. What fails stays to be confirmed."""
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
        """Go on from `earliest`, `latest`, an offset, a time (a `datetime`, or ISO 8601) or a message id. What arrived
        is dropped."""
        facts: dict[str, Any] = {"position": position_field(position, "position")}
        self._send_acks()
        if partition is not None:
            facts["partition"] = partition
        await self._call_subscription(Action.SEEK, facts)

    async def pause(self) -> None:
        """Have nothing more delivered, to any consumer, until it is resumed."""
        await self._ask("system.subscription.pause")

    async def resume(self) -> None:
        await self._ask("system.subscription.resume")

    async def _ask(self, topic: str) -> None:
        payload = json.dumps({"topic": self._topic, "subscription": self.subscription})
        await self._connection.call(self._protocol.request(topic, payload))

    async def _call_subscription(self, action: Action, facts: dict[str, Any]) -> dict[str, Any]:
        call = self._protocol.subscription_call(action, self._topic, {"subscription": self.subscription} | facts)
        answer: dict[str, Any] = json.loads(await self._connection.call(call))
        return answer

    def _schedule_acks(self) -> None:
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(_ACK_SECONDS, self._send_acks)

    def _send_acks(self) -> None:
        """At once and without an answer: the broker saves them soon. `flush` asks for it."""
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

    def _send_one_way(self, facts: dict[str, Any]) -> None:
        data = self._protocol.one_way(Action.ACK, self._topic, {"subscription": self.subscription} | facts)
        self._connection.write(data)

    async def _maintain(self) -> None:
        """What waits here to be taken has not failed: its time begins when it is taken. What was acknowledged is
        confirmed now and then, so that little is left for `flush`."""
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
