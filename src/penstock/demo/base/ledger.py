"""The ledger: the broker's answer to every event. Filled by the publishers' threads, read by all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

_WRONG_KEPT: Final = 10
"""The most sentences about wrong answers that are kept; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of an event in the log, as the broker reported it."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Events that the broker had acknowledged at one moment, and where it said that they lie: three arrays in the same
    order."""

    numbers: npt.NDArray[np.int64]
    partitions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)


class Ledger:
    """A ledger of `count` events. Any thread may write.

    `half_way` is called once, when half of the events are answered, by the thread that writes that answer.
    """

    def __init__(self, count: int, half_way: Callable[[], None]) -> None:
        self._half_way = half_way
        self._lock = threading.Lock()
        self._partitions = np.full(count, -1, np.int64)
        self._offsets = np.full(count, -1, np.int64)
        self.refused: dict[int, str] = {}
        """Reasons of refusals, by event number."""

        self.answered = 0
        self.recognised = 0
        """Events that were sent twice on purpose, and recognised the second time."""

        self.found_stored = 0
        """Events that were sent again because the answer was lost with the broker, and turned out to be stored."""

        self.wrong = 0
        self.complaints: list[str] = []

    def store(self, number: int, position: LogPosition, *, duplicate: bool) -> None:
        """Record where an event was stored. A second answer to the same event counts as wrong.

        `duplicate` says that the broker had it from an earlier attempt.
        """
        with self._lock:
            self._check_open(number)
            self._partitions[number], self._offsets[number] = position.partition, position.offset
            self._count_answer()
            self.found_stored += duplicate

    def refuse(self, number: int, reason: str) -> None:
        with self._lock:
            self._check_open(number)
            self.refused[number] = reason
            self._count_answer()

    def repeat(self, number: int, position: LogPosition, *, duplicate: bool) -> None:
        """Record the answer to an event that was sent a second time on purpose. It counts as recognised if the broker
        calls it a duplicate and names the same position as before, and otherwise as wrong."""
        with self._lock:
            known = LogPosition(int(self._partitions[number]), int(self._offsets[number]))
            if duplicate and known == position:
                self.recognised += 1
            else:
                self._complain(f"event {number} lies at {known}, and was stored again at {position}")

    def complain(self, what: str) -> None:
        """Record a wrong answer, which makes the demo fail; `what` is a sentence about it."""
        with self._lock:
            self._complain(what)

    def acknowledged(self) -> Acknowledged:
        """Return every event that is acknowledged now."""
        with self._lock:
            numbers = np.flatnonzero(self._offsets >= 0)
            return Acknowledged(numbers, self._partitions[numbers], self._offsets[numbers])

    def _count_answer(self) -> None:
        self.answered += 1
        if self.answered == (len(self._offsets) + 1) // 2:
            self._half_way()

    def _check_open(self, number: int) -> None:
        if self._offsets[number] >= 0 or number in self.refused:
            self._complain(f"event {number} was answered twice")

    def _complain(self, what: str) -> None:
        self.wrong += 1
        if len(self.complaints) < _WRONG_KEPT:
            self.complaints.append(what)
