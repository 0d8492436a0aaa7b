"""The benchmarks run, so that they cannot rot; how fast anything is, is not asked here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from benches.report import Targets, missed, report, target

from benches import log, wire
from penstock.bench import Figure

TARGETS: Targets = {"stamp, 100 B": 0.5}


def check(figures: Iterable[Figure], targets: Targets, *, absent: tuple[str, ...] = ()) -> None:
    """Every target has a figure, and every figure a ratio."""
    found = list(figures)
    for name in targets:
        assert name in absent or any(figure.name.startswith(name) for figure in found), name
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in found)


@pytest.mark.slow
def test_the_log_is_measured(tmp_path: Path) -> None:
    check(log.measure(tmp_path, quick=True), log.TARGETS)


@pytest.mark.slow
def test_the_wire_is_measured() -> None:
    check(wire.measure(quick=True), wire.TARGETS, absent=("beside the founding server",))


def figure(ratio: float | None, name: str = "stamp, 100 B") -> Figure:
    return Figure(name=name, value=1.0, unit="GB/s", ratio=ratio)


def test_a_figure_below_its_target_is_missed_and_one_at_it_is_not() -> None:
    assert target(figure(1.0), TARGETS) == 0.5
    assert missed(figure(0.49), TARGETS)
    assert not missed(figure(0.5), TARGETS)
    assert not missed(figure(None), TARGETS)
    assert not missed(figure(0.0, name="of interest, and no more"), TARGETS)


@pytest.mark.parametrize(("quick", "code"), [(False, 1), (True, 0)])
def test_a_missed_target_fails_the_full_run_alone(quick: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("title", [figure(0.01)], TARGETS, quick=quick) == code
    assert "MISSED" in capsys.readouterr().out
