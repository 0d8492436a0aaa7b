"""Offset runs and leases, against a model with one entry for each offset."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.subscriptions.partition import Lease, Leases, OffsetRun

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=12)
numbers = st.integers(0, 30)


def run_of(sizes: list[int], start: int = 0, before: int = 0) -> OffsetRun:
    """Return a run with known sizes, behind others of the same read."""
    ends = list(accumulate([3] * before + sizes))
    return OffsetRun(start, start + len(sizes), sum(sizes), ends, before)


@given(sizes, numbers, numbers, st.integers(0, 3))
def test_where_sizes_are_known_as_many_fit_as_there_is_room_for(
    sizes: list[int], messages: int, room: int, before: int
) -> None:
    fitting = run_of(sizes, before=before).count_within(messages, room)
    assert fitting == max(
        count for count in range(min(messages, len(sizes)) + 1) if count == 0 or sum(sizes[:count]) <= room
    )


@given(st.integers(1, 12), st.integers(0, 99), numbers, numbers)
def test_where_sizes_are_not_known_what_fits_is_never_too_much(count: int, size: int, messages: int, room: int) -> None:
    run = OffsetRun(0, count, size)
    fitting = run.count_within(messages, room)
    assert 0 <= fitting <= min(count, messages)
    if fitting:
        assert run.take_first(fitting).size <= room


@given(sizes, st.data(), st.integers(0, 50), st.integers(0, 3))
def test_cuts_of_a_piece_are_the_piece(sizes: list[int], data: st.DataObject, start: int, before: int) -> None:
    run = run_of(sizes, start, before)
    parts = []
    while len(run):
        parts.append(run.take_first(data.draw(st.integers(1, len(run)))))
    assert [offset for part in parts for offset in range(part.start, part.stop)] == [*range(start, start + len(sizes))]
    for part in parts:
        assert part.size == sum(sizes[part.start - start : part.stop - start])
    assert run.size == 0


@given(st.integers(1, 12), st.integers(0, 99), st.data())
def test_where_sizes_are_not_known_the_shares_of_all_cuts_are_the_size(
    count: int, size: int, data: st.DataObject
) -> None:
    run = OffsetRun(0, count, size)
    parts = []
    while len(run):
        parts.append(run.take_first(data.draw(st.integers(1, len(run)))))
    assert sum(part.size for part in parts) == size
    assert all(part.size >= 0 for part in parts)


Plain = dict[int, tuple[str, int]]
"""The consumer and the delivery of every offset in flight."""

deliveries = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 6), st.sampled_from("ab"), st.integers(0, 60)), max_size=6
)
"""Deliveries: the distance to the one before, the number of messages, the consumer, and the size."""

requests = st.lists(
    st.tuples(numbers, numbers, st.sampled_from(["a", "b", None]), st.sampled_from([None, 1, 2, 3])), max_size=8
)


def leased(deliveries: list[tuple[int, int, str, int]]) -> tuple[Leases, Plain]:
    leases, plain, start = Leases(), Plain(), 0
    made = []
    for delivery, (gap, count, consumer, size) in enumerate(deliveries):
        start += gap
        made.append(Lease(start, start + count, size, consumer, delivery))
        plain |= dict.fromkeys(range(start, start + count), (consumer, delivery))
        start += count
    for lease in reversed(made):
        leases.add(lease)
    return leases, plain


def by_offset(leases: Leases | list[Lease]) -> Plain:
    found: Plain = {}
    for lease in leases:
        assert lease.start < lease.stop
        for offset in range(lease.start, lease.stop):
            assert offset not in found, "an offset is in two leases"
            found[offset] = (lease.consumer, lease.delivery)
    return found


def total(leases: Leases | list[Lease]) -> int:
    return sum(lease.size for lease in leases)


@given(deliveries, requests)
def test_what_is_taken_is_what_was_asked_for_and_the_rest_stays(
    deliveries: list[tuple[int, int, str, int]], requests: list[tuple[int, int, str | None, int | None]]
) -> None:
    leases, plain = leased(deliveries)
    for start, stop, consumer, delivery in requests:
        wanted = {
            offset: (who, since)
            for offset, (who, since) in plain.items()
            if start <= offset < stop and consumer in (None, who) and delivery in (None, since)
        }
        before = total(leases)
        taken = leases.take(start, stop, consumer=consumer, delivery=delivery)
        assert by_offset(taken) == wanted
        assert [lease.start for lease in taken] == sorted(lease.start for lease in taken)
        plain = {offset: value for offset, value in plain.items() if offset not in wanted}
        assert by_offset(leases) == plain
        assert [lease.start for lease in leases] == sorted(lease.start for lease in leases)
        assert total(taken) + total(leases) == before


@given(deliveries, st.sampled_from(["a", "b", None]))
def test_all_of_a_consumer_can_be_taken_or_all_of_everybody(
    deliveries: list[tuple[int, int, str, int]], consumer: str | None
) -> None:
    leases, plain = leased(deliveries)
    before = total(leases)
    taken = leases.take_all(consumer)
    assert by_offset(taken) == {offset: value for offset, value in plain.items() if consumer in (None, value[0])}
    assert by_offset(taken) | by_offset(leases) == plain
    assert total(taken) + total(leases) == before
    assert len(leases) + len(taken) == len(deliveries)
