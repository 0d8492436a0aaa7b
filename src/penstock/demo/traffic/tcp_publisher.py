"""Events over TCP: Penstock's own producer, in blocks, with the numbers that make a retry safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from penstock.client.produce.receipts import Receipt
from penstock.client.sync import Client, Producer, Sent, connect
from penstock.client.wire.protocol import Payload
from penstock.demo.base.ledger import Ledger, LogPosition
from penstock.demo.base.orders import TOPIC, Orders, Transport
from penstock.demo.traffic.schemas import SchemaVersion

NAME: Final = "shop-app"
_ROWS_MAX: Final = 2000
_BATCHES: Final = 40
"""The minimum of batches, however few events there are: the broker is to be killed between two of them."""
_AT_ONCE: Final = 2
"""Batches in flight. A repeated message must be among the last 10,000 of its producer to be recognised."""


class TcpPublisher:
    """A publisher that sends every event of its transport, and notes every answer. The client mends broken
    connections."""

    transport: Final = Transport.TCP

    def __init__(self, url: str, orders: Orders, ledger: Ledger, schema: SchemaVersion) -> None:
        self._url = url
        self._orders = orders
        self._ledger = ledger
        self._schema = schema
        self._numbers = orders.of(self.transport)
        self._client: Client | None = None
        self._stopped = False
        self.total = len(self._numbers)
        self._rows = min(_ROWS_MAX, self.total // _BATCHES + 1)
        self.done = 0

    def run(self) -> None:
        with connect(self._url, name=NAME) as self._client:
            if self._stopped:  # stopped before there was a client to close
                return
            producer = self._client.producer(TOPIC, name=NAME)
            self._send_all(producer)
            producer.close()  # leaving it open would raise that some messages were refused, as they should be

    def stop(self) -> None:
        """Stop the publisher, from another thread. Its client is closed, so that `run` does not wait for answers any
        longer."""
        self._stopped = True
        if self._client is not None:
            self._client.close()

    def _send_all(self, producer: Producer[Payload]) -> None:
        waiting: deque[tuple[pa.RecordBatch, Sent]] = deque()
        for batch in self._batches():
            waiting.append((batch, producer.send_arrow(batch, numbered=True)))
            if len(waiting) > _AT_ONCE:
                self._note_outcomes(producer, *waiting.popleft())
        for each in waiting:
            self._note_outcomes(producer, *each)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches as a producer takes them, with the events' numbers."""
        for start in range(0, self.total, self._rows):
            numbers = self._numbers[start : start + self._rows]
            yield pa.record_batch(
                {
                    "value": pa.array([self._orders.payloads[each] for each in numbers], pa.binary()),
                    "key": pa.array([self._orders.keys[each].encode() for each in numbers], pa.binary()),
                    "type": pa.array([self._orders.types[each] for each in numbers]),
                    "schema_id": pa.array([self._schema.id] * len(numbers), pa.int64()),
                    "schema_version": pa.array([self._schema.version] * len(numbers), pa.int32()),
                    "request_id": pa.array([each + 1 for each in numbers], pa.int64()),
                }
            )

    def _note_outcomes(self, producer: Producer[Payload], batch: pa.RecordBatch, sent: Sent) -> None:
        numbers = [each - 1 for each in batch.column("request_id").to_pylist()]
        for number, outcome in zip(numbers, sent.outcomes(), strict=True):
            if isinstance(outcome, Receipt):
                self._ledger.store(number, LogPosition(outcome.partition, outcome.offset), duplicate=outcome.duplicate)
            else:
                self._ledger.refuse(number, outcome.message)
        again = [row for row, number in enumerate(numbers) if self._orders.retried[number]]
        if again:
            self._repeat(producer, batch.take(pa.array(again)))
        self.done += len(numbers)

    def _repeat(self, producer: Producer[Payload], batch: pa.RecordBatch) -> None:
        """Send events again, as if the answers had been lost."""
        numbers = [each - 1 for each in batch.column("request_id").to_pylist()]
        for number, outcome in zip(numbers, producer.send_arrow(batch, numbered=True).outcomes(), strict=True):
            if isinstance(outcome, Receipt):
                self._ledger.repeat(number, LogPosition(outcome.partition, outcome.offset), duplicate=outcome.duplicate)
            else:
                self._ledger.complain(f"event {number} was stored, and refused when it came again: {outcome.message}")
