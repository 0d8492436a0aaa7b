"""Runs of verified records behind damage where the index is no help: the search for them, and the choice of those to
trust."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.core.limits import BLOCK_BYTES_CEILING
from penstock.core.offsets import OFFSET_MAX
from penstock.record.block import Bytes, Predecessor
from penstock.record.kernels import block_kernels
from penstock.storage.base.disk import File
from penstock.storage.base.work_limit import ScanBudget
from penstock.storage.log.segment import read_tolerant


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive verified records behind a gap, where they lie, and their offsets."""

    start: int
    stop: int
    first_offset: int
    count: int
    first_id: bytes

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.count


class RecordSearch:
    """A search for verified records in a file, up to the position `stop`.

    Reads each byte at most twice, in pieces that overlap by the largest record. Ends early when the budget is spent.
    """

    def __init__(self, file: File, stop: int, effort: ScanBudget) -> None:
        self._file = file
        self._stop = stop
        self._effort = effort
        self._origin = 0
        self._piece: Bytes = np.empty(0, dtype=np.uint8)

    def find(self, start: int, after: Predecessor, low: int, high: int) -> int:
        """Return the position of the first record from `start` on that may follow `after`; -1 if there is none.

        Such a record verifies, has an offset in `[low, high)`, and has a greater id than `after`.
        """
        while start < self._stop and self._effort.left:
            self._move_to(start)
            position, hashed = block_kernels.find(
                self._piece,
                start - self._origin,
                self._piece.size,
                after.id_high,
                after.id_low,
                low,
                high,
                self._effort.free,
                self._effort.left,
            )
            self._effort.spend(int(hashed))
            if 0 <= position < BLOCK_BYTES_CEILING:
                return self._origin + int(position)
            start = self._origin + BLOCK_BYTES_CEILING
        return -1

    def find_all(self, start: int, after: Predecessor, low: int, high: int) -> Iterator[int]:
        """Yield the start of every such record, as `find` finds them."""
        while (position := self.find(start, after, low, high)) >= 0:
            yield position
            start = position + 1

    def _move_to(self, start: int) -> None:
        if not self._piece.size or not self._origin <= start < self._origin + BLOCK_BYTES_CEILING:
            self._piece = read_tolerant(self._file, start, min(self._stop - start, 2 * BLOCK_BYTES_CEILING))
            self._origin = start


def choose_runs(runs: list[RecordRun], limit: int, used: int) -> list[RecordRun]:
    """Return the runs to trust, in order; an empty list if none is trustworthy.

    `limit` is the offset behind the segment's last, `OFFSET_MAX` if unknown; `used` is where the data ends. With an
    unknown limit only a run that reaches `used` can be the last: anything may lie behind the others. Of all runs, those
    are chosen that keep the most records and fit by their offsets, with at least one record lost between two of them.
    On a tie later runs win, because a forged record in a payload comes before the record that really follows it.
    """
    kept = np.zeros(len(runs), dtype=np.int64)
    follower = np.full(len(runs), -1, dtype=np.int64)
    firsts = np.array([run.first_offset for run in runs], dtype=np.int64)
    for number in reversed(range(len(runs))):
        run = runs[number]
        fitting = np.where(firsts[number + 1 :] > run.next_offset, kept[number + 1 :], 0)
        most = int(fitting.max(initial=0))
        is_last = run.next_offset <= limit if limit != OFFSET_MAX else run is runs[-1] and run.stop >= used
        if most:
            follower[number] = number + 1 + int(np.flatnonzero(fitting == most)[-1])
        if is_last or most:
            kept[number] = run.count + most
    if not kept.any():
        return []
    chain = [int(np.flatnonzero(kept == kept.max())[-1])]
    while follower[chain[-1]] >= 0:
        chain.append(int(follower[chain[-1]]))
    return [runs[number] for number in chain]
