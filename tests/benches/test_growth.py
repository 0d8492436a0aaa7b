"""Memory is watched for whole families of processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benches.spark import GROWTH
from benches.spark_growth import MemoryWatch

from penstock.bench.spark import TOPIC, SampleLog
from penstock.storage.store import Store

MIB = 1 << 20
CHILD = "input('ready\\n'); data = b'x' * (200 << 20); print('taken', flush=True); input()"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
child.wait()
"""


def test_what_a_child_takes_is_seen_while_it_runs() -> None:
    command = [sys.executable, "-c", FAMILY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as family:
        assert family.stdin is not None
        assert family.stdout is not None
        assert family.stdout.readline() == b"ready\n"  # before that, they are copies of this process
        with MemoryWatch(family.pid) as watched:
            until(lambda: watched.peak > 0)
            before = watched.peak
            family.stdin.write(b"\n")
            family.stdin.flush()
            assert family.stdout.readline() == b"taken\n"
            until(lambda: watched.peak >= before + 180 * MIB)  # what it shares with others may become less
        family.communicate(b"\n")
    assert watched.peak < before + 400 * MIB


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.01)


def test_a_log_of_few_payloads_has_as_many_messages_as_are_asked_for(tmp_path: Path) -> None:
    made = SampleLog.make(tmp_path / "data", 50_000, distinct=20_000)
    assert made.messages == 50_000
    with Store.open(tmp_path / "data") as store:
        log = store.log(TOPIC, 0)
        assert int(log.next_offset) == 50_000
        first, again = (log.read(offset).block.to_arrow(["value"]).column(0)[0] for offset in (7, 40_007))
    assert first == again


def test_everything_that_grows_has_a_bound() -> None:
    assert {name.partition(",")[0] for name in GROWTH} == {"read", "archive", "audit"}
