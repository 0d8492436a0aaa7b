"""Gaps: offsets of a partition whose messages cannot be delivered, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from penstock.core.offsets import OffsetRange

RETENTION: Final = "retention"
"""The reason of a gap that retention made: the messages were dropped before they were read."""


class Gap(NamedTuple):
    """The offsets `[start, stop)` of one partition, and the reason why their messages cannot be delivered."""

    start: int
    stop: int
    reason: str


class _Damage(Protocol):
    @property
    def offsets(self) -> OffsetRange: ...

    @property
    def reason(self) -> str: ...


def gaps_of(damages: Iterable[_Damage]) -> list[Gap]:
    """Return a gap for each damage of a log, in the same order."""
    return [Gap(int(damage.offsets.start), int(damage.offsets.stop), f"damaged: {damage.reason}") for damage in damages]
