"""Orders of a shop into a topic.

python generate.py --orders 2000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

TOPIC: Final = "orders"
PRODUCTS: Final = ("anvil", "bolt", "crank", "dowel", "easel")


def messages(first: int, count: int) -> Iterator[Message]:
    for number in range(first, first + count):
        made = {"id": number, "product": PRODUCTS[number % 5], "cents": 100 + number * 104_729 % 9900}
        yield Message(payload=json.dumps(made).encode(), type="order.created", request_id=number)


def write(data: Path, first: int, count: int) -> None:
    """Orders `first` to `first + count - 1`."""
    topic = TopicName.parse(TOPIC)
    with Store.open(data, create=True) as store:
        if first == 0:
            store.create_topic(topic)
        store.append(topic, Draft.of(messages(first, count)))


def main() -> None:
    options = argparse.ArgumentParser(description="Orders of a shop into a topic.")
    options.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="the data directory")
    options.add_argument("--first", type=int, default=0, help="number of the first order; 0 also creates the topic")
    options.add_argument("--orders", type=int, default=2000, help="how many")
    given = options.parse_args()
    write(given.data, given.first, given.orders)
    print(f"{given.orders} orders in {given.data}")


if __name__ == "__main__":
    main()
