"""Row numbers: which rows a repeated task sends again, and which are certainly stored. Pure arithmetic.

The broker recognises a message of a producer by its number, but remembers only the last numbers (its window). A
repeated task therefore leaves out rows further back: they were confirmed, or no later row would have been sent. Only
rows in flight when the last attempt ended are in doubt, and these lie within the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.record.block import Longs

ROW_BITS: Final = 32
ROWS_MAX: Final = 1 << ROW_BITS
"""The most rows of a batch in one task, or in one staged commit."""

NUMBER: Final = "request_id"


def number_of(batch_id: int, row: int) -> int:
    """Return the number of a row of a batch. It is above all numbers of earlier batches, and rises with the rows.

    Raises `InvalidRequest` for a row beyond `ROWS_MAX`.
    """
    if row >= ROWS_MAX:
        raise InvalidRequest(f"a batch has at most {ROWS_MAX} rows in one task: use more partitions", rows=row)
    return (batch_id + 1) << ROW_BITS | row


def batch_of(number: int) -> int:
    """Return the batch that a number belongs to; -1 for the number 0, which no row has."""
    return (number >> ROW_BITS) - 1


def row_of(number: int) -> int:
    return number & (ROWS_MAX - 1)


def unconfirmed_max(window: int) -> int:
    """Return the number of rows that may be in flight at once, and that a repeated task sends again.

    It is half of the producer's window, the last numbers that the broker remembers. The other half is a reserve for
    rows that are sent again late, after newer ones.
    """
    return max(1, window // 2)


def numbered(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return the rows with numbers that count up from `first`, replacing any numbers they had."""
    return with_numbers(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))


def with_numbers(batch: pa.RecordBatch, numbers: Longs) -> pa.RecordBatch:
    names = [name for name in batch.schema.names if name != NUMBER]
    columns = [batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays([*columns, pa.array(numbers)], names=[*names, NUMBER])


def check_rising(numbers: Longs, before: int) -> int:
    """Check that numbers rise, the first being above `before`. Return the last one. Raises `InvalidRequest` if they do
    not."""
    wrong = np.flatnonzero(np.diff(numbers, prepend=before) <= 0)
    if wrong.size:
        row = int(wrong[0])
        lower = before if row == 0 else int(numbers[row - 1])
        raise InvalidRequest(
            f"request_id {int(numbers[row])} comes after {lower}: the numbers of a producer rise from row to row, and"
            " its rows are in one task",
            given=int(numbers[row]),
        )
    return int(numbers[-1])


class ResumeFilter:
    """A filter for the numbered rows of a repeated task. It drops those that the broker has certainly stored.

    `last` is the highest number that the broker knows. Of the rows up to it, the final `again` ones are in doubt and
    are sent again. All before were confirmed, and are dropped. The filter holds known rows back until it is clear which
    are the final ones. `skipped` counts the dropped rows, `repeated` the held rows that were sent again.
    """

    def __init__(self, last: int, again: int) -> None:
        self._last = last
        self._again = again
        self._held: list[pa.RecordBatch] = []
        self._highest = 0
        self.skipped = 0
        self.repeated = 0

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows to send now, in order. Raises `InvalidRequest` if the numbers do not rise."""
        numbers = batch.column(NUMBER).to_numpy()
        self._highest = check_rising(numbers, self._highest)
        known = int(np.searchsorted(numbers, self._last, side="right"))
        if known:
            self._hold(batch.slice(0, known))
        if known < batch.num_rows:
            yield from self._release()
            yield batch.slice(known)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the held rows that have to be sent again, when the task has no more rows.

        If the task ended before the number `last`, the earlier attempt had more rows. Then only rows within `again`
        numbers below `last` are in doubt; the others were confirmed, and are dropped.
        """
        if self._held and self._highest < self._last:
            held = [_rows_above(each, self._last - self._again) for each in self._held]
            self.skipped += sum(each.num_rows for each in self._held) - sum(each.num_rows for each in held)
            self._held = held
        yield from self._release()

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        surplus = sum(each.num_rows for each in self._held) - self._again
        while surplus > 0:
            oldest = self._held[0]
            gone = min(surplus, oldest.num_rows)
            self._held[0] = oldest.slice(gone)
            if not self._held[0].num_rows:
                self._held.pop(0)
            self.skipped += gone
            surplus -= gone

    def _release(self) -> Iterator[pa.RecordBatch]:
        held, self._held = self._held, []
        for batch in held:
            if batch.num_rows:
                self.repeated += batch.num_rows
                yield batch


def _rows_above(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return batch.slice(int(np.searchsorted(batch.column(NUMBER).to_numpy(), number, side="right")))
