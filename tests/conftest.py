"""What many tests share: a log on a disk in memory, messages to put into it, and a broker to talk to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.cli.kit import child_environment

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.log import Log
from penstock.testing import FaultDisk, ManualClock, RunningBroker

# A busy machine is not a failed property: nothing is timed in tests.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# A shell that runs tests in the background has them ignore Ctrl-C, and so would every process they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

OpenLog = Callable[[FaultDisk], Log]
LOG_PATH = Path("/log")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def small_limits() -> Limits:
    """Segments of a few KiB, so that a handful of messages rolls them."""
    return Limits(
        payload_bytes_max=4096,
        block_bytes_max=8192,
        segment_bytes_first=4096,
        segment_bytes_max=16_384,
        disk_reserve_bytes=1,
    )


@pytest.fixture
def open_log(clock: ManualClock, small_limits: Limits) -> OpenLog:
    def open_(disk: FaultDisk) -> Log:
        return Log.open(disk, LOG_PATH, ids=IdGenerator(clock, node=1), clock=clock, limits=small_limits)

    return open_


@pytest.fixture
def draft() -> Callable[..., Draft]:
    def make(*payloads: bytes) -> Draft:
        return Draft.of(Message(payload=payload, type="t") for payload in payloads)

    return make


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all who leave it as they found it."""
    with RunningBroker("--log-level", "debug", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log
