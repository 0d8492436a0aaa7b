"""The take-over of another archive's tables: nothing twice, nothing left out, whatever the bad-rows table has
already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake.archive.test_batch_commit import here, slices
from tests.spark.lake.kit import TABLE_FORMATS, made
from tests.spark.lake.test_typed import SOURCE, TOPIC, Shop

from penstock.core.errors import NotOwner, StorageFailed
from penstock.spark.files.location import Location
from penstock.spark.lake.archive import batch_commit
from penstock.spark.lake.archive.batch_commit import BatchRunner, without_quarantined
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE
from penstock.spark.lake.archive.run import ArchiveRequest, ArchiveRun
from penstock.spark.lake.archive.write_task import QuarantinedOffsets
from penstock.spark.lake.tables.table import LakeTable, OffsetRange

BAD_COLUMNS = "default.orders__bad"


class StoppedHere(Exception):
    pass


@contextmanager
def stopping_between_tables(patch: pytest.MonkeyPatch) -> Iterator[None]:
    def reach(name: str) -> None:
        if name == "between-tables":
            raise StoppedHere

    with patch.context() as inner:
        inner.setattr(batch_commit, "reach", reach)
        with pytest.raises(StoppedHere):
            yield


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    with Checkpoint(tmp_path / "first") as state:
        yield Shop(tmp_path, getattr(request, "param", "delta"), state)


def begun(shop: Shop, state: Checkpoint, **more: Any) -> ArchiveRun:
    """Prepare a take-over, up to where an engine is needed."""
    destination = replace(shop.destination, **more)
    wanted = ArchiveRequest(
        location=Location(str(shop.data)),
        topics=(str(TOPIC),),
        destination=destination,
        checkpoint=state.root,
        take_over=True,
        once=True,
    )
    archive = ArchiveRun(wanted, state)
    archive.prepare()
    return archive


def take_over(shop: Shop, root: Path, **more: Any) -> int:
    """Archive the rest with another checkpoint; return where that begins."""
    with Checkpoint(root) as state:
        archive = begun(shop, state, **more)
        start = archive._done.positions[SOURCE].offset
        archive.run(LOCAL_ENGINE, threading.Event())
    return start


def offsets(shop: Shop, name: str = "default.orders") -> list[int]:
    return [row["_offset"] for row in shop.rows("_offset", name=name)]


@pytest.mark.parametrize("shop", TABLE_FORMATS, indirect=True)
def test_it_begins_where_the_table_ends_and_not_its_companion(shop: Shop, tmp_path: Path) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", schema=schema)
    shop.archive()
    shop.publish({"id": 2}, {"id": 3}, schema=schema)
    shop.archive()
    shop.publish({"id": 4}, b"{", schema=schema)
    assert take_over(shop, tmp_path / "second") == 4
    assert (offsets(shop), offsets(shop, BAD_COLUMNS)) == ([0, 2, 3, 4], [1, 5])


@pytest.mark.parametrize("shop", TABLE_FORMATS, indirect=True)
@pytest.mark.parametrize("allow_loss", [False, True])
def test_bad_rows_that_only_the_companion_has_stay_there_alone(
    shop: Shop, tmp_path: Path, allow_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, {"id": 1}, schema=schema)
    shop.archive()
    shop.publish({"id": 2}, b"{", {"id": 4}, schema=schema)
    with stopping_between_tables(monkeypatch):
        shop.archive()
    shop.publish({"id": 5}, b"{", schema=schema)
    assert take_over(shop, tmp_path / "second", fail_on_data_loss=not allow_loss) == 2
    assert (offsets(shop), offsets(shop, BAD_COLUMNS)) == ([0, 1, 2, 4, 5], [3, 6])
    assert shop.destination.open("default.orders").positions() == {SOURCE: 7}


@pytest.mark.parametrize("decode", [False, True])
def test_what_was_bad_once_is_not_in_both_tables_whatever_is_decided_today(
    shop: Shop, tmp_path: Path, decode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", {"id": 2}, schema=schema)
    with stopping_between_tables(monkeypatch):
        shop.archive()
    destination = shop.destination if decode else replace(shop.destination, registry=None)
    with Checkpoint(tmp_path / "second") as state:
        begun(shop, state)
        BatchRunner(destination, state, state.query_id(), here).batch(0, slices(shop.data, {SOURCE: (0, 3)}))
    assert (offsets(shop), offsets(shop, BAD_COLUMNS)) == ([0, 2], [1])


@pytest.mark.parametrize("shop", TABLE_FORMATS, indirect=True)
def test_a_half_committed_batch_whose_files_were_vacuumed_is_completed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", {"id": 2}, schema=schema)
    with stopping_between_tables(monkeypatch):
        shop.archive()
    table = shop.destination.open("default.orders")
    gone = [each.path for each in table.folder.list() if "archive-" in each.path]
    assert gone
    table.folder.delete(gone)
    assert shop.archive().tables["default.orders"].rows == 2
    assert (offsets(shop), offsets(shop, BAD_COLUMNS)) == ([0, 2], [1])


def test_what_was_good_then_and_does_not_decode_now_stays_in_the_table_with_its_payload(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.destination = replace(shop.destination, keep_values=False)
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", b"[", {"id": 3}, schema=schema)
    really = batch_commit._offsets_in
    with stopping_between_tables(monkeypatch):
        shop.archive()
    table = shop.destination.open("default.orders")
    table.folder.delete([each.path for each in table.folder.list() if "archive-" in each.path])
    # As if the companion had been told of the first alone.
    monkeypatch.setattr(batch_commit, "_offsets_in", lambda *given: really(*given)[:1])
    shop.archive()
    assert [(row["_offset"], row["_value"]) for row in shop.rows("_offset", "_value")] == [
        (0, None),
        (2, b"["),
        (3, None),
    ]


def test_a_batch_that_is_there_with_other_offsets_is_not_passed_over(shop: Shop) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", schema=schema)
    shop.archive()
    shop.publish({"id": 2}, b"{", schema=schema)
    shop._batch = 0
    with pytest.raises(StorageFailed, match="has batch 0 already, but not offsets 2 to 3"):
        shop.archive()


def test_the_companion_is_taken_before_its_table(shop: Shop, tmp_path: Path) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, b"{", schema=schema)
    shop.archive()
    taken: list[str] = []
    with Checkpoint(tmp_path / "second") as state:
        archive = begun(shop, state)
        taken = [each.name for each in archive._existing_tables(["default.orders"])]
    assert taken == [BAD_COLUMNS, "default.orders"]
    shop.publish({"id": 2}, b"{", schema=schema)
    with pytest.raises(NotOwner, match="--take-over"):
        shop.archive()


def test_what_is_owned_already_is_not_taken_over_again(shop: Shop, tmp_path: Path) -> None:
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 0}, schema=schema)
    shop.archive()
    with Checkpoint(tmp_path / "second") as state:
        first = begun(shop, state).report.query_id
        assert begun(shop, state).report.query_id == first
        BatchRunner(shop.destination, state, first, here).batch(0, slices(shop.data, {SOURCE: (1, 1)}))
        (state.query / "offsets").mkdir()
        (state.query / "offsets" / "0").touch()
        assert begun(shop, state).report.query_id != first  # a batch was not ended: that may be what does not go on
    assert len(list((tmp_path / "second").glob("replaced-*"))) == 1


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_a_table_that_got_another_owner_meanwhile_is_not_claimed(tmp_path: Path, table_format: str) -> None:
    table: LakeTable = made(tmp_path, table_format)
    table.claim("q1", seen=None)
    with pytest.raises(NotOwner, match="is archived by the query q1"):
        table.claim("q2", seen=None)
    table.claim("q1", seen=None)
    table.claim("q2", seen="q1")
    assert table.owner() == "q2"


def test_the_companion_is_told_of_what_it_was_not_told_of() -> None:
    given = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 5, 8)]
    assert without_quarantined(
        given, [QuarantinedOffsets("a", 0, 0, 4, (1,)), QuarantinedOffsets("b", 0, 0, 9, ())]
    ) == [
        OffsetRange("a", 0, 4, 10),
        OffsetRange("a", 1, 0, 10),
    ]
