from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import Client

from penstock.testing import RunningBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "unhandled error" not in running.log


@pytest.fixture(scope="module")
def port(broker: RunningBroker) -> int:
    return int(broker.ready["http_port"])


@pytest.fixture
def http(port: int) -> Iterator[Client]:
    with Client(port) as client:
        yield client
