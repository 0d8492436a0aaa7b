"""The past into tables, before what they have and without a hole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.lake.archive.test_batch_commit import here, ids_in, ids_in_log, slices
from tests.spark.lake.kit import KINDS
from tests.spark.log_kit import ORDERS, SOLD, make_data

from penstock.core.errors import InvalidRequest, NotOwner
from penstock.core.offsets import Offset
from penstock.core.positions import AtOffset, Earliest, Position
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.archive import ArchiveReport
from penstock.spark.lake.archive.backfill import Backfill, Piece, pieces
from penstock.spark.lake.archive.batch_commit import Archiver, Goal
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE
from penstock.spark.lake.tables.table import Span

SOURCE = (str(ORDERS), 0)


def at(offset: int) -> AtOffset:
    return AtOffset(Offset(offset))


def fill(
    data: Path,
    goal: Goal,
    root: Path,
    start: Position,
    stop: Position | None = None,
    *topics: str,
    batch_bytes: int = 4000,
) -> ArchiveReport:
    with Checkpoint(root) as held:
        made = Backfill(Location(str(data)), topics, goal, held, start, stop)
        return made.run(LOCAL_ENGINE, batch_bytes=batch_bytes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_past_is_added_before_what_an_archive_has(tmp_path: Path, kind: str) -> None:
    data, goal = make_data(tmp_path / "data", messages=300), Goal(warehouse=str(tmp_path / "lake"), kind=kind)
    with Checkpoint(tmp_path / "archive") as held:
        present = Archiver(goal, held, held.query_id(), here)
        present.batch(0, slices(data, {SOURCE: (200, 250)}))
        report = fill(data, goal, tmp_path / "backfill", Earliest(), at(250), "orders")
        assert report.rows == 200
        present.batch(1, slices(data, {SOURCE: (250, 300)}))
        table = present.table("default.orders")
    assert table.spans() == {SOURCE: Span(0, 300)}
    assert ids_in(table) == ids_in_log(data, str(ORDERS))


def test_a_backfill_into_nothing_is_where_an_archive_begins_later(tmp_path: Path) -> None:
    data, goal = make_data(tmp_path / "data", messages=300), Goal(warehouse=str(tmp_path / "lake"))
    assert fill(data, goal, tmp_path / "backfill", at(100), at(200), "orders").rows == 100
    assert fill(data, goal, tmp_path / "backfill", at(50), at(250), "orders").rows == 100
    assert fill(data, goal, tmp_path / "backfill", Earliest(), None).rows == 100 + 15
    table = goal.open("default.orders")
    assert (table.spans(), table.owner()) == ({SOURCE: Span(0, 300)}, None)
    assert ids_in(table) == ids_in_log(data, str(ORDERS))
    assert ids_in(goal.open("shop.parts_sold")) == ids_in_log(data, str(SOLD))


def test_repeating_it_adds_nothing(tmp_path: Path) -> None:
    data, goal = make_data(tmp_path / "data", messages=100), Goal(warehouse=str(tmp_path / "lake"))
    assert fill(data, goal, tmp_path / "backfill", Earliest(), at(80), "orders").rows == 80
    assert fill(data, goal, tmp_path / "backfill", Earliest(), at(80), "orders").rows == 0


def test_one_that_was_broken_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, goal = make_data(tmp_path / "data", messages=300), Goal(warehouse=str(tmp_path / "lake"))
    fill(data, goal, tmp_path / "backfill", at(200), at(250), "orders")
    calls = 0

    def fail_at_the_third(self: Archiver, *given: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("no power")
        really(self, *given)  # type: ignore[arg-type]

    really = Archiver._commit
    with monkeypatch.context() as patch:
        patch.setattr(Archiver, "_commit", fail_at_the_third)
        with pytest.raises(OSError, match="no power"):
            fill(data, goal, tmp_path / "backfill", Earliest(), at(250), "orders")
    left = fill(data, goal, tmp_path / "backfill", Earliest(), at(250), "orders")
    assert 0 < left.rows < 200
    table = goal.open("default.orders")
    assert table.spans() == {SOURCE: Span(0, 250)}
    assert ids_in(table) == ids_in_log(data, str(ORDERS))[:250]


def test_only_what_is_missing_is_added_at_the_end_where_it_belongs() -> None:
    span = Span(10, 20)
    assert list(pieces(SOURCE, 0, 5, None, None)) == [Piece(SOURCE, 0, 5, before=False)]
    assert list(pieces(SOURCE, 5, 15, span, "q")) == [Piece(SOURCE, 5, 10, before=True)]
    assert list(pieces(SOURCE, 5, 10, span, "q")) == [Piece(SOURCE, 5, 10, before=True)]
    assert list(pieces(SOURCE, 12, 18, span, "q")) == []
    assert list(pieces(SOURCE, 7, 7, span, "q")) == []
    assert list(pieces(SOURCE, 5, 25, span, None)) == [
        Piece(SOURCE, 5, 10, before=True),
        Piece(SOURCE, 20, 25, before=False),
    ]


def test_a_hole_is_refused_and_so_is_the_end_of_somebody_elses_table() -> None:
    span = Span(10, 20)
    for start, stop in ((0, 9), (21, 30)):
        with pytest.raises(InvalidRequest, match="a hole would be left between them"):
            list(pieces(SOURCE, start, stop, span, None))
    with pytest.raises(NotOwner, match="is for the query q to archive"):
        list(pieces(SOURCE, 15, 25, span, "q"))
    with pytest.raises(NotOwner, match="is for the query q to archive"):
        list(pieces(SOURCE, 0, 25, None, "q"))
