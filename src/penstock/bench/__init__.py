"""Benchmarks of this machine. Each figure is compared with a limit, or with a reference that is measured in the same
run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement in `unit`. `ratio` compares it with the value of `reference`, so that larger is better, also for
    times."""

    name: str
    value: float
    unit: str
    reference: str = ""
    reference_value: float | None = None
    ratio: float | None = None


def best_seconds(work: Callable[[], object], *, rounds: int) -> float:
    """Call `work` several times; return the seconds of the fastest call. On a shared machine, the slower ones are
    slowed by other processes."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best
