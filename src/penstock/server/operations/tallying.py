"""Counters whose lines come and go. One that fell would be taken for a restart, and alerts would be made of that.

A line adds up what came since the last look. Whoever leaves one, because it is deleted or gets a line of its own,
leaves behind what was counted of it, and begins at nothing where it comes. So nothing is counted twice, sums over all
lines are right, and no line ever falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Tally(Generic[_Key]):
    """At most so many lines; past that, those are forgotten that were asked for longest ago."""

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._lines: dict[Hashable, Counter[str]] = {}
        self._before: dict[_Key, Mapping[str, int]] = {}
        """What each had counted at the last look."""

        self._now: dict[_Key, Mapping[str, int]] = {}

    def add(self, key: _Key, line: Hashable, counts: Mapping[str, int]) -> None:
        """What somebody in this line has counted until now."""
        total = self._lines.setdefault(line, Counter())
        before = self._before.get(key, {})
        for name, count in counts.items():
            total[name] += _grown(before.get(name, 0), count)
        self._now[key] = counts

    def of(self, line: Hashable) -> Mapping[str, int]:
        """What a line has come to. It is kept for being asked for."""
        found = self._lines[line] = self._lines.pop(line, Counter())
        return found

    def looked(self) -> None:
        """A look is over: whoever was not added is gone."""
        self._before, self._now = self._now, {}
        while len(self._lines) > self._lines_max:
            del self._lines[next(iter(self._lines))]


def _grown(before: int, now: int) -> int:
    """Whoever has counted less than before has begun anew."""
    return now - before if now >= before else now
