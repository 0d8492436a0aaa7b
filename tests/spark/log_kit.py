"""Data directories to read, and a plain reader of them: the standard for every other way to the files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.record.block import Draft
from penstock.record.message import Message, Record
from penstock.storage.inspect.data_reader import DataReader, LogReader
from penstock.storage.store import Store

ORDERS: Final = TopicName.parse("orders")
SOLD: Final = TopicName.parse("/shop/parts.sold")
SMALL: Final = Limits(payload_bytes_max=4096, block_bytes_max=8192, segment_bytes_first=4096, segment_bytes_max=16_384)
"""Segments of a few KiB: a few hundred messages have several."""


def message(number: int) -> Message:
    return Message(payload=b"message %d " % number * (1 + number % 7), key=b"k%d" % (number % 5), type="order.created")


def make_data(root: Path, *, messages: int = 300, dropped: int = 0) -> Path:
    with Store.open(root, create=True, limits=SMALL) as store:
        store.create_topic(ORDERS)
        store.create_topic(SOLD, partitions=3)
        append(store, ORDERS, range(messages))
        for partition in range(3):
            append(store, SOLD, range(partition * 5), partition)
        if dropped:
            store.truncate_before(ORDERS, dropped)
    return root


def append(store: Store, topic: TopicName, numbers: range, partition: int = 0) -> None:
    for start in range(numbers.start, numbers.stop, 10):
        some = [message(number) for number in range(start, min(start + 10, numbers.stop))]
        store.append(topic, Draft.of(some), partition=partition)


def records(reader: LogReader) -> list[Record]:
    """Return all records of a log without damage."""
    found = []
    for record, damages in reader.follow(Earliest()):
        assert not damages, damages
        assert record is not None
        found.append(record)
    return found


def everything(data: DataReader) -> dict[tuple[str, int], list[Record]]:
    return {
        (str(topic.name), number): records(topic.partition(number)) for topic in data.topics() for number in topic.logs
    }
