from __future__ import annotations

from penstock.spark.jobs.transfer.loss_accumulator import count_offsets


def test_what_is_told_of_twice_counts_once() -> None:
    assert count_offsets(frozenset()) == 0
    assert count_offsets(frozenset({("a", 0, 5, 6), ("a", 0, 7, 10), ("a", 1, 7, 10), ("b", 0, 0, 2)})) == 9
    assert count_offsets(frozenset({("a", 0, 0, 10), ("a", 0, 0, 4), ("a", 0, 8, 12), ("a", 0, 3, 5)})) == 12
