"""Rows ordered by their contents, so that a repeated task gives them the same numbers.

Without a shuffle, Spark hands rows over in the order of their source. After a shuffle, the order depends on which
blocks arrived first, and differs each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.core.limits import GIB
from penstock.record import layout as at
from penstock.record.block import Draft, Words, parse_block
from penstock.spark.sink.columns import MESSAGE

_BYTES_MAX: Final = 1 * GIB
"""Bytes of one task's rows, which are all held in memory while they are sorted."""

_ROWS: Final = 10_000
"""The most rows of a batch that `by_content` yields."""


def by_content(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows, ordered by the checksum of their message; equal rows stay side by side.

    Raises `InvalidRequest` if the rows are too large to be held.
    """
    held = _collect(batches)
    if not held:
        return
    hashes = np.concatenate([checksums(each) for each in held])
    rows = pa.Table.from_batches(held).combine_chunks()
    order = np.argsort(hashes, kind="stable")
    for start in range(0, len(order), _ROWS):
        yield from rows.take(pa.array(order[start : start + _ROWS])).combine_chunks().to_batches()


def _collect(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    held, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > _BYTES_MAX:
            raise InvalidRequest(
                f"order=content holds the rows of a task, and these are more than {_BYTES_MAX} bytes: use more"
                " partitions (repartition), or sortWithinPartitions by columns that tell rows apart and order=engine",
                option="order",
            )
        if batch.num_rows:
            held.append(batch)
    return held


def checksums(batch: pa.RecordBatch) -> Words:
    """Return a checksum of the content of each row: of the message's columns, without producer, number, partition and
    offset."""
    message = batch.select([name for name in MESSAGE if name in batch.schema.names])
    block = parse_block(Draft.from_arrow(message).data, verify=False)
    positions = block.columns[:, at.END] - at.CHECKSUM_BYTES
    found = block.data[positions[:, None] + np.arange(at.CHECKSUM_BYTES)]
    return np.ascontiguousarray(found).view(">u8").reshape(-1).astype(np.uint64)
