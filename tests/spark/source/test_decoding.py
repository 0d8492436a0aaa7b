"""The data source with `decode = registry`, without Spark: slices of a log become typed columns."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.spark.decode.kit import TOPIC, V1, json_schema, make_log, register

from penstock.client.serde.framing import prefix
from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.spark.files.location import Location
from penstock.spark.scan.slices import Slice
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.read_schema import read_task_for
from penstock.storage.store import Store


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_log(tmp_path_factory.mktemp("decode") / "data", bad=(31, 150))


def options(log: Path, **more: str) -> ReadOptions:
    given = {"path": str(log), "subscribe": "orders", "decode": "registry", **more}
    return ReadOptions.of(given, streaming=False)


def run(log: Path, **more: str) -> list[dict[str, Any]]:
    read_task = pickle.loads(pickle.dumps(read_task_for(options(log, **more))))
    location = Location.parse(path=str(log))
    found = []
    for partition in range(2):
        for batch in read_task.run(Slice(location, str(TOPIC), partition, 0, 100, 0)):
            assert batch.schema == read_task.schema
            found += batch.to_pylist()
    return sorted(found, key=lambda row: (row["offset"], row["partition"]))


def test_a_log_whose_schema_evolves_is_read_as_the_latest_has_it(log: Path, tmp_path: Path) -> None:
    found = run(log, decodeMode="quarantine", badRecords=str(tmp_path), columns="offset,partition,schema_version")
    assert [row["value_id"] for row in found] == [number for number in range(200) if number not in (31, 150)]
    assert list(found[0]) == ["offset", "partition", "schema_version", "value_id", "amount", "at"]
    assert found[0] == {"offset": 0, "partition": 0, "schema_version": 1, "value_id": 0, "amount": 0.0, "at": None}
    assert found[-1]["at"] == dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def test_bad_rows_are_in_files_with_where_they_came_from(log: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run(log, decodeMode="quarantine", badRecords=str(tmp_path))
    table = pq.read_table(tmp_path).sort_by("offset")
    assert table.select(["topic", "partition", "offset", "schema_version", "value"]).to_pylist() == [
        {"topic": "/default/orders", "partition": 1, "offset": 15, "schema_version": 1, "value": b"{"},
        {"topic": "/default/orders", "partition": 0, "offset": 75, "schema_version": 2, "value": b"{"},
    ]


def test_the_first_bad_row_fails_the_task_with_its_place(log: Path) -> None:
    with pytest.raises(MalformedMessage, match="/default/orders 0:75 cannot be read by schema 2"):
        run(log)


def test_nulls_stand_for_bad_rows_with_the_reason_beside_them(log: Path) -> None:
    found = run(log, decodeMode="null")
    assert len(found) == 200
    assert [row["offset"] for row in found if row["_error"] is not None] == [15, 75]


def test_a_pinned_version_has_its_own_columns(log: Path) -> None:
    assert "at" not in run(log, decodeMode="null", decodeSchema="1")[0]


def test_a_quarantine_needs_a_place(log: Path) -> None:
    with pytest.raises(InvalidRequest, match="badRecords"):
        read_task_for(options(log, decodeMode="quarantine"))


def test_a_topic_without_schemas_is_refused_by_name(log: Path) -> None:
    with pytest.raises(InvalidRequest, match="/default/carts has no schema"):
        read_task_for(options(log, subscribe="carts"))


def test_messages_that_name_no_schema_are_read_by_the_latest_if_that_is_asked_for(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(TOPIC)
        ref = register(store, json_schema(V1))
        framed = prefix(ref.id) + b'{"id": 2}'
        for payload in (b'{"id": 1}', framed):
            store.append(TOPIC, Draft.of([Message(payload=payload)]), partition=0)
    one = Slice(Location.parse(path=str(tmp_path / "data")), str(TOPIC), 0, 0, 2, 0)

    def ids(**more: str) -> list[int | None]:
        read_task = read_task_for(options(tmp_path / "data", decodeMode="null", **more))
        found: list[int | None] = [
            value for batch in read_task.run(one) for value in batch.column("value_id").to_pylist()
        ]
        return found

    assert ids() == [None, None]
    assert ids(decodeUnnamed="latest") == [1, None]
    assert ids(decodeFraming="confluent") == [None, 2]
    assert ids(decodeFraming="auto", decodeUnnamed="latest") == [1, 2]
