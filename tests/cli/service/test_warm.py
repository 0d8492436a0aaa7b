"""`penstock warm`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.kit import Run

from penstock.record.kernels import kernel_cache


def test_kernels_that_are_there_are_left_there(here: Run) -> None:
    assert here("warm").code == 0  # compiled now at the latest
    done = here("warm")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"kernels already there: {kernel_cache.directory()}\n"
    assert here("warm", "--json").rows == [
        {"directory": str(kernel_cache.directory()), "compiled": False, "seconds": 0.0}
    ]


def test_kernels_compiled_just_now_are_said_to_be(here: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(kernel_cache, "prepare", lambda: 12.34)
    monkeypatch.setattr(kernel_cache, "directory", lambda: home)
    assert here("warm").out == f"kernels compiled in 12.3 s: {home}\n"
    assert here("warm", "--json").rows == [{"directory": str(home), "compiled": True, "seconds": 12.34}]


def test_kernels_that_can_be_kept_nowhere_are_not_compiled(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "prepare", lambda: pytest.fail("in vain"))
    monkeypatch.setattr(kernel_cache, "directory", lambda: None)
    here("warm").refused("kept nowhere", "set PENSTOCK_KERNEL_CACHE")


def test_kernels_that_could_not_be_kept_after_all_are_not_done(
    here: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    chosen: list[Path | None] = [home]
    monkeypatch.setattr(kernel_cache, "prepare", chosen.clear)
    monkeypatch.setattr(kernel_cache, "directory", lambda: chosen[0] if chosen else None)
    here("warm").refused("kept nowhere")
