"""Positions of the records of a range, by the index, and where to cut the range into reads."""

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
    """Positions as the index lists them, verified only where a read begins or ends.

    Within a read, the records themselves show whether they are where they should be.
    """

    first: int
    """The offset of the first record."""
    rows: int
    size: int
    """Bytes of the segment."""
    _entries: Any
    """Index entries, from the record before the first on, where there is one in the segment."""
    _starts: Longs
    """The start of each record and the end of the last one, by the entries; shorter where the entries end."""
    _begins_segment: bool

    @classmethod
    def of(cls, index: IndexFile, segment: Segment, first: int, stop: int) -> RecordPositions:
        ordinal = first - segment.base
        entries = index.entries(max(0, ordinal - 1), stop - segment.base)
        claimed = unchecked_ends(entries)
        starts = claimed if ordinal else np.concatenate(([0], claimed))
        return cls(first, stop - first, segment.size, entries, starts, ordinal == 0)

    def read_ranges(self, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
        """Yield consecutive ranges of rows of about this size."""
        row = 0
        while row < self.rows:
            end = min(self.rows, row + rows_max)
            if end < len(self._starts) and self._starts[end] - self._starts[row] > bytes_max:
                reach = int(np.searchsorted(self._starts[row : end + 1], self._starts[row] + bytes_max, side="right"))
                end = min(end, max(row + 1, row + reach - 1))
            yield row, end
            row = end

    def byte_range(self, row: int, end: int) -> tuple[int, int] | None:
        """Return the bytes from record `row` to `end`; None if the index cannot say it."""
        start, stop = self._verified_end(row), self._verified_end(end)
        return (start, stop) if 0 <= start < stop <= self.size else None

    def _verified_end(self, row: int) -> int:
        """Return the verified start of a record, or the end of the last one; -1 if the index entry is damaged."""
        if row == 0 and self._begins_segment:
            return 0
        place = (row - 1 if self._begins_segment else row) * ENTRY_BYTES
        entry = self._entries[place : place + ENTRY_BYTES]
        return int(decode_entries(entry, self.first + row - 1)[0]) if len(entry) else -1
