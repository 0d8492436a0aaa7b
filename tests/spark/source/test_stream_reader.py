"""The readers as Spark calls them, without Spark: in other processes, pickled, with JSON in between."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.spark.log_kit import ORDERS, append, make_data
from tests.spark.source_kit import make_logs, unchanged

from penstock.core.errors import InvalidRequest
from penstock.spark.scan.columns import COLUMNS, schema_of
from penstock.spark.source.batch import BatchReader, PushingReader, reader_for
from penstock.spark.source.data_source import PenstockSource
from penstock.spark.source.offsets import Offsets
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.read_schema import read_task_for
from penstock.spark.source.streaming import WholeReader, stream_reader
from penstock.storage.store import Store

NAMES = ("topic", "partition", "offset")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("readers") / "data", seed=31, messages=150)


def source(root: Path, **options: str) -> PenstockSource:
    return PenstockSource({"path": str(root), "subscribe": "orders,/shop/carts", **options})


def stream(root: Path, **options: str) -> Any:
    asked = {"startingOffsets": "earliest", "columns": ",".join(NAMES), **options}
    return source(root, **asked).streamReader(from_arrow_schema(schema_of(NAMES)))


def everything(root: Path) -> list[dict[str, Any]]:
    return [{name: row[name] for name in NAMES} for _, rows in sorted(unchanged(root).items()) for row in rows]


def test_the_schema_is_what_the_options_ask_for(logs: Path) -> None:
    assert source(logs).schema().fieldNames() == [name for name in COLUMNS.names if name != "attributes"]
    assert source(logs, columns="id,type").schema().simpleString() == "struct<id:binary,type:string>"
    assert source(logs, rows="slices").schema().fieldNames() == ["topic", "partition", "start", "stop", "bytes"]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "1KiB"}, ReadMaxBytes(1024)),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "1KiB"}, ReadMaxRows(7)),
    ],
)
def test_the_limit_is_the_one_that_was_asked_for(logs: Path, options: dict[str, str], limit: Any) -> None:
    assert stream(logs, **options).getDefaultReadLimit() == limit


def test_a_query_goes_through_the_log_batch_by_batch(logs: Path) -> None:
    reader = stream(logs, maxOffsetsPerTrigger="40")
    reader.prepareForTriggerAvailableNow()
    at, found, rounds = reader.initialOffset(), [], 0
    while (end := json.loads(json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit())))) != at:
        for partition in pickle.loads(pickle.dumps(reader.partitions(at, end))):
            worker = pickle.loads(pickle.dumps(reader))  # another process
            found += [row for batch in worker.read(partition) for row in batch.to_pylist()]
        reader.commit(end)
        at, rounds = end, rounds + 1
    assert sorted(found, key=lambda row: tuple(row.values())) == everything(logs)
    assert rounds == -(-len(found) // 40)
    reader.stop()


def test_what_is_left_is_told_to_who_watches(logs: Path) -> None:
    reader = stream(logs)
    latest = reader.reportLatestOffset()
    assert latest["topics"]["/default/orders"]["0"] == {"offset": len(unchanged(logs)["/default/orders", 0])}


def test_trigger_once_reads_all_whatever_the_limits(logs: Path) -> None:
    reader = stream(logs, maxOffsetsPerTrigger="1", maxBytesPerTrigger="1")
    at = reader.initialOffset()
    end = reader.latestOffset(at, ReadAllAvailable())
    assert sum(part.part.stop - part.part.start for part in reader.partitions(at, end)) == len(everything(logs))


def test_a_reader_takes_filters_only_where_spark_pushes_them(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = from_arrow_schema(COLUMNS)

    def made(**options: str) -> Any:
        asked = {"path": str(logs), "subscribe": "orders", **options}
        return type(reader_for(ReadOptions.of(asked, streaming=False), schema))

    assert made(pushdown="true") is BatchReader
    monkeypatch.setattr("penstock.spark.source.batch._is_pushing", lambda: True)
    assert made(pushdown="true") is PushingReader
    assert made() is BatchReader


def test_a_schema_of_the_user_is_held_against_the_columns(logs: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    options = ReadOptions.of({"path": str(logs), "subscribe": "orders"}, streaming=False)
    exact = StructType().add("offset", LongType(), nullable=False).add("type", StringType())
    assert read_task_for(options, exact).schema.field("offset").nullable is False
    with pytest.raises(InvalidRequest, match="offset as string, and it is bigint"):
        read_task_for(options, StructType().add("offset", StringType()))
    with pytest.raises(InvalidRequest, match="a column 'body', which is not there: choose from key, value"):
        read_task_for(options, StructType().add("body", StringType()))
    with pytest.raises(InvalidRequest, match="schema_id as NOT NULL, and a message may be without"):
        read_task_for(options, StructType().add("schema_id", LongType(), nullable=False))


class OlderSpark:
    """Asks as PySpark 4.0 and 4.1 do: how far, without from where. One that begins again plans what it has first."""

    def __init__(self, root: Path, **options: str) -> None:
        given = {"path": str(root), "subscribe": "orders", "startingOffsets": "earliest", **options}
        chosen = ReadOptions.of(given, streaming=True)
        self.reader = WholeReader(chosen, read_task_for(chosen))

    def planned(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        tasks: Any = self.reader.partitions(start, end)
        return [(task.part.start, task.part.stop) for task in tasks]


def test_an_older_spark_reads_all_that_is_there_and_goes_on_behind_it(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data", messages=40, dropped=10)
    first = OlderSpark(root)
    done = first.reader.latestOffset()
    assert first.planned(first.reader.initialOffset(), done) == [(10, 40)]
    assert first.reader.latestOffset() == done
    with Store.open(root) as store:
        append(store, ORDERS, range(20))
        store.truncate_before(ORDERS, 20)  # a new query would begin there
    second = OlderSpark(root)
    assert second.planned(done, done) == []
    end = second.reader.latestOffset()
    assert second.planned(done, end) == [(40, 60)]
    assert Offsets.of_json(end).positions["/default/orders", 0].since == 10


def test_an_older_spark_repeats_the_batch_that_was_begun(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data", messages=40)
    first = OlderSpark(root)
    begun = first.reader.latestOffset()
    with Store.open(root) as store:
        append(store, ORDERS, range(20))
    second = OlderSpark(root)
    assert second.planned(begun, begun) == []
    assert second.planned(second.reader.initialOffset(), begun) == [(0, 40)]
    assert second.planned(begun, second.reader.latestOffset()) == [(40, 60)]


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_an_older_spark_has_no_limits(logs: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.2")
    options = ReadOptions.of({"path": str(logs), "subscribe": "orders", option: "7"}, streaming=True)
    with pytest.raises(InvalidRequest, match=r"needs PySpark 4\.2 or newer, and this is 4\.1\.2: leave it out"):
        stream_reader(options, read_task_for(options))


def test_an_older_spark_pushes_no_filters(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ReadOptions.of({"path": str(logs), "subscribe": "orders", "pushdown": "true"}, streaming=False)
    schema = from_arrow_schema(COLUMNS)
    monkeypatch.setattr("pyspark.__version__", "4.0.5")
    with pytest.raises(InvalidRequest, match=r"pushdown needs PySpark 4\.1 or newer.*: give the conditions with"):
        reader_for(options, schema)
