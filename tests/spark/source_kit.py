"""Logs of all kinds, and their rows by a plain Python reader: the standard for the source."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.record.block import Draft
from penstock.record.message import Message, Record, SchemaRef
from penstock.spark.files.location import Location
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import ManualClock

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAMES: Final = ("orders", "/shop/carts", "empty")
PARTITIONS: Final = (1, 3, 2)
TYPES: Final = ("", "order.created", "order.paid", "order.päid", "x")
LIMITS: Final = Limits(payload_bytes_max=2048, block_bytes_max=4096, segment_bytes_first=4096, segment_bytes_max=8192)
"""Segments of a few KiB: a few hundred messages have many of them."""

Row = dict[str, Any]


def some_message(chance: random.Random, number: int) -> Message:
    return Message(
        payload=chance.randbytes(chance.choice((0, 1, 20, 200, 2000))),
        type=chance.choice(TYPES),
        key=chance.choice((None, b"", b"k%d" % (number % 3))),
        attributes={f"a{place}": "v" * place for place in range(chance.choice((0, 0, 1, 3)))},
        producer_name=chance.choice(("", "p1", "prodücer")),
        producer_id=chance.choice((0, 7)),
        schema=chance.choice((None, SchemaRef(3, 1), SchemaRef(2**40, 2))),
    )


def make_logs(root: Path, *, seed: int = 0, messages: int = 300) -> Path:
    """Make three topics: one of one partition, one of three, and an empty one."""
    chance = random.Random(seed)
    clock = ManualClock()
    with Store.open(root, create=True, limits=LIMITS, clock=clock) as store:
        for name, partitions in zip(NAMES, PARTITIONS, strict=True):
            store.create_topic(TopicName.parse(name), partitions=partitions)
        number = 0
        while number < messages:
            clock.advance_ms(chance.choice((0, 1, 40)))
            place = chance.randrange(2)
            count = chance.randint(1, 12)
            append(store, NAMES[place], [some_message(chance, number + i) for i in range(count)], chance=chance)
            number += count
    return root


def append(store: Store, name: str, messages: list[Message], *, partition: int = 0, chance: Any = None) -> None:
    """Append one message at a time if they are large: a block of them has to fit into a segment."""
    topic = TopicName.parse(name)
    if chance is not None:
        partition = chance.randrange(PARTITIONS[NAMES.index(name)])
    for message in messages:
        store.append(topic, Draft.of([message]), partition=partition)


def location(root: Path) -> Location:
    return Location.parse(path=str(root))


def row_of(record: Record, topic: str, partition: int) -> Row:
    message = record.message
    return {
        "key": message.key,
        "value": bytes(message.payload),
        "topic": topic,
        "partition": partition,
        "offset": int(record.offset),
        "timestamp": EPOCH + timedelta(milliseconds=record.publish_time_ms),
        "id": record.id,
        "type": message.type,
        "producer_name": message.producer_name,
        "producer_id": message.producer_id,
        "request_id": message.request_id,
        "attributes": list(message.attributes.items()),
        "schema_id": None if message.schema is None else message.schema.id,
        "schema_version": None if message.schema is None else message.schema.version,
    }


def plain(root: Path) -> dict[tuple[str, int], list[Row]]:
    """Return every readable row of every partition, one record at a time."""
    return {
        (str(topic.name), number): list(_rows(topic.partition(number), str(topic.name), number))
        for topic in DataReader(root).topics()
        for number in topic.logs
    }


@lru_cache
def unchanged(root: Path) -> dict[tuple[str, int], list[Row]]:
    """Return the same for logs that do not change, read once."""
    return plain(root)


def _rows(reader: Any, topic: str, partition: int) -> Iterator[Row]:
    for record, _ in reader.follow(Earliest()):
        if record is not None:
            yield row_of(record, topic, partition)


def segments(root: Path, topic: str) -> list[Path]:
    """Return the segment files of a topic of one partition, oldest first."""
    name = TopicName.parse(topic)
    return sorted((root / "topics" / name.namespace / name.topic).glob("0*.seg"))


def flip(path: Path, position: int) -> None:
    """Flip one bit of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
