"""A clock for tests, which moves only when the test advances it or sets it back."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = now_ms * 1_000_000

    def now_ns(self) -> int:
        return self._now_ns

    def advance_ms(self, ms: int) -> None:
        """Advance the clock; a negative number sets it back."""
        self._now_ns += ms * 1_000_000
