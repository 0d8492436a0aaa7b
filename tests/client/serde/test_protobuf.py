"""Protobuf at the client: messages of generated classes, and dicts where there is only a text."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tests.client.serde.protos import Item, Note, Order

from penstock.client.serde.protobuf import ClassCodec, MessageCodec
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Definition, SchemaKind

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";

enum State { NEW = 0; OLD = 1; }

message Item { string sku = 1; int64 count = 2; }

message Order {
  int64 id = 1;
  repeated Item items = 2;
  map<string, Item> by_name = 3;
  map<string, State> states = 4;
  State state = 5;
  repeated State history = 6;
  optional string note = 7;
  bytes raw = 8;
  oneof payment { string card = 9; Item swap = 10; }
  google.protobuf.Timestamp at = 11;
  message Line { int32 number = 1; }
  Line line = 12;
  repeated string names = 13;
  map<string, string> labels = 14;
}
"""
OLD_TEXT = 'syntax = "proto2"; message Old { required int32 a = 1; optional Old next = 2; }'


def proto(text: str = TEXT, **references: str) -> Definition:
    return Definition(SchemaKind.PROTOBUF, text, tuple(references.items()))


def test_dicts_come_back_with_everything_that_has_no_presence() -> None:
    codec = MessageCodec(proto(), "Order")
    value = {
        "id": 2**53 + 1,
        "items": [{"sku": "a", "count": 2}],
        "by_name": {"x": {"sku": "b", "count": 0}},
        "states": {"x": "OLD"},
        "state": "OLD",
        "history": ["NEW", "OLD", 7],
        "names": ["a"],
        "labels": {"x": "y"},
        "note": "",
        "raw": b"\xff",
        "swap": {"sku": "c", "count": 0},
        "at": {"seconds": 5, "nanos": 0},
    }
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(b"") == {
        "id": 0,
        "items": [],
        "by_name": {},
        "states": {},
        "state": "NEW",
        "history": [],
        "raw": b"",
        "names": [],
        "labels": {},
    }


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"id": "x"}, "/id", "integer"),
        ({"id": 2**70}, "/id", "out of range"),
        ({"id": 1.5}, "/id", "float"),
        ({"more": 1}, "/more", 'no "more" field'),
        ({"items": [{"sku": "a"}, {"sku": 7}]}, "/items/1/sku", "7 is no string"),
        ({"note": 7}, "/note", "7 is no string"),
        ({"names": ["a", 7]}, "/names/1", "7 is no string"),
        ({"names": 7}, "/names", "iterable"),
        ({"labels": {"x": 7}}, "/labels/x", "7 is no string"),
        ({"labels": {7: "x"}}, "/labels/7", "7 is no string"),
        ({"items": [7]}, "/items", "must be dict"),
        ({"by_name": {"x": {"count": "y"}}}, "/by_name/x/count", "integer"),
        ({"states": {"x": "GONE"}}, "/states/x", "GONE"),
        ({"state": "GONE"}, "/state", "GONE"),
        ({"raw": "text"}, "/raw", "bytes"),
        ({"line": {"number": "x"}}, "/line/number", "integer"),
        ([], "", "shop.Order or a dict, not list"),
        (7, "", "shop.Order or a dict, not int"),
    ],
)
def test_a_value_that_does_not_fit_says_where(value: Any, path: str, reason: str) -> None:
    with pytest.raises(ValueMismatch) as caught:
        MessageCodec(proto(), "Order").encode(value)
    assert caught.value.path == path
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("message", "indexes", "fields"),
    [
        (None, (0,), {"sku", "count"}),
        ("Item", (0,), {"sku", "count"}),
        ("shop.Item", (0,), {"sku", "count"}),
        ("Order.Line", (1, 2), {"number"}),  # behind those that the maps are made of
        ("shop.Order.Line", (1, 2), {"number"}),
        ((1, 2), (1, 2), {"number"}),
    ],
)
def test_a_message_is_found_by_its_name_or_its_place(message: Any, indexes: Any, fields: set[str]) -> None:
    codec = MessageCodec(proto(), message)
    assert codec.indexes == indexes
    assert set(codec.decode(b"")) == fields


@pytest.mark.parametrize(
    ("message", "error"),
    [("Nothing", InvalidRequest), ("Order.Nothing", InvalidRequest), ("", InvalidRequest), ((9,), ValueMismatch)],
)
def test_a_message_that_is_not_there_is_refused(message: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="has no message"):
        MessageCodec(proto(), message)


def test_what_is_required_is_required_in_both_directions() -> None:
    codec = MessageCodec(proto(OLD_TEXT))
    with pytest.raises(ValueMismatch, match="missing required"):
        codec.encode({})
    with pytest.raises(ValueMismatch) as caught:
        codec.decode(b"\x08\x01\x12\x00")
    assert caught.value.path == "/next/a"


def test_imports_are_found_among_the_references() -> None:
    text = 'syntax = "proto3"; import "item.proto"; message Basket { shop.Item item = 1; }'
    item = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
    codec = MessageCodec(Definition(SchemaKind.PROTOBUF, text, (("item.proto", item),)))
    assert codec.decode(codec.encode({"item": {"sku": "a"}})) == {"item": {"sku": "a"}}


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\x05a", b"\x12\x02" * 3])
def test_a_payload_that_is_no_message_is_a_misfit(payload: bytes) -> None:
    with pytest.raises(ValueMismatch):
        ClassCodec(Order).decode(payload)


def test_messages_of_a_class_go_there_and_back() -> None:
    codec = ClassCodec(Order)
    order = Order(id=1, items=[Item(sku="a")])
    assert codec.decode(codec.encode(order)) == order
    assert codec.decode(codec.encode({"id": 1, "items": [{"sku": "a"}]})) == order
    with pytest.raises(ValueMismatch, match="not Item"):
        codec.encode(Item())


def test_a_class_knows_its_file_and_all_that_it_imports() -> None:
    money, order = ClassCodec(Order).files()
    assert (money.name, order.name) == ("shop/money.proto", "shop/order.proto")
    assert order.needs == ("shop/money.proto", "google/protobuf/timestamp.proto")
    assert [each.name for each in messages(order.text)] == ["Item", "Order"]
    assert [each.name for each in messages(ClassCodec(Order, first=True).files()[-1].text)] == ["Order", "Item"]
    assert (ClassCodec(Order).indexes, ClassCodec(Note).indexes) == ((1,), (1, 0))
    assert (ClassCodec(Order, first=True).indexes, ClassCodec(Note, first=True).indexes) == ((0,), (0, 0))


def test_a_schema_that_was_made_of_a_class_reads_what_the_class_wrote() -> None:
    money, order = ClassCodec(Order, first=True).files()
    codec = MessageCodec(Definition(SchemaKind.PROTOBUF, order.text, ((money.name, money.text),)))
    read = codec.decode(ClassCodec(Order).encode(Order(id=1, price={"units": 5, "currency": "EUR"})))
    assert read == {"id": 1, "items": [], "price": {"units": 5, "currency": "EUR"}}


def messages(text: str) -> Any:
    return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text)).message_type
