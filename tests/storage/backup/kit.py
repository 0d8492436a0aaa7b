"""A data directory with messages in it, and what there is to see of it; for tests of backups."""

from __future__ import annotations

from pathlib import Path

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.backup.restore import restore
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")
LIMITS = Limits(
    payload_bytes_max=4096,
    block_bytes_max=8192,
    segment_bytes_first=4096,
    segment_bytes_max=16_384,
    disk_reserve_bytes=1,
)


def messages(count: int, *, start: int = 0) -> Draft:
    return Draft.of([Message(payload=b"message %d" % (start + n), type="t") for n in range(count)])


def fill(store: Store, blocks: int = 12, *, topic: TopicName = ORDERS, partition: int = 0) -> None:
    """Blocks of twenty messages: three or four of them make a segment."""
    for _ in range(blocks):
        store.append(topic, messages(20, start=int(store.log(topic, partition).next_offset)), partition=partition)


def records(root: Path) -> dict[str, list[bytes]]:
    """Every message with its id, offset and bytes, by topic and partition."""
    found = {}
    for topic in DataReader(root).topics():
        for number in topic.logs:
            reader, offset, blocks = topic.partition(number), 0, []
            offset = int(reader.view.first_offset)
            while offset < reader.view.next_offset:
                chunk = reader.read(offset)
                blocks += [bytes(chunk.block.select(row, row + 1).raw) for row in range(len(chunk.block))]
                offset = int(chunk.next_offset)
            found[f"{topic.name}[{number}]"] = blocks
    return found


def restored(backup: Path, target: Path) -> Path:
    restore(backup, target)
    return target


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)
