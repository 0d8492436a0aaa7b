"""Sharing a bound: every want gets something, and nothing is left over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.follower import split_fairly

WANTS = st.dictionaries(st.integers(0, 20), st.integers(0, 1000))


@given(WANTS, st.integers(0, 5000), st.integers(0, 10**9))
def test_all_of_the_bound_is_given_and_nobody_gets_more_than_wanted(
    wants: dict[int, int], bound: int, turn: int
) -> None:
    shares = split_fairly(wants, bound, turn=turn)
    assert shares.keys() == wants.keys()
    assert sum(shares.values()) == min(bound, sum(wants.values()))
    assert all(0 <= shares[key] <= wants[key] for key in wants)


@given(WANTS, st.integers(0, 5000), st.integers(0, 10**9))
def test_who_gets_less_than_wanted_gets_as_much_as_any_other_but_for_one(
    wants: dict[int, int], bound: int, turn: int
) -> None:
    shares = split_fairly(wants, bound, turn=turn)
    short = [shares[key] for key in wants if shares[key] < wants[key]]
    assert all(share >= max(shares.values()) - 1 for share in short)


def test_the_small_ones_are_served_and_the_large_ones_share_the_rest() -> None:
    assert split_fairly({"a": 1000, "b": 3, "c": 1000, "d": 0}, 103) == {"a": 50, "b": 3, "c": 50, "d": 0}


def test_those_who_got_nothing_are_next() -> None:
    shares = [split_fairly(dict.fromkeys("abc", 9), 1, turn=turn) for turn in range(6)]
    assert [max(each, key=each.__getitem__) for each in shares] == [*"abcabc"]
