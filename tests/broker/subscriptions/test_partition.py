"""Partition cursors: the state of one partition in one subscription."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.subscriptions.partition import ExhaustedMessage, Lease, OffsetRun, PartitionCursor
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.catalog.subscriptions import Cursor

EDGE = 20

spans = st.lists(st.tuples(st.integers(0, EDGE), st.integers(0, EDGE)), max_size=12)


def cursor_of(floor: int = 0, *, end: int = EDGE, **others: object) -> PartitionCursor:
    return PartitionCursor.restore(0, Cursor(floor=Offset(floor), **others), end)  # type: ignore[arg-type]


def test_a_lane_begins_at_its_floor_with_what_was_saved() -> None:
    cursor = cursor_of(3, acked=(OffsetRange.of(5, 8),), failures={4: 2})
    assert (cursor.floor, cursor.fetched, cursor.end) == (3, 3, EDGE)
    assert list(cursor.acked) == [(5, 8)]
    assert cursor.failures == {4: 2}
    assert cursor.backlog == EDGE - 3 - 3


@given(spans, st.dictionaries(st.integers(0, EDGE), st.integers(1, 9)))
def test_whatever_is_settled_the_cursor_is_valid_and_says_exactly_that(
    settled: list[tuple[int, int]], failures: dict[int, int]
) -> None:
    cursor, plain = cursor_of(failures=failures), set[int]()
    for start, stop in settled:
        cursor.mark_acked(start, stop)
        plain.update(range(start, stop))
    saved = cursor.snapshot()
    assert all(offset in plain for offset in range(cursor.floor))
    assert cursor.floor not in plain
    assert {offset for each in saved.acked for offset in range(each.start, each.stop)} == {
        offset for offset in plain if offset > cursor.floor
    }
    assert saved.failures == {offset: count for offset, count in failures.items() if offset not in plain}
    assert cursor.backlog == EDGE - len(plain)
    assert PartitionCursor.restore(0, saved, EDGE).snapshot() == saved


@given(spans, st.integers(0, EDGE), st.integers(0, EDGE))
def test_of_what_was_fetched_only_what_is_not_settled_goes_on(
    settled: list[tuple[int, int]], start: int, length: int
) -> None:
    cursor, plain = cursor_of(), set[int]()
    for begin, stop in settled:
        cursor.mark_acked(begin, stop)
        plain.update(range(begin, stop))
    parts = list(cursor.unacked(OffsetRun(start, start + length, length, range(1, length + 1))))
    offsets = [offset for part in parts for offset in range(part.start, part.stop)]
    assert offsets == [offset for offset in range(start, start + length) if offset not in plain]
    assert all(part.size == len(part) for part in parts)


def test_a_log_that_ends_before_the_floor_has_no_backlog() -> None:
    assert cursor_of(9, end=4).backlog == 0


def test_what_fails_is_counted_while_it_waits_and_while_it_is_buried() -> None:
    cursor = cursor_of()
    cursor.waiting.add(0, 3)
    cursor.dead_lettering[5] = ExhaustedMessage(1, 1, "no", 0)
    assert cursor.failing == 4


def test_after_a_seek_nothing_is_left_of_what_was_before() -> None:
    cursor = cursor_of(acked=(OffsetRange.of(2, 4),), failures={1: 1})
    cursor.fetched, cursor.fetching = 9, True
    cursor.leases.add(Lease(4, 9, 5, "a", 1))
    cursor.waiting.add(1, 2)
    cursor.dead_lettering[0] = cursor.poison[0] = ExhaustedMessage(1, 1, "no", 0)
    cursor.seek(6)
    assert cursor.snapshot() == Cursor(floor=Offset(6))
    assert (cursor.fetched, cursor.fetching) == (6, False)
    assert not any((len(cursor.leases), len(cursor.waiting), cursor.dead_lettering, cursor.poison))


@pytest.mark.parametrize(
    ("ready", "complaint"),
    [([(0, 2)], r"\[\(0, 3\)\] is not \[\(0, 5\)\]"), ([(0, 2), (3, 5), (4, 5)], "an offset is in two places")],
)
def test_an_offset_that_is_nowhere_or_in_two_places_is_noticed(ready: list[tuple[int, int]], complaint: str) -> None:
    cursor = cursor_of()
    cursor.fetched = 5
    cursor.waiting.add(2, 3)
    cursor.check([(0, 2), (3, 5)])
    with pytest.raises(AssertionError, match=complaint):
        cursor.check(ready)
