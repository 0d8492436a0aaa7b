"""Retention: the decision which segments have outlived their topic's policy, made of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.storage.catalog.topics import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAge:
    """The numbers of a sealed segment that retention needs."""

    size: int
    count: int
    last_time_ms: int
    stop: int = 0
    """The offset behind its last message."""


def expired_count(
    sealed: Sequence[SegmentAge], active: SegmentAge, policy: Retention, *, now_ms: int, floor: int | None = None
) -> int:
    """Return how many of the oldest sealed segments may be dropped. Only whole segments go, so a little more is kept
    than the policy says.

    `floor` is the first offset that a subscription still needs: segments with messages from there on stay.
    """
    kept_bytes = active.size + sum(segment.size for segment in sealed)
    kept_count = active.count + sum(segment.count for segment in sealed)
    gone = 0
    for segment in sealed:
        kept_bytes -= segment.size
        kept_count -= segment.count
        too_old = policy.age_ms is not None and segment.last_time_ms < now_ms - policy.age_ms
        too_large = policy.bytes is not None and kept_bytes >= policy.bytes
        too_many = policy.count is not None and kept_count >= policy.count
        is_needed = floor is not None and segment.stop > floor
        if is_needed or not (too_old or too_large or too_many):
            break
        gone += 1
    return gone
