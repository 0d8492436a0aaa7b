"""Billing: two consumers of one shared subscription. Messages they cannot process become dead letters, and are
redriven.

Delivery is at least once: acks that were not yet saved when the broker died are lost, and their messages come again. So
billing records which events it has billed, by their numbers, and counts repeated ones.
"""

from __future__ import annotations

import threading
from typing import Final

import msgspec
import numpy as np

from penstock.client.consume.dead_letters import DeadLetters, Which
from penstock.client.consume.messages import Batch, StreamMessage
from penstock.client.sync import Client, Consumer, connect
from penstock.core.errors import PenstockError, TopicNotSupported
from penstock.demo.base.orders import CATALOG, TOPIC, UNKNOWN

SUBSCRIPTION: Final = "billing"
CONSUMERS: Final = 2
_WINDOW: Final = 5000
ATTEMPTS: Final = 3
"""Deliveries of a message before it is a dead letter."""
_BACKOFF_MS: Final = 200
_LOOK_SECONDS: Final = 0.2
"""The time that a consumer waits for messages before it checks whether it is to stop."""


class _OrderFields(msgspec.Struct):
    event: int
    product: str


_DECODER: Final = msgspec.json.Decoder(_OrderFields)


class Billing:
    """The state that both consumers share."""

    def __init__(self, url: str, events: int) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._known = frozenset(CATALOG)
        self._billed = np.zeros(events, np.bool_)
        self.billed_count = 0
        """Events that were billed, each once."""

        self.billed_again = 0
        """Deliveries of events that had been billed before."""

        self.nacked = 0

    def run(self, consumer: int) -> None:
        """Run one of the consumers until it is stopped. The client mends broken connections."""
        name = f"{SUBSCRIPTION}-{consumer}"
        with (
            connect(self._url, name=name) as client,
            client.consumer(
                TOPIC,
                SUBSCRIPTION,
                type="shared",
                name=name,
                start="earliest",
                window=_WINDOW,
                redeliveries=ATTEMPTS - 1,
                backoff_ms=_BACKOFF_MS,
                backoff_ms_max=_BACKOFF_MS,
            ) as found,
        ):
            while not self._stopped.is_set():
                self._take(found)

    def stop(self) -> None:
        self._stopped.set()

    def add_missing_price(self) -> None:
        """Enter the price that billing lacked, so that poisoned events can be billed when they come again."""
        self._known |= {UNKNOWN}

    def billed(self) -> int:
        return int(np.count_nonzero(self._billed))

    def _take(self, consumer: Consumer[bytes]) -> None:
        try:
            batch = consumer.receive_batch(_LOOK_SECONDS)
        except TimeoutError:
            return
        if batch is None:
            self.stop()
            return
        try:
            self._bill(consumer, batch)
        except PenstockError as error:
            if not error.retriable:
                raise
            # The connection is gone: unacknowledged messages come again.

    def _bill(self, consumer: Consumer[bytes], batch: Batch[bytes]) -> None:
        orders = [_DECODER.decode(each) for each in batch.to_arrow(["value"]).column("value").to_pylist()]
        poisoned = [row for row, order in enumerate(orders) if order.product not in self._known]
        self._note([order.event for order in orders if order.product in self._known])
        if not poisoned:
            consumer.ack(batch)
            return
        for row, message in enumerate(batch):
            if orders[row].product in self._known:
                consumer.ack(message)
            else:
                self._refuse(consumer, message, orders[row].product)

    def _refuse(self, consumer: Consumer[bytes], message: StreamMessage[bytes], product: str) -> None:
        consumer.nack(message, reason=f"no price for {product!r}")
        with self._lock:
            self.nacked += 1

    def _note(self, numbers: list[int]) -> None:
        with self._lock:
            known = int(np.count_nonzero(self._billed[numbers]))
            self._billed[numbers] = True
            self.billed_again += known
            self.billed_count += len(numbers) - known


def lag(client: Client) -> int:
    """Return how many messages billing has neither acknowledged nor given up as dead letters; 0 if it has not
    subscribed yet."""
    try:
        asked = {"topic": TOPIC, "subscription": SUBSCRIPTION}
        return int(client.ask("system.subscription.describe", asked)["lag"])
    except TopicNotSupported:
        return 0


def dead_letters(client: Client) -> tuple[int, str]:
    """Return the number of dead letters, and the reason of the first one; "" if there is none."""
    letters = list(DeadLetters(client, TOPIC).letters(Which()))
    return len(letters), letters[0].reason if letters else ""


def redrive(client: Client) -> int:
    """Redrive every dead letter; return their number."""
    return DeadLetters(client, TOPIC).redrive(Which()).redriven
