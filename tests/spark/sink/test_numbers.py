"""Numbers: whatever was confirmed, on its way or lost, sending what `ResumeFilter` says stores every row once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.sink.kit import cut, rows

from penstock.core.errors import InvalidRequest
from penstock.spark.sink.numbers import (
    NUMBER,
    ROWS_MAX,
    ResumeFilter,
    batch_of,
    number_of,
    numbered,
    row_of,
    unconfirmed_max,
    with_numbers,
)


def sent(resuming: ResumeFilter, batch: pa.RecordBatch, size: int = 7) -> list[int]:
    """The numbers of what is sent of a batch that comes in pieces."""
    parts = [part for piece in cut(batch, size) for part in resuming.feed(piece)]
    return [number for part in [*parts, *resuming.finish()] for number in part.column(NUMBER).to_pylist()]


@given(st.integers(0, 2**31 - 2), st.integers(0, ROWS_MAX - 1))
def test_a_number_tells_its_batch_and_its_row(batch: int, row: int) -> None:
    number = number_of(batch, row)
    assert 0 < number < 2**63
    assert (batch_of(number), row_of(number)) == (batch, row)


@given(st.integers(0, 100), st.integers(0, 50), st.integers(0, 50))
def test_numbers_rise_with_rows_and_batches(batch: int, row: int, other: int) -> None:
    assert number_of(batch, row) < number_of(batch + 1, other)


def test_more_rows_than_there_are_numbers_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="use more partitions"):
        number_of(0, ROWS_MAX)


def test_the_first_time_everything_is_sent() -> None:
    batch = numbered(rows(20), number_of(0, 0))
    resuming = ResumeFilter(0, 5)
    assert sent(resuming, batch) == [number_of(0, row) for row in range(20)]
    assert (resuming.skipped, resuming.repeated) == (0, 0)


def test_after_a_break_the_last_known_rows_are_sent_again_and_those_before_are_not() -> None:
    batch = numbered(rows(20), number_of(3, 0))
    resuming = ResumeFilter(number_of(3, 11), 5)
    assert sent(resuming, batch) == [number_of(3, row) for row in range(7, 20)]
    assert (resuming.skipped, resuming.repeated) == (7, 5)


def test_a_batch_that_ended_exactly_there_is_sent_again_at_its_end() -> None:
    resuming = ResumeFilter(number_of(0, 19), 5)
    assert sent(resuming, numbered(rows(20), number_of(0, 0))) == [number_of(0, row) for row in range(15, 20)]


def test_a_batch_before_the_last_known_one_is_left_out_as_a_whole() -> None:
    resuming = ResumeFilter(number_of(4, 2), 5)
    assert sent(resuming, numbered(rows(20), number_of(3, 0))) == []
    assert resuming.skipped == 20


def test_numbers_with_gaps_count_by_rows() -> None:
    numbers = [3, 10, 11, 50, 60, 61, 70, 90, 100]
    batch = with_numbers(rows(9), pa.array(numbers).to_numpy())
    assert sent(ResumeFilter(61, 2), batch, 2) == [60, 61, 70, 90, 100]


def test_numbers_that_do_not_rise_are_refused() -> None:
    batch = with_numbers(rows(3), pa.array([5, 7, 7]).to_numpy())
    with pytest.raises(InvalidRequest, match="request_id 7 comes after 7"):
        sent(ResumeFilter(0, 2), batch)
    with pytest.raises(InvalidRequest, match="request_id 1 comes after 2"):
        sent(ResumeFilter(0, 2), with_numbers(rows(3), pa.array([1, 2, 1]).to_numpy()), 2)


class Window:
    """A broker that remembers the last `size` numbers it stored, in the order in which it stored them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.log: list[int] = []
        self.submitted = 0

    def store(self, block: list[int], *, lost: bool) -> None:
        self.submitted = max(self.submitted, block[-1])
        if not lost:
            remembered = set(self.log[-self.size :])
            self.log += [number for number in block if number not in remembered]


@given(st.integers(1, 60), st.integers(8, 24), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=6))
def test_however_often_a_task_breaks_off_every_row_is_stored_once(
    count: int, window: int, breaks: list[tuple[int, int]]
) -> None:
    """Attempts end after some blocks; of those that were on their way then, any may be lost."""
    broker, again = Window(window), unconfirmed_max(window)
    piece = max(1, again // 4)
    batch = numbered(rows(count), number_of(0, 0))
    for stop, lost in [*breaks, (10_000, 0)]:
        resuming = ResumeFilter(broker.submitted, again)
        numbers = sent(resuming, batch)
        blocks = [numbers[start : start + piece] for start in range(0, len(numbers), piece)]
        for index, block in enumerate(blocks[:stop]):
            on_its_way = index >= min(stop, len(blocks)) - 4 and stop < 10_000
            broker.store(block, lost=on_its_way and bool(lost >> (index % 4) & 1))
    assert sorted(broker.log) == [number_of(0, row) for row in range(count)]
