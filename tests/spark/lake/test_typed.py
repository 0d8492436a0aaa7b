"""Topics with schemas: typed columns that grow, undecodable payloads apart, nothing left out."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.decode.kit import SUBJECT, json_schema, properties, register
from tests.spark.lake.archive.test_batch_commit import here, slices
from tests.spark.lake.kit import TABLE_FORMATS, independent

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import run_procedure
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.lake.archive.batch_commit import BatchReport, BatchRunner, Destination
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.run import destination_of
from penstock.storage.store import Store

TOPIC = TopicName.parse("orders")
SOURCE = (str(TOPIC), 0)


class Shop:
    """A topic whose schema changes, and its archive."""

    def __init__(self, root: Path, table_format: str, checkpoint: Checkpoint, **more: Any) -> None:
        self.data = root / "data"
        location = Location(str(self.data))
        self.destination = Destination(
            warehouse=str(root / "lake"), table_format=table_format, registry=RegistryLocation(location), **more
        )
        self._checkpoint = checkpoint
        self._archived = self._batch = 0
        with Store.open(self.data, create=True) as store:
            store.create_topic(TOPIC)

    def register(self, **kinds: Any) -> SchemaRef:
        with Store.open(self.data) as store:
            return register(store, json_schema(properties(**kinds)))

    def publish(self, *payloads: Any, schema: SchemaRef | None) -> None:
        texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
        with Store.open(self.data) as store:
            store.append(TOPIC, Draft.of(Message(payload=each, schema=schema) for each in texts))

    def archive(self) -> BatchReport:
        end = int(Location(str(self.data)).open().topic(TOPIC).partition(0).view.next_offset)
        archiver = BatchRunner(self.destination, self._checkpoint, self._checkpoint.query_id(), here)
        report = archiver.batch(self._batch, slices(self.data, {SOURCE: (self._archived, end)}))
        self._batch, self._archived = self._batch + 1, end
        return report

    def rows(self, *columns: str, name: str = "default.orders") -> list[dict[str, Any]]:
        found = independent(self.destination.open(name), list(dict.fromkeys(["_offset", *columns]))).sort_by("_offset")
        return [{key: row[key] for key in columns} for row in found.to_pylist()]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    with Checkpoint(tmp_path / "checkpoint") as state:
        yield state


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_columns_grow_with_the_schema_and_old_rows_have_none(
    tmp_path: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    shop = Shop(tmp_path, table_format, checkpoint)
    shop.publish({"before": "any schema"}, schema=None)
    shop.archive()
    first = shop.register(id={"type": "integer"}, name={"type": "string"})
    shop.publish({"id": 1, "name": "tea"}, {"id": 2, "name": "milk"}, schema=first)
    shop.archive()
    second = shop.register(
        id={"type": "integer"},
        name={"type": "string"},
        price={"type": "number"},
        tags={"type": "array", "items": {"type": "string"}},
    )
    shop.publish({"id": 3, "name": "rum"}, schema=first)
    shop.publish({"id": 4, "name": "oil", "price": 2.5, "tags": ["a", "b"]}, schema=second)
    report = shop.archive()
    assert (report.rows, report.tables["default.orders"].bad) == (2, 0)
    assert shop.rows("id", "name", "price", "tags") == [
        {"id": None, "name": None, "price": None, "tags": None},
        {"id": 1, "name": "tea", "price": None, "tags": None},
        {"id": 2, "name": "milk", "price": None, "tags": None},
        {"id": 3, "name": "rum", "price": None, "tags": None},
        {"id": 4, "name": "oil", "price": 2.5, "tags": ["a", "b"]},
    ]
    assert [row["_schema_version"] for row in shop.rows("_schema_version")] == [None, 1, 1, 1, 2]
    assert shop.rows("_value")[0] == {"_value": b'{"before": "any schema"}'}


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_poison_goes_to_the_companion_with_its_reason(
    tmp_path: Path, checkpoint: Checkpoint, table_format: str
) -> None:
    shop = Shop(tmp_path, table_format, checkpoint)
    schema = shop.register(id={"type": "integer"})
    shop.publish({"id": 1}, b"{", {"id": 3}, b"\xff\xfe", schema=schema)
    shop.publish(b"{ no schema, no poison", schema=None)
    report = shop.archive()
    assert (report.rows, report.tables["default.orders"].bad) == (3, 2)
    why = report.tables["default.orders"].why
    assert (why.places, sum(count for _, count in why.top())) == ({"/default/orders[0]": [1, 3]}, 2)
    assert [row["id"] for row in shop.rows("id")] == [1, 3, None]
    assert [row["_offset"] for row in shop.rows("_offset")] == [0, 2, 4]
    bad = shop.rows("_offset", "_value", "_reason", name="default.orders__bad")
    assert [(row["_offset"], row["_value"]) for row in bad] == [(1, b"{"), (3, b"\xff\xfe")]
    assert all(len(row["_reason"]) > 5 for row in bad)
    shop.publish(b"[", schema=schema)
    shop.archive()
    shop.publish({"id": 7}, schema=schema)
    shop.archive()
    assert len(shop.rows("_offset", name="default.orders__bad")) == 3
    assert shop.destination.open("default.orders").positions() == {SOURCE: 7}


def test_bytes_of_payloads_that_became_columns_are_kept_unless_said(tmp_path: Path, checkpoint: Checkpoint) -> None:
    for keep in (True, False):
        shop = Shop(tmp_path / str(keep), "delta", checkpoint, keep_values=keep)
        schema = shop.register(id={"type": "integer"})
        shop.publish({"id": 1}, b"{", schema=schema)
        shop.publish(b"plain", schema=None)
        shop._batch = 0 if keep else 1
        shop.archive()
        assert shop.rows("_value") == [{"_value": b'{"id": 1}' if keep else None}, {"_value": b"plain"}]
        assert shop.rows("_value", name="default.orders__bad") == [{"_value": b"{"}]


def delete(shop: Shop, version: int) -> None:
    with Store.open(shop.data) as store:
        registry = Registry(store.catalog.schemas)
        run_procedure(registry.delete_version(SUBJECT, version), SchemaLanguages())


def test_versions_that_were_deleted_have_their_columns_all_the_same(tmp_path: Path, checkpoint: Checkpoint) -> None:
    shop = Shop(tmp_path, "delta", checkpoint, keep_values=False)
    first = shop.register(id={"type": "integer"}, coupon={"type": "string"})
    second = shop.register(id={"type": "integer"}, name={"type": "string"})
    shop.publish({"id": 1, "coupon": "half"}, schema=first)
    shop.publish({"id": 2, "name": "tea"}, schema=second)
    delete(shop, 1)
    shop.archive()
    assert shop.rows("id", "coupon", "name") == [
        {"id": 1, "coupon": "half", "name": None},
        {"id": 2, "coupon": None, "name": "tea"},
    ]
    delete(shop, 2)
    shop.publish({"id": 3, "name": "rum"}, schema=second)
    shop.archive()
    assert shop.rows("id", "name")[2] == {"id": 3, "name": "rum"}


def test_that_there_are_no_schemas_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert destination_of(Location(str(tmp_path / "nothing")), warehouse=str(tmp_path / "lake")).registry is None
    assert "payloads are archived as they are" in caplog.text
    with pytest.raises(InvalidRequest, match="registry="):
        destination_of(Location(str(tmp_path)), warehouse=str(tmp_path / "lake"), registry=str(tmp_path / "typo"))


def test_a_batch_of_bad_records_alone_moves_the_position(tmp_path: Path, checkpoint: Checkpoint) -> None:
    shop = Shop(tmp_path, "delta", checkpoint)
    schema = shop.register(id={"type": "integer"})
    shop.publish(b"{", schema=schema)
    assert shop.archive().tables["default.orders"].bad == 1
    assert shop.destination.open("default.orders").positions() == {SOURCE: 1}
    assert shop.rows("_offset") == []


def test_fields_that_are_called_as_system_columns_or_cannot_be_columns_get_other_names(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    shop = Shop(tmp_path, "delta", checkpoint)
    names = {
        "_offset": {"type": "string"},
        "order id": {"type": "integer"},
        "a.b": {"type": "object", "properties": {"x y": {"type": "integer"}}},
    }
    schema = shop.register(**names)
    shop.publish({"_offset": "mine", "order id": 7, "a.b": {"x y": 5}}, schema=schema)
    shop.archive()
    assert shop.rows("_offset__string", "order_id", "a_b") == [
        {"_offset__string": "mine", "order_id": 7, "a_b": {"x_y": 5}}
    ]


def test_the_day_is_that_of_the_message_in_utc(tmp_path: Path, checkpoint: Checkpoint) -> None:
    shop = Shop(tmp_path, "iceberg", checkpoint)
    shop.publish({"a": 1}, schema=None)
    shop.archive()
    (row,) = shop.rows("_day", "_timestamp")
    assert row["_day"] == row["_timestamp"].date()
    assert isinstance(row["_day"], dt.date)
    assert isinstance(pa.scalar(row["_day"]), pa.Date32Scalar)
