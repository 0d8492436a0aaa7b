"""The demo as it is run: it tells the truth, leaves nothing behind, and fails when a step fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.cli.kit import child_environment

from penstock.cli.app import run
from penstock.demo.look_around import program
from penstock.demo.story import EVENTS_SMALL

SECONDS = 900
"""A busy machine starts Spark slowly."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 300)]

DEMO = [sys.executable, "-m", "penstock", "demo", "--small"]
TOOLS = ("sh", "chmod", "sleep", "rm", "curl")
"""Programs of the machine beside Python: the usual ones, and those that the demo's last lines name."""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory of programs, among them neither Java nor Node."""
    place = tmp_path / "tools"
    place.mkdir()
    for name in TOOLS:
        (place / name).symlink_to(str(shutil.which(name)))
    return place


@pytest.fixture
def scratch(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A machine with nothing but Python; returns the directory for temporary files of child processes."""
    place = tmp_path / "scratch"
    place.mkdir()
    for name, value in (child_environment(tmp_path_factory) | {"TMPDIR": str(place), "PATH": str(tools)}).items():
        monkeypatch.setenv(name, value)
    for name in ("PYTHONDONTWRITEBYTECODE", "JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return place


def test_the_machine_of_these_tests_has_no_java_and_no_node(scratch: Path) -> None:
    assert [shutil.which(name) for name in ("java", "node", "npm", "spark-submit")] == [None] * 4


def descendants(pid: int) -> Iterator[int]:
    """Return the descendants of a process."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, seen(task).split()):
            yield child
            yield from descendants(child)


def seen(file: Path) -> str:
    """Return the text of a file of /proc; empty if the process or thread has ended, which may happen at any moment."""
    try:
        return file.read_text()
    except OSError:
        return ""


def gone(pid: int) -> bool:
    return seen(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] in ([], ["Z"])


def all_gone(pids: list[int]) -> bool:
    """Soon: Spark's Python workers notice that the JVM is gone, and need a moment for it."""
    until = time.monotonic() + 120
    while not all(map(gone, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return all(map(gone, pids))


def said(stream: IO[str] | None, words: str) -> None:
    assert stream is not None
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"ended without {words!r}")


# the whole of it


def test_the_demo_runs_its_sums_add_up_and_what_it_says_can_be_pasted(scratch: Path, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    done = subprocess.run(
        [*DEMO, "--json", "--keep", "--dir", str(place)], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout)
    try:
        check_counts(told)
        assert (place / "revenue.png").read_bytes().startswith(b"\x89PNG")
        assert "<html" in (place / "audit.html").read_text()[:200]
        *commands, last = told["look_around"]
        for command in commands:
            shown = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=SECONDS)
            assert shown.returncode == 0, (command, shown.stderr)
            assert shown.stdout, command
            assert '"error"' not in shown.stdout, (command, shown.stdout)
    finally:
        subprocess.run(told["look_around"][-1], shell=True, check=True, timeout=SECONDS)
    assert last.startswith("kill ")
    assert not place.exists()
    assert all_gone([int(last.split()[1].rstrip(";"))])
    assert list(scratch.iterdir()) == []


def check_counts(told: dict[str, Any]) -> None:
    counts = told["counts"]
    assert told["holds"] is True
    assert counts["published"] == EVENTS_SMALL
    assert set(counts["by_transport"]) == {"TCP", "WebSocket", "HTTP"}
    assert counts["acknowledged"] + counts["refused"] == EVENTS_SMALL
    assert EVENTS_SMALL // 3 < counts["acknowledged_before_kill"] < counts["acknowledged"]
    assert counts["dead_letters"] == counts["redriven"] == counts["poisoned"] > 0
    assert counts["archived"] == counts["in_log"] == counts["acknowledged"] + counts["redriven"]
    assert counts["recognised"] > 0
    assert counts["revenue_cents"] > 0


# the end of it


def test_a_broker_that_dies_for_good_fails_the_demo(scratch: Path, tmp_path: Path) -> None:
    ready = tmp_path / "place" / "broker.json"
    with subprocess.Popen([*DEMO, "--dir", str(ready.parent)], stderr=subprocess.PIPE, text=True) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(json.loads(ready.read_text())["pid"], signal.SIGKILL)
        started = list(descendants(process.pid))
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "failed" in errors
    assert re.search(r"^penstock: SERVICE_UNAVAILABLE: the broker was killed by signal 9", errors, re.MULTILINE)
    assert "Traceback" not in errors
    assert not ready.parent.exists()
    assert all_gone(started)


def test_an_interrupted_demo_leaves_no_process_and_no_file(scratch: Path) -> None:
    """Ctrl-C goes to all processes of a terminal; the broker has none, and is ended by the demo."""
    with subprocess.Popen(DEMO, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        said(process.stderr, "publish")
        while len(started := list(descendants(process.pid))) < 2:  # the broker, and Spark's JVM, which may come later
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert all_gone(started)
    assert list(scratch.iterdir()) == []


# what is asked for


def test_a_directory_with_something_in_it_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert run(["demo", "--small", "--dir", str(tmp_path)]) == 2
    assert "name a new directory, or an empty one" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("events", ["0", "1999", "1000001", "many"])
def test_too_few_or_too_many_events_are_refused(events: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--events", events]) == 2
    assert "--events" in capsys.readouterr().err


def test_the_program_is_named_so_that_a_shell_finds_it() -> None:
    shown = subprocess.run(f"{program()} --version", shell=True, capture_output=True, text=True, timeout=SECONDS)
    assert shown.stdout.startswith("penstock ")
