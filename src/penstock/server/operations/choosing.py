"""Which topics and subscriptions have a line of their own. What is measured is bounded, whatever there is.

Whoever has a line keeps it for as long as it is there: a counter that came and went would look like a restart. Free
lines go to the busiest of those that have none. All others are put together under the name `_other`, so that sums are
right.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, TypeVar

OTHERS: Final = "_other"
"""No topic has such a name, and no subscription."""

TOPICS_MAX: Final = 200
"""Topics with lines of their own in `/metrics`: with all that is measured of each some 1,000 lines, which take a
hundredth of a second to write."""

SUBSCRIPTIONS_MAX: Final = 300
"""Subscriptions with lines of their own in `/metrics`: some 4,000 lines, and one look into the log for each."""

_Key = TypeVar("_Key", bound=Hashable)


class Chosen(Generic[_Key]):
    """At most so many of a kind."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[_Key] = set()

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def look(self, there: Collection[_Key], busy: Callable[[_Key], int]) -> None:
        """These are there now; forget those that are not, and give free lines away."""
        self._kept.intersection_update(there)
        free = self._most - len(self._kept)
        if free <= 0:
            return
        waiting = [each for each in there if each not in self._kept]
        if len(waiting) > free:  # whoever is idle can wait for a line until it is not
            waiting = heapq.nlargest(free, (each for each in waiting if busy(each) > 0), key=busy)
        self._kept.update(waiting)
