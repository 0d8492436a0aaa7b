"""The events of a shop that sells tea: three days of orders, the same ones every time. Pure: no broker, no clock.

Every order is placed, and then paid or cancelled. Some events are malformed: the topic's schema does not allow them.
Some are poisoned: the schema allows them, but billing knows no price for the product. Each event has a number, which is
in its payload too, so that it can be found again wherever it turns up.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

TOPIC: Final = "orders"
BEGIN: Final = datetime(2026, 3, 2, tzinfo=UTC)
HOURS: Final = 72
CUSTOMERS: Final = 5000
CATALOG: Final = {"assam": 690, "sencha": 890, "kettle": 4990, "teapot": 3450, "cup": 1190, "honey": 590}
"""Products and their prices in cents."""

_POPULAR: Final = (0.30, 0.25, 0.06, 0.09, 0.16, 0.14)
UNKNOWN: Final = "samovar"
"""A product that is ordered before its price is known: it poisons an event."""

PLACED, PAID, CANCELLED = "order.placed", "order.paid", "order.cancelled"
_DAY: Final = (2, 1, 1, 1, 1, 2, 4, 8, 12, 15, 17, 20, 22, 18, 15, 14, 15, 18, 23, 27, 26, 19, 11, 5)
"""The weight of each hour of a day."""
_DAYS: Final = (1.0, 1.1, 1.35)
_SEED: Final = 20_260_302


class Transport(StrEnum):
    TCP = "TCP"
    WEBSOCKET = "WebSocket"
    HTTP = "HTTP"


class EventKind(IntEnum):
    """The kind of an event: stored and billed, refused by the schema, or refused by billing."""

    GOOD = 0
    MALFORMED = 1
    POISONED = 2


_SHARES: Final = ((Transport.TCP, 0.93), (Transport.WEBSOCKET, 0.02), (Transport.HTTP, 0.05))
"""The share of each transport: single messages are slower, so they get fewer events, and all end at about the same
time."""
_MALFORMED_EVERY: Final = 250
_POISONED_EVERY: Final = 1000
_RETRIED_EVERY: Final = 100
_MISTAKES: Final = 4
_CANCELLED: Final = 0.05
_NAMES: Final = tuple(CATALOG)
_CHANNELS: Final = (',"channel":"app"', "", "")
"""The field that only the second version of the schema has, by transport: events on TCP have it."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Orders:
    """The events of the demo: each attribute has an entry for every event, in the order of their numbers."""

    payloads: list[bytes]
    types: list[str]
    keys: list[str]
    kinds: npt.NDArray[np.int8]
    transports: IntArray
    """Indexes into `_SHARES`."""

    retried: npt.NDArray[np.bool_]
    """True for events that are sent twice, as if the first answer had been lost."""

    cents: IntArray
    hours: IntArray
    """Whole hours since `BEGIN`."""

    def __len__(self) -> int:
        return len(self.payloads)

    def of(self, transport: Transport) -> list[int]:
        """Return the numbers of the events of this transport."""
        index = [each for each, _ in _SHARES].index(transport)
        return np.flatnonzero(self.transports == index).tolist()

    def count(self, kind: EventKind) -> int:
        return int(np.count_nonzero(self.kinds == kind))

    def revenue(self) -> IntArray:
        """Return the cents paid in each hour by events that can be stored: the reference for every sum."""
        paid = np.array([type_ == PAID for type_ in self.types]) & (self.kinds != EventKind.MALFORMED)
        return np.bincount(self.hours[paid], weights=self.cents[paid], minlength=HOURS).astype(np.int64)


def generate(count: int) -> Orders:
    """Return `count` events in the order of their time. The same count always gives the same events."""
    chosen = np.random.Generator(np.random.PCG64(_SEED))
    orders, numbers = (count + 1) // 2, np.arange(count)
    order = numbers // 2
    products = chosen.choice(len(CATALOG), size=orders, p=_POPULAR)[order]
    customers = chosen.integers(1, CUSTOMERS + 1, size=orders)[order]
    quantities = np.minimum(chosen.geometric(0.6, size=orders), 9)[order]
    cents = np.array(list(CATALOG.values()))[products] * quantities
    cancelled = (chosen.random(count) < _CANCELLED).tolist()
    transports = chosen.choice(len(_SHARES), size=count, p=[share for _, share in _SHARES])
    kinds, retried = _kinds(transports)
    seconds = _seconds(count)
    columns = (products, customers, quantities, cents, _times(seconds), kinds, transports)
    facts = zip(range(count), *(column.tolist() for column in columns), strict=True)
    return Orders(
        payloads=[_payload(*fact) for fact in facts],
        types=[_type(number, each) for number, each in enumerate(cancelled)],
        keys=[f"customer-{each}" for each in customers.tolist()],
        kinds=kinds,
        transports=transports,
        retried=retried,
        cents=cents,
        hours=seconds // 3600,
    )


def _type(number: int, cancelled: bool) -> str:
    if number % 2 == 0:
        return PLACED
    return CANCELLED if cancelled else PAID


def _kinds(transports: IntArray) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return the kind of each event, and True for each event that is sent twice.

    Kinds are counted out for each transport by itself, so that few events are enough for each to have some of every
    kind.
    """
    kinds = np.full(len(transports), EventKind.GOOD, np.int8)
    retried = np.zeros(len(transports), np.bool_)
    for transport in range(len(_SHARES)):
        mine = np.flatnonzero(transports == transport)
        retried[mine[3::_RETRIED_EVERY]] = True
        kinds[mine[11::_POISONED_EVERY]] = EventKind.POISONED
        for kind in range(_MISTAKES):
            kinds[mine[17 + kind :: _MALFORMED_EVERY * _MISTAKES]] = EventKind.MALFORMED
    return kinds, retried & (kinds == EventKind.GOOD)


def _seconds(count: int) -> IntArray:
    """Return the time of each event, in seconds since `BEGIN`: many in busy hours, few at night."""
    busy = np.array([weight * factor for factor in _DAYS for weight in _DAY], float)
    reached = np.concatenate([[0.0], np.cumsum(busy)]) / busy.sum()
    return (np.interp((np.arange(count) + 0.5) / count, reached, np.arange(HOURS + 1)) * 3600).astype(np.int64)


def _times(seconds: IntArray) -> npt.NDArray[np.str_]:
    begin = np.datetime64(BEGIN.replace(tzinfo=None), "s")
    return np.datetime_as_string(begin + seconds.astype("timedelta64[s]"))


def _payload(
    number: int, product: int, customer: int, quantity: int, cents: int, at: str, kind: int, transport: int
) -> bytes:
    name = UNKNOWN if kind == EventKind.POISONED else _NAMES[product]
    text = (
        f'{{"event":{number},"order":{number // 2},"customer":{customer},"product":"{name}",'
        f'"quantity":{quantity},"cents":{cents},"at":"{at}Z"{_CHANNELS[transport]}}}'
    )
    return (_spoiled(text, number) if kind == EventKind.MALFORMED else text).encode()


def _spoiled(text: str, number: int) -> str:
    """Return a malformed payload, as faulty programs write it."""
    match number % _MISTAKES:
        case 0:
            return text.replace('"quantity":', '"quantity":-')
        case 1:
            return text.replace('"product":', '"produkt":')
        case 2:
            return text.replace('"cents":', '"cents":"').replace(',"at"', '","at"', 1)
        case _:
            return text[:-12]
