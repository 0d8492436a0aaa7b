"""Positions of consecutive records in a segment's file, taken from its index, and how to cut them into reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.record.block import Longs
from penstock.storage.log.index import ENTRY_BYTES, IndexFile, decode_entries, unchecked_ends
from penstock.storage.log.log_view import Segment


@dataclass(frozen=True, slots=True, eq=False)
class RecordPositions:
    """Positions as the index lists them. An entry is verified only if a read begins or ends there.

    Between the two, the records that were read show whether they are where the index says.
    """

    first: int
    """The offset of the first record."""
    rows: int
    size: int
    """Bytes of the segment."""
    _entries: Any
    """The bytes of the index entries. They begin with the entry before that of the first record, if the segment has
    one."""
    _starts: Longs
    """The start of each record and the end of the last one, in bytes, as the index says, not verified. Shorter if the
    index ends too early."""
    _begins_segment: bool

    @classmethod
    def of(cls, index: IndexFile, segment: Segment, first: int, stop: int) -> RecordPositions:
        ordinal = first - segment.base
        entries = index.entries(max(0, ordinal - 1), stop - segment.base)
        claimed = unchecked_ends(entries)
        starts = claimed if ordinal else np.concatenate(([0], claimed))
        return cls(first, stop - first, segment.size, entries, starts, ordinal == 0)

    def read_ranges(self, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
        """Yield consecutive ranges of rows as `(row, end)`, without `end`: at most `rows_max` rows and `bytes_max`
        bytes, but at least one row."""
        row = 0
        while row < self.rows:
            end = min(self.rows, row + rows_max)
            if end < len(self._starts) and self._starts[end] - self._starts[row] > bytes_max:
                reach = int(np.searchsorted(self._starts[row : end + 1], self._starts[row] + bytes_max, side="right"))
                end = min(end, max(row + 1, row + reach - 1))
            yield row, end
            row = end

    def byte_range(self, row: int, end: int) -> tuple[int, int] | None:
        """Return the position in the segment where row `row` begins, and the one where row `end` would begin, in bytes.

        None if an entry of the index is damaged or missing, or if the positions are impossible.
        """
        start, stop = self._verified_end(row), self._verified_end(end)
        return (start, stop) if 0 <= start < stop <= self.size else None

    def _verified_end(self, row: int) -> int:
        """Return where a row begins, which is the end of the one before it, by a verified entry; -1 if that is damaged
        or missing."""
        if row == 0 and self._begins_segment:
            return 0
        place = (row - 1 if self._begins_segment else row) * ENTRY_BYTES
        entry = self._entries[place : place + ENTRY_BYTES]
        return int(decode_entries(entry, self.first + row - 1)[0]) if len(entry) else -1
