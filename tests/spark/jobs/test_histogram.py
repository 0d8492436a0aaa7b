"""Histograms: the kernel's buckets equal the plain ones, and quantiles are right."""

from __future__ import annotations

import itertools
from statistics import quantiles

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.record.kernels.tally_kernels import BUCKETS, FINE, VALUE_BITS
from penstock.spark.jobs.histogram import NO_VALUES, Histogram, add_histograms, bucket_range

values = st.lists(st.integers(0, 2**VALUE_BITS - 1) | st.integers(0, 300), max_size=50)


def of(given_: list[int]) -> Histogram:
    return Histogram.of(np.array(given_, dtype=np.int64))


def bucket_of(value: int) -> int:
    """Return the bucket of a value, as the kernel computes it."""
    if value < FINE:
        return max(value, 0)
    shift = value.bit_length() - FINE.bit_length()
    return min(FINE * (shift + 1) + (value >> shift) - FINE, BUCKETS - 1)


@given(st.integers(0, 2**VALUE_BITS - 1))
def test_a_value_lies_in_the_range_of_its_bucket(value: int) -> None:
    low, stop = bucket_range(bucket_of(value))
    assert low <= value < stop
    assert stop - low <= max(1, low // 64)


def test_the_buckets_follow_each_other_without_a_gap() -> None:
    edges = [bucket_range(bucket) for bucket in range(BUCKETS)]
    assert edges[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(edges))
    assert edges[-1][1] == 2**VALUE_BITS


def test_what_is_too_large_or_negative_counts_with_the_last_and_the_first() -> None:
    assert of([2**60, -5]).counts == {BUCKETS - 1: 1, 0: 1}


@given(values)
def test_the_kernel_counts_in_the_plain_buckets(given_: list[int]) -> None:
    found = of(given_)
    assert len(found) == len(given_)
    for value in given_:
        assert found.counts[bucket_of(value)] >= 1
    assert not given_ or (found.smallest, found.largest) == (min(given_), max(given_))


@given(values, values)
def test_a_sum_is_the_histogram_of_both(one: list[int], other: list[int]) -> None:
    assert of(one) + of(other) == of(one + other)
    assert add_histograms([of(one), NO_VALUES, of(other)]) == of(one + other)


def test_a_quantile_is_within_one_part_in_a_hundred() -> None:
    given_ = [number * 37 % 100_003 for number in range(20_000)]
    found = of(given_)
    for share, wanted in zip((0.25, 0.5, 0.75), quantiles(given_), strict=True):
        assert abs((found.quantile(share) or 0) - wanted) <= wanted / 100
    assert NO_VALUES.quantile(0.5) is None


def test_a_quantile_of_few_values_is_never_outside_of_them() -> None:
    assert of([1000]).quantile(0.5) == 1000
    assert of([1000, 1001]).quantile(0.99) == 1001


def test_doublings_leave_no_row_out_between_the_first_and_the_last() -> None:
    assert of([1, 9]).doublings() == [(1, 2, 1), (2, 4, 0), (4, 8, 0), (8, 16, 1)]
    assert of([0]).doublings() == [(0, 1, 1)]
    assert NO_VALUES.doublings() == []
