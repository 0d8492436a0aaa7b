"""The block cache, shared by all subscriptions: blocks that were fetched but not delivered yet. A block that was
evicted is read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.core.limits import MIB
from penstock.core.offset_set import Span
from penstock.record import layout as at
from penstock.record.block import Block

BYTES_MAX: Final = 32 * MIB
"""The most bytes in the cache: one read for each of thirty subscriptions that deliver at the same time. If there are
more, some blocks are read twice."""

Key = tuple[int, int]
"""The uid of a subscription, and a partition."""


class BlockCache:
    """The last block of each subscription and partition. If they take too much room, the least recently used are
    evicted."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._blocks: OrderedDict[Key, Block] = OrderedDict()
        self._bytes = 0

    def put(self, key: Key, block: Block) -> None:
        self.drop(key)
        if len(block):
            self._blocks[key] = block
            self._bytes += block.data.nbytes
        while self._bytes > self._bytes_max and len(self._blocks) > 1:
            self.drop(next(iter(self._blocks)))

    def get(self, key: Key) -> Block | None:
        block = self._blocks.get(key)
        if block is not None:
            self._blocks.move_to_end(key)
        return block

    def drop(self, key: Key) -> None:
        gone = self._blocks.pop(key, None)
        if gone is not None:
            self._bytes -= gone.data.nbytes


def records_at(block: Block, spans: Sequence[Span]) -> Block | None:
    """Return the records at these offsets, in their order; None if the block lacks any of them."""
    offsets = block.columns[:, at.OFFSET]
    edges = np.array(spans, dtype=np.int64)
    rows = np.searchsorted(offsets, edges)
    counts = edges[:, 1] - edges[:, 0]
    if not (rows[:, 1] - rows[:, 0] == counts).all():
        return None
    if len(spans) == 1:
        return block.select(int(rows[0, 0]), int(rows[0, 1]))
    return block.gather(np.concatenate([np.arange(start, stop) for start, stop in rows.tolist()]))
