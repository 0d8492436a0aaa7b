"""Promises of every format: each batch once, positions with it, one owner."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.lake.kit import (
    FIRST_DAY,
    SCHEMA,
    TABLE_FORMATS,
    TOPIC,
    files,
    independent,
    made,
    marker,
    offsets,
    rows,
)

from penstock.core.errors import InvalidRequest, NotOwner, StorageFailed
from penstock.spark.lake import AlreadyCommitted, CommitMarker, Committed, OffsetRange, open_table, table_names
from penstock.spark.lake.tables.table import OffsetSpan

pytestmark = pytest.mark.parametrize("table_format", TABLE_FORMATS)


def test_a_table_is_not_there_until_it_is_created(tmp_path: Path, table_format: str) -> None:
    table = open_table(table_format, str(tmp_path), "orders")
    assert not table.exists()
    assert table.positions() == {}
    table.create(SCHEMA, "_day")
    assert table.exists()
    assert table.schema() == SCHEMA
    assert table.partition_by() == "_day"
    assert table_names(table_format, str(tmp_path)) == ["default.orders"]


def test_creating_a_table_twice_changes_nothing(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format, owner="q1")
    table.commit(files(table, rows(0, 5)), marker(0, 0, 5))
    again = made(tmp_path, table_format, owner="q2")
    assert again.owner() == "q1"
    assert offsets(again) == [0, 1, 2, 3, 4]


def test_a_committed_batch_is_read_with_its_day(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    assert table.commit(files(table, rows(0, 10, days=2)), marker(0, 0, 10)) == Committed()
    found = pa.Table.from_batches(table.read()).sort_by("_offset")
    assert found.column("_offset").to_pylist() == list(range(10))
    assert found.column("_day").to_pylist() == [dt.date(2026, 1, 31), dt.date(2026, 2, 1)] * 5
    assert found.column("_value")[3].as_py() == b"message 3"
    assert independent(table, ["_offset"]).sort_by("_offset").column(0).to_pylist() == list(range(10))


def test_files_that_were_not_committed_are_not_in_the_table(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    files(table, rows(0, 10))
    assert offsets(table) == []
    assert independent(table, ["_offset"]).num_rows == 0 if table_format != "parquet" else True


def test_a_batch_that_is_there_is_not_added_again(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10))
    again = open_table(table_format, str(tmp_path / table_format), "orders")
    assert again.commit(files(again, rows(0, 10)), marker(0, 0, 10)) == AlreadyCommitted()
    assert offsets(again) == list(range(10))


def test_positions_move_with_the_batches(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(5, 10)), marker(0, 5, 10))
    table.commit(files(table, rows(0, 3, partition=2)), marker(1, 0, 3, partition=2))
    table.commit(files(table, rows(10, 12)), marker(2, 10, 12))
    assert table.positions() == {(TOPIC, 0): 12, (TOPIC, 2): 3}
    assert table.spans() == {(TOPIC, 0): OffsetSpan(5, 12), (TOPIC, 2): OffsetSpan(0, 3)}


def test_a_batch_without_files_moves_the_positions_too(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    assert table.commit([], marker(0, 0, 7)) == Committed()
    assert table.positions() == {(TOPIC, 0): 7}
    assert table.commit([], marker(0, 0, 7)) == AlreadyCommitted()


def test_a_batch_that_does_not_begin_where_the_table_ends_is_refused(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10))
    for start, stop in ((0, 20), (11, 20), (5, 10)):
        with pytest.raises(StorageFailed, match=r"holds offsets 0 to 9 of /default/orders\[0\], and the batch has"):
            table.commit(files(table, rows(start, stop)), marker(1, start, stop))
    assert offsets(table) == list(range(10))


def test_gaps_are_allowed_where_the_marker_says_so(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10, gaps=True))
    table.commit(files(table, rows(15, 20)), marker(1, 15, 20, gaps=True))
    with pytest.raises(StorageFailed):
        table.commit([], marker(2, 19, 22, gaps=True))
    assert table.spans() == {(TOPIC, 0): OffsetSpan(0, 20)}


def test_a_second_archiver_is_fenced_and_may_take_over(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format, owner="q1")
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10))
    other = open_table(table_format, str(tmp_path / table_format), "orders")
    with pytest.raises(NotOwner, match=r"is archived by the query q1, and this one is q2: .* --take-over"):
        other.commit(files(other, rows(10, 20)), marker(0, 10, 20, query="q2"))
    other.claim("q2", seen="q1")
    other.commit(files(other, rows(10, 20)), marker(0, 10, 20, query="q2"))
    with pytest.raises(NotOwner, match="is archived by the query q2, and this one is q1"):
        table.commit(files(table, rows(20, 30)), marker(1, 20, 30))
    assert offsets(table) == list(range(20))


def test_a_backfill_goes_before_what_is_there_whoever_owns_the_table(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format, owner="q1")
    table.commit(files(table, rows(10, 20)), marker(0, 10, 20))
    table.commit(files(table, rows(4, 10)), marker(0, 4, 10, query="backfill", before=True))
    table.commit(files(table, rows(20, 25)), marker(1, 20, 25))
    with pytest.raises(StorageFailed, match="they do not join"):
        table.commit([], marker(1, 0, 3, query="backfill", before=True))
    assert table.spans() == {(TOPIC, 0): OffsetSpan(4, 25)}
    assert offsets(table) == list(range(4, 25))


def test_a_lost_answer_is_found_to_be_a_commit(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, table_format)
    really = table._try_commit

    def put_and_lose(*given: object) -> None:
        really(*given)  # type: ignore[arg-type]
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(table, "_try_commit", put_and_lose)
    assert table.commit(files(table, rows(0, 10)), marker(0, 0, 10)) == Committed(despite_error=True)
    assert offsets(table) == list(range(10))


def test_a_commit_that_failed_says_why_and_can_be_repeated(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, table_format)
    with monkeypatch.context() as broken:
        broken.setattr(table, "_try_commit", lambda *_: (_ for _ in ()).throw(ConnectionError("no network")))
        with pytest.raises(ConnectionError):
            table.commit([], marker(0, 0, 10))
    assert table.commit([], marker(0, 0, 10)) == Committed()


def test_of_writers_that_race_each_batch_gets_in_once(tmp_path: Path, table_format: str) -> None:
    made(tmp_path, table_format)
    outcomes: list[object] = []

    def archive() -> None:
        table = open_table(table_format, str(tmp_path / table_format), "orders")
        for batch in range(4):
            start = batch * 10
            outcomes.append(table.commit(files(table, rows(start, start + 10)), marker(batch, start, start + 10)))

    threads = [threading.Thread(target=archive) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(outcomes) == 12
    assert sum(isinstance(each, Committed) for each in outcomes) == 4
    table = open_table(table_format, str(tmp_path / table_format), "orders")
    assert offsets(table) == list(range(40))
    assert table.positions() == {(TOPIC, 0): 40}


def test_of_those_that_open_a_new_warehouse_together_none_fails(tmp_path: Path, table_format: str) -> None:
    together, failed = threading.Barrier(8), list[Exception]()

    def make(warehouse: str) -> None:
        together.wait()
        try:
            open_table(table_format, warehouse, "orders").create(SCHEMA, "_day")
        except Exception as error:
            failed.append(error)

    for number in range(4):
        threads = [threading.Thread(target=make, args=(str(tmp_path / str(number)),)) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert table_names(table_format, str(tmp_path / str(number))) == ["default.orders"]
    assert failed == []


def test_markers_of_queries_are_kept_apart(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    assert table.commit([], CommitMarker("one", 7)) == Committed()
    assert table.commit([], CommitMarker("two", 0)) == Committed()
    assert table.commit([], CommitMarker("one", 7)) == AlreadyCommitted()
    assert table.table_state("one").batch == 7
    assert table.table_state("two").batch == 0
    assert table.table_state("three").batch is None


def test_the_history_says_when_which_batch_came(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 10)), marker(0, 0, 10))
    table.commit(files(table, rows(10, 20)), marker(1, 10, 20))
    history = table.commit_history()
    assert [each for _, each in history] == [
        CommitMarker("q1", 0, (OffsetRange(TOPIC, 0, 0, 10),)),
        CommitMarker("q1", 1, (OffsetRange(TOPIC, 0, 10, 20),)),
    ]
    assert history[0][0] <= history[1][0]


def test_a_table_grows_columns_and_old_rows_have_none_in_them(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 5)), marker(0, 0, 5))
    inner = pa.struct([("cents", pa.int64())])
    grown_schema = SCHEMA.append(pa.field("price", inner)).append(
        pa.field("tags", pa.list_(pa.field("element", pa.string())))
    )
    table.evolve(grown_schema)
    assert table.schema() == grown_schema
    batch = rows(5, 7)
    columns = [
        *batch.columns,
        pa.array([{"cents": 1}, None], inner),
        pa.array([["a", "b"], None], grown_schema.field("tags").type),
    ]
    table.commit(files(table, pa.RecordBatch.from_arrays(columns, schema=grown_schema)), marker(1, 5, 7))
    wider = pa.struct([("cents", pa.int64()), ("currency", pa.string())])
    grown_schema = grown_schema.set(grown_schema.get_field_index("price"), pa.field("price", wider))
    table.evolve(grown_schema)
    assert table.schema() == grown_schema
    found = pa.Table.from_batches(table.read(["_offset", "price", "tags"])).sort_by("_offset").to_pylist()
    assert [each["price"] for each in found] == [None] * 5 + [{"cents": 1, "currency": None}, None]
    assert [each["tags"] for each in found] == [None] * 5 + [["a", "b"], None]
    table.evolve(grown_schema)
    assert table.positions() == {(TOPIC, 0): 7}


def test_conditions_choose_rows_and_columns(tmp_path: Path, table_format: str) -> None:
    table = made(tmp_path, table_format)
    table.commit(files(table, rows(0, 20, days=4)), marker(0, 0, 20))
    found = [
        value.as_py()
        for batch in table.read(["_offset"], [("_offset", ">=", 8), ("_day", "=", dt.date(2026, 2, 1))])
        for value in batch.column(0)
    ]
    assert sorted(found) == [9, 13, 17]
    late = [("_timestamp", ">", FIRST_DAY + dt.timedelta(days=3)), ("_offset", "in", [3, 4, 19])]
    assert sorted(v.as_py() for batch in table.read(["_offset"], late) for v in batch.column(0)) == [3, 19]
    with pytest.raises(InvalidRequest, match="no column 'nothing'"):
        list(table.read(["nothing"]))
    with pytest.raises(InvalidRequest, match="condition '~'"):
        list(table.read(None, [("_offset", "~", 1)]))


def test_a_table_without_partitions_works_as_well(tmp_path: Path, table_format: str) -> None:
    table = open_table(table_format, str(tmp_path), "shop.plain")
    table.create(pa.schema([("a", pa.int64())]))
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
    table.commit(files(table, batch), CommitMarker("q", 0))
    assert table.partition_by() is None
    assert independent(table, ["a"]).column(0).to_pylist() == [1, 2, 3]
    assert [each.as_py() for found in table.read() for each in found.column(0)] == [1, 2, 3]
