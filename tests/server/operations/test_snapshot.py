"""Series of their own: at most so many topics have them, and keep them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.operations.snapshot import ShownSeries


def chosen(found: ShownSeries[int], keys: set[int]) -> set[int]:
    return {key for key in keys if key in found}


def test_where_there_is_room_for_all_all_have_a_line() -> None:
    lines: ShownSeries[int] = ShownSeries(3)
    lines.choose({1, 2, 3}, lambda _: 0)
    assert chosen(lines, {1, 2, 3}) == {1, 2, 3}


def test_where_there_is_not_the_busiest_have() -> None:
    lines: ShownSeries[int] = ShownSeries(2)
    lines.choose({1, 2, 3, 4}, lambda key: key * 10)
    assert chosen(lines, {1, 2, 3, 4}) == {3, 4}


def test_a_series_is_kept_while_others_get_busier() -> None:
    lines: ShownSeries[int] = ShownSeries(2)
    lines.choose({1, 2}, lambda _: 1)
    lines.choose({1, 2, 3}, lambda key: key * 100)
    assert chosen(lines, {1, 2, 3}) == {1, 2}


def test_a_line_is_free_again_when_its_topic_goes() -> None:
    lines: ShownSeries[int] = ShownSeries(2)
    lines.choose({1, 2}, lambda _: 1)
    lines.choose({2, 3}, lambda _: 1)
    assert chosen(lines, {1, 2, 3}) == {2, 3}


def test_an_idle_topic_waits_for_a_series_where_they_are_few() -> None:
    lines: ShownSeries[int] = ShownSeries(2)
    lines.choose({1, 2, 3}, lambda _: 0)
    assert chosen(lines, {1, 2, 3}) == set()
    lines.choose({1, 2, 3}, lambda key: key == 3)
    assert chosen(lines, {1, 2, 3}) == {3}


@given(st.lists(st.sets(st.integers(0, 20)), max_size=8), st.integers(0, 6))
def test_there_are_never_more_and_none_for_those_that_are_gone(looks: list[set[int]], most: int) -> None:
    lines: ShownSeries[int] = ShownSeries(most)
    for there in looks:
        before = chosen(lines, there)
        lines.choose(there, lambda key: key)
        after = chosen(lines, set(range(21)))
        assert len(after) <= most
        assert before <= after <= there
