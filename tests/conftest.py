"""What many tests share: a log on a disk in memory, messages to put into it, and a broker to talk to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from tests.cli.kit import child_environment

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.log.log import Log
from penstock.testing import FaultDisk, ManualClock, RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is not a failed property: nothing is timed in tests. The suite tries the same examples every time, so
# that it fails for a change and never by chance; `./dev soak` tries new ones.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("soak", settings.get_profile("suite"), derandomize=False)


def _same_examples_everywhere() -> None:
    """Hypothesis also tries constants out of our modules, of those that are loaded by then: which ones they are is for
    the tests to say that ran before in the same process, and so would be the examples."""
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", Constants)


_LONG = (
    *("benches/", "cli/", "client/", "crash/", "damage/", "docs/", "examples/", "server/", "wire/"),
    *(
        "spark/decode/languages/test_json_schema",
        "spark/files/",
        "spark/jobs/",
        "spark/lake/",
        "spark/scan/test_slice_reader",
    ),
    *("spark/source/test_follower", "spark/source/test_progress", "storage/backup/", "storage/catalog/test_catalog."),
)
"""What starts brokers and other processes, breaks disks a thousand ways, or makes tables and backups: not for
`./dev quick`, which does not even import it."""
_QUICK = "not soak and not slow"


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # what commands print is the same in every process of the tests
    os.environ["SPARK_QUICK"] = "1"  # the Sparks of commands are short-lived, as that of the tests
    soak = config.getoption("markexpr") == "soak"
    settings.load_profile("soak" if soak else "suite")
    if not soak:
        _same_examples_everywhere()


def _is_long(path: Path, config: pytest.Config) -> bool:
    return str(path.relative_to(config.rootpath / "tests")).startswith(_LONG)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    quick = config.getoption("markexpr") == _QUICK and collection_path.suffix == ".py"
    return True if quick and _is_long(collection_path, config) else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_long(item.path, config) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))  # one session for all of them
    items.sort(key=_turn)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that cannot run here: one that is skipped proves nothing, and nobody reads why."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"cannot run here: {reason.removeprefix('Skipped: ')}; `./dev test` installs what it can"
    return report


def _turn(item: pytest.Item) -> int:
    """Groups take one process for minutes: it begins with them, while others do the rest. What is over in milliseconds
    comes last, so that all processes end together."""
    if item.get_closest_marker("xdist_group"):
        return 0
    return 1 if item.get_closest_marker("slow") else 2


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real Spark on two cores, one for all tests. What a test sets in its configuration, it puts back."""
    import penstock.spark

    tables = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = penstock.spark.session("tests", master="local[2]", memory="2g", quick=True, config=tables)
    yield session
    session.stop()


@pytest.fixture
def commands_share_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are run in this process take the session of the tests, and leave it running."""
    from penstock.cli import options

    monkeypatch.setattr(options.SparkOptions, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


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
    """One for all who leave it as they found it: nothing is kept that another test would meet again."""
    flags = ("--log-level", "debug", "--auto-create", "live")
    with RunningBroker(*flags, environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(scope="session")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One that keeps what is published, for all who use topics of their own."""
    with RunningBroker("--log-level", "debug", environment=child_environment(tmp_path_factory)) as running:
        yield running
        assert "Traceback" not in running.log
