"""The clock: the machine's own, and milliseconds that are always rounded down."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import Clock, SystemClock, iso_time, now_ms


def test_the_system_clock_tells_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns()
    told = clock.now_ns()
    # An adjustment of the machine's clock between the two lines is no failure; another epoch or unit would be.
    assert abs(told - before) < 60 * 10**9


def set_time(monkeypatch: pytest.MonkeyPatch, time_ns: Callable[[], int]) -> None:
    """For the clock alone: other threads go on with the machine's time."""
    monkeypatch.setattr("penstock.core.clock.time", SimpleNamespace(time_ns=time_ns))


def test_the_system_clock_goes_back_when_the_machine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([1_000, 999])
    set_time(monkeypatch, lambda: next(told))
    clock = SystemClock()
    assert [clock.now_ns(), clock.now_ns()] == [1_000, 999]


@pytest.mark.parametrize(
    ("ns", "ms"),
    [(0, 0), (999_999, 0), (1_000_000, 1), (1_999_999, 1), (-1, -1), (-1_000_000, -1), (-1_000_001, -2)],
)
def test_milliseconds_are_rounded_down_also_before_1970(monkeypatch: pytest.MonkeyPatch, ns: int, ms: int) -> None:
    set_time(monkeypatch, lambda: ns)
    assert now_ms(SystemClock()) == ms


def test_milliseconds_are_exact_where_a_float_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, lambda: 9_007_199_254_740_993_999_999)
    assert now_ms(SystemClock()) == 9_007_199_254_740_993


YEAR_2200_MS = 7_258_118_400_000


@pytest.mark.parametrize(
    ("unix_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
    ],
)
def test_times_are_iso_8601_in_utc_with_milliseconds(unix_ms: int, text: str) -> None:
    assert iso_time(unix_ms) == text


@given(st.integers(0, YEAR_2200_MS))
def test_no_millisecond_is_lost_on_the_way(unix_ms: int) -> None:
    moment = datetime.strptime(iso_time(unix_ms), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000 == unix_ms
