"""Rate limits: never more than a second's worth at once, and never more than the rate over any time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.live.rate_limits import TokenBucket

steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 50)), max_size=30)


def test_a_bucket_starts_full_and_holds_a_second_s_worth() -> None:
    bucket = TokenBucket(10, 0)
    assert bucket.is_full(0)
    assert bucket.take(7, 0) == 7
    assert bucket.take(7, 0) == 3
    assert bucket.take(7, 0) == 0
    assert not bucket.is_full(0)


@pytest.mark.parametrize("rate", [1, 2, 4, 10, 1000])
def test_one_more_comes_when_its_time_has_come_and_not_a_millisecond_before(rate: int) -> None:
    bucket = TokenBucket(rate, 0)
    bucket.take(rate, 0)
    every_ms = 1000 // rate
    if every_ms > 1:
        assert bucket.take(1, every_ms - 1) == 0
    assert bucket.take(1, every_ms) == 1
    assert bucket.take(1, every_ms) == 0


def test_no_more_than_a_second_s_worth_is_saved_up() -> None:
    bucket = TokenBucket(10, 0)
    assert bucket.take(1000, 3_600_000) == 10


def test_asking_for_nothing_takes_nothing() -> None:
    bucket = TokenBucket(1, 0)
    assert bucket.take(0, 0) == 0
    assert bucket.take(1, 0) == 1


def test_a_clock_that_stands_still_gives_nothing_more() -> None:
    bucket = TokenBucket(5, 100)
    assert [bucket.take(1, 100) for _ in range(8)] == [1] * 5 + [0] * 3


@given(st.integers(1, 100), steps)
def test_over_any_time_no_more_is_given_than_the_rate_allows(rate: int, story: list[tuple[int, int]]) -> None:
    bucket = TokenBucket(rate, 0)
    now_ms = given_out = 0
    for wait_ms, wanted in story:
        now_ms += wait_ms
        given_now = bucket.take(wanted, now_ms)
        assert 0 <= given_now <= min(wanted, rate)
        given_out += given_now
        assert given_out <= rate + now_ms * rate / 1000 + 1e-6


@given(st.integers(1, 100), steps)
def test_a_full_bucket_is_like_a_new_one(rate: int, story: list[tuple[int, int]]) -> None:
    bucket = TokenBucket(rate, 0)
    now_ms = 0
    for wait_ms, wanted in story:
        now_ms += wait_ms
        if bucket.is_full(now_ms):
            assert TokenBucket(rate, now_ms).take(wanted, now_ms) == min(rate, wanted)
            assert bucket.take(wanted, now_ms) == min(rate, wanted)
        else:
            bucket.take(wanted, now_ms)


@given(st.integers(1, 50), st.lists(st.integers(1, 400), max_size=40))
def test_who_keeps_to_the_rate_is_never_refused_for_long(rate: int, waits: list[int]) -> None:
    """Assert that a second without messages fills the bucket, however the time is cut up."""
    bucket = TokenBucket(rate, 0)
    bucket.take(rate, 0)
    now_ms = 0
    for wait_ms in waits:
        now_ms += wait_ms
        bucket.take(0, now_ms)
    assert bucket.take(rate, now_ms + 1000) == rate
