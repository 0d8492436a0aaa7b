"""The demo's writer, a process of its own so that it can be killed: appends orders, prints what is acknowledged.

    python -m penstock.demo.writer DIR TOPIC FIRST COUNT

Every line it prints is a promise: `FIRST LAST OFFSET` means that orders FIRST to LAST are durable from OFFSET on.
"""

from __future__ import annotations

import os
import sys

from penstock.core.errors import PenstockError
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store

BATCH = 1000
_PRODUCTS = ("anvil", "bolt", "crank", "dowel", "easel")


def order(number: int) -> Message:
    """Order `number`, the same every time it is asked for."""
    product, quantity = _PRODUCTS[number * 7919 % 5], 1 + number * 104_729 % 9
    cents = quantity * (100 + number * 1_299_709 % 9900)
    payload = f'{{"order":{number},"product":"{product}","quantity":{quantity},"cents":{cents}}}'
    return Message(
        payload=payload.encode(),
        type="order.created",
        key=f"customer-{number % 1000}".encode(),
        producer_name="demo",
        producer_id=1,
        request_id=number,
    )


def main() -> int:
    """0 when all is written, 2 when it cannot be."""
    try:
        _write()
    except PenstockError as error:
        sys.stderr.write(f"penstock: {error.code.value}: {error.message}\n")
        return 2
    except BrokenPipeError:  # nobody listens any more: the demo has been killed
        os._exit(2)
    return 0


def _write() -> None:
    root, topic, first, count = sys.argv[1], TopicName.parse(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with Store.open(root) as store:
        for start in range(first, first + count, BATCH):
            stop = min(start + BATCH, first + count)
            done = store.append(topic, Draft.of(order(number) for number in range(start, stop)))
            print(start, stop - 1, done.offset, flush=True)


if __name__ == "__main__":
    sys.exit(main())
