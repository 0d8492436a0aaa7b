"""A few seconds of fuzzing; `python -m tests.server.fuzz --seconds N` goes on for longer."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server import fuzz
from tests.server.kit import BrokerProcess

from penstock.protocol.batch_reader import Scratch

pytestmark = pytest.mark.slow

SEED = 20_261_116


def test_the_readers_agree_on_whatever_comes_in_whatever_pieces() -> None:
    scratch = Scratch()
    for number in range(400):
        fuzz.fuzz_parser(random.Random(f"{SEED}/{number}"), scratch)


def test_noise_at_a_live_broker_changes_nothing_for_others(broker: BrokerProcess) -> None:
    parsed, said = fuzz.rounds(SEED, 6.0, broker, least=40)
    assert parsed >= 40
    assert said >= 40


@pytest.mark.slow
@pytest.mark.parametrize("way", [["-m", "tests.server.fuzz"], ["tests/server/fuzz.py"]])
def test_the_program_runs_as_a_module_and_by_its_path(way: list[str], environment: dict[str, str]) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, *way, "--seconds", "1", "--seed", "3"]
    done = subprocess.run(command, check=False, cwd=root, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "nothing found" in done.stdout
