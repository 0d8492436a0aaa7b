"""Which segments have outlived their topic's retention: a decision, made of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.storage.catalog.topics import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAge:
    """A sealed segment, as far as retention cares."""

    size: int
    count: int
    last_time_ms: int
    stop: int = 0
    """The offset behind its last message."""


def expired_count(
    sealed: Sequence[SegmentAge], active: SegmentAge, policy: Retention, *, now_ms: int, floor: int | None = None
) -> int:
    """How many of the oldest sealed segments may go. Whole segments go, so a little more than asked for is kept.

    `floor`: from this offset on somebody has yet to see the messages, and nothing goes.
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
        wanted = floor is not None and segment.stop > floor
        if wanted or not (too_old or too_large or too_many):
            break
        gone += 1
    return gone
