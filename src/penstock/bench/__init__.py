"""Bench: measurements of this machine, each against a limit or a peer measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measurement. `ratio` compares it with `reference`, measured beside it; larger is better."""

    name: str
    value: float
    unit: str
    reference: str = ""
    reference_value: float | None = None
    ratio: float | None = None


def best_seconds(work: Callable[[], object], *, rounds: int) -> float:
    """Return the seconds of the quickest round: on a shared machine, slower ones measure the neighbours."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best
