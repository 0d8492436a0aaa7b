"""The recent rate: how often something happened in the last seconds. The caller passes the time with each count."""

from __future__ import annotations

from collections import deque
from typing import Final

SECONDS: Final = 10
"""Seconds that a rate covers: long enough for a consumer that works in batches, short enough to be current."""


class RecentRate:
    """A count for each of the last seconds. Seconds without a count take no room."""

    __slots__ = ("_counts", "first_ms", "last_ms")

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque(maxlen=SECONDS + 1)
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def add(self, count: int, now_ms: int) -> None:
        if not count:
            return
        self.first_ms = now_ms if self.first_ms is None else self.first_ms
        self.last_ms = now_ms
        second = now_ms // 1000
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1] = (second, self._counts[-1][1] + count)
        else:
            self._counts.append((second, count))

    def per_second(self, now_ms: int) -> float:
        """Return the mean count for a second, over the last `SECONDS`, or since the first count if that is later. 0
        before the first."""
        if self.first_ms is None:
            return 0.0
        since_ms = max(self.first_ms, now_ms - SECONDS * 1000)
        counted = sum(count for second, count in self._counts if second * 1000 + 999 >= since_ms)
        return counted * 1000 / max(1000, now_ms - since_ms)
