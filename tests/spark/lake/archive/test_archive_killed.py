"""Drivers, JVMs, workers, executors and brokers killed under a real archive: the tables equal the log all the same."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.cli.kit import child_environment
from tests.spark.lake.archive.archive_driver import LOCAL, archive_all
from tests.spark.lake.tables.test_killed import in_lake, in_log, orphans
from tests.spark.log_kit import ORDERS, SOLD, append, make_data
from tests.spark.processes import gone, session

import penstock
from penstock.core.errors import PenstockError
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.batch_commit import BatchReport
from penstock.spark.lake.archive.run import archive
from penstock.spark.runtime.failpoints import FAILPOINTS, VARIABLE
from penstock.storage.store import Store
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Killer = Callable[["Driver"], None]
LIFE_SECONDS: Final = 500
SPARK: Final = "local[2]"


class Driver:
    """A run of an archive, with all the processes below it."""

    def __init__(self, data: Path, lake: Path, table_format: str, *, failpoint: str = "", master: str = SPARK) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.spark.lake.archive.archive_driver",
            str(data),
            str(lake),
            table_format,
            master,
        ]
        self._log = (lake.parent / "driver.log").open("a+b")
        self._began = self._log.tell()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=os.environ | {VARIABLE: failpoint},
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.struck = 0
        """Executors that were killed."""

    def below(self, *words: str) -> list[int]:
        """Return processes of this run whose command line has all of these words."""
        return [pid for pid, line in session(self.pid) if all(word in line for word in words)]

    def has_said(self, word: str) -> bool:
        self._log.seek(self._began)
        return word.encode() in self._log.read()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        """Wait for its end and check that no process of it is left."""
        try:
            return self._process.wait(LIFE_SECONDS)
        finally:
            for pid, _ in session(self.pid):
                kill(pid)
            self._process.wait()
            gone(self.pid)
            self._log.close()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def everything(driver: Driver) -> None:
    kill(driver.pid)
    for pid in driver.below(""):
        kill(pid)


def jvm(driver: Driver) -> None:
    for pid in driver.below("java", "SparkSubmit"):
        kill(pid)


def worker(driver: Driver) -> None:
    for pid in driver.below("pyspark.daemon")[1:2]:
        kill(pid)


def executor(driver: Driver) -> None:
    """Return an executor once the first batch is done and more are to come."""
    while driver.is_alive():
        found = driver.below("java", "CoarseGrainedExecutorBackend")
        if found and driver.has_said("batch"):
            kill(found[0])
            driver.struck += 1
            return
        time.sleep(0.05)


def live(driver: Driver, *, after: float = 0, killer: Killer | None = None) -> int:
    """Run an archive to its end; kill it after so many seconds, if it runs that long."""
    until = time.monotonic() + after
    while killer is not None and driver.is_alive() and time.monotonic() < until:
        time.sleep(0.05)
    if killer is not None and driver.is_alive():
        killer(driver)
    return driver.end()


def grow(data: Path, chance: random.Random, *, messages: int = 200) -> None:
    with Store.open(data) as store:
        append(store, ORDERS, range(chance.randrange(messages // 2, messages)))
        append(store, SOLD, range(chance.randrange(1, 50)), chance.randrange(3))


@pytest.mark.parametrize(
    ("table_format", "steps"),
    [
        ("delta", [(SPARK, "files-written:2"), (LOCAL, "plan-written:2"), (SPARK, "progress-reported")]),
        ("iceberg", [(LOCAL, "before-commit"), (SPARK, "committed-before-return:2"), (LOCAL, "between-tables")]),
    ],
)
def test_a_driver_killed_in_the_middle_of_its_commits(
    spark: SparkSession, tmp_path: Path, table_format: str, steps: list[tuple[str, str]]
) -> None:
    """Some of the steps: `test_killed` has all of them, without Spark. Each run is continued by another engine; the
    last one is in this process."""
    data, lake, chance = make_data(tmp_path / "data", messages=900), tmp_path / "lake", random.Random(7)
    for master, step in steps:
        assert live(Driver(data, lake, table_format, failpoint=step, master=master)) == -signal.SIGKILL
        grow(data, chance)
    archive_all(spark, str(data), str(lake), table_format)
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []


def test_a_broker_killed_while_its_log_is_archived(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files are read over the broker's HTTP, and it is killed between two batches of one archive."""
    data, lake = make_data(tmp_path / "data", messages=300), tmp_path / "lake"
    environment, port, batches = child_environment(tmp_path_factory), "0", list[BatchReport]()
    for _ in range(2):
        with RunningBroker("--http-port", port, data=data, environment=environment) as broker:
            port = broker.http_url.rpartition(":")[2]
            publish(broker, 200)

            def strike(batch: BatchReport, broker: RunningBroker = broker) -> None:
                batches.append(batch)
                broker.kill()

            with pytest.raises(PenstockError, match=f"the broker at http://127.0.0.1:{port} does not answer"):
                archive_url(spark, broker, lake, batch_bytes=10_000, on_batch=strike)
    assert 0 < sum(batch.rows for batch in batches) < in_log(data)[0]
    with RunningBroker("--http-port", port, data=data, environment=environment) as broker:
        archive_url(spark, broker, lake, batch_bytes=1_000_000)
    assert in_lake(lake, "delta") == in_log(data)
    assert in_log(data)[0] == 300 + 15 + 400


def publish(broker: RunningBroker, count: int) -> None:
    with penstock.connect(broker.url) as client, client.producer("orders") as producer:
        for number in range(count):
            producer.send(b"order %d" % number)
        producer.flush()


def archive_url(
    spark: SparkSession,
    broker: RunningBroker,
    lake: Path,
    *,
    batch_bytes: int,
    on_batch: Callable[[BatchReport], None] | None = None,
) -> None:
    location = Location.parse(url=broker.http_url)
    archive(spark, location, warehouse=str(lake), once=True, batch_bytes=batch_bytes, on_batch=on_batch)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_killed_again_and_again_at_random(tmp_path: Path, table_format: str) -> None:
    """Twenty deaths: the driver at a step, all processes at once, the JVM alone, a worker; and then executors of a
    cluster."""
    data, lake, chance = (
        make_data(tmp_path / "data", messages=900),
        tmp_path / "lake",
        random.Random(f"{table_format}1"),
    )
    deaths = lives = 0
    while deaths < 20:
        lives += 1
        assert lives < 60
        choice = lives % 6
        if choice < 3:
            step = f"{chance.choice(FAILPOINTS)}:{chance.randrange(1, 4)}"
            code = live(Driver(data, lake, table_format, failpoint=step, master=chance.choice([LOCAL, SPARK])))
        else:
            killer: Killer = [everything, jvm, worker][choice - 3]
            code = live(Driver(data, lake, table_format), after=chance.uniform(3, 12), killer=killer)
        deaths += code != 0
        grow(data, chance, messages=800)
    for _ in range(2):
        life = Driver(data, lake, table_format, master="local-cluster[2,1,1024]")
        code = live(life, killer=executor)
        assert (code, life.struck) == (0, 1), (tmp_path / "driver.log").read_text()[-3000:]
        grow(data, chance, messages=800)
    print(f"{table_format}: {deaths} of {lives} lives were ended")
    assert live(Driver(data, lake, table_format, master=LOCAL)) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []
