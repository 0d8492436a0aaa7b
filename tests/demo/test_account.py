"""The account: a message that is missing anywhere is noticed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.demo.report.account import Counts, rows

COUNTS = Counts(
    published=1000,
    by_transport={"TCP": 900, "WebSocket": 60, "HTTP": 40},
    malformed=10,
    poisoned=5,
    retried=20,
    acknowledged=990,
    refused=10,
    recognised=20,
    answers_wrong=0,
    acknowledged_before_kill=500,
    missing_after_kill=0,
    found_stored=3,
    in_log=995,
    log_missing=0,
    log_extra=0,
    billed=990,
    dead_letters=5,
    redriven=5,
    archived=995,
    archived_dead_letters=5,
    audited=1000,
    audit_findings=0,
    revenue_cents=123_456,
    expected_cents=123_456,
    hours_wrong=0,
)
TOLD_ONLY = {"acknowledged_before_kill", "found_stored"}
"""Counts without an expected number."""
HELD = [name for name, value in COUNTS.as_dict().items() if isinstance(value, int) and name not in TOLD_ONLY]


def broken(counts: Counts) -> list[str]:
    return [row.what for row in rows(counts) if not row.holds]


def changed(name: str, by: int) -> Counts:
    change: dict[str, Any] = {name: getattr(COUNTS, name) + by}
    return replace(COUNTS, **change)


def test_sums_that_add_up_are_found_to() -> None:
    assert broken(COUNTS) == []


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", HELD)
def test_one_too_few_or_too_many_of_anything_is_noticed(name: str, by: int) -> None:
    assert broken(changed(name, by)) != []


def test_a_message_that_is_neither_stored_nor_refused_is_noticed() -> None:
    assert broken(replace(COUNTS, acknowledged=989, billed=989, in_log=994, archived=994, audited=999)) == [
        "acknowledged"
    ]


def test_a_message_that_the_archive_left_out_is_noticed_also_where_the_audit_is_content() -> None:
    assert broken(replace(COUNTS, archived=994, audited=999)) == ["in the lake", "audited: log = lake"]


def test_a_transport_that_sent_less_than_its_share_is_noticed() -> None:
    assert broken(replace(COUNTS, by_transport={"TCP": 900, "WebSocket": 60})) == ["published"]


def test_the_page_tells_of_rows_that_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "demo.md").read_text().partition("## The account")[2]
    told = re.findall(r"^\| ([a-z][^|]*?) \| ", page, flags=re.MULTILINE)[1:]
    assert len(told) > 10
    assert set(told) <= {row.what for row in rows(COUNTS)}
