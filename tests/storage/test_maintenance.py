"""The thread that looks after a data directory."""

from __future__ import annotations

import threading

import pytest

from penstock.storage.maintenance import MaintenanceThread


def test_a_round_is_made_when_it_is_called_for_and_once_more_at_the_end() -> None:
    made = threading.Semaphore(0)
    maintenance = MaintenanceThread(made.release)
    maintenance.start()
    maintenance.request_round()
    assert made.acquire(timeout=60)
    maintenance.close()
    assert made.acquire(blocking=False)
    maintenance.close()
    while made.acquire(blocking=False):
        pass
    maintenance.request_round()
    assert not made.acquire(blocking=False), "nothing is done after the end"


def test_rounds_go_on_after_one_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    made = threading.Semaphore(0)

    def fail() -> None:
        made.release()
        raise RuntimeError("a defect")

    maintenance = MaintenanceThread(fail)
    maintenance.start()
    for _ in range(2):
        maintenance.request_round()
        assert made.acquire(timeout=60)
    maintenance.close()
    assert caplog.text.count("unhandled error in a maintenance round of the data directory") >= 3
