"""Staging: what was planned is published, whatever comes later; and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.spark.sink.kit import rows

from penstock.core.errors import StorageFailed
from penstock.spark.sink.staging import Staging, is_single_use, single_use_name


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_rows_come_back_in_the_order_of_the_tasks(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    late = staging.stage(0, 7, [rows(2, first=10)])
    early = staging.stage(0, 3, [rows(3), rows(1, first=3)])
    plan = staging.plan(0, [late, early])
    assert [row["value"] for batch in staging.rows(plan) for row in batch.to_pylist()] == [
        *(f"row {number}".encode() for number in range(4)),
        b"row 10",
        b"row 11",
    ]


def test_no_file_is_made_where_there_is_no_row(tmp_path: Path) -> None:
    staged = Staging(tmp_path, "q").stage(0, 0, [])
    assert (staged.rows, names(tmp_path)) == (0, [])


def test_a_plan_stands_once_it_is_made(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    first = staging.plan(0, [staging.stage(0, 0, [rows(3)])])
    assert not staging.is_begun(0)
    staging.save_plan(first)
    again = Staging(tmp_path, "q").plan(0, [staging.stage(0, 0, [rows(5)])])
    assert again == first
    assert staging.is_begun(0)


def test_what_is_published_is_swept_and_remembered(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    assert staging.last_batch() == -1
    for batch in (0, 1):
        staging.save_plan(staging.plan(batch, [staging.stage(batch, 0, [rows(3)])]))
        staging.finish(batch)
    assert names(tmp_path) == ["q", "q/done.json"]
    assert Staging(tmp_path, "q").last_batch() == 1


def test_a_failed_attempt_is_discarded_alone(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    kept, gone = staging.stage(0, 0, [rows(1)]), staging.stage(0, 1, [rows(1)])
    staging.discard(0, [gone, gone])
    assert names(tmp_path / "q/0") == [kept.name]


def test_a_write_that_nobody_repeats_leaves_nothing(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staging", single_use_name())
    staging.save_plan(staging.plan(0, [staging.stage(0, 0, [rows(1)])]))
    staging.remove()
    assert names(tmp_path) == []


def test_what_killed_writes_left_is_swept_after_a_week(tmp_path: Path) -> None:
    old, new, kept = single_use_name(), single_use_name(), "nightly"
    for query in (old, new, kept):
        Staging(tmp_path, query).stage(0, 0, [rows(1)])
        if query != new:
            os.utime(tmp_path / query, (0, 0))
    staging = Staging(tmp_path, "q")
    staging.save_plan(staging.plan(0, [staging.stage(0, 0, [rows(1)])]))
    staging.finish(0)
    assert {path.name for path in tmp_path.iterdir()} == {new, kept, "q"}
    assert is_single_use(new)
    assert not is_single_use(kept)


def test_a_damaged_plan_is_not_taken_for_none(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    staging.save_plan(staging.plan(0, [staging.stage(0, 0, [rows(1)])]))
    (tmp_path / "q/0.plan.json").write_bytes(b"{}")
    with pytest.raises(StorageFailed, match=r"0\.plan\.json is damaged"):
        staging.plan(0, [])


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    staging = Staging(tmp_path, "q")
    staged = staging.stage(0, 0, [rows(1)])
    plan = staging.plan(0, [staged])
    (tmp_path / "q/0" / staged.name).unlink()
    with pytest.raises(StorageFailed, match="part of what is to be published"):
        list(staging.rows(plan))
