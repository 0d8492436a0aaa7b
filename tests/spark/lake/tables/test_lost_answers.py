"""Lost answers and concurrent commits: no file of the table is ever deleted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake.kit import TABLE_FORMATS, files, made, marker, offsets, rows
from tests.spark.lake.tables.test_compaction import aged, filled, parquet_files

from penstock.core.errors import StorageFailed
from penstock.spark.lake import Committed, DataFile, LakeTable, open_table
from penstock.spark.lake.tables import compaction, parquet
from penstock.spark.lake.tables.compaction import compact
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.parquet import ParquetLakeTable
from penstock.spark.lake.tables.table import CommitConflict


def answering(table: LakeTable, error: BaseException, patch: pytest.MonkeyPatch) -> None:
    """Make the store do what it is asked for, and answer with an error."""
    really = type(table).replace

    def replace(self: LakeTable, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        really(self, removed, added)
        raise error

    patch.setattr(type(table), "replace", replace)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
@pytest.mark.parametrize("error", [ConnectionError("no answer"), CommitConflict()])
def test_a_compaction_whose_answer_was_lost_is_done(
    tmp_path: Path, table_format: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path, table_format, batches=4, days=1)
    with monkeypatch.context() as patch:
        answering(table, error, patch)
        done = compact(table)
    assert (done.files_before, done.files_after) == (4, 1)
    assert len(table.live()) == 1
    assert offsets(table) == list(range(40))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_compaction_that_is_interrupted_behind_its_commit_leaves_the_table_whole(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path, table_format, batches=4, days=1)
    with monkeypatch.context() as patch:
        answering(table, KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            compact(table)
    assert offsets(table) == list(range(40))


@pytest.mark.parametrize("error", [ConnectionError("no answer"), CommitConflict()])
def test_a_compaction_that_was_not_committed_deletes_its_files_only_if_it_was_refused(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path, "parquet", batches=4, days=1)
    before = parquet_files(table)

    def replace(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(ParquetLakeTable, "replace", replace)
        patch.setattr(compaction, "back_off", lambda _: None)
        with pytest.raises(Exception, match=r"no answer|others committed first"):
            compact(table)
    assert len(parquet_files(table) - before) == (0 if isinstance(error, CommitConflict) else 1)
    assert offsets(table) == list(range(40))


def test_manifests_are_forgotten_only_behind_one_that_lists_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path, "parquet", days=1)
    other = open_table("parquet", str(tmp_path / "parquet"), "orders")
    really = ParquetLakeTable._write
    raced: list[object] = []

    def race(self: ParquetLakeTable, state: Any, body: dict[str, Any], added: Any, *, full: bool = False) -> bool:
        if body["operation"] == "expire" and not raced:
            raced.append(other.commit(files(other, rows(50, 60)), marker(5, 50, 60)))
        return really(self, state, body, added, full=full)

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "_now_ms", lambda: time.time_ns() // 1_000_000 + 7_200_000)
        patch.setattr(ParquetLakeTable, "_write", race)
        assert table.expire(hours=1) > 0
    assert raced == [Committed()]
    assert offsets(table) == list(range(60))
    assert table.owner() == "q1"
    assert table.commit(files(table, rows(60, 70)), marker(6, 60, 70)) == Committed()


def test_a_table_without_a_manifest_that_lists_all_files_says_what_to_do(tmp_path: Path) -> None:
    table = filled(tmp_path, "parquet", batches=2)
    table.folder.delete(["_manifests/00000000000000000000.json"])
    with pytest.raises(StorageFailed, match=r"restore .*_manifests/ from a backup"):
        table.live()


@pytest.mark.parametrize("table_format", ["iceberg", "parquet"])
def test_files_that_are_committed_while_vacuum_looks_are_kept(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path, table_format, batches=1, days=1)
    late = files(table, rows(10, 20))
    aged(table, hours=300)
    really = Folder.list
    done: list[object] = []

    def commit_and_list(self: Folder, below: str = "") -> Any:
        found = list(really(self, below))
        if not below and not done:
            done.append(table.commit(late, marker(1, 10, 20)))
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "list", commit_and_list)
        table.vacuum(hours=100)
    assert done == [Committed()]
    assert offsets(table) == list(range(20))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_file_that_is_gone_is_not_committed(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    written = files(table, rows(0, 10))
    table.folder.delete([written[0].path])
    with pytest.raises(StorageFailed, match="was written and is gone"):
        table.commit(written, marker(0, 0, 10))
    assert (table.positions(), offsets(table)) == ({}, [])


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_the_last_batches_of_a_history_are_read_alone(tmp_path: Path, table_format: str) -> None:
    table = filled(tmp_path, table_format)
    compact(table)
    assert [each.batch_id for _, each in table.commit_history(2)] == [3, 4]
    assert len(table.commit_history()) == 5
