"""Schemas that say the same in the same words: those need no proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.schema.jsonschema.text import compact
from penstock.schema.jsonschema.tree import Node

_Pair = tuple[Node, Node]

_SETS: Final = ("dependentRequired", "enum", "required")
"""Lists whose order means nothing."""


class Likeness:
    """Remembers which were found alike. References may lead in circles: two schemas are alike unless something that can
    be reached from both is not."""

    def __init__(self, spend: Callable[[int], None]) -> None:
        self._spend = spend
        self._known: dict[_Pair, bool] = {}

    def alike(self, one: Node, other: Node) -> bool:
        if (one, other) not in self._known:
            self._explore((one, other))
        return self._known[one, other]

    def _explore(self, start: _Pair) -> None:
        """Looks at all pairs that have to be alike for these two to be, until there is one that is not."""
        came_from: dict[_Pair, _Pair | None] = {start: None}
        waiting = [start]
        while waiting:
            pair = waiting.pop()
            self._spend(1)
            below = None if self._known.get(pair) is False else _below(*pair)
            if below is None:
                self._refute(pair, came_from)
                return
            for each in below:
                if each not in came_from and not self._known.get(each):
                    came_from[each] = pair
                    waiting.append(each)
        self._known |= dict.fromkeys(came_from, True)

    def _refute(self, pair: _Pair | None, came_from: dict[_Pair, _Pair | None]) -> None:
        """What led to a pair that is not alike is not alike either."""
        while pair is not None:
            self._known[pair] = False
            pair = came_from[pair]


def _below(one: Node, other: Node) -> list[_Pair] | None:
    """The pairs that have to be alike; None if these two are not, whatever is below them."""
    if one.keywords.keys() != other.keywords.keys():
        return None
    found: list[_Pair] = []
    for keyword, value in one.keywords.items():
        if not _match(keyword, value, other.keywords[keyword], found):
            return None
    return found


def _match(keyword: str, one: Any, other: Any, found: list[_Pair]) -> bool:
    if keyword == "const":
        return compact(one) == compact(other)
    if keyword in _SETS and isinstance(one, list) and isinstance(other, list):
        return set(map(compact, one)) == set(map(compact, other))
    if isinstance(one, Node) and isinstance(other, Node):
        found.append((one, other))
        return True
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_match, [keyword] * len(one), one, other, [found] * len(one)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_match(keyword, one[name], other[name], found) for name in one)
    return bool(one == other)
