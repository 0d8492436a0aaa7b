"""Whether rows that are sent again are those that were stored: looked at where a task goes on after a break.

A number says which row is meant. If a query gives its rows in another order when it is repeated, the numbers of the
stored ones are other rows', and going on would lose some and store others twice. So one row of each block that is known
already is read back and compared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.client.produce.receipts import Receipt
from penstock.core.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from penstock.client.consume.messages import StreamMessage
    from penstock.client.sync import Client

_LOG: Final = logging.getLogger(__name__)
_SECONDS: Final = 10.0


def check_alike(
    client: Client, topic: str, partitions: int, rows: pa.RecordBatch, outcomes: list[Receipt | PenstockError]
) -> None:
    """Raise `InvalidRequest` if the last of these rows that was stored before is another one there."""
    known = [(row, each) for row, each in enumerate(outcomes) if isinstance(each, Receipt) and each.duplicate]
    if not known:
        return
    row, receipt = known[-1]
    stored = _read(client, topic, partitions, receipt)
    if stored is not None and (stored.payload, stored.key) != (_bytes(rows, "value", row), _bytes(rows, "key", row)):
        raise InvalidRequest(
            f"{topic}, partition {receipt.partition}, offset {receipt.offset}: the row that was stored there under this"
            " number is another one, so the query gives its rows in another order when it is repeated; nothing was"
            " added. Start it with order=content, which numbers rows by what is in them, or with staging=DIRECTORY",
            option="order",
        )


def _read(client: Client, topic: str, partitions: int, receipt: Receipt) -> StreamMessage[Any] | None:
    """The message there; None if it is gone, or cannot be read now: then there is nothing to compare."""
    start: dict[str, Any] = dict.fromkeys(map(str, range(partitions)), "latest")
    start[str(receipt.partition)] = receipt.offset
    try:
        with client.consumer(topic, start=start, window=1) as reader:
            message = reader.receive(timeout=_SECONDS)
    except (PenstockError, TimeoutError) as error:
        _LOG.warning("%s: a row that was stored before could not be compared: %s", topic, error)
        return None
    place = None if message is None else (message.partition, message.offset)
    return message if place == (receipt.partition, receipt.offset) else None


def _bytes(rows: pa.RecordBatch, name: str, row: int) -> bytes | None:
    if name not in rows.schema.names:
        return None
    found = rows.column(name)[row].as_py()
    return found.encode() if isinstance(found, str) else found
