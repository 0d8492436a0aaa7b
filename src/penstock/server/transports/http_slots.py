"""Places for HTTP connections: who has one, and who gives it up when there are too few.

A connection waits while the head of its next request has not come whole. When places are short, the one that has waited
for longest goes: a newcomer that asks something is better company than one that only holds its place. Where all are at
work, a newcomer gets one of a few spare places, and may ask how the broker is. Pure: no socket, no timer.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

CONNECTIONS_MAX: Final = 1024
"""Half of them for those who read on and on, half for those who ask. Each connection has one request at a time."""

SPARE_MAX: Final = 64
"""Beyond those, for who asks about health and measurements: orchestrators and scrapers ask from a few machines."""

PRESSED_SECONDS: Final = 3.0
"""For a head to come when three of four places are taken: a slow network's round trips, and no more."""

_PRESSED_SHARE: Final = 0.75
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: who has one has the whole network behind it."""

Guest = TypeVar("Guest", bound=Hashable)


class Place(Enum):
    ORDINARY = "ordinary"
    SPARE = "spare"
    NONE = "none"


@dataclass(slots=True)
class _Room(Generic[Guest]):
    """Places of one kind, and who of those that have one waits, the longest first."""

    most: int
    taken: dict[Guest, str] = field(default_factory=dict)
    waiting: OrderedDict[Guest, float] = field(default_factory=OrderedDict)


class Places(Generic[Guest]):
    """All of a listener. `each` is how many ordinary ones one address may have."""

    def __init__(self, each: int, most: int = CONNECTIONS_MAX, spare: int = SPARE_MAX) -> None:
        self._each = each
        self._ordinary: _Room[Guest] = _Room(most)
        self._spare: _Room[Guest] = _Room(spare)
        self._of: Counter[str] = Counter()

    def enter(self, guest: Guest, address: str, now: float) -> tuple[Place, list[Guest]]:
        """A place for a newcomer, and those who have just lost theirs."""
        gone = list(self._overdue(now))
        if self._of[address] >= self._each:
            gone += self._longest(self._ordinary, address)
        elif len(self._ordinary.taken) >= self._ordinary.most:
            gone += self._longest(self._ordinary)
        if self._of[address] < self._each and len(self._ordinary.taken) < self._ordinary.most:
            self._of[address] += 1
            return self._seat(self._ordinary, guest, address, now, Place.ORDINARY), gone
        if len(self._spare.taken) >= self._spare.most:
            gone += self._longest(self._spare)
        if len(self._spare.taken) < self._spare.most:
            return self._seat(self._spare, guest, address, now, Place.SPARE), gone
        return Place.NONE, gone

    def asked(self, guest: Guest) -> None:
        """The head of a request has come."""
        for room in (self._ordinary, self._spare):
            room.waiting.pop(guest, None)

    def answered(self, guest: Guest, now: float) -> None:
        """It waits again."""
        for room in (self._ordinary, self._spare):
            if guest in room.taken:
                room.waiting[guest] = now
                room.waiting.move_to_end(guest)

    def leave(self, guest: Guest) -> None:
        address = self._ordinary.taken.get(guest)
        if address is not None:
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]
        for room in (self._ordinary, self._spare):
            room.taken.pop(guest, None)
            room.waiting.pop(guest, None)

    @staticmethod
    def _seat(room: _Room[Guest], guest: Guest, address: str, now: float, place: Place) -> Place:
        room.taken[guest] = address
        room.waiting[guest] = now
        return place

    def _overdue(self, now: float) -> Iterator[Guest]:
        """Those who have waited for long, where places begin to be short."""
        room = self._ordinary
        while room.waiting and len(room.taken) > room.most * _PRESSED_SHARE:
            guest, since = next(iter(room.waiting.items()))
            if now - since < PRESSED_SECONDS:
                return
            self.leave(guest)
            yield guest

    def _longest(self, room: _Room[Guest], address: str | None = None) -> list[Guest]:
        """The one that has waited for longest, of all or of one address, which has its place no more."""
        found = next((each for each in room.waiting if address in (None, room.taken[each])), None)
        if found is None:
            return []
        self.leave(found)
        return [found]


def whose(host: str) -> str:
    """Among whom places are shared out: an IPv4 address, or the network of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
