"""Foreign values in the names of folders, and warehouses with any name: nothing escapes, and all is readable again."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.lake.kit import TABLE_FORMATS, files, made, marker, offsets, rows
from tests.spark.lake.tables.test_compaction import aged, filled, parquet_files

from penstock.core.errors import InvalidRequest
from penstock.spark.lake import CommitMarker, LakeTable, frames, open_table
from penstock.spark.lake.tables import folder as folders
from penstock.spark.lake.tables import iceberg
from penstock.spark.lake.tables.compaction import compact
from penstock.spark.lake.tables.file_writer import partition_folder
from penstock.spark.lake.tables.folder import Folder

CITIES = ["../../../../escaped", "a b", "100%25", "x/y", "a=b", "é", ".", "..", "{a}[b]", "q?#", "\n", None]
SCHEMA = pa.schema([("city", pa.string()), ("n", pa.int64())])


@given(st.text(max_size=60))
def test_every_value_is_one_folder_below_and_is_told_from_others(value: str) -> None:
    name = partition_folder("city", value)
    assert len(PurePosixPath(name).parts) == 1
    assert not re.search(r"[/\\:\x00-\x1f]", name)
    assert name.count("=") == 1
    expected = value or "__HIVE_DEFAULT_PARTITION__"
    assert unquote(name.removeprefix("city="), errors="strict") == expected


def test_no_value_has_a_folder_of_its_own_and_a_long_one_is_refused() -> None:
    assert partition_folder("a/b", None) == "a%2Fb=__HIVE_DEFAULT_PARTITION__"
    with pytest.raises(InvalidRequest, match="too long for the name of a folder"):
        partition_folder("city", "x" * 300)


def cities(tmp_path: Path, table_format: str) -> LakeTable:
    table = open_table(table_format, str(tmp_path / "lake"), "cities")
    table.create(SCHEMA, "city")
    for number in range(2):
        batch = pa.RecordBatch.from_pydict({"city": CITIES, "n": range(len(CITIES))}, schema=SCHEMA)
        table.commit(files(table, batch), CommitMarker("q", number))
    return table


def pairs(table: LakeTable) -> list[tuple[Any, int]]:
    found = [(row["city"], row["n"]) for batch in table.read() for row in batch.to_pylist()]
    return sorted(found, key=lambda each: each[1])


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_any_value_may_partition_a_table(tmp_path: Path, table_format: str) -> None:
    table = cities(tmp_path, table_format)
    twice = [(city, number) for number, city in enumerate(CITIES) for _ in range(2)]
    assert pairs(table) == twice
    assert {each.name for each in tmp_path.iterdir()} == {"lake"}
    assert not list(tmp_path.parent.glob("escaped*"))
    assert compact(table).files_after == len(CITIES)
    assert pairs(table) == twice
    aged(table, hours=300)
    table.vacuum(hours=100)
    assert pairs(table) == twice
    assert {each.path for each in table.live()} <= parquet_files(table)


def test_any_value_is_read_by_others(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    found = DeltaTable(cities(tmp_path, "delta").folder.uri).to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in found) == [number for number in range(len(CITIES)) for _ in range(2)]
    assert {row["n"]: row["city"] for row in found} == dict(enumerate(CITIES))


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_whole_numbers_partition_a_table(tmp_path: Path, table_format: str) -> None:
    table = open_table(table_format, str(tmp_path), "numbers")
    schema = pa.schema([("shard", pa.int64()), ("n", pa.int64())])
    table.create(schema, "shard")
    table.commit(
        files(table, pa.RecordBatch.from_pydict({"shard": [1, 2], "n": [5, 6]}, schema=schema)), CommitMarker("q", 0)
    )
    assert sorted(str(each.partition) for each in table.live()) == ["1", "2"]
    assert [row for batch in table.read(None, [("shard", "=", 2)]) for row in batch.to_pylist()] == [
        {"shard": 2, "n": 6}
    ]


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.float64(), pa.bool_(), pa.binary()])
def test_other_types_do_not_partition_a_table(kind: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="dates, texts or whole numbers"):
        frames._check_partition(pa.schema([("a", kind)]), "a")


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
@pytest.mark.parametrize("name", ["my lake", "100%25", "é", "a+b"])
def test_a_warehouse_may_have_any_name(tmp_path: Path, table_format: str, name: str) -> None:
    root = tmp_path / name
    if (table_format, name) == ("delta", "100%25"):
        with pytest.raises(InvalidRequest, match="choose another directory"):
            made(root, table_format)
        return
    table = made(root, table_format)
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10))
    again = open_table(table_format, str(root / table_format), "orders")
    again.commit(files(again, rows(10, 20)), marker(1, 10, 20))
    compact(again)
    aged(again, hours=300)
    again.vacuum(hours=100)
    assert offsets(again) == list(range(20))
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_addresses_of_one_file_are_known_whatever_their_scheme() -> None:
    bucket, local = Folder("s3://bucket/lake/t"), Folder("/lake/my t")
    for address in ("s3://bucket/lake/t/a", "s3a://bucket/lake/t/a", "s3n://bucket/lake/t/a"):
        assert iceberg._relative(bucket, address) == "a"
    for address in ("/lake/my t/a", "file:/lake/my t/a", "file:///lake/my t/a"):
        assert iceberg._relative(local, address) == "a"
    assert iceberg._relative(bucket, "s3://other/lake/t/a") == "s3://other/lake/t/a"


def test_a_table_that_uses_files_elsewhere_is_not_vacuumed(tmp_path: Path) -> None:
    table = filled(tmp_path, "iceberg", batches=1)
    aged(table, hours=300)
    table.folder = Folder(str(tmp_path))
    assert table.vacuum(hours=100, dry_run=True) is not None
    table.folder = Folder(str(tmp_path / "other"))
    with pytest.raises(InvalidRequest, match=r"is not below .*/other"):
        table.vacuum(hours=100)


def test_new_directories_are_on_disk_with_all_above_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(folders, "_sync", synced.append)
    with Folder(str(tmp_path)).create("a/b/c.parquet") as out:
        out.write(b"1")
    assert {tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c.parquet"} == set(synced)
    synced.clear()
    Folder(str(tmp_path)).put_new("d/e.json", b"1")
    assert {tmp_path, tmp_path / "d"} == set(synced)
    assert (tmp_path / "d/e.json").exists()
