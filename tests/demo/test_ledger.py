"""The ledger: what was answered is noted once, and contradictions are remembered."""

from __future__ import annotations

import pytest

from penstock.demo.base.ledger import Ledger, LogPosition


def nobody() -> None:
    """Is told."""


def test_what_is_stored_and_refused_is_answered() -> None:
    ledger = Ledger(4, half_way=nobody)
    ledger.store(2, LogPosition(1, 7), duplicate=False)
    ledger.refuse(0, "it is not JSON")
    assert (ledger.answered, ledger.wrong) == (2, 0)
    found = ledger.acknowledged()
    assert [each.tolist() for each in (found.numbers, found.partitions, found.offsets)] == [[2], [1], [7]]
    assert ledger.refused == {0: "it is not JSON"}


@pytest.mark.parametrize("count", [4, 5])
def test_the_answer_with_which_half_is_answered_is_told_of_once(count: int) -> None:
    told: list[int] = []
    ledger = Ledger(count, half_way=lambda: told.append(ledger.answered))
    for number in range(count):
        ledger.store(number, LogPosition(0, number), duplicate=False)
    assert told == [(count + 1) // 2]


def test_a_second_first_answer_is_a_contradiction() -> None:
    ledger = Ledger(2, half_way=nobody)
    ledger.store(0, LogPosition(0, 0), duplicate=False)
    ledger.refuse(0, "no")
    assert ledger.complaints == ["event 0 was answered twice"]


def test_what_is_sent_twice_has_to_be_recognised_at_its_place() -> None:
    ledger = Ledger(3, half_way=nobody)
    for number in range(3):
        ledger.store(number, LogPosition(0, number), duplicate=False)
    ledger.repeat(0, LogPosition(0, 0), duplicate=True)
    ledger.repeat(1, LogPosition(0, 9), duplicate=False)
    ledger.repeat(2, LogPosition(1, 2), duplicate=True)
    assert (ledger.recognised, ledger.wrong) == (1, 2)
    assert "stored again" in ledger.complaints[0]


def test_complaints_are_counted_and_only_the_first_are_kept() -> None:
    ledger = Ledger(1, half_way=nobody)
    for _ in range(1000):
        ledger.complain("strange")
    assert (ledger.wrong, len(ledger.complaints)) == (1000, 10)
