"""Offsets and half-open ranges of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

from penstock.core.errors import InvalidRequest

Offset = NewType("Offset", int)
"""The position of a message in its partition, dense from 0."""

OFFSET_MAX: Final = 2**63 - 1
"""The largest offset: signed 64-bit in Arrow and in Spark; a million messages a second last 292,000 years."""


def parse_offset(value: object) -> Offset:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= OFFSET_MAX:
        raise InvalidRequest(f"an offset is a whole number from 0 to {OFFSET_MAX}, not {value!r}")
    return Offset(value)


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A range of offsets that contains `start` and not `stop`; it is empty if the two are equal."""

    start: Offset
    stop: Offset

    def __post_init__(self) -> None:
        parse_offset(self.start)
        parse_offset(self.stop)
        if self.stop < self.start:
            raise InvalidRequest(f"an offset range cannot end ({self.stop}) before it starts ({self.start})")

    @classmethod
    def of(cls, start: int, stop: int) -> OffsetRange:
        return cls(Offset(start), Offset(stop))

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.stop

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"

    def intersection(self, other: OffsetRange) -> OffsetRange:
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.stop, other.stop)))
