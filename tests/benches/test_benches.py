"""The benchmarks run, so that they cannot rot; how fast anything is, is not asked here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from penstock.bench import Figure

LOG = Path(__file__).parents[2] / "benches" / "log.py"


@pytest.fixture
def log() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benches_log", LOG)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_log_is_measured_and_every_target_has_a_figure(
    log: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: list[Figure] = []
    measure = log.measure

    def kept(folder: Path, *, quick: bool) -> list[Figure]:
        figures.extend(measure(folder, quick=quick))
        return figures

    monkeypatch.setattr(log, "measure", kept)
    assert log.main(["--quick"]) == 0
    for name in log.TARGETS:
        assert any(figure.name.startswith(name) for figure in figures), name
    assert all(log.target(figure) is not None for figure in figures)
    assert all(figure.ratio is not None and figure.ratio > 0 for figure in figures)
    shown = capsys.readouterr().out
    assert all(figure.name in shown for figure in figures)


def figure(ratio: float | None, name: str = "stamp, 100 B") -> Figure:
    return Figure(name=name, value=1.0, unit="GB/s", ratio=ratio)


def test_a_figure_below_its_target_is_missed_and_one_at_it_is_not(log: ModuleType) -> None:
    goal = log.TARGETS["stamp, 100 B"]
    assert log.missed(figure(goal - 0.01))
    assert not log.missed(figure(goal))
    assert not log.missed(figure(None))
    assert not log.missed(figure(0.0, name="of interest, and no more"))


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--quick"], 0)])
def test_a_missed_target_fails_the_full_run_alone(
    log: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    monkeypatch.setattr(log, "measure", lambda _folder, *, quick: [figure(0.01)])
    assert log.main(arguments) == code
