"""Topics into tables by either engine: every message once, readable by others, and continued after an interruption."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.lake.kit import TABLE_FORMATS, independent
from tests.spark.lake.tables.test_killed import in_lake, in_log, orphans
from tests.spark.log_kit import ORDERS, SOLD, append, everything, make_data

from penstock.core.errors import InvalidRequest, NotOwner, StorageFailed
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.lake import open_table
from penstock.spark.lake.archive import batch_commit
from penstock.spark.lake.archive import run as archiving
from penstock.spark.lake.archive.batch_commit import BatchReport
from penstock.spark.lake.archive.run import ArchiveReport, archive
from penstock.spark.lake.tables import table as tables
from penstock.spark.runtime.failpoints import FAILPOINTS
from penstock.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS_TABLE = "default.orders"
SOLD_TABLE = "shop.parts_sold"


def ids_in_log(data: Path, topic: TopicName) -> list[bytes]:
    found = everything(Location(str(data)).open())
    return sorted(record.id for (name, _), records in found.items() if name == str(topic) for record in records)


def ids_in(lake: Path, table_format: str, name: str) -> list[bytes]:
    return sorted(independent(open_table(table_format, str(lake), name), ["_id"]).column(0).to_pylist())


def once(spark: SparkSession | None, data: Path, lake: Path, *topics: str, **more: Any) -> ArchiveReport:
    return archive(spark, Location(str(data)), topics, warehouse=str(lake), once=True, **more)


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    """None: this process itself."""
    return spark if request.param == "spark" else None


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_the_archive_is_the_log_and_goes_on_where_it_was(
    engine: SparkSession | None, tmp_path: Path, table_format: str
) -> None:
    data, lake = make_data(tmp_path / "data", messages=300), tmp_path / "lake"
    on_batch: list[BatchReport] = []
    first = once(engine, data, lake, table_format=table_format, batch_bytes=10_000, on_batch=on_batch.append)
    assert first.rows == 315
    assert first.batches == len(on_batch) > 2
    assert set(first.tables) == {ORDERS_TABLE, SOLD_TABLE}
    assert once(engine, data, lake, table_format=table_format).rows == 0
    with Store.open(data) as store:
        append(store, ORDERS, range(300, 350))
    second = once(engine, data, lake, table_format=table_format)
    assert (second.rows, second.query_id) == (50, first.query_id)
    assert ids_in(lake, table_format, ORDERS_TABLE) == ids_in_log(data, ORDERS)
    assert ids_in(lake, table_format, SOLD_TABLE) == ids_in_log(data, SOLD)


def test_a_second_archive_is_fenced_and_takes_over_where_the_table_ends(
    engine: SparkSession | None, tmp_path: Path
) -> None:
    data, lake = make_data(tmp_path / "data", messages=100), tmp_path / "lake"
    once(engine, data, lake, "orders")
    with Store.open(data) as store:
        append(store, ORDERS, range(100, 150))
    with pytest.raises(NotOwner, match="--take-over"):
        once(engine, data, lake, "orders", name="second")
    taken = once(engine, data, lake, "orders", name="second", take_over=True)
    assert taken.rows == 50
    with pytest.raises(NotOwner, match=taken.query_id):
        once(engine, data, lake, "orders")
    assert ids_in(lake, "delta", ORDERS_TABLE) == ids_in_log(data, ORDERS)


def test_a_topic_that_was_made_again_is_noticed(engine: SparkSession | None, tmp_path: Path) -> None:
    data, lake = make_data(tmp_path / "data", messages=100), tmp_path / "lake"
    once(engine, data, lake, "orders")
    with Store.open(data) as store:
        store.delete_topic(ORDERS)
        store.create_topic(ORDERS)
        append(store, ORDERS, range(200))
    with pytest.raises(StorageFailed, match="was the topic made anew"):
        once(engine, data, lake, "orders")
    with pytest.raises(StorageFailed, match="the topic was deleted and made again"):
        once(engine, data, lake, "orders", name="second", take_over=True)
    assert len(ids_in(lake, "delta", ORDERS_TABLE)) == 100


def test_an_empty_topic_has_no_table_until_it_has_a_message(engine: SparkSession | None, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    with Store.open(data, create=True) as store:
        store.create_topic(ORDERS)
    assert once(engine, data, lake).rows == 0
    assert not open_table("delta", str(lake), ORDERS_TABLE).exists()
    with Store.open(data) as store:
        append(store, ORDERS, range(7))
    assert once(engine, data, lake).rows == 7


def test_a_continuous_archive_sees_what_comes_and_ends_when_told(engine: SparkSession | None, tmp_path: Path) -> None:
    data, lake, stop = make_data(tmp_path / "data", messages=100), tmp_path / "lake", threading.Event()

    def on_batch(report: BatchReport) -> None:
        if report.batch_id == 0:
            with Store.open(data) as store:
                append(store, ORDERS, range(100, 120))
        else:
            stop.set()

    report = archive(
        engine, Location(str(data)), ["orders"], warehouse=str(lake), every_seconds=0.1, on_batch=on_batch, stop=stop
    )
    assert (report.rows, report.batches) == (120, 2)
    assert ids_in(lake, "delta", ORDERS_TABLE) == ids_in_log(data, ORDERS)


def test_topics_that_are_not_named_any_more_keep_their_place(engine: SparkSession | None, tmp_path: Path) -> None:
    data, lake = make_data(tmp_path / "data", messages=100), tmp_path / "lake"
    first = once(engine, data, lake, "orders", "/shop/parts.sold")
    for _ in range(2):
        with Store.open(data) as store:
            append(store, ORDERS, range(20))
            append(store, SOLD, range(7), 1)
        assert set(once(engine, data, lake, "orders").tables) == {ORDERS_TABLE}
    last = once(engine, data, lake, "orders", "/shop/parts.sold")
    assert (last.tables[SOLD_TABLE].rows, last.query_id) == (14, first.query_id)
    assert ids_in(lake, "delta", ORDERS_TABLE) == ids_in_log(data, ORDERS)
    assert ids_in(lake, "delta", SOLD_TABLE) == ids_in_log(data, SOLD)
    with Store.open(data) as store:
        store.delete_topic(SOLD)
    assert once(engine, data, lake, "orders").rows == 0
    with pytest.raises(StorageFailed, match="was the topic deleted"):
        once(engine, data, lake)


def test_a_batch_of_topics_that_are_not_named_any_more_is_ended_as_it_was(
    engine: SparkSession | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = make_data(tmp_path / "data", messages=100), tmp_path / "lake"
    with monkeypatch.context() as patch:
        patch.setattr(batch_commit, "reach", dying_at("files-written"))
        with pytest.raises(Died):
            once(engine, data, lake, "orders", "/shop/parts.sold")
    assert set(once(engine, data, lake, "orders").tables) == {ORDERS_TABLE, SOLD_TABLE}
    assert ids_in(lake, "delta", SOLD_TABLE) == ids_in_log(data, SOLD)
    assert orphans(lake, "delta") == []


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_engines_take_turns_and_die_in_between(
    spark: SparkSession, tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each continues from whatever step of a batch the other has died at, while the log grows."""
    data, lake, chance = (
        make_data(tmp_path / "data", messages=60),
        tmp_path / "lake",
        random.Random(f"{table_format} 3"),
    )
    deaths = 0
    for life in range(10):
        with monkeypatch.context() as patch, contextlib.suppress(Died):
            die = dying_at(chance.choice(FAILPOINTS), visit=chance.randrange(1, 5))
            for module in (batch_commit, archiving, tables):
                patch.setattr(module, "reach", die)
            deaths += 1
            once(spark if life % 2 else None, data, lake, table_format=table_format, batch_bytes=4000)
            deaths -= 1
        with Store.open(data) as store:
            append(store, ORDERS, range(chance.randrange(1, 40)))
            append(store, SOLD, range(chance.randrange(1, 9)), chance.randrange(3))
    assert deaths > 3
    once(chance.choice([spark, None]), data, lake, table_format=table_format)
    assert in_lake(lake, table_format) == in_log(data)
    assert orphans(lake, table_format) == []


class Died(BaseException):
    """A death like that of a killed process: no handler cleans up."""


def dying_at(place: str, *, visit: int = 1) -> Callable[[str], None]:
    left = visit

    def reach(name: str) -> None:
        nonlocal left
        left -= name == place
        if left <= 0:
            raise Died

    return reach


def test_what_cannot_be_is_refused_with_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = make_data(tmp_path / "data", messages=10), tmp_path / "lake"
    with pytest.raises(InvalidRequest, match="format 'hudi': expected one of delta, iceberg, parquet"):
        once(spark, data, lake, table_format="hudi")
    with pytest.raises(InvalidRequest, match="name it"):
        once(spark, data, lake, subscription="archive")
    once(spark, data, lake, "orders")
    for name in ("archive", "other"):
        with pytest.raises(InvalidRequest, match="is a table of the format delta, and this is to be iceberg"):
            once(spark, data, lake, "orders", table_format="iceberg", name=name)
    with pytest.raises(InvalidRequest, match="was made with kind='delta', and this is 'iceberg'"):
        once(spark, data, lake, "/shop/parts.sold", table_format="iceberg")
