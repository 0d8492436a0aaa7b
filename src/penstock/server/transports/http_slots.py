"""Slots of HTTP connections: who has one, and who loses it when they are scarce.

A connection waits until the head of its next request has come whole. When slots are scarce, the connection that has
waited longest is closed, since a new one is more likely to send a request. If all are being answered, a new connection
gets one of a few spare slots, which are for health checks and metrics. Pure: no socket, no timer.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

CONNECTIONS_MAX: Final = 1024
"""The number of ordinary slots: half for event streams, half for requests. Each connection has one request at a time.
"""

SPARE_MAX: Final = 64
"""The number of spare slots, for health checks and metrics: a few orchestrators and scrapers."""

SHORTAGE_WAIT_SECONDS: Final = 3.0
"""The time for a head to come when three quarters of the slots are taken: a slow network's round trips, and no more."""

_SHORTAGE_SHARE: Final = 0.75
_NETWORK_BITS: Final = 64
"""The prefix of an IPv6 address that counts as one client, which usually has all of it."""

Connection = TypeVar("Connection", bound=Hashable)


class SlotKind(Enum):
    ORDINARY = "ordinary"
    SPARE = "spare"
    NONE = "none"


@dataclass(slots=True)
class _SlotPool(Generic[Connection]):
    """The slots of one kind, and the connections among them that wait for a request, the longest first."""

    size: int
    taken: dict[Connection, str] = field(default_factory=dict)
    waiting: OrderedDict[Connection, float] = field(default_factory=OrderedDict)


class ConnectionSlots(Generic[Connection]):
    """The slots of one listener. One address has at most `address_max` ordinary ones."""

    def __init__(self, address_max: int, size: int = CONNECTIONS_MAX, spare: int = SPARE_MAX) -> None:
        self._address_max = address_max
        self._ordinary: _SlotPool[Connection] = _SlotPool(size)
        self._spare: _SlotPool[Connection] = _SlotPool(spare)
        self._by_address: Counter[str] = Counter()

    def acquire(self, connection: Connection, address: str, now: float) -> tuple[SlotKind, list[Connection]]:
        """Give a slot to a new connection. Returns its kind, and the connections that lost theirs."""
        gone = list(self._overdue(now))
        if self._by_address[address] >= self._address_max:
            gone += self._longest(self._ordinary, address)
        elif len(self._ordinary.taken) >= self._ordinary.size:
            gone += self._longest(self._ordinary)
        if self._by_address[address] < self._address_max and len(self._ordinary.taken) < self._ordinary.size:
            self._by_address[address] += 1
            return self._occupy(self._ordinary, connection, address, now, SlotKind.ORDINARY), gone
        if len(self._spare.taken) >= self._spare.size:
            gone += self._longest(self._spare)
        if len(self._spare.taken) < self._spare.size:
            return self._occupy(self._spare, connection, address, now, SlotKind.SPARE), gone
        return SlotKind.NONE, gone

    def request_received(self, connection: Connection) -> None:
        """Record that the head of a request has come."""
        for pool in (self._ordinary, self._spare):
            pool.waiting.pop(connection, None)

    def response_sent(self, connection: Connection, now: float) -> None:
        """Record that the connection waits for its next request."""
        for pool in (self._ordinary, self._spare):
            if connection in pool.taken:
                pool.waiting[connection] = now
                pool.waiting.move_to_end(connection)

    def release(self, connection: Connection) -> None:
        address = self._ordinary.taken.get(connection)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
        for pool in (self._ordinary, self._spare):
            pool.taken.pop(connection, None)
            pool.waiting.pop(connection, None)

    @staticmethod
    def _occupy(
        pool: _SlotPool[Connection], connection: Connection, address: str, now: float, kind: SlotKind
    ) -> SlotKind:
        pool.taken[connection] = address
        pool.waiting[connection] = now
        return kind

    def _overdue(self, now: float) -> Iterator[Connection]:
        """Release connections that have waited too long, while slots are scarce."""
        pool = self._ordinary
        while pool.waiting and len(pool.taken) > pool.size * _SHORTAGE_SHARE:
            connection, since = next(iter(pool.waiting.items()))
            if now - since < SHORTAGE_WAIT_SECONDS:
                return
            self.release(connection)
            yield connection

    def _longest(self, pool: _SlotPool[Connection], address: str | None = None) -> list[Connection]:
        """Release the connection that has waited longest, of all or of one address. Returns it, if there is one."""
        longest = next((connection for connection in pool.waiting if address in (None, pool.taken[connection])), None)
        if longest is None:
            return []
        self.release(longest)
        return [longest]


def address_group(host: str) -> str:
    """Return the unit that limits count: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
