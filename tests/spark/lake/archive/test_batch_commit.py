"""A batch from slices to commits, without Spark: write tasks run here, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake.kit import TABLE_FORMATS, independent
from tests.spark.log_kit import ORDERS, SOLD, append, everything, make_data

from penstock.core.errors import NotOwner, StorageFailed
from penstock.core.limits import Limits
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.batch_commit import BatchRunner, Destination, merge_ranges
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.write_task import WriteResult, WriteTask, run_task
from penstock.spark.lake.tables.names import ALL_TOPICS_TABLE
from penstock.spark.lake.tables.table import OffsetRange
from penstock.spark.scan.slices import Slice, plan_slices
from penstock.storage.store import Store

ORDERS_TABLE = "default.orders"
SOLD_TABLE = "shop.parts_sold"


def here(tasks: Sequence[WriteTask]) -> list[WriteResult]:
    return [run_task(task) for task in tasks]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data", messages=300)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    with Checkpoint(tmp_path / "checkpoint") as state:
        yield state


def slices(data: Path, ranges: dict[tuple[str, int], tuple[int, int]], *, slice_bytes: int = 5000) -> list[Slice]:
    return plan_slices(Location(str(data)), ranges, slice_bytes=slice_bytes)


def archiver(tmp_path: Path, checkpoint: Checkpoint, table_format: str = "delta", **more: Any) -> BatchRunner:
    destination = Destination(warehouse=str(tmp_path / "lake"), table_format=table_format, **more)
    return BatchRunner(destination, checkpoint, checkpoint.query_id(), here, cores=2)


def ids_in_log(data: Path, topic: str) -> list[bytes]:
    found = everything(Location(str(data)).open())
    return sorted(record.id for (name, _), records in found.items() if name == topic for record in records)


def ids_in(table: Any) -> list[bytes]:
    return sorted(independent(table, ["_id"]).column(0).to_pylist())


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_the_tables_have_what_the_log_has(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    made = archiver(tmp_path, checkpoint, table_format)
    report = made.batch(0, slices(data, {(str(ORDERS), 0): (0, 200), (str(SOLD), 1): (0, 5), (str(SOLD), 2): (0, 10)}))
    assert (report.rows, report.repeated) == (215, False)
    made.batch(1, slices(data, {(str(ORDERS), 0): (200, 300)}))
    assert ids_in(made.table(ORDERS_TABLE)) == ids_in_log(data, str(ORDERS))
    assert ids_in(made.table(SOLD_TABLE)) == ids_in_log(data, str(SOLD))
    assert made.table(ORDERS_TABLE).positions() == {(str(ORDERS), 0): 300}
    assert made.table(SOLD_TABLE).positions() == {(str(SOLD), 1): 5, (str(SOLD), 2): 10}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_every_column_of_a_message_is_kept(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    made = archiver(tmp_path, checkpoint, table_format)
    made.batch(0, slices(data, {(str(ORDERS), 0): (0, 300)}))
    records = everything(Location(str(data)).open())[str(ORDERS), 0]
    rows = pa.Table.from_batches(made.table(ORDERS_TABLE).read()).sort_by("_offset").to_pylist()
    for row, record in zip(rows, records, strict=True):
        assert (row["_id"], row["_offset"], row["_partition"]) == (record.id, record.offset, 0)
        assert row["_timestamp"].timestamp() * 1000 == pytest.approx(record.publish_time_ms)
        message = record.message
        assert (row["_value"], row["_key"], row["_type"]) == (message.payload, message.key, message.type)
        assert (row["_producer"], row["_producer_id"]) == (message.producer_name, message.producer_id)
        assert (row["_topic"], row["_day"]) == (str(ORDERS), row["_timestamp"].date())
        assert (row["_schema_id"], row["_attributes"]) == (None, [])


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_batch_that_is_repeated_adds_nothing(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    some = slices(data, {(str(ORDERS), 0): (0, 100), (str(SOLD), 2): (0, 10)})
    archiver(tmp_path, checkpoint, table_format).batch(0, some)
    again = archiver(tmp_path, checkpoint, table_format).batch(0, some)
    assert (again.rows, again.repeated) == (0, True)
    assert len(ids_in(archiver(tmp_path, checkpoint, table_format).table(ORDERS_TABLE))) == 100


def test_a_batch_that_was_decided_is_finished_with_the_same_files(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = slices(data, {(str(ORDERS), 0): (0, 100), (str(SOLD), 2): (0, 10)})
    broken = archiver(tmp_path, checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(broken.table(SOLD_TABLE), "commit", lambda *_: (_ for _ in ()).throw(OSError("no power")))
        with pytest.raises(OSError, match="no power"):
            broken.batch(0, some)
    after = archiver(tmp_path, checkpoint)
    monkeypatch.setattr(after, "_run", None)  # nothing is to be run
    report = after.batch(0, some)
    assert (report.rows, report.repeated) == (10, True)
    assert len(ids_in(after.table(ORDERS_TABLE))) == 100


def test_a_batch_whose_files_are_gone_is_written_again(tmp_path: Path, data: Path, checkpoint: Checkpoint) -> None:
    some = slices(data, {(str(ORDERS), 0): (0, 100)})
    made = archiver(tmp_path, checkpoint)
    parts = made._write(0, some, made.batch(0, []))
    made.table(ORDERS_TABLE).folder.delete([parts[0].files[0].path])
    assert made.batch(1, some).rows == 100
    assert len(ids_in(made.table(ORDERS_TABLE))) == 100


def test_orphans_of_a_killed_batch_are_swept_and_nothing_else(
    tmp_path: Path, data: Path, checkpoint: Checkpoint
) -> None:
    made = archiver(tmp_path, checkpoint)
    made.batch(0, slices(data, {(str(ORDERS), 0): (0, 100)}))
    some = slices(data, {(str(ORDERS), 0): (100, 200)})
    tasks = list(made._write_tasks(1, some))
    here(tasks)  # killed before anything was decided
    table = made.table(ORDERS_TABLE)
    (table.folder.local / "somebody.parquet").write_bytes(b"else's")
    before = {each.path for each in table.folder.list() if each.path.endswith(".parquet")}
    assert made.sweep([ORDERS_TABLE, "shop.nothing"]) == len(tasks)
    after = {each.path for each in table.folder.list() if each.path.endswith(".parquet")}
    assert len(before - after) == len(tasks)
    assert "somebody.parquet" in after
    made.batch(1, some)
    assert made.sweep([ORDERS_TABLE]) == 0
    assert len(ids_in(table)) == 200


def test_files_that_a_batch_is_decided_to_use_are_not_swept(tmp_path: Path, data: Path, checkpoint: Checkpoint) -> None:
    made = archiver(tmp_path, checkpoint)
    some = slices(data, {(str(ORDERS), 0): (0, 100)})
    made._write(0, some, made.batch(5, []))
    assert made.sweep([ORDERS_TABLE]) == 0
    assert made.batch(0, some).repeated


def test_all_topics_may_share_a_table(tmp_path: Path, data: Path, checkpoint: Checkpoint) -> None:
    made = archiver(tmp_path, checkpoint, one_table=True)
    made.batch(0, slices(data, {(str(ORDERS), 0): (0, 300), (str(SOLD), 1): (0, 5), (str(SOLD), 2): (0, 10)}))
    table = made.table(ALL_TOPICS_TABLE)
    assert ids_in(table) == sorted(ids_in_log(data, str(ORDERS)) + ids_in_log(data, str(SOLD)))
    assert table.positions() == {(str(ORDERS), 0): 300, (str(SOLD), 1): 5, (str(SOLD), 2): 10}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_an_archive_with_another_checkpoint_is_fenced(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    archiver(tmp_path, checkpoint, table_format).batch(0, slices(data, {(str(ORDERS), 0): (0, 100)}))
    with Checkpoint(tmp_path / "other") as other, pytest.raises(NotOwner, match="--take-over"):
        archiver(tmp_path, other, table_format).batch(0, slices(data, {(str(ORDERS), 0): (0, 300)}))


def test_what_is_lost_fails_the_batch_or_is_counted(tmp_path: Path, checkpoint: Checkpoint) -> None:
    data = make_data(tmp_path / "expired", messages=300, dropped=150)
    first = Location(str(data)).open().topic(ORDERS).partition(0).view.first_offset
    some = [Slice(Location(str(data)), str(ORDERS), 0, 0, 300, 30_000)]
    with pytest.raises(StorageFailed, match="lost"):
        archiver(tmp_path, checkpoint).batch(0, some)
    report = archiver(tmp_path, checkpoint, fail_on_data_loss=False).batch(0, some)
    assert (report.rows, report.lost) == (300 - first, first)


def test_an_old_log_gone_on_with_from_a_copy_of_a_checkpoint_is_refused(
    tmp_path: Path, data: Path, checkpoint: Checkpoint
) -> None:
    made = archiver(tmp_path, checkpoint)
    made.batch(0, slices(data, {(str(ORDERS), 0): (0, 100)}))
    with pytest.raises(StorageFailed, match="they do not join"):
        made.batch(1, slices(data, {(str(ORDERS), 0): (50, 150)}))


def test_slices_of_one_job_become_few_files(tmp_path: Path, data: Path, checkpoint: Checkpoint) -> None:
    made = archiver(tmp_path, checkpoint)
    some = slices(data, {(str(ORDERS), 0): (0, 300)}, slice_bytes=2000)
    assert len(some) > 5
    made.batch(0, some)
    assert len(made.table(ORDERS_TABLE).live()) == 1


def test_the_offsets_of_a_batch_are_cut_into_full_turns_of_all_cores(
    tmp_path: Path, data: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.lake.archive.batch_commit.TASK_BYTES_MIN", 1)
    given = slices(data, {(str(ORDERS), 0): (0, 300)}, slice_bytes=1 << 30)
    assert len(given) == 1
    cut = archiver(tmp_path, checkpoint).cut_for_cores(given)
    assert len(cut) == 4
    assert [offset for each in cut for offset in range(each.start, each.stop)] == list(range(300))
    assert archiver(tmp_path, checkpoint).cut_for_cores([]) == []


def test_ranges_that_follow_each_other_are_one() -> None:
    found = merge_ranges(
        [OffsetRange("b", 0, 5, 7), OffsetRange("a", 1, 0, 3), OffsetRange("b", 0, 7, 9), OffsetRange("b", 0, 10, 11)]
    )
    assert found == [OffsetRange("a", 1, 0, 3), OffsetRange("b", 0, 5, 9), OffsetRange("b", 0, 10, 11)]


def test_more_is_archived_when_more_is_there(tmp_path: Path, data: Path, checkpoint: Checkpoint) -> None:
    made = archiver(tmp_path, checkpoint)
    made.batch(0, slices(data, {(str(ORDERS), 0): (0, 300)}))
    with Store.open(data, limits=Limits()) as store:
        append(store, ORDERS, range(300, 400))
    made.batch(1, slices(data, {(str(ORDERS), 0): (300, 400)}))
    assert ids_in(made.table(ORDERS_TABLE)) == ids_in_log(data, str(ORDERS))
