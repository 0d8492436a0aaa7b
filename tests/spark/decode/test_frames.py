"""DataFrames decoded by a real Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spark.decode.kit import make_log

import penstock.spark
from penstock.core.errors import InvalidRequest
from penstock.spark.decode.frames import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_log(tmp_path_factory.mktemp("decode") / "data", bad=(31, 150))


def messages(spark: SparkSession, log: Path, **options: str) -> DataFrame:
    given = {"path": str(log), "subscribe": "orders", **options}
    return spark.read.format("penstock").options(**given).load()


def decode(frame: DataFrame, log: Path, **options: Any) -> DataFrame:
    found = penstock.spark.decode(frame, topic="orders", registry=str(log), **options)
    assert not isinstance(found, Split)
    return found


def test_good_and_bad_rows_are_two_frames(spark: SparkSession, log: Path) -> None:
    split = penstock.spark.decode(messages(spark, log), topic="orders", registry=str(log), mode="quarantine")
    assert isinstance(split, Split)
    assert split.good.count() == 198
    assert split.good.where("at is not null").count() == 99
    assert [tuple(row) for row in split.bad.select("partition", "offset", "value").orderBy("offset").collect()] == [
        (1, 15, bytearray(b"{")),
        (0, 75, bytearray(b"{")),
    ]


def test_typed_columns_can_be_summed_and_dated(spark: SparkSession, log: Path) -> None:
    frame = decode(messages(spark, log), log, mode="null")
    row = frame.selectExpr("sum(amount) total", "max(at) last", "count(_error) bad").first()
    assert row is not None
    assert row.total == sum(number / 2 for number in range(200) if number not in (31, 150))
    assert row.last.astimezone(dt.UTC) == dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert row.bad == 2


def test_times_are_the_same_in_any_time_zone_of_the_session(spark: SparkSession, log: Path) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = decode(messages(spark, log), log, mode="null")
        assert frame.selectExpr("unix_timestamp(max(at))").first() == (1769860800,)
        assert frame.selectExpr("cast(max(at) as string)").first() == ("2026-01-31 21:00:00",)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_a_bad_row_fails_the_query_with_its_place(spark: SparkSession, log: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=r"cannot be read by schema"):
        decode(messages(spark, log), log).collect()


def test_bad_rows_go_where_they_are_told_to(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    frame = decode(messages(spark, log), log, mode="quarantine", bad_records=str(tmp_path))
    assert frame.count() == 198
    assert spark.read.parquet(str(tmp_path)).dropDuplicates(["topic", "partition", "offset"]).count() == 2

    def refuse(bad: pa.RecordBatch) -> None:
        raise ValueError(f"{bad.num_rows} bad rows were handed over")

    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="1 bad rows were handed over"):
        decode(messages(spark, log), log, mode="quarantine", bad_records=refuse).collect()


def test_columns_of_the_users_own_are_kept(spark: SparkSession, log: Path) -> None:
    frame = messages(spark, log).selectExpr("value", "schema_id", "offset * 2 as twice")
    assert decode(frame, log, mode="null").columns == ["schema_id", "twice", "value_id", "amount", "at", "_error"]


def test_the_source_decodes_by_itself(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    bad = {"decode": "registry", "decodeMode": "quarantine", "badRecords": str(tmp_path)}
    frame = messages(spark, log, **bad)
    assert frame.columns[-3:] == ["value_id", "amount", "at"]
    assert frame.where("offset < 20").selectExpr("count(*)", "max(amount)").first() == (39, 19.5)
    few = spark.read.format("penstock").schema("amount double, offset bigint")
    found = few.options(path=str(log), subscribe="orders", **bad).load()
    assert found.selectExpr("count(amount)").first() == (198,)


def test_a_stream_is_decoded_as_it_comes(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    options = {"path": str(log), "subscribe": "orders", "startingOffsets": "earliest", "decode": "registry"}
    stream = spark.readStream.format("penstock").options(**options, decodeMode="null").load()
    query = (
        stream.writeStream.format("memory")
        .queryName("decoded_orders")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    assert spark.sql("select count(*), count(amount), count(_error) from decoded_orders").first() == (200, 198, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "skip"}, "mode='skip': it is fail, null, quarantine"),
        ({"unnamed": "first"}, "unnamed='first': it is bad, latest"),
        ({"bad_records": "/x"}, "bad_records is for mode='quarantine'"),
        ({"framing": "kafka"}, "framing='kafka'"),
        ({"topic": []}, "topic is empty"),
        ({"registry": "/nowhere"}, "registry='/nowhere'"),
        ({"pick": "old"}, "pick='old'"),
    ],
)
def test_what_cannot_be_asked_for_is_named(spark: SparkSession, log: Path, options: dict[str, Any], said: str) -> None:
    asked = {"topic": "orders", "registry": str(log), **options}
    with pytest.raises(InvalidRequest, match=said):
        penstock.spark.decode(messages(spark, log), **asked)


def test_a_frame_without_payloads_cannot_be_decoded(spark: SparkSession, log: Path) -> None:
    with pytest.raises(InvalidRequest, match="value and schema_id must be among the columns"):
        decode(messages(spark, log).select("offset"), log)
