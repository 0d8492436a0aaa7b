"""The demo: it tells the truth, and it notices when it would not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import child_environment

from penstock.cli.app import run
from penstock.core.errors import StorageFailed
from penstock.demo import log as demo
from penstock.demo import writer
from penstock.storage.verify import segment_paths

pytestmark = pytest.mark.slow

MESSAGES = 4000


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where temporary directories are made, here and in child processes."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    for name, value in (child_environment(tmp_path_factory) | {"TMPDIR": str(place)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return place


def children(pid: int) -> Iterator[int]:
    """The processes that a process has started."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        yield from map(int, task.read_text().split())


def gone(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def check_facts(facts: dict[str, Any], messages: int) -> None:
    assert facts["holds"] is True
    assert messages // 2 <= facts["acknowledged"] <= facts["recovered"] <= messages
    assert facts["recovered"] + facts["written_after"] == messages
    assert facts["read"] == facts["verified"] == messages


def test_the_demo_runs_and_its_numbers_add_up(scratch: Path) -> None:
    command = [sys.executable, "-m", "penstock", "demo", "--messages", str(MESSAGES), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    check_facts(json.loads(done.stdout), MESSAGES)
    assert "Traceback" not in done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see child processes")
def test_an_interrupted_demo_leaves_no_process_and_no_file(scratch: Path) -> None:
    """Ctrl-C goes to all processes of a terminal: only the demo answers, with nothing but its exit code."""
    command = [sys.executable, "-m", "penstock", "demo"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while "killing it half way" not in process.stderr.readline():
            pass
        writers: list[int] = []
        while not writers:
            writers = list(children(process.pid))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""
    assert all(map(gone, writers))
    assert list(scratch.iterdir()) == []


def test_the_data_can_be_kept_and_looked_at(scratch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--messages", "2000", "--keep", str(tmp_path / "kept")]) == 0
    shown = capsys.readouterr().out
    assert "BROKEN" not in shown
    assert f"penstock segment verify {tmp_path / 'kept'}" in shown
    assert run(["segment", "verify", str(tmp_path / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["records"] == 2000


@pytest.mark.parametrize("kind", ["a file", "a directory with something in it"])
def test_data_is_kept_only_where_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "file").write_text("mine")
    target = tmp_path / "place" if kind == "a directory with something in it" else tmp_path / "place" / "file"
    assert run(["demo", "--keep", str(target)]) == 2
    assert "choose a new directory" in capsys.readouterr().err
    assert (tmp_path / "place" / "file").read_text() == "mine"


def demo_with(
    monkeypatch: pytest.MonkeyPatch, step: str, change: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Run the demo with one step changed: its exit code and its table."""
    real = getattr(demo, step)
    monkeypatch.setattr(demo, step, lambda *arguments: change(real, *arguments))
    code = run(["demo", "--messages", "2000"])
    return code, capsys.readouterr().out


def test_a_lost_message_is_a_broken_promise(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def boast(real: Callable[..., int], *arguments: Any) -> int:
        """More is said to be acknowledged than was."""
        return real(*arguments) + 5000

    code, shown = demo_with(monkeypatch, "_write_and_kill", boast, capsys)
    assert code == 1
    assert "BROKEN" in next(line for line in shown.splitlines() if "nothing acknowledged is lost" in line)


def test_a_changed_message_is_a_broken_promise(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def damage(real: Callable[..., None], root: Path, *arguments: Any) -> None:
        real(root, *arguments)
        path = segment_paths(root)[0]
        data = bytearray(path.read_bytes())
        data[data.index(b'"order":77,')] ^= 1
        path.write_bytes(data)

    code, shown = demo_with(monkeypatch, "_write_rest", damage, capsys)
    assert code == 1
    broken = [line for line in shown.splitlines() if "BROKEN" in line]
    assert len(broken) == 2
    assert "every message is there once, in order, unchanged" in broken[0]
    assert "checksums, ids, offsets and indexes agree" in broken[1]


def test_a_writer_that_cannot_write_says_why_and_ends_the_demo(
    scratch: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StorageFailed, match="exit code 2"), demo._writer(tmp_path / "nowhere", 0, 10) as process:
        assert list(demo._acknowledged(process)) == []
    said = capfd.readouterr().err
    assert "not a Penstock data directory" in said
    assert "Traceback" not in said


def test_a_writer_is_gone_when_its_listener_fails(scratch: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), demo._writer(tmp_path, 0, 10**9) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL


def test_an_order_is_the_same_every_time_it_is_asked_for() -> None:
    assert writer.order(7) == writer.order(7)
    orders = {writer.order(number).payload for number in range(1000)}
    assert len(orders) == 1000
    assert all(json.loads(payload)["cents"] > 0 for payload in orders)
