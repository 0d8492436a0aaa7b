"""Compaction, vacuum and expiry: the same rows, the same markers, and no file in use is lost."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tests.spark.lake.kit import TABLE_FORMATS, TOPIC, files, independent, made, marker, offsets, rows

from penstock.spark.lake import AlreadyCommitted, Committed, DataFile, LakeTable, open_table
from penstock.spark.lake.tables.compaction import compact, compaction_groups, plan_compaction
from penstock.spark.lake.tables.table import CommitConflict, OffsetSpan


def filled(tmp_path: Path, table_format: str, batches: int = 5, days: int = 2) -> LakeTable:
    table = made(tmp_path, table_format, owner="q1")
    for batch in range(batches):
        start = batch * 10
        table.commit(files(table, rows(start, start + 10, days=days)), marker(batch, start, start + 10))
    return table


def parquet_files(table: LakeTable) -> set[str]:
    return {
        each.path for each in table.folder.list() if each.path.endswith(".parquet") and "_delta_log" not in each.path
    }


def aged(table: LakeTable, *, hours: float) -> None:
    """Make all files of a table so much older."""
    then = time.time() - hours * 3600
    for each in table.folder.list():
        os.utime(table.folder.local / each.path, (then, then))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_many_small_files_become_one_for_each_day(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    assert len(table.live()) == 10
    done = compact(table)
    assert (done.files_before, done.files_after, done.rows) == (10, 2, 50)
    assert len(table.live()) == 2
    assert independent(table, ["_offset"]).sort_by("_offset").column(0).to_pylist() == list(range(50))
    assert compact(table).files_before == 0


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_markers_positions_and_owner_survive_all_upkeep(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    compact(table)
    aged(table, hours=300)
    table.expire(hours=100)
    table.vacuum(hours=100)
    again = open_table(table_format, str(tmp_path / table_format), "orders")
    assert (again.spans(), again.owner()) == ({(TOPIC, 0): OffsetSpan(0, 50)}, "q1")
    assert again.commit(files(again, rows(40, 50)), marker(4, 40, 50)) == AlreadyCommitted()
    assert again.commit(files(again, rows(50, 55)), marker(5, 50, 55)) == Committed()
    assert offsets(again) == list(range(55))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_vacuum_deletes_what_nobody_uses_and_is_old_enough(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    files(table, rows(100, 110), name="orphan")
    before = parquet_files(table)
    assert table.vacuum(hours=1) == []
    assert parquet_files(table) == before
    aged(table, hours=300)
    assert len(table.vacuum(hours=100, dry_run=True)) == 1
    assert parquet_files(table) == before
    assert "orphan" in table.vacuum(hours=100)[0]
    assert parquet_files(table) == {each.path for each in table.live()}
    assert offsets(table) == list(range(50))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_files_that_were_just_replaced_are_left_to_those_who_read_them(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    old = {each.path for each in table.live()}
    aged(table, hours=300)
    compact(table)
    table.vacuum(hours=100)
    assert old <= parquet_files(table)


@pytest.mark.parametrize("table_format", ["iceberg"])
def test_an_expired_version_is_vacuumed_with_its_files(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    old = {each.path for each in table.live()}
    compact(table)
    assert table.expire(hours=0) > 3
    aged(table, hours=300)
    table.vacuum(hours=100)
    assert not old & parquet_files(table)
    assert offsets(table) == list(range(50))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_an_archive_goes_on_while_its_table_is_compacted(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    stop = threading.Event()

    def keep_compacting() -> None:
        mine = open_table(table_format, str(tmp_path / table_format), "orders")
        while not stop.is_set():
            compact(mine)

    thread = threading.Thread(target=keep_compacting)
    thread.start()
    try:
        for batch in range(5, 12):
            table.commit(files(table, rows(batch * 10, batch * 10 + 10)), marker(batch, batch * 10, batch * 10 + 10))
    finally:
        stop.set()
        thread.join()
    assert offsets(open_table(table_format, str(tmp_path / table_format), "orders")) == list(range(120))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_files_that_are_gone_cannot_be_replaced(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format, batches=2, days=1)
    old = table.live()
    compact(table)
    with pytest.raises(CommitConflict):
        table.replace(old, files(table, rows(0, 20)))
    assert offsets(table) == list(range(20))


def file(name: str, size: int, day: str = "2026-01-31") -> DataFile:
    return DataFile(name, size, 1, day)


def test_only_small_files_of_one_day_are_put_together_up_to_the_size_aimed_at() -> None:
    given = [file("a", 10), file("b", 60), file("c", 50), file("d", 90), file("e", 10, "2026-02-01"), file("f", 30)]
    assert [[each.path for each in group] for group in compaction_groups(given, 100)] == [["a", "b"], ["c", "f"]]


def test_what_would_be_done_is_said_before(tmp_path: Path) -> None:
    table = filled(tmp_path, "parquet")
    assert (plan_compaction(table).files_before, plan_compaction(table).rows) == (10, 50)
    assert plan_compaction(table, target_bytes=10).files_before == 0
