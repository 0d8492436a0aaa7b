"""The events of the demo: always the same, with some of everything on every transport."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from penstock.demo.base.orders import BEGIN, HOURS, PAID, EventKind, Orders, Transport, generate
from penstock.demo.broker.log_contents import number_of
from penstock.demo.story import EVENTS_SMALL
from penstock.demo.traffic import schemas

SECOND: Any = jsonschema_rs.validator_for(json.loads(schemas.text(schemas.SECOND)))
FIRST: Any = jsonschema_rs.validator_for(json.loads(schemas.text(schemas.FIRST)))


@pytest.fixture(scope="module")
def orders() -> Orders:
    return generate(EVENTS_SMALL)


def conforms(validator: Any, payload: bytes) -> bool:
    try:
        return bool(validator.is_valid(json.loads(payload)))
    except ValueError:
        return False


def test_the_events_are_the_same_every_time(orders: Orders) -> None:
    again = generate(EVENTS_SMALL)
    assert again.payloads == orders.payloads
    assert again.types == orders.types
    assert (again.kinds == orders.kinds).all()


@pytest.mark.parametrize("transport", list(Transport))
def test_every_transport_has_some_of_everything(orders: Orders, transport: Transport) -> None:
    mine = orders.of(transport)
    assert {EventKind(int(fate)) for fate in orders.kinds[mine]} == set(EventKind)
    assert orders.retried[mine].any()
    assert {orders.types[number] for number in mine} >= {"order.placed", PAID}


def test_the_schema_refuses_the_malformed_and_no_other(orders: Orders) -> None:
    refused = [number for number, each in enumerate(orders.payloads) if not conforms(SECOND, each)]
    assert refused == np.flatnonzero(orders.kinds == EventKind.MALFORMED).tolist()


def test_what_the_page_writes_is_of_the_first_version(orders: Orders) -> None:
    good = [number for number in orders.of(Transport.WEBSOCKET) if orders.kinds[number] != EventKind.MALFORMED]
    assert all(conforms(FIRST, orders.payloads[number]) for number in good)
    assert not all(conforms(FIRST, orders.payloads[number]) for number in orders.of(Transport.TCP))


def test_every_event_bears_its_number(orders: Orders) -> None:
    readable = np.flatnonzero(orders.kinds != EventKind.MALFORMED).tolist()
    assert [number_of(orders.payloads[number]) for number in readable] == readable


def test_the_expected_revenue_is_what_the_payloads_say(orders: Orders) -> None:
    expected = np.zeros(HOURS, np.int64)
    for number, payload in enumerate(orders.payloads):
        if orders.types[number] == PAID and orders.kinds[number] != EventKind.MALFORMED:
            said = json.loads(payload)
            day, hour = int(said["at"][8:10]) - BEGIN.day, int(said["at"][11:13])
            expected[24 * day + hour] += said["cents"]
    assert orders.revenue().tolist() == expected.tolist()
    assert expected.sum() > 0
