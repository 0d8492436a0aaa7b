"""Rates: so many a second, with a second's worth saved up."""

from __future__ import annotations


class Bucket:
    """Fills with `rate` tokens a second, holds as many, and starts full."""

    __slots__ = ("_at_ms", "_rate", "_tokens")

    def __init__(self, rate: int, now_ms: int) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._at_ms = now_ms

    def take(self, wanted: int, now_ms: int) -> int:
        """How many of the wanted there are; those are taken."""
        gained = max(0, now_ms - self._at_ms) * self._rate / 1000
        self._at_ms = now_ms
        self._tokens = min(float(self._rate), self._tokens + gained)
        given = min(wanted, int(self._tokens))
        self._tokens -= given
        return given

    def is_full(self, now_ms: int) -> bool:
        """Nothing was taken for so long that forgetting it changes nothing."""
        return self._tokens + max(0, now_ms - self._at_ms) * self._rate / 1000 >= self._rate
