"""`penstock lake`: its reports on tables, and its changes to them. No Spark is started."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake.kit import TABLE_FORMATS, files, made, marker, offsets, rows

from penstock.cli.app import run
from penstock.core.names import TopicName
from penstock.spark.lake import LakeTable
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.storage.store import Store


@pytest.fixture(params=TABLE_FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    found = made(tmp_path, request.param, owner="q1")
    for batch in range(3):
        found.commit(files(found, rows(batch * 10, batch * 10 + 10)), marker(batch, batch * 10, batch * 10 + 10))
    return found


class Said:
    def __init__(self, table: LakeTable, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ["--warehouse", str(table.folder.local.parents[1]), "--format", table.table_format]
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        assert run(["lake", words[0], *self._where, *words[1:]]) == code
        caught = self._capsys.readouterr()
        return caught.err if code else caught.out

    def rows(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]


@pytest.fixture
def lake(table: LakeTable, capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(table, capsys)


def test_tables_are_shown_with_rows_owner_and_positions(lake: Said, table: LakeTable) -> None:
    assert "default.orders" in lake("show")
    (facts,) = lake.rows("show")
    assert (facts["rows"], facts["files"], facts["owner"], facts["last_batch"]) == (30, 3, "q1", 2)
    assert facts["positions"] == [{"topic": "/default/orders", "partition": 0, "first_offset": 0, "next_offset": 30}]
    whole = lake("show", "orders")
    for word in ("archived offsets", "_timestamp", "q1", table.folder.uri):
        assert word in whole


def test_the_format_of_a_warehouse_is_found_where_none_is_named(
    table: LakeTable, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = str(table.folder.local.parents[1])
    assert run(["lake", "show", "--warehouse", warehouse, "--json"]) == 0
    (facts,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (facts["table"], facts["format"], facts["rows"]) == ("default.orders", table.table_format, 30)
    assert run(["lake", "show", "orders", "--warehouse", warehouse]) == 0
    assert "archived offsets" in capsys.readouterr().out
    other = next(table_format for table_format in TABLE_FORMATS if table_format != table.table_format)
    assert run(["lake", "show", "--warehouse", warehouse, "--format", other]) == 2
    assert f"are {table.table_format}, none is {other}: leave out --format" in capsys.readouterr().err


def test_looking_for_tables_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(TopicName.parse("orders"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("empty", "data", "none"):
        assert run(["lake", "show", "--warehouse", str(tmp_path / name)]) == 0
        assert "no tables in" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_small_files_are_compacted_and_the_rest_is_left_to_vacuum(lake: Said, table: LakeTable) -> None:
    assert "3 small files would be rewritten" in lake("compact", "--dry-run")
    assert "3 files" in lake("compact", "orders")
    assert lake.rows("compact")[0]["files_before"] == 0
    assert offsets(table) == list(range(30))
    assert lake.rows("vacuum", "--yes")[0]["count"] == 0
    then = time.time() - 30 * 86_400
    for each in files(table, rows(90, 95), name="orphan"):
        os.utime(table.folder.local / each.path, (then, then))
    assert lake.rows("vacuum", "--dry-run")[0]["count"] == 1
    assert "1 file deleted" in lake("vacuum", "--yes")
    assert offsets(table) == list(range(30))


def test_versions_are_forgotten_only_if_they_are_old(lake: Said, table: LakeTable) -> None:
    assert lake.rows("expire", "--yes", "--older-than", "1h")[0]["expired"] == 0
    assert offsets(table) == list(range(30))


def test_what_cannot_be_is_refused_with_a_sentence(
    lake: Said, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no" in lake("show", "nothing", code=2)
    assert "there are: default.orders" in lake("compact", "nothing", code=2)
    assert "at least 1h" in lake("vacuum", "--older-than", "5m", code=2)
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\n"))
    assert "nothing was changed" in lake("vacuum", code=2)
    assert "is not a size" in lake("compact", "--target", "much", code=2)
    assert "expected name=value" in lake("show", "--storage-option", "x", code=2)
    assert "expected NAME or NAMESPACE.NAME" in lake("show", "a/b", code=2)


def test_tables_of_another_format_are_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for table_format, other in (("iceberg", "delta"), ("delta", "parquet"), ("parquet", "iceberg")):
        made(tmp_path, table_format)
        assert run(["lake", "show", "--warehouse", str(tmp_path / table_format), "--format", other]) == 2
        on_batch = capsys.readouterr().err
        assert (
            f"the tables in {tmp_path / table_format} are {table_format}, none is {other}: leave out --format"
            in on_batch
        )
    with Checkpoint(tmp_path / "empty" / "mine") as state:  # it has a file that is called as a folder of Iceberg is
        state.query_id()
    assert run(["lake", "show", "--warehouse", str(tmp_path / "empty")]) == 0


def test_a_warehouse_without_tables_says_how_to_get_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lake", "show", "--warehouse", str(tmp_path)]) == 0
    assert "penstock archive makes them" in capsys.readouterr().out
    assert run(["lake", "show", "--warehouse", str(tmp_path), "--format", "hudi"]) == 2
    assert "expected one of delta, iceberg, parquet" in capsys.readouterr().err
