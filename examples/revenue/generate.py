"""Orders of a shop, some of them late, into a topic.

    python generate.py --data data --orders 20000

An order says when it was placed (`at`). Most arrive in the order of that time, give or take some minutes; one in a
hundred arrives an hour late, and one in a thousand half a day late. The same number always gives the same order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

TOPIC: Final = "orders"
BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)
SECONDS_APART: Final = 10
PRODUCTS: Final = ("anvil", "bolt", "crank", "dowel", "easel")
_BLOCK: Final = 1000


@dataclass(frozen=True, slots=True)
class Order:
    order: int
    product: str
    cents: int
    at: str


def order(number: int) -> Order:
    """The order that arrives as number `number`."""
    arrived = BEGIN + timedelta(seconds=SECONDS_APART * number)
    quantity, price = 1 + number * 7919 % 5, 100 + number * 1_299_709 % 9900
    at = (arrived - _delay(number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Order(number, PRODUCTS[number * 104_729 % len(PRODUCTS)], quantity * price, at)


def _delay(number: int) -> timedelta:
    """How long before its arrival it was placed."""
    if number % 1000 == 999:
        return timedelta(hours=12)
    if number % 100 == 50:
        return timedelta(hours=1)
    return timedelta(seconds=number * 31 % 300)


def messages(first: int, count: int) -> Iterator[Message]:
    for number in range(first, first + count):
        payload = json.dumps(asdict(order(number))).encode()
        yield Message(payload=payload, type="order.created", key=str(number).encode(), request_id=number)


def write(data: Path, first: int, count: int) -> None:
    """Orders `first` to `first + count - 1`, as they arrive."""
    topic = TopicName.parse(TOPIC)
    with Store.open(data, create=True) as store:
        if first == 0:
            store.create_topic(topic)
        for start in range(first, first + count, _BLOCK):
            size = min(_BLOCK, first + count - start)
            store.append(topic, Draft.of(messages(start, size)))


def main() -> None:
    options = argparse.ArgumentParser(description="Orders of a shop, some of them late, into a topic.")
    options.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="the data directory")
    options.add_argument("--first", type=int, default=0, help="number of the first order; 0 also creates the topic")
    options.add_argument("--orders", type=int, default=20_000, help="how many")
    given = options.parse_args()
    write(given.data, given.first, given.orders)
    print(f"{given.orders} orders in {given.data}")


if __name__ == "__main__":
    main()
