"""An archive killed at every step of its commit, again and again: nothing missing, nothing twice."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.spark.lake.kit import TABLE_FORMATS, independent
from tests.spark.log_kit import ORDERS, SOLD, append, everything, make_data

from penstock.spark.files.location import Location
from penstock.spark.lake import open_table
from penstock.spark.runtime.failpoints import FAILPOINTS
from penstock.storage.store import Store

SCRIPT: Final = Path(__file__).parent / "killed_archiver.py"


class Lives:
    """Runs of archives, one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, str(SCRIPT)]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._input, self._output = self._server.stdin, self._server.stdout
        self._output.readline()  # ready

    def begin(
        self, data: Path, lake: Path, table_format: str, failpoint: str = "", *, checkpoint: str = "checkpoint"
    ) -> int:
        """Start an archive; return its process id."""
        given = [str(data), str(lake), table_format, str(lake / checkpoint), failpoint]
        self._input.write(json.dumps(given) + "\n")
        self._input.flush()
        return int(self._output.readline())

    def end(self) -> tuple[int, str]:
        code, said = json.loads(self._output.readline())
        return code, said

    def run(self, *given: Any, seconds: float | None = None) -> int:
        """Run an archive; return whether it was killed, by its failpoint or after so many seconds."""
        child = self.begin(*given)
        killer = threading.Timer(seconds or 0, os.kill, (child, signal.SIGKILL))
        if seconds is not None:
            killer.start()
        code, said = self.end()
        killer.cancel()
        assert code in (0, -signal.SIGKILL), said
        return code

    def close(self) -> None:
        self._input.close()
        self._server.wait()
        self._output.close()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    made = Lives()
    yield made
    made.close()


def digest(ids: Iterable[bytes]) -> tuple[int, str]:
    """Return the count and a hash of all ids in order: a duplicate changes both."""
    whole, count = hashlib.sha256(), 0
    for each in sorted(ids):
        whole.update(each)
        count += 1
    return count, whole.hexdigest()


def in_log(data: Path) -> tuple[int, str]:
    return digest(record.id for records in everything(Location(str(data)).open()).values() for record in records)


def in_lake(lake: Path, table_format: str) -> tuple[int, str]:
    found: list[bytes] = []
    for name in ("default.orders", "shop.parts_sold"):
        table = open_table(table_format, str(lake), name)
        found += independent(table, ["_id"]).column(0).to_pylist()
    return digest(found)


def orphans(lake: Path, table_format: str) -> list[str]:
    """Return data files that belong to no table."""
    left = []
    for name in ("default.orders", "shop.parts_sold"):
        table = open_table(table_format, str(lake), name)
        live = {each.path for each in table.live()}
        left += [each.path for each in table.folder.list() if each.path.endswith(".parquet") and each.path not in live]
    return [path for path in left if "_delta_log" not in path]


@pytest.mark.slow
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_killed_once_at_every_step_of_a_commit(lives: Lives, tmp_path: Path, table_format: str) -> None:
    """Each step at its first and its second visit: the second is in the middle of a batch with two tables."""
    data, lake = make_data(tmp_path / "data", messages=30), tmp_path / "lake"
    killed = 0
    for step in FAILPOINTS:
        for visit in (1, 2):
            with Store.open(data) as store:
                append(store, ORDERS, range(100, 107))
                append(store, SOLD, range(3), 1)
            killed += lives.run(data, lake, table_format, f"{step}:{visit}") != 0
    assert lives.run(data, lake, table_format) == 0
    assert killed >= len(FAILPOINTS)
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []


@pytest.mark.slow
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_killed_at_random_steps_while_the_log_grows(lives: Lives, tmp_path: Path, table_format: str) -> None:
    data, lake, chance = make_data(tmp_path / "data", messages=200), tmp_path / "lake", random.Random(table_format)
    for _ in range(8):
        lives.run(data, lake, table_format, f"{chance.choice(FAILPOINTS)}:{chance.randrange(1, 9)}")
        with Store.open(data) as store:
            append(store, ORDERS, range(chance.randrange(60)))
    assert lives.run(data, lake, table_format) == 0
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_killed_at_random_moments_for_a_long_time(lives: Lives, tmp_path: Path, table_format: str) -> None:
    data, lake, chance = make_data(tmp_path / "data", messages=500), tmp_path / "lake", random.Random(table_format)
    for _ in range(60):
        if chance.random() < 0.5:
            lives.run(data, lake, table_format, f"{chance.choice(FAILPOINTS)}:{chance.randrange(1, 30)}")
        else:
            lives.run(data, lake, table_format, seconds=chance.uniform(0.8, 4.0))
        with Store.open(data) as store:
            append(store, ORDERS, range(chance.randrange(200)))
            append(store, SOLD, range(chance.randrange(50)), chance.randrange(3))
    assert lives.run(data, lake, table_format) == 0
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []


@pytest.mark.slow
@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_of_two_archives_that_run_together_one_is_fenced(lives: Lives, tmp_path: Path, table_format: str) -> None:
    data, lake = make_data(tmp_path / "data", messages=400), tmp_path / "lake"
    other = Lives()
    try:
        lives.begin(data, lake, table_format, checkpoint="one")
        other.begin(data, lake, table_format, checkpoint="two")
        ends = [lives.end(), other.end()]
    finally:
        other.close()
    assert any(code for code, _ in ends)
    for code, said in ends:
        assert code == 0 or "NotOwner" in said, said
    found = independent(open_table(table_format, str(lake), "default.orders"), ["_id"]).column(0).to_pylist()
    assert len(found) == len(set(found))
