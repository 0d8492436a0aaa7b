"""Past offsets added to tables, before what they have and without a hole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.lake.archive.test_batch_commit import here, ids_in, ids_in_log, slices
from tests.spark.lake.kit import TABLE_FORMATS
from tests.spark.log_kit import ORDERS, SOLD, make_data

from penstock.core.errors import InvalidRequest, NotOwner
from penstock.core.offsets import Offset
from penstock.core.positions import AtOffset, Earliest, Position
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.backfill import BackfillRange, BackfillRun, backfill_ranges
from penstock.spark.lake.archive.batch_commit import BatchRunner, Destination
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE
from penstock.spark.lake.archive.run import ArchiveReport
from penstock.spark.lake.tables.table import OffsetSpan

SOURCE = (str(ORDERS), 0)


def at(offset: int) -> AtOffset:
    return AtOffset(Offset(offset))


def fill(
    data: Path,
    destination: Destination,
    root: Path,
    start: Position,
    stop: Position | None = None,
    *topics: str,
    batch_bytes: int = 4000,
) -> ArchiveReport:
    with Checkpoint(root) as state:
        made = BackfillRun(Location(str(data)), topics, destination, state, start, stop)
        return made.run(LOCAL_ENGINE, batch_bytes=batch_bytes)


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_the_past_is_added_before_what_an_archive_has(tmp_path: Path, table_format: str) -> None:
    data, destination = (
        make_data(tmp_path / "data", messages=300),
        Destination(warehouse=str(tmp_path / "lake"), table_format=table_format),
    )
    with Checkpoint(tmp_path / "archive") as state:
        present = BatchRunner(destination, state, state.query_id(), here)
        present.batch(0, slices(data, {SOURCE: (200, 250)}))
        report = fill(data, destination, tmp_path / "backfill", Earliest(), at(250), "orders")
        assert report.rows == 200
        present.batch(1, slices(data, {SOURCE: (250, 300)}))
        table = present.table("default.orders")
    assert table.spans() == {SOURCE: OffsetSpan(0, 300)}
    assert ids_in(table) == ids_in_log(data, str(ORDERS))


def test_a_backfill_into_nothing_is_where_an_archive_begins_later(tmp_path: Path) -> None:
    data, destination = make_data(tmp_path / "data", messages=300), Destination(warehouse=str(tmp_path / "lake"))
    assert fill(data, destination, tmp_path / "backfill", at(100), at(200), "orders").rows == 100
    assert fill(data, destination, tmp_path / "backfill", at(50), at(250), "orders").rows == 100
    assert fill(data, destination, tmp_path / "backfill", Earliest(), None).rows == 100 + 15
    table = destination.open("default.orders")
    assert (table.spans(), table.owner()) == ({SOURCE: OffsetSpan(0, 300)}, None)
    assert ids_in(table) == ids_in_log(data, str(ORDERS))
    assert ids_in(destination.open("shop.parts_sold")) == ids_in_log(data, str(SOLD))


def test_repeating_it_adds_nothing(tmp_path: Path) -> None:
    data, destination = make_data(tmp_path / "data", messages=100), Destination(warehouse=str(tmp_path / "lake"))
    assert fill(data, destination, tmp_path / "backfill", Earliest(), at(80), "orders").rows == 80
    assert fill(data, destination, tmp_path / "backfill", Earliest(), at(80), "orders").rows == 0


def test_one_that_was_broken_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, destination = make_data(tmp_path / "data", messages=300), Destination(warehouse=str(tmp_path / "lake"))
    fill(data, destination, tmp_path / "backfill", at(200), at(250), "orders")
    calls = 0

    def fail_at_the_third(self: BatchRunner, *given: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("no power")
        really(self, *given)  # type: ignore[arg-type]

    really = BatchRunner._commit
    with monkeypatch.context() as patch:
        patch.setattr(BatchRunner, "_commit", fail_at_the_third)
        with pytest.raises(OSError, match="no power"):
            fill(data, destination, tmp_path / "backfill", Earliest(), at(250), "orders")
    left = fill(data, destination, tmp_path / "backfill", Earliest(), at(250), "orders")
    assert 0 < left.rows < 200
    table = destination.open("default.orders")
    assert table.spans() == {SOURCE: OffsetSpan(0, 250)}
    assert ids_in(table) == ids_in_log(data, str(ORDERS))[:250]


def test_only_what_is_missing_is_added_at_the_end_where_it_belongs() -> None:
    span = OffsetSpan(10, 20)
    assert list(backfill_ranges(SOURCE, 0, 5, None, None)) == [BackfillRange(SOURCE, 0, 5, before=False)]
    assert list(backfill_ranges(SOURCE, 5, 15, span, "q")) == [BackfillRange(SOURCE, 5, 10, before=True)]
    assert list(backfill_ranges(SOURCE, 5, 10, span, "q")) == [BackfillRange(SOURCE, 5, 10, before=True)]
    assert list(backfill_ranges(SOURCE, 12, 18, span, "q")) == []
    assert list(backfill_ranges(SOURCE, 7, 7, span, "q")) == []
    assert list(backfill_ranges(SOURCE, 5, 25, span, None)) == [
        BackfillRange(SOURCE, 5, 10, before=True),
        BackfillRange(SOURCE, 20, 25, before=False),
    ]


def test_a_hole_is_refused_and_so_is_the_end_of_somebody_elses_table() -> None:
    span = OffsetSpan(10, 20)
    for start, stop in ((0, 9), (21, 30)):
        with pytest.raises(InvalidRequest, match="a hole would be left between them"):
            list(backfill_ranges(SOURCE, start, stop, span, None))
    with pytest.raises(NotOwner, match="is for the query q to archive"):
        list(backfill_ranges(SOURCE, 15, 25, span, "q"))
    with pytest.raises(NotOwner, match="is for the query q to archive"):
        list(backfill_ranges(SOURCE, 0, 25, None, "q"))
