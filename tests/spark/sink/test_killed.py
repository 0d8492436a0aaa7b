"""A streaming query into a topic, killed in the middle of batches: nothing is missing and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from pyspark.sql import SparkSession
from tests.cli.kit import child_environment
from tests.spark.processes import gone
from tests.spark.sink.killed_query import copy
from tests.spark.sink.kit import values

from penstock.core.errors import PenstockError
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a Spark of its own for every life
ROWS_A_LIFE = 12_000
"""Three batches: more than a life gets done before it is killed."""


def filled(root: Path, rows: int) -> Path:
    with Store.open(root, create=True) as store:
        topic = store.create_topic(TopicName.parse("orders"))
        for first in range(0, rows, 1000):
            payloads = [b"row %d" % number for number in range(first, first + 1000)]
            keys = [b"k%d" % (number % 9) if number % 2 else None for number in range(first, first + 1000)]
            store.append(topic.name, Draft.of_payloads(payloads, keys=keys))
    return root


def count(root: Path, topic: str) -> int:
    """Return how many messages a topic has; 0 as long as it does not exist."""
    try:
        reader = DataReader(root).topic(TopicName.parse(topic))
        return sum(int(reader.partition(number).view.next_offset) for number in reader.logs)
    except PenstockError:
        return 0


def started(arguments: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.sink.killed_query", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def killed_at(process: subprocess.Popen[bytes], root: Path, topic: str, rows: int) -> bool:
    """Kill the driver and its JVM once the topic has so many messages; False if the query ended before."""
    while process.poll() is None:
        if count(root, topic) >= rows:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            gone(process.pid)
            return True
        time.sleep(0.002)
    return False


def play(spark: SparkSession, root: Path, target: str, tmp_path: Path, kills: int) -> None:
    """Lives that end in the middle of a batch, and a last one, in this process, that ends by itself."""
    topic, chance, rows = "copied", random.Random(6), ROWS_A_LIFE * (kills + 1)
    arguments = [str(filled(tmp_path / "data", rows)), str(tmp_path / "checkpoint"), target, topic]
    with (tmp_path / "log").open("wb") as log:
        for _ in range(kills):
            height = count(root, topic) + chance.randrange(1, ROWS_A_LIFE // 2)
            assert killed_at(started(arguments, log), root, topic, height), (tmp_path / "log").read_text()[-4000:]
    copy(spark, *arguments)
    assert sorted(values(root, topic)) == sorted(f"row {number}" for number in range(rows))


def test_a_query_through_a_broker_survives_being_killed(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as broker:
        play(spark, broker.data, f"broker={broker.url}", tmp_path, kills=1)


def test_a_query_into_a_directory_survives_being_killed(spark: SparkSession, tmp_path: Path) -> None:
    with Store.open(tmp_path / "target", create=True):
        pass
    play(spark, tmp_path / "target", f"path={tmp_path / 'target'}", tmp_path, kills=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_query_through_a_broker_survives_twenty_kills(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with RunningBroker(environment=child_environment(tmp_path_factory)) as broker:
        play(spark, broker.data, f"broker={broker.url}", tmp_path, kills=20)
