"""Connections of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.wire.kit import Raw, Tcp, WebSocket

from penstock.testing import RunningBroker

Connect = Callable[[], Raw]


@pytest.fixture(params=["tcp", "ws"])
def connect(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Connect]:
    opened: list[Raw] = []

    def make() -> Raw:
        opened.append(Tcp(broker.tcp_port) if request.param == "tcp" else WebSocket(broker.ws_port))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()
