"""Avro at the client: values are checked by their schema, and payloads are read by the schema they were
written with."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.serde.avro import AvroCodec
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Definition, SchemaKind

ITEM = {
    "type": "record",
    "name": "shop.Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "long", "default": 1}],
}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "items", "type": {"type": "array", "items": ITEM}, "default": []},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": ["string", "long"]}, "default": {}},
        {"name": "first", "type": ["null", "Item"], "default": None},
        {"name": "price", "type": ["null", PRICE], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}, "default": "NEW"},
    ],
}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "value", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
}


def avro(schema: Any, *references: Any) -> Definition:
    texts = tuple((each["name"], json.dumps(each)) for each in references)
    return Definition(SchemaKind.AVRO, json.dumps(schema), texts)


def test_values_come_back_with_their_defaults() -> None:
    codec = AvroCodec(avro(ORDER))
    value = {"id": 1, "items": [{"sku": "a"}], "first": {"sku": "b", "count": 2}, "tags": {"x": 1, "y": "z"}}
    defaults = {"note": None, "price": None, "state": "NEW", "items": [{"sku": "a", "count": 1}]}
    assert codec.decode(codec.encode(value)) == value | defaults


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**31), 2**31 - 1),
            "items": st.lists(st.fixed_dictionaries({"sku": st.text(), "count": st.integers(-(2**63), 2**63 - 1)})),
            "note": st.none() | st.text(),
            "tags": st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1)),
            "first": st.none(),
            "price": st.none() | st.decimals(-99, 99, places=2),
            "state": st.sampled_from(["NEW", "OLD"]),
        }
    )
)
def test_whatever_fits_comes_back(value: dict[str, Any]) -> None:
    codec = AvroCodec(avro(ORDER))
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"id": 3.7}, "/id", "3.7 is no int"),
        ({"id": True}, "/id", "True is no int"),
        ({"id": 2**31}, "/id", "is no int"),
        ({"id": None}, "/id", "None is no int"),
        ({"items": [{"sku": "a"}, {"sku": 7}]}, "/items/1/sku", "7 is no string"),
        ({"items": [{"count": 1}]}, "/items/0/sku", "missing, and has no default"),
        ({"items": [{"sku": "a", "color": "red"}]}, "/items/0/color", "shop.Item has no such field"),
        ({"items": "abc"}, "/items", "'abc' is no array"),
        ({"note": 7}, "/note", "7 is no string"),
        ({"tags": {"a/b": [1]}}, "/tags/a~1b", "[1] is none of string, long"),
        ({"first": {"sku": 7}}, "/first/sku", "7 is no string"),
        ({"state": "GONE"}, "/state", "'GONE' is no shop.State"),
        ({"more": 1}, "/more", "shop.Order has no such field"),
        ({"price": Decimal("1.255")}, "/price", "Decimal('1.255') is no decimal(4, 2)"),
        ({"price": Decimal("123.45")}, "/price", "is no decimal(4, 2)"),
        ({"price": Decimal("NaN")}, "/price", "is no decimal(4, 2)"),
        ({"price": 1.25}, "/price", "1.25 is no decimal(4, 2)"),
        ({"note": "\ud800"}, "/note", "is no string"),
        ({"items": [{"sku": "x" * 100 + "y", "count": "x" * 100}]}, "/items/0/count", "..."),
    ],
)
def test_a_value_that_does_not_fit_says_where(change: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as caught:
        AvroCodec(avro(ORDER)).encode({"id": 1} | change)
    assert caught.value.path == path
    assert reason in caught.value.message


@pytest.mark.parametrize("value", [None, 7, [], "x", {}])
def test_what_is_no_record_at_all_does_not_fit_either(value: Any) -> None:
    with pytest.raises(ValueMismatch):
        AvroCodec(avro(ORDER)).encode(value)


def test_objects_are_written_as_the_records_they_are_like() -> None:
    @dataclass
    class Item:
        sku: str
        count: int

    codec = AvroCodec(avro(ITEM))
    assert codec.decode(codec.encode(Item("a", 2))) == {"sku": "a", "count": 2}


def test_logical_types_are_what_python_has_for_them() -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    codec = AvroCodec(avro(schema))
    value = {"at": datetime(2024, 5, 1, tzinfo=UTC), "amount": Decimal("12.50")}
    assert codec.decode(codec.encode(value)) == value


def test_what_one_version_wrote_is_read_into_another() -> None:
    reader = {
        "type": "record",
        "name": "Purchase",
        "aliases": ["shop.Order"],
        "fields": [
            {"name": "number", "aliases": ["id"], "type": "long"},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }
    payload = AvroCodec(avro(ORDER)).encode({"id": 7, "note": "gone"})
    assert AvroCodec(avro(ORDER), avro(reader)).decode(payload) == {"number": 7, "currency": "EUR"}


def test_types_of_other_schemas_are_known_by_their_names() -> None:
    basket = {"type": "record", "name": "Basket", "fields": [{"name": "item", "type": "shop.Item"}]}
    codec = AvroCodec(avro(basket, ITEM))
    assert codec.decode(codec.encode({"item": {"sku": "a"}})) == {"item": {"sku": "a", "count": 1}}
    with pytest.raises(ValueMismatch) as caught:
        codec.encode({"item": {"sku": 7}})
    assert caught.value.path == "/item/sku"


@pytest.mark.parametrize(
    ("payload", "path"),
    [(b"", "/id"), (b"\x02", "/items"), (b"\x02\x00\x08", "/note"), (b"\xff" * 20, "/id")],
)
def test_a_payload_that_is_cut_or_wrong_says_where(payload: bytes, path: str) -> None:
    with pytest.raises(ValueMismatch) as caught:
        AvroCodec(avro(ORDER)).decode(payload)
    assert caught.value.path == path


def test_nothing_may_be_left_behind_the_value() -> None:
    codec = AvroCodec(avro(ORDER))
    with pytest.raises(ValueMismatch, match="1 bytes"):
        codec.decode(codec.encode({"id": 1}) + b"x")


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (NODE, b"\x02\x02" * 100_000),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, b"\xfe\xff\xff\xff\x0f\x00"),
        ({"type": "map", "values": {"type": "array", "items": "null"}}, b"\x02\x00\xfe\xff\xff\xff\x0f\x00\x00"),
    ],
)
def test_a_payload_cannot_make_a_consumer_take_more_than_it_has(schema: Any, payload: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ValueMismatch):
        AvroCodec(avro(schema)).decode(payload)
    assert time.process_time() - began < 2


def test_a_recursive_value_within_bounds_is_read() -> None:
    codec = AvroCodec(avro(NODE))
    value = {"value": 1, "next": {"value": 2, "next": None}}
    assert codec.decode(codec.encode(value)) == value


def test_types_that_use_each_other_many_times_are_understood_in_no_time() -> None:
    fields = [{"name": "a", "type": "int"}]
    schema: Any = {"type": "record", "name": "R0", "fields": fields}
    for number in range(1, 40):
        twice = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": twice}
    began = time.process_time()
    AvroCodec(avro({"type": "array", "items": schema}))
    assert time.process_time() - began < 2


def test_a_value_within_itself_is_a_misfit() -> None:
    endless: dict[str, Any] = {"value": 1}
    endless["next"] = endless
    with pytest.raises(ValueMismatch, match="nested more than 512 deep"):
        AvroCodec(avro(NODE)).encode(endless)


def test_what_is_wrong_far_down_in_a_value_is_a_misfit_too() -> None:
    value: Any = {"value": "x"}
    for _ in range(400):
        value = {"value": 1, "next": value}
    with pytest.raises(ValueMismatch):
        AvroCodec(avro(NODE)).encode(value)


def test_a_schema_that_is_none_is_refused() -> None:
    for text in ("", "{", '{"type": "nothing"}', '{"type": "record", "name": "R"}'):
        with pytest.raises(InvalidRequest):
            AvroCodec(Definition(SchemaKind.AVRO, text))
