"""Events over TCP: who is told to stop does, however early."""

from __future__ import annotations

import pytest

from penstock.demo.base.ledger import Ledger
from penstock.demo.base.orders import generate
from penstock.demo.traffic.schemas import SchemaVersion
from penstock.demo.traffic.tcp_publisher import TcpPublisher
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # a broker


def test_a_publisher_that_is_stopped_before_it_is_connected_publishes_nothing(keeper: RunningBroker) -> None:
    orders = generate(1000)
    ledger = Ledger(len(orders), half_way=lambda: None)
    publisher = TcpPublisher(keeper.url, orders, ledger, SchemaVersion(1, 1))
    publisher.stop()
    publisher.run()
    assert (publisher.done, ledger.answered) == (0, 0)
