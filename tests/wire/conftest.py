"""One broker for all conversations, and connections of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.cli.kit import child_environment
from tests.wire.kit import Raw, Tcp, WebSocket

from penstock.testing import RunningBroker

Connect = Callable[[], Raw]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--log-level", "debug", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(params=["tcp", "ws"])
def connect(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Connect]:
    opened: list[Raw] = []

    def make() -> Raw:
        opened.append(Tcp(broker.tcp_port) if request.param == "tcp" else WebSocket(broker.ws_port))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()
