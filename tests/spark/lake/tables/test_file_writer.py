"""Rows written to files: one day each, no larger than the target, with true statistics, and none left after an
error."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.lake.kit import SCHEMA, rows

from penstock.spark.lake.tables import file_writer
from penstock.spark.lake.tables.file_writer import FileLayout, FileWriter
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.table import DataFile
from penstock.spark.lake.tables.table_scan import may_match


def folder(tmp_path: Path, *, store: bool = False) -> Folder:
    return Folder(f"file+store://{tmp_path}" if store else str(tmp_path))


def written(where: Folder, layout: FileLayout, *batches: pa.RecordBatch) -> list[DataFile]:
    with FileWriter(where, layout, "part") as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


@pytest.mark.parametrize("store", [False, True])
def test_every_file_has_one_day_and_says_what_is_in_it(tmp_path: Path, store: bool) -> None:
    where = folder(tmp_path, store=store)
    found = written(where, FileLayout(SCHEMA, "_day"), rows(0, 30, days=3), rows(30, 40, days=2))
    assert sorted((each.partition, each.rows) for each in found) == [
        ("2026-01-31", 15),
        ("2026-02-01", 15),
        ("2026-02-02", 10),
    ]
    for each in found:
        assert each.path.startswith(f"_day={each.partition}/part-")
        assert where.size(each.path) == each.size == (tmp_path / each.path).stat().st_size
        table = pq.read_table(tmp_path / each.path, partitioning=None)
        assert table.schema.names == [name for name in SCHEMA.names if name != "_day"]
        assert table.num_rows == each.rows == json.loads(each.stats)["numRecords"]


def test_the_partition_column_is_kept_where_the_format_wants_it(tmp_path: Path) -> None:
    (only,) = written(folder(tmp_path), FileLayout(SCHEMA, "_day", keeps_partition=True, prefix="data/"), rows(0, 3))
    assert only.path.startswith("data/_day=2026-01-31/")
    assert pq.read_table(tmp_path / only.path, partitioning=None).schema.names == SCHEMA.names


def test_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    (only,) = written(folder(tmp_path), FileLayout(SCHEMA), rows(7, 50, partition=3))
    stats = json.loads(only.stats)
    assert stats["minValues"]["_offset"] == 7
    assert stats["maxValues"]["_offset"] == 49
    assert stats["minValues"]["_partition"] == stats["maxValues"]["_partition"] == 3
    assert stats["minValues"]["_timestamp"] == "2026-01-31T00:00:07.000Z"
    assert stats["nullCount"]["_offset"] == 0
    assert "_value" not in stats["minValues"]


def test_times_between_milliseconds_are_within_the_statistics(tmp_path: Path) -> None:
    times = pa.array([dt.datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC"))
    (only,) = written(
        folder(tmp_path), FileLayout(pa.schema([("t", times.type)])), pa.RecordBatch.from_arrays([times], names=["t"])
    )
    stats = json.loads(only.stats)
    assert stats["minValues"]["t"] == "2026-01-01T00:00:00.001Z"
    assert stats["maxValues"]["t"] == "2026-01-01T00:00:00.002Z"


def test_a_file_that_is_full_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_BYTES", 2000)
    found = written(
        folder(tmp_path),
        FileLayout(SCHEMA, "_day", file_bytes_max=4000),
        *(rows(n, n + 50) for n in range(0, 1000, 50)),
    )
    assert len(found) > 2
    assert sum(each.rows for each in found) == 1000
    assert all(each.size < 20_000 for each in found)


def test_many_days_at_once_do_not_keep_many_files_open(tmp_path: Path) -> None:
    found = written(folder(tmp_path), FileLayout(SCHEMA, "_day"), rows(0, 100, days=40), rows(100, 200, days=40))
    assert sum(each.rows for each in found) == 200
    assert len({each.partition for each in found}) == 40


@pytest.mark.parametrize("store", [False, True])
def test_an_error_leaves_no_file(tmp_path: Path, store: bool) -> None:
    where = folder(tmp_path, store=store)
    with pytest.raises(KeyError, match="_topic"):
        written(where, FileLayout(SCHEMA, "_day"), rows(0, 10, days=2), rows(10, 20).rename_columns([*"abcde", "_day"]))
    assert list(where.list()) == []


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert written(folder(tmp_path), FileLayout(SCHEMA, "_day")) == []


@settings(max_examples=50)
@given(st.integers(0, 100), st.integers(1, 50), st.sampled_from(["=", "<", "<=", ">", ">="]), st.integers(-10, 200))
def test_no_file_is_skipped_that_has_a_row_that_matches(start: int, count: int, sign: str, value: int) -> None:
    stats = {"minValues": {"_offset": start}, "maxValues": {"_offset": start + count - 1}}
    file = DataFile("a", 1, count, None, json.dumps(stats))
    matches = {
        "=": lambda each: each == value,
        "<": lambda each: each < value,
        "<=": lambda each: each <= value,
        ">": lambda each: each > value,
        ">=": lambda each: each >= value,
    }[sign]
    assert may_match(file, [("_offset", sign, value)], None) == any(map(matches, range(start, start + count)))
