"""The clock: the machine's own, and milliseconds that are always rounded down."""

from __future__ import annotations

import time

import pytest

from penstock.core.clock import Clock, SystemClock, now_ms


def test_the_system_clock_tells_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns()
    told = clock.now_ns()
    # An adjustment of the machine's clock between the two lines is no failure; another epoch or unit would be.
    assert abs(told - before) < 60 * 10**9


def test_the_system_clock_goes_back_when_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([1_000, 999])
    monkeypatch.setattr(time, "time_ns", lambda: next(told))
    clock = SystemClock()
    assert [clock.now_ns(), clock.now_ns()] == [1_000, 999]


@pytest.mark.parametrize(
    ("ns", "ms"),
    [(0, 0), (999_999, 0), (1_000_000, 1), (1_999_999, 1), (-1, -1), (-1_000_000, -1), (-1_000_001, -2)],
)
def test_milliseconds_are_rounded_down_also_before_1970(monkeypatch: pytest.MonkeyPatch, ns: int, ms: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: ns)
    assert now_ms(SystemClock()) == ms


def test_milliseconds_are_exact_where_a_float_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 9_007_199_254_740_993_999_999)
    assert now_ms(SystemClock()) == 9_007_199_254_740_993
