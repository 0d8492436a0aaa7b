"""The broker of the demo: it comes back where it was, and its end is noticed unless it was wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.core.errors import ServiceUnavailable
from penstock.demo.broker.process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    for name, value in child_environment(tmp_path_factory).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    found = BrokerProcess(tmp_path)
    yield found
    found.kill()


def test_it_comes_back_on_its_ports_with_what_it_had(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TCP_PORT", "off")  # of somebody's own broker
    broker.start()
    before = broker.ports
    with penstock.connect(broker.url) as client:
        client.publish("orders", b"1")
    broker.send_kill()
    assert broker.killed_on_purpose.is_set()
    broker.check()
    broker.kill()
    broker.start()
    assert broker.ports == before
    assert not broker.killed_on_purpose.is_set()
    with penstock.connect(broker.url) as client:
        (topic,) = client.topics()
    assert topic["messages"] == 1
    broker.stop()
    broker.check()


def test_its_end_is_noticed_and_told_with_what_it_said(broker: BrokerProcess) -> None:
    broker.start()
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(ServiceUnavailable, match="was killed by signal 9, and nobody asked it to"):
        broker.check_soon()


def test_a_broker_that_cannot_start_says_why(broker: BrokerProcess) -> None:
    broker.data.write_text("not a directory")
    with pytest.raises(ServiceUnavailable, match=r"ended with exit code 2.*It said: penstock: "):
        broker.start()
