"""DataFrames into tables, once, and tables as DataFrames."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.lake.kit import SCHEMA, TABLE_FORMATS, files, independent, made, marker, rows

from penstock.core.errors import InvalidRequest
from penstock.spark.lake import AlreadyCommitted, CommitMarker, Committed, LakeTable, open_table
from penstock.spark.lake.frames import read_frame, write_frame
from penstock.spark.lake.tables.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sales(spark: SparkSession, *numbers: int) -> DataFrame:
    day = dt.date(2026, 1, 31)
    made = [(number, f"tea {number}", day + dt.timedelta(days=number % 2), [number], {"a": 1}) for number in numbers]
    return spark.createDataFrame(made, "number int, name string, day date, list array<int>, map map<string,bigint>")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("number").collect())


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_frame_is_written_once_and_read_by_spark_and_by_others(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    table = open_table(table_format, str(tmp_path), "sales")
    assert write_frame(sales(spark, 1, 2, 3), table, CommitMarker("q", 0), partition_by="day") == Committed()
    assert write_frame(sales(spark, 1, 2, 3), table, CommitMarker("q", 0)) == AlreadyCommitted()
    more = sales(spark, 4).selectExpr("*", "named_struct('cents', 5L) as price")
    assert write_frame(more, table, CommitMarker("q", 1)) == Committed()
    found = read_frame(spark, table)
    assert found.columns == ["number", "name", "day", "list", "map", "price"]
    assert numbers(found) == [1, 2, 3, 4]
    assert numbers(found.where("day = date'2026-02-01'")) == [1, 3]
    assert found.where("number = 4").first().asDict(recursive=True) == {  # type: ignore[union-attr]
        "number": 4,
        "name": "tea 4",
        "day": dt.date(2026, 1, 31),
        "list": [4],
        "map": {"a": 1},
        "price": {"cents": 5},
    }
    assert sorted(independent(table, ["number"]).column(0).to_pylist()) == [1, 2, 3, 4]


def test_an_archived_table_is_a_frame_with_its_types(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path, "delta")
    table.commit(files(table, rows(0, 20, days=3)), marker(0, 0, 20))
    found = read_frame(spark, table)
    assert found.columns == SCHEMA.names
    assert dict(found.dtypes)["_timestamp"] == "timestamp"
    assert found.where("_day = date'2026-02-02'").count() == 6
    assert [row[0] for row in found.where("_offset = 7").select("_value").collect()] == [b"message 7"]


def test_a_table_in_an_object_store_is_read_by_the_workers(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path, "parquet")
    table.commit(files(table, rows(0, 20, days=3)), marker(0, 0, 20))
    there: LakeTable = type(table)(table.name, Folder(f"file+store://{table.folder.uri}"))
    assert not there.folder.is_local
    found = read_frame(spark, there)
    assert found.where("_day = date'2026-02-02'").count() == 6
    write_frame(
        found.where("_offset < 5"), open_table("parquet", f"file+store://{tmp_path}", "copy"), CommitMarker("q", 0)
    )
    assert numbers(read_frame(spark, open_table("parquet", str(tmp_path), "copy")).selectExpr("_offset number")) == [
        *range(5)
    ]


def test_an_empty_table_is_an_empty_frame_and_none_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    assert read_frame(spark, made(tmp_path, "delta")).count() == 0
    with pytest.raises(InvalidRequest, match=r"there is no delta table default.nothing in"):
        read_frame(spark, open_table("delta", str(tmp_path), "nothing"))


def test_a_column_that_the_table_cannot_hold_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table("delta", str(tmp_path), "sales")
    write_frame(spark.sql("select 1 as number"), table, CommitMarker("q", 0))
    with pytest.raises(InvalidRequest, match=r"column 'number' is string, and in table default.sales it is int32"):
        write_frame(spark.sql("select 'one' as number"), table, CommitMarker("q", 1))
    assert write_frame(spark.sql("select 2S as number"), table, CommitMarker("q", 1)) == Committed()
    with pytest.raises(InvalidRequest, match="partition by 'day': the columns are number"):
        write_frame(
            spark.sql("select 1 as number"),
            open_table("delta", str(tmp_path), "x"),
            CommitMarker("q", 0),
            partition_by="day",
        )


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_any_text_or_none_may_be_the_value_of_the_partition(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    cities = ["a b", "../x", "100%25", "é=è", "7", None]
    table = open_table(table_format, str(tmp_path), "cities")
    frame = spark.createDataFrame([(city, number) for number, city in enumerate(cities)], "city string, number int")
    assert write_frame(frame, table, CommitMarker("q", 0), partition_by="city") == Committed()
    found = sorted(read_frame(spark, table).collect(), key=lambda row: row["number"])
    assert [row["city"] for row in found] == cities
