"""Real writers, really killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_writers.py")


def kill(root: Path, kills: int, durability: str) -> dict[str, int]:
    command = [sys.executable, str(SCRIPT), str(root), str(kills), "seed", durability]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("durability", "kills"), [("sync", 250), ("os", 100)])
def test_what_a_killed_writer_was_promised_is_there(tmp_path: Path, durability: str, kills: int) -> None:
    found = kill(tmp_path / "data", kills, durability)
    assert found["kills"] == kills
    assert found["found"] >= found["promised"] > kills / 2


def test_a_handful_of_kills(tmp_path: Path) -> None:
    found = kill(tmp_path / "data", 10, "sync")
    assert found["found"] >= found["promised"]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_thousands_of_kills(tmp_path: Path, durability: str) -> None:
    for turn in range(10):
        found = kill(tmp_path / str(turn), 500, durability)
        assert found["found"] >= found["promised"] > 0
