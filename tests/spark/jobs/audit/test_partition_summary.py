"""Partition summaries: any cut of a log gives the same sum, and problems at a seam are found."""

from __future__ import annotations

import itertools
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.jobs.kit import (
    Sample,
    lose_entry,
    messages,
    orders,
    out_of_order,
    partial_of,
    pieces_of,
    write,
)

from penstock.core.errors import InvalidRequest
from penstock.record.message import Message
from penstock.spark.jobs.audit import partition_summary
from penstock.spark.jobs.audit.partition_summary import Losses, PartitionSummary, Requests
from penstock.spark.jobs.audit.scan_range import LossKind, LostOffsets
from penstock.spark.jobs.audit.tally import ArchivedRange, TimeSpans
from penstock.storage.log.segment import index_path
from penstock.testing import ManualClock

SPANS = TimeSpans(ManualClock().now_ns() // 1_000_000, 2000, 5)
cut_lists = st.lists(st.integers(0, 60), max_size=6)
block_lists = st.lists(st.lists(messages, min_size=1, max_size=6), min_size=1, max_size=10)
archives = st.builds(
    lambda start, count: ArchivedRange(start, start + count, ((0, 3, 2**41), (5, 9, 2**42))),
    st.integers(0, 30),
    st.integers(0, 40),
)


@given(block_lists, cut_lists, st.lists(st.integers(0, 2**17), max_size=4), st.integers(0, 3), archives)
def test_any_cut_of_a_log_gives_the_same_sum(
    blocks: list[list[Message]], cuts: list[int], bits: list[int], spoiled: int, archived: ArchivedRange
) -> None:
    sample = write(blocks)
    for bit in bits:
        sample.flip(sample.segments[bit % len(sample.segments)], bit)
    if spoiled == 1:
        lose_entry(sample, sample.segments[0], len(bits))
    if spoiled == 2:
        sample.disk.remove(index_path(sample.segments[-1]))
    if spoiled == 3:
        sample.disk.remove(sample.segments[0])
    whole = partial_of(sample, spans=SPANS, archived=archived)
    assert reduce(add, pieces_of(sample, cuts, spans=SPANS, archived=archived)) == whole


@given(st.lists(st.integers(0, 12), min_size=1, max_size=25), cut_lists)
def test_ids_that_do_not_rise_are_found_wherever_the_log_is_cut(ticks: list[int], cuts: list[int]) -> None:
    found = reduce(add, pieces_of(out_of_order(ticks), cuts)).disorder
    wrong = [place for place in range(1, len(ticks)) if ticks[place] <= ticks[place - 1]]
    assert [each.offset for each in found.first] == wrong
    assert found.count == len(wrong)
    assert [each.is_duplicate for each in found.first] == [ticks[place] == ticks[place - 1] for place in wrong]


@given(cut_lists, st.lists(st.integers(0, 2**17), max_size=5))
def test_adding_is_associative(cuts: list[int], bits: list[int]) -> None:
    sample = orders(30)
    for bit in bits:
        sample.flip(sample.segments[bit % len(sample.segments)], bit)
    first, *rest = pieces_of(sample, cuts)
    from_right = reduce(lambda right, left: left + right, reversed([first, *rest]))
    assert reduce(add, rest, first) == from_right


def test_ranges_that_do_not_follow_each_other_are_not_added() -> None:
    with pytest.raises(InvalidRequest, match="do not follow"):
        _ = PartitionSummary(start=0, stop=4) + PartitionSummary(start=5, stop=6)


# what is counted


def test_counts_are_those_of_the_messages() -> None:
    sample = write([[Message(payload=bytes(n), producer_id=1, request_id=n)] for n in (3, 7, 5)], step_ms=2000)
    found = partial_of(sample, spans=SPANS)
    assert (found.records, found.payload_bytes) == (3, 15)
    assert (found.sizes.smallest, found.sizes.largest, found.sizes.quantile(0.5)) == (3, 7, 5)
    assert [found.volume[span][0] for span in sorted(found.volume)] == [1, 1, 1]
    assert (found.last_ms or 0) - (found.first_ms or 0) == 4000
    assert found.requests == {1: Requests(3, 5, 3, breaks=1)}
    assert found.record_bytes == sum(size for _, size in found.volume.values())


def test_many_producers_and_schemas_do_not_overflow_the_kernel_s_tables() -> None:
    many = [Message(payload=b"", producer_id=n % 1500 + 1, request_id=n + 1) for n in range(3000)]
    found = partial_of(write([many[place : place + 60] for place in range(0, 3000, 60)]))
    assert found.requests == {n + 1: Requests(n + 1, n + 1501, 2) for n in range(1500)}


@given(st.lists(st.integers(1, 8), max_size=40), st.integers(0, 40))
def test_a_producer_whose_requests_always_rise_has_no_break(numbers: list[int], cut: int) -> None:
    sample = write([[Message(payload=b"", producer_id=1, request_id=n)] for n in (numbers or [1])])
    found = reduce(add, pieces_of(sample, [cut])).requests[1]
    rising = all(left < right for left, right in itertools.pairwise(numbers))
    assert (found.breaks == 0) is rising


# bounds


def lost(start: int, stop: int, reason: str = "bad") -> Losses:
    return Losses.of(LostOffsets(start, stop, LossKind.DAMAGED, 0, start * 10, stop * 10, reason))


def test_neighbours_that_are_lost_for_one_reason_are_one() -> None:
    found = lost(0, 1) + lost(1, 2) + lost(2, 3, "worse") + lost(5, 6, "worse")
    assert [(each.start, each.stop, each.position, each.end) for each in found.first] == [
        (0, 2, 0, 20),
        (2, 3, 20, 30),
        (5, 6, 50, 60),
    ]
    assert (found.runs, found.records[LossKind.DAMAGED]) == (3, 4)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=20), st.integers(0, 20))
def test_losses_beyond_what_is_kept_are_counted_the_same_for_any_cut(steps: list[tuple[int, int]], cut: int) -> None:
    runs, offset = [], 0
    for gap, count in steps:
        runs.append(lost(offset + gap, offset + gap + count, "bad" if count > 1 else "worse"))
        offset += gap + count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_summary, "SAMPLES_MAX", 3)
        halves = reduce(add, runs[:cut], Losses()), reduce(add, runs[cut:], Losses())
        assert halves[0] + halves[1] == reduce(add, runs, Losses())


def test_no_more_producers_are_followed_than_allowed_and_that_is_told() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_summary, "PRODUCERS_MAX", 2)
        left = PartitionSummary(start=0, stop=1, requests={3: Requests(1, 1, 1), 1: Requests(1, 1, 1)})
        right = PartitionSummary(start=1, stop=2, requests={2: Requests(1, 1, 1)})
        found = left + right
    assert sorted(found.requests) == [1, 2]
    assert found.producers_left_out


def test_samples_of_nothing_change_nothing() -> None:
    sample = Sample(orders(3).disk, 3)
    whole = partial_of(sample)
    assert PartitionSummary(start=0, stop=0) + whole == whole == whole + PartitionSummary(start=3, stop=3)
