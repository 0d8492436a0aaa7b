"""Numbers of rows: which of them a task must send again, and which are stored for certain. Nothing but arithmetic.

The broker recognises a message of a producer by its number, but remembers only the last so many (its window). A task
that comes back therefore leaves out what lies further back: it was confirmed, or nothing behind it would have been
sent. Only what was on its way when the last attempt ended is in doubt, and that is within the window.
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
"""Rows of one batch in one task, or in one commit."""

NUMBER: Final = "request_id"


def number_of(batch_id: int, row: int) -> int:
    """Of a row of a batch: above those of all batches before, and rising with the rows."""
    if row >= ROWS_MAX:
        raise InvalidRequest(f"a batch has at most {ROWS_MAX} rows in one task: use more partitions", rows=row)
    return (batch_id + 1) << ROW_BITS | row


def batch_of(number: int) -> int:
    """The batch a number belongs to; -1 for none."""
    return (number >> ROW_BITS) - 1


def row_of(number: int) -> int:
    return number & (ROWS_MAX - 1)


def unconfirmed_max(window: int) -> int:
    """Rows that may be on their way at once, and that are sent again by whoever comes back.

    Half of what is remembered: the other half is for rows that were sent again late, behind newer ones.
    """
    return max(1, window // 2)


def numbered(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The rows with numbers that count up from `first`, in place of any they had."""
    return with_numbers(batch, np.arange(first, first + batch.num_rows, dtype=np.int64))


def with_numbers(batch: pa.RecordBatch, numbers: Longs) -> pa.RecordBatch:
    names = [name for name in batch.schema.names if name != NUMBER]
    columns = [batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays([*columns, pa.array(numbers)], names=[*names, NUMBER])


def check_rising(numbers: Longs, before: int) -> int:
    """The last of them. Raises `InvalidRequest` if one is not above the number before it."""
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
    """What of a sequence of numbered rows is to be sent, if the broker knows numbers up to `last` already.

    Known rows are held back until it is clear which of them are the last `again`; those are sent again, the others are
    stored. `skipped` rows were left out, `repeated` rows were sent again.
    """

    def __init__(self, last: int, again: int) -> None:
        self._last = last
        self._again = again
        self._held: list[pa.RecordBatch] = []
        self._highest = 0
        self.skipped = 0
        self.repeated = 0

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows to send now, in order. Raises `InvalidRequest` if the numbers do not rise."""
        numbers = batch.column(NUMBER).to_numpy()
        self._highest = check_rising(numbers, self._highest)
        known = int(np.searchsorted(numbers, self._last, side="right"))
        if known:
            self._hold(batch.slice(0, known))
        if known < batch.num_rows:
            yield from self._release()
            yield batch.slice(known)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What is left: sent again if the last known row is among it. Otherwise there were more rows when they were
        sent first, and those that are here were all confirmed then, unless they are few enough behind the last."""
        if self._held and self._highest < self._last:
            held = [_above(each, self._last - self._again) for each in self._held]
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


def _above(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    return batch.slice(int(np.searchsorted(batch.column(NUMBER).to_numpy(), number, side="right")))
