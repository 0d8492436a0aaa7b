"""The thread that looks after a data directory."""

from __future__ import annotations

import threading

import pytest

from penstock.storage.maintenance import Rounds


def test_a_round_is_made_when_it_is_called_for_and_once_more_at_the_end() -> None:
    made = threading.Semaphore(0)
    rounds = Rounds(made.release)
    rounds.start()
    rounds.call()
    assert made.acquire(timeout=60)
    rounds.close()
    assert made.acquire(blocking=False)
    rounds.close()
    while made.acquire(blocking=False):
        pass
    rounds.call()
    assert not made.acquire(blocking=False), "nothing is done after the end"


def test_rounds_go_on_after_one_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    made = threading.Semaphore(0)

    def fail() -> None:
        made.release()
        raise RuntimeError("a defect")

    rounds = Rounds(fail)
    rounds.start()
    for _ in range(2):
        rounds.call()
        assert made.acquire(timeout=60)
    rounds.close()
    assert caplog.text.count("a round of the data directory failed") >= 3
