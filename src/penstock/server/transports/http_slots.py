"""Slots of HTTP connections: which connections have one, and which lose theirs when slots are scarce.

A connection waits from its start, or from its last answer, until the head of its next request has come whole. When
slots are scarce, the connection that has waited longest is closed, since a new one is more likely to send a request. If
no ordinary slot can be had, a new connection gets one of a few spare slots, which are for health checks and metrics.
Pure: no socket and no timer.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

CONNECTIONS_MAX: Final = 1024
"""The number of ordinary slots: enough for half of them to be event streams and half ordinary requests. Each connection
has one slot, and one request at a time."""

SPARE_MAX: Final = 64
"""The number of spare slots, for health checks and metrics: a few orchestrators and scrapers."""

SHORTAGE_WAIT_SECONDS: Final = 3.0
"""The time for a request's head to come while more than three quarters of the ordinary slots are taken: a few round
trips of a slow network."""

_SHORTAGE_SHARE: Final = 0.75
_NETWORK_BITS: Final = 64
"""The length in bits of the prefix of an IPv6 address that counts as one client: a client usually has a whole network
of this size."""

Connection = TypeVar("Connection", bound=Hashable)


class SlotKind(Enum):
    ORDINARY = "ordinary"
    SPARE = "spare"
    NONE = "none"


@dataclass(slots=True)
class _SlotPool(Generic[Connection]):
    """The slots of one kind. `taken` has the connections with a slot, `waiting` those among them that wait for a
    request, with the time since when; the one that has waited longest comes first."""

    size: int
    taken: dict[Connection, str] = field(default_factory=dict)
    waiting: OrderedDict[Connection, float] = field(default_factory=OrderedDict)


class ConnectionSlots(Generic[Connection]):
    """The slots of one listener. One address may have at most `address_max` ordinary slots. Times are in seconds of any
    clock that only goes forward."""

    def __init__(self, address_max: int, size: int = CONNECTIONS_MAX, spare: int = SPARE_MAX) -> None:
        self._address_max = address_max
        self._ordinary: _SlotPool[Connection] = _SlotPool(size)
        self._spare: _SlotPool[Connection] = _SlotPool(spare)
        self._by_address: Counter[str] = Counter()

    def acquire(self, connection: Connection, address: str, now: float) -> tuple[SlotKind, list[Connection]]:
        """Give a slot to a new connection. Returns the kind of the slot, `SlotKind.NONE` if none is left, and the
        connections that lost their slots: the caller closes them."""
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
        """Record that the head of a request has come. Until the answer is sent, the connection does not lose its
        slot."""
        for pool in (self._ordinary, self._spare):
            pool.waiting.pop(connection, None)

    def response_sent(self, connection: Connection, now: float) -> None:
        """Record that the answer was sent, and the connection waits for its next request."""
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
        """Release the slots of connections that have waited longer than `SHORTAGE_WAIT_SECONDS`, as long as more than
        three quarters of the ordinary slots are taken. Yields these connections."""
        pool = self._ordinary
        while pool.waiting and len(pool.taken) > pool.size * _SHORTAGE_SHARE:
            connection, since = next(iter(pool.waiting.items()))
            if now - since < SHORTAGE_WAIT_SECONDS:
                return
            self.release(connection)
            yield connection

    def _longest(self, pool: _SlotPool[Connection], address: str | None = None) -> list[Connection]:
        """Release the slot of the connection that has waited longest for a request: of all, or of those from one
        address. Returns a list of this connection; an empty list if none waits."""
        longest = next((connection for connection in pool.waiting if address in (None, pool.taken[connection])), None)
        if longest is None:
            return []
        self.release(longest)
        return [longest]


def address_group(host: str) -> str:
    """Return the address that limits are counted for: an IPv4 address itself, the /64 network of an IPv6 address, or
    `host` unchanged if it is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
