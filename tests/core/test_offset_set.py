"""Sets of offsets as ranges, held against Python's own sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.offset_set import OffsetSet, Span, offset_spans

EDGE = 24

offsets = st.integers(0, EDGE)
pairs = st.tuples(offsets, offsets)
"""Also those that are empty, or end before they start: both hold nothing."""

changes = st.lists(st.tuples(st.sampled_from(["add", "remove", "take_first_if"]), offsets, offsets), max_size=30)


def members(spans: list[Span]) -> set[int]:
    return {offset for start, stop in spans for offset in range(start, stop)}


def played(steps: list[tuple[str, int, int]]) -> tuple[OffsetSet, set[int]]:
    """The same changes to ranges and to a set."""
    ranges, plain = OffsetSet(), set[int]()
    for change, start, stop in steps:
        if change == "add":
            ranges.add(start, stop)
            plain.update(range(start, stop))
        elif change == "remove":
            ranges.remove(start, stop)
            plain.difference_update(range(start, stop))
        else:
            check_first_taken(ranges, plain, start)
    return ranges, plain


def check_first_taken(ranges: OffsetSet, plain: set[int], start: int) -> None:
    stop = start
    while min(plain, default=None) == start and stop in plain:
        stop += 1
    plain.difference_update(range(start, stop))
    assert ranges.take_first_if(start) == stop


@given(changes)
def test_ranges_hold_what_a_set_would_hold(steps: list[tuple[str, int, int]]) -> None:
    ranges, plain = played(steps)
    assert members(list(ranges)) == plain
    assert ranges.count == len(plain)
    assert {offset for offset in range(-1, EDGE + 2) if offset in ranges} == plain


@given(changes)
def test_ranges_are_in_order_none_empty_and_none_touching_the_next(steps: list[tuple[str, int, int]]) -> None:
    ranges, _ = played(steps)
    edges = [edge for span in ranges for edge in span]
    assert edges == sorted(set(edges))
    assert len(ranges) == len(list(ranges)) == len(edges) // 2


@given(changes, pairs)
def test_what_is_within_and_the_gaps_are_the_whole_of_a_span(steps: list[tuple[str, int, int]], pair: Span) -> None:
    ranges, plain = played(steps)
    within, gaps = ranges.within(*pair), list(ranges.gaps(*pair))
    assert members(within) == plain & set(range(*pair))
    assert members(gaps) == set(range(*pair)) - plain
    assert all(start < stop for start, stop in (*within, *gaps))
    assert sorted(within) == within
    assert sorted(gaps) == gaps


@given(changes)
def test_the_same_offsets_are_the_same_ranges(steps: list[tuple[str, int, int]]) -> None:
    ranges, plain = played(steps)
    assert ranges == OffsetSet(ranges) == OffsetSet((offset, offset + 1) for offset in sorted(plain, reverse=True))
    assert ranges != OffsetSet([*ranges, (EDGE + 1, EDGE + 2)])
    ranges.clear()
    assert ranges == OffsetSet()
    assert ranges.count == len(ranges) == 0


@given(st.sets(offsets))
def test_rising_offsets_are_joined_to_ranges(plain: set[int]) -> None:
    spans = list(offset_spans(sorted(plain)))
    assert spans == list(OffsetSet(spans))
    assert members(spans) == plain


def test_a_million_offsets_are_one_range() -> None:
    ranges = OffsetSet([(0, 400_000), (600_000, 1_000_000)])
    ranges.add(400_000, 600_000)
    assert list(ranges) == [(0, 1_000_000)]
    assert repr(ranges) == "Ranges([(0, 1000000)])"


def test_only_offsets_are_in_ranges_and_ranges_are_no_keys() -> None:
    assert "0" not in OffsetSet([(0, 1)])
    assert OffsetSet() != []
    with pytest.raises(TypeError, match="unhashable"):
        hash(OffsetSet())
