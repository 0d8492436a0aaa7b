"""Shared helpers of the sink's tests: rows, and the contents of a topic after they were published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.names import TopicName
from penstock.record.message import Record
from penstock.spark.sink.options import SinkOptions
from penstock.storage.inspect.data_reader import DataReader


def rows(count: int, first: int = 0, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Values `row 0`, `row 1`, ..., with other columns as they are given."""
    values = [f"row {number}".encode() for number in range(first, first + count)]
    return pa.record_batch({"value": pa.array(values, pa.binary()), **{n: pa.array(c) for n, c in columns.items()}})


def cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def options(**given: str | Path) -> SinkOptions:
    return SinkOptions.parse({name: str(value) for name, value in given.items()})


def stored(root: Path, topic: str) -> list[Record]:
    """Return everything in a topic, partition by partition, in order."""
    reader = DataReader(root).topic(TopicName.parse(topic))
    found: list[Record] = []
    for number in reader.logs:
        log = reader.partition(number)
        offset = int(log.view.first_offset)
        while offset < log.view.next_offset:
            chunk = log.read(offset)
            found += chunk
            offset = int(chunk.next_offset)
    return found


def values(root: Path, topic: str) -> list[str]:
    return [record.message.payload.decode() for record in stored(root, topic)]


def row_values(numbers: Iterable[int]) -> list[str]:
    return [f"row {number}" for number in numbers]
