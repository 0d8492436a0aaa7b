"""A pace: so many rows a second and no more, from the first row on. Time and sleep are arguments."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """`rows_max` is what may be sent at once, so that a slow pace is smooth; None: no limit."""

    def __init__(
        self,
        rows_per_second: float | None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rows_per_second
        self._now = now
        self._sleep = sleep
        self._due: float | None = None

    @property
    def rows_max(self) -> int | None:
        """A tenth of a second's worth."""
        return None if self._rate is None else max(1, int(self._rate / 10))

    def take(self, rows: int) -> None:
        """Wait until so many more may go. What was not used is not saved up."""
        if self._rate is None:
            return
        now = self._now()
        due = now if self._due is None else max(self._due, now)
        if due > now:
            self._sleep(due - now)
        self._due = due + rows / self._rate
