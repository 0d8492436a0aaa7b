"""A clock that moves only when told to, backwards too."""

from __future__ import annotations


class ManualClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = now_ms * 1_000_000

    def now_ns(self) -> int:
        return self._now_ns

    def advance_ms(self, ms: int) -> None:
        """Negative to set it back."""
        self._now_ns += ms * 1_000_000
