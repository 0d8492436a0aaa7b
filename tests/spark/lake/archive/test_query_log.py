"""The log of batches: in Spark's format, and readable by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.log_kit import ORDERS, append, make_data

from penstock.core.errors import StorageFailed
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.query_log import ENTRIES_KEPT, QueryLog
from penstock.spark.lake.archive.run import archive
from penstock.spark.source.offsets import Offsets, StreamPosition
from penstock.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARKS = Path(__file__).parent / "golden"
"""Files that Spark 4.3 kept of an archive of release 0.1.0: two finished batches, and one in flight."""


def ends(offset: int) -> Offsets:
    return Offsets({(str(ORDERS), 0): StreamPosition(offset, "1f" * 16)})


def test_a_batch_is_begun_and_done(tmp_path: Path) -> None:
    log = QueryLog(tmp_path)
    assert (log.last_begun, log.in_flight, log.end_of(-1)) == (-1, False, Offsets())
    log.begin(0, ends(7))
    assert (log.last_begun, log.in_flight, log.end_of(0)) == (0, True, ends(7))
    log.finish(0)
    assert (QueryLog(tmp_path).last_begun, QueryLog(tmp_path).in_flight) == (0, False)


def test_what_spark_wrote_is_read_and_its_settings_are_handed_on(tmp_path: Path) -> None:
    for name in ("offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((SPARKS / "query" / name).read_bytes())
    log = QueryLog(tmp_path)
    assert (log.last_begun, log.in_flight) == (2, True)
    assert [log.end_of(number).positions[str(ORDERS), 0].offset for number in range(3)] == [40, 70, 75]
    log.finish(2)
    assert (tmp_path / "commits" / "2").read_text() == (tmp_path / "commits" / "1").read_text()
    log.begin(3, ends(200))
    before, after = ((tmp_path / "offsets" / name).read_text().splitlines() for name in ("2", "3"))
    assert json.loads(after[1])["conf"] == json.loads(before[1])["conf"]
    assert json.loads(after[2]) == ends(200).as_json()


def test_old_entries_go_with_the_checksums_that_hadoop_kept(tmp_path: Path) -> None:
    log = QueryLog(tmp_path)
    for number in range(ENTRIES_KEPT + 2):
        log.begin(number, ends(number))
        (tmp_path / "offsets" / f".{number}.crc").touch()
        log.finish(number)
    assert log.begun == log.ended == set(range(2, ENTRIES_KEPT + 2))
    assert not (tmp_path / "offsets" / ".1.crc").exists()
    assert (tmp_path / "offsets" / ".2.crc").exists()


@pytest.mark.parametrize("said", ["", "v1\n{}", "v2\n{}\n{}", "v1\n{}\n-", "v1\n{\n{}"])
def test_an_entry_that_cannot_be_read_is_not_taken_for_the_beginning(tmp_path: Path, said: str) -> None:
    log = QueryLog(tmp_path)
    log.begin(0, ends(7))
    (tmp_path / "offsets" / "0").write_text(said)
    with pytest.raises(StorageFailed, match="--take-over"):
        log.end_of(0)


@pytest.fixture
def archived(tmp_path: Path) -> Path:
    """A log that was archived without Spark, and has ten messages more."""
    data = make_data(tmp_path / "data", messages=60)
    archive(None, Location(str(data)), ["orders"], warehouse=str(tmp_path / "lake"), once=True, batch_bytes=2000)
    with Store.open(data) as store:
        append(store, ORDERS, range(60, 70))
    return tmp_path


def test_a_query_of_spark_goes_on_with_what_was_logged_without_it(spark: SparkSession, archived: Path) -> None:
    """An older Penstock archives in this way: its batches were those of a streaming query."""
    checkpoint = archived / "lake" / "_checkpoints" / "archive" / "query"
    last = QueryLog(checkpoint).last_begun
    assert last > 1
    seen: list[tuple[int, list[tuple[int, int]]]] = []
    options = {"path": str(archived / "data"), "subscribe": "orders", "rows": "slices", "startingOffsets": "earliest"}
    frame = spark.readStream.format("penstock").options(**options).load()
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(
        lambda batch, number: seen.append((number, [(row.start, row.stop) for row in batch.collect()]))
    ).start()
    query.awaitTermination()
    assert seen == [(last + 1, [(60, 70)])]
    assert not QueryLog(checkpoint).in_flight
