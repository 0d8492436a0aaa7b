"""Offsets and half-open ranges, held against Python's own `range` and sets."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.core.offsets import OFFSET_MAX, Offset, OffsetRange, parse_offset

unhurried = settings(deadline=None)  # a busy machine is not a failed property

NOT_AN_OFFSET: list[object] = [-1, -(2**63), OFFSET_MAX + 1, 2**64, True, False, 0.0, 1.5, "0", b"0", None]

offsets = st.integers(0, OFFSET_MAX)
ranges = st.tuples(offsets, offsets).map(lambda pair: OffsetRange.of(min(pair), max(pair)))
small_ranges = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: OffsetRange.of(min(pair), max(pair)))


def members(each: OffsetRange) -> set[int]:
    return set(range(each.start, each.stop))


@pytest.mark.parametrize("value", [0, 1, OFFSET_MAX - 1, OFFSET_MAX])
def test_an_offset_is_a_whole_number_up_to_the_largest_of_63_bits(value: int) -> None:
    assert parse_offset(value) == value


@pytest.mark.parametrize("value", NOT_AN_OFFSET, ids=repr)
def test_what_is_not_an_offset_is_refused(value: int) -> None:
    with pytest.raises(InvalidRequest, match="an offset is a whole number"):
        parse_offset(value)


@pytest.mark.parametrize("value", NOT_AN_OFFSET, ids=repr)
def test_a_range_refuses_what_is_not_an_offset_at_either_end(value: int) -> None:
    with pytest.raises(InvalidRequest, match="an offset is a whole number"):
        OffsetRange.of(value, OFFSET_MAX)
    with pytest.raises(InvalidRequest, match="an offset is a whole number"):
        OffsetRange.of(0, value)


@given(offsets, offsets)
@unhurried
def test_a_range_exists_exactly_when_it_does_not_end_before_it_starts(start: int, stop: int) -> None:
    if start <= stop:
        assert len(OffsetRange.of(start, stop)) == stop - start
    else:
        with pytest.raises(InvalidRequest, match=rf"cannot end \({stop}\) before it starts \({start}\)"):
            OffsetRange.of(start, stop)


@given(ranges)
@unhurried
def test_the_start_is_in_and_the_stop_is_not(each: OffsetRange) -> None:
    assert (each.start in each) == bool(len(each))
    assert each.stop not in each
    assert each.start - 1 not in each
    assert (each.stop - 1 in each) == bool(len(each))


def test_the_largest_range_still_has_a_length() -> None:
    assert len(OffsetRange.of(0, OFFSET_MAX)) == OFFSET_MAX


@pytest.mark.parametrize("place", [0, 5, OFFSET_MAX])
def test_an_empty_range_stands_anywhere_and_holds_nothing(place: int) -> None:
    empty = OffsetRange.of(place, place)
    assert len(empty) == 0
    assert not empty
    assert place not in empty


@given(small_ranges, st.integers(-2, 14))
@unhurried
def test_membership_and_length_are_those_of_a_python_range(each: OffsetRange, offset: int) -> None:
    assert (offset in each) == (offset in members(each))
    assert len(each) == len(members(each))


@pytest.mark.parametrize("value", ["1", 1.0, None, b"\x01", (1,)], ids=repr)
def test_only_whole_numbers_are_members(value: object) -> None:
    assert value not in OffsetRange.of(0, 3)


@given(small_ranges, small_ranges)
@unhurried
def test_an_intersection_holds_what_both_hold(one: OffsetRange, other: OffsetRange) -> None:
    assert members(one.intersection(other)) == members(one) & members(other)


@given(ranges, ranges, ranges)
@unhurried
def test_intersection_does_not_care_for_order_grouping_or_repetition(
    a: OffsetRange, b: OffsetRange, c: OffsetRange
) -> None:
    assert a.intersection(b) == b.intersection(a)
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))
    assert a.intersection(a) == a
    assert a.intersection(b).intersection(b) == a.intersection(b)


@given(ranges)
@unhurried
def test_the_whole_log_changes_no_range_it_is_intersected_with(each: OffsetRange) -> None:
    assert each.intersection(OffsetRange.of(0, OFFSET_MAX)) == each


@given(st.lists(offsets, min_size=3, max_size=3).map(sorted))
@unhurried
def test_neighbours_share_nothing_and_add_up(cuts: list[int]) -> None:
    start, middle, stop = cuts
    left, right = OffsetRange.of(start, middle), OffsetRange.of(middle, stop)
    assert not left.intersection(right)
    assert len(left) + len(right) == len(OffsetRange.of(start, stop))
    assert (middle in left, middle in right) == (False, middle < stop)


@given(ranges, ranges)
@unhurried
def test_ranges_sort_by_start_and_then_by_stop(one: OffsetRange, other: OffsetRange) -> None:
    assert (one < other) == ((one.start, one.stop) < (other.start, other.stop))


def test_a_range_is_written_as_half_open() -> None:
    assert str(OffsetRange.of(3, 9)) == "[3, 9)"


def test_a_range_is_a_small_frozen_value_that_can_be_sent_to_an_executor() -> None:
    each = OffsetRange(Offset(3), Offset(9))
    assert pickle.loads(pickle.dumps(each)) == each
    assert len({each, OffsetRange.of(3, 9)}) == 1
    with pytest.raises(FrozenInstanceError):
        each.stop = Offset(10)  # type: ignore[misc]
