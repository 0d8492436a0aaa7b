"""Ranges of numbers: of reserved fields, of extensions. Half-open, and in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ranges:
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, descriptors: Iterable[Any], past: int = 0) -> Ranges:
        """Return ranges of descriptors; `past` is 1 where their ends are inclusive, as those of enums are."""
        pairs = sorted((descriptor.start, descriptor.end + past) for descriptor in descriptors)
        return cls(tuple(start for start, _ in pairs), tuple(end for _, end in pairs))

    def __contains__(self, number: int) -> bool:
        return self.around(number) is not None

    def around(self, number: int) -> tuple[int, int] | None:
        """Return the range that contains `number`; None if there is none. The ranges must not overlap."""
        index = bisect_right(self.starts, number) - 1
        if index < 0 or number >= self.ends[index]:
            return None
        return self.starts[index], self.ends[index]

    def first_overlap(self) -> int | None:
        """Return a number that is in two ranges; None if there is none."""
        later = self.starts[1:]
        return next((start for end, start in zip(self.ends, later, strict=False) if start < end), None)

    def joined(self) -> Ranges:
        """Return the same numbers in as few ranges as possible."""
        starts: list[int] = []
        ends: list[int] = []
        for start, end in zip(self.starts, self.ends, strict=True):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        return Ranges(tuple(starts), tuple(ends))
