"""`penstock bench`."""

from __future__ import annotations

import functools
import signal
from pathlib import Path

import pytest
from tests.cli.kit import Run, Start

from penstock.bench import disk

pytestmark = pytest.mark.slow


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "measure", functools.partial(disk.measure, seconds=0.1))


@pytest.mark.usefixtures("brief")
def test_every_figure_has_something_it_is_compared_with_and_nothing_is_left(here: Run, home: Path) -> None:
    done = here("bench", "log", "--dir", ".", "--megabytes", "16", "--json")
    assert (done.code, done.err) == (0, "")
    names = [row["name"] for row in done.rows]
    assert len(set(names)) == len(names) > 10
    for row in done.rows:
        assert row["value"] >= 0
        assert row["ratio"] > 0
        assert row["reference"]
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("brief")
def test_figures_are_a_table_for_people(here: Run) -> None:
    done = here("bench", "log", "--megabytes", "16")
    assert done.code == 0
    assert "scan and verify, 1 KiB" in done.out
    assert "pwrite + fdatasync" in done.out


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_place_to_measure_is_a_directory(here: Run, home: Path, place: str) -> None:
    (home / "file").touch()
    here("bench", "log", "--dir", place).refused(f"{place} is not a directory")


def test_an_interrupted_measurement_leaves_nothing_behind(start: Start, home: Path) -> None:
    with start("bench", "log", "--dir", ".") as process:
        assert process.stderr is not None
        assert process.stderr.readline()  # the first figure
        assert [path.name[:15] for path in home.iterdir()] == ["penstock-bench-"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"Traceback" not in process.stderr.read()
    assert list(home.iterdir()) == []
