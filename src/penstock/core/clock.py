"""Time as an argument: whoever needs to know what time it is takes a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch. May go back when somebody sets the clock."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ns(self) -> int:
        return time.time_ns()


def now_ms(clock: Clock) -> int:
    return clock.now_ns() // 1_000_000


def iso_time(unix_ms: int) -> str:
    """ISO 8601, UTC, milliseconds."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
