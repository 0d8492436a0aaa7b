"""A pace: never more rows than its time allows, whatever the caller does in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.sink.publisher import RateLimit


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.floats(0.5, 1e6), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 5)), min_size=1, max_size=30))
def test_rows_keep_to_the_pace(rate: float, steps: list[tuple[int, float]]) -> None:
    time = Time()
    pace = RateLimit(rate, now=lambda: time.now, sleep=time.sleep)
    taken = 0
    for rows, pause in steps:
        pace.take(rows)
        assert taken <= rate * time.now + 1e-3  # all before these had their time
        taken += rows
        time.now += pause


def test_without_a_pace_nobody_waits() -> None:
    pace = RateLimit(None, sleep=lambda _seconds: 1 / 0)  # type: ignore[arg-type]
    pace.take(10**9)
    assert pace.rows_max is None


def test_a_slow_pace_is_smooth() -> None:
    assert RateLimit(1000).rows_max == 100
    assert RateLimit(0.1).rows_max == 1
