"""Fixtures: one broker for a whole session of tests, others for tests that need their own, and bare clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.server.kit import BrokerProcess, Link, Start, TcpClient, WsClient, launch

Connect = Callable[..., Link]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A broker of its own takes a test more than a second."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "start" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Topics are live unless a test says otherwise: most are about connections, and what is kept is in their way."""
    found = child_environment(tmp_path_factory)
    kept = ("PENSTOCK_KERNEL_CACHE",)
    plain = {name: value for name, value in found.items() if not name.startswith("PENSTOCK_") or name in kept}
    return {**plain, "PENSTOCK_AUTO_CREATE": "live"}


@pytest.fixture(scope="session")
def shared(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with every default except for live topics; its log must contain no unhandled error at the end."""
    started = launch(tmp_path_factory.mktemp("broker"), environment, "--log-level", "debug", "--log-format", "json")
    try:
        yield started.wait_ready()
        assert started.process.poll() is None, "the broker did not survive the tests"
    finally:
        started.stop()
    assert started.defects() == []


@pytest.fixture
def broker(shared: BrokerProcess) -> Iterator[BrokerProcess]:
    """The shared one; it must still answer after the test."""
    yield shared
    with TcpClient(shared.tcp_port) as client:
        assert client.answers()


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    started: list[BrokerProcess] = []

    def call(*flags: str | Path, ready: bool = True, folder: Path | None = None, **options: Any) -> BrokerProcess:
        place = folder or tmp_path / f"broker{len(started)}"
        found = launch(place, environment, *flags, **options)
        started.append(found)
        return found.wait_ready() if ready else found

    yield call
    for each in started:
        each.stop()
    for each in started:
        assert each.defects() == []


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """A stack that closes what a test has opened."""
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def tcp(broker: BrokerProcess, stack: ExitStack) -> Callable[..., TcpClient]:
    return lambda **options: stack.enter_context(TcpClient(broker.tcp_port, **options))


@pytest.fixture
def ws(broker: BrokerProcess, stack: ExitStack) -> Callable[..., WsClient]:
    return lambda **options: stack.enter_context(WsClient(broker.ws_port, **options))


@pytest.fixture(params=["tcp", "ws"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """The same test on each transport."""
    chosen: Connect = request.getfixturevalue(request.param)
    return chosen
