"""Protobuf: which columns a message has, and what payloads become in them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.decode.kit import Shelf, kinds, only_reason, proto, reasons, rows, spark_takes

from penstock.client.serde.framing import prefix, write_indexes
from penstock.client.serde.protobuf import message_class
from penstock.core.schemas import SchemaKind

ORDER = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
package acme;
message Order {
  int64 id = 1;
  uint64 big = 2;
  uint32 count = 3;
  Status status = 4;
  google.protobuf.Timestamp at = 5;
  google.protobuf.Duration took = 6;
  google.protobuf.StringValue note = 7;
  google.protobuf.Struct extra = 8;
  repeated Line lines = 9;
  map<int32, Line> by_number = 10;
  oneof payment { string card = 11; int32 cash = 12; }
  optional float rate = 13;
  Order parent = 14;
  bytes raw = 15;
  repeated Status steps = 16;
  repeated google.protobuf.Int64Value numbers = 17;
}
message Line { string sku = 1; double price = 2; }
enum Status { UNKNOWN = 0; PAID = 1; }
"""


def message(shelf: Shelf, schema_id: int = 1, name: str | None = None, **values: Any) -> Any:
    return message_class(shelf.open().schema(schema_id), name)(**values)


def payload(shelf: Shelf, schema_id: int = 1, name: str | None = None, **values: Any) -> bytes:
    written: bytes = message(shelf, schema_id, name, **values).SerializeToString()
    return written


def test_every_type_has_a_column_that_spark_takes() -> None:
    target = Shelf(proto(ORDER)).target()
    line = "struct<sku: string, price: double>"
    assert kinds(target) == {
        "id": "int64",
        "big": "decimal128(20, 0)",
        "count": "int64",
        "status": "string",
        "at": "timestamp[us, tz=UTC]",
        "took": "int64",
        "note": "string",
        "extra": "string",
        "lines": f"list<element: {line}>",
        "by_number": f"map<int32, {line}>",
        "card": "string",
        "cash": "int32",
        "rate": "float",
        "parent": "string",
        "raw": "binary",
        "steps": "list<element: string>",
        "numbers": "list<element: int64>",
    }
    spark_takes([target.fields])


def test_a_message_comes_out_as_it_went_in() -> None:
    shelf = Shelf(proto(ORDER))
    order = message(
        shelf,
        id=-1,
        big=2**64 - 1,
        count=2**32 - 1,
        status=1,
        lines=[{"sku": "a", "price": 1.5}],
        by_number={7: {"sku": "b"}},
        cash=0,
        raw=b"\xff",
        steps=[0, 1, 9],
        numbers=[{"value": 5}],
    )
    order.at.FromDatetime(dt.datetime(2026, 1, 31, 12, 0, 0, 5, dt.UTC))
    order.took.FromTimedelta(dt.timedelta(milliseconds=-1500))
    order.note.value = ""
    order.extra.update({"k": [1, "x", None]})
    order.parent.id = 9
    assert rows(shelf.decode((order.SerializeToString(), 1))) == [
        {
            "id": -1,
            "big": Decimal(2**64 - 1),
            "count": 2**32 - 1,
            "status": "PAID",
            "at": dt.datetime(2026, 1, 31, 12, 0, 0, 5, dt.UTC),
            "took": -1_500_000,
            "note": "",
            "extra": '{"k":[1.0,"x",null]}',
            "lines": [{"sku": "a", "price": 1.5}],
            "by_number": [(7, {"sku": "b", "price": 0.0})],
            "card": None,
            "cash": 0,
            "rate": None,
            "parent": '{"id":"9"}',
            "raw": b"\xff",
            "steps": ["UNKNOWN", "PAID", "9"],
            "numbers": [5],
        }
    ]


def test_what_a_message_leaves_out_is_its_default_where_that_cannot_be_told_from_nothing() -> None:
    shelf = Shelf(
        proto("message M { int64 a = 1; optional int64 b = 2; repeated int64 c = 3; M m = 4; string s = 5; }")
    )
    assert rows(shelf.decode((b"", 1))) == [{"a": 0, "b": None, "c": [], "m": None, "s": ""}]


V1 = "message Order { int32 id = 1; string total = 2; int64 gone = 3; }"
V2 = "message Order { int64 order_id = 1; string total = 2; string currency = 4; }"


def test_fields_are_the_same_that_have_the_same_number() -> None:
    shelf = Shelf(proto(V1), proto(V2))
    older = payload(shelf, id=5, total="x", gone=7)
    newer = payload(shelf, 2, order_id=2**40, total="y", currency="EUR")
    assert rows(shelf.decode((older, 1), (newer, 2))) == [
        {"order_id": 5, "total": "x", "currency": None},
        {"order_id": 2**40, "total": "y", "currency": "EUR"},
    ]
    assert rows(shelf.decode((older, 1), (newer, 2), pick="merged")) == [
        {"order_id": 5, "total": "x", "gone": 7, "currency": None},
        {"order_id": 2**40, "total": "y", "gone": None, "currency": "EUR"},
    ]
    pinned = shelf.decode((older, 1), (newer, 2), pick="1")
    assert pinned.rows.to_pylist() == [{"id": 5, "total": "x", "gone": 7}]
    assert "at /id" in reasons(pinned)[0]


def test_a_field_that_says_its_default_has_it_where_the_writer_did_not_know_it() -> None:
    newer = """syntax = "proto2";
    message M { optional int32 a = 1; optional E e = 2 [default = B]; enum E { A = 0; B = 1; } }"""
    shelf = Shelf(
        (SchemaKind.PROTOBUF, 'syntax = "proto2"; message M { optional int32 a = 1; }'), (SchemaKind.PROTOBUF, newer)
    )
    assert rows(shelf.decode((payload(shelf, a=1), 1))) == [{"a": 1, "e": "B"}]


def test_numbers_of_different_messages_are_different_fields() -> None:
    shelf = Shelf(proto("message Order { int64 id = 1; }"), proto("message Refund { string why = 1; }"))
    found = shelf.decode((payload(shelf, id=5), 1), (payload(shelf, 2, why="x"), 2), pick="merged")
    assert rows(found) == [{"id": 5, "why": None}, {"id": None, "why": "x"}]
    found = shelf.decode((payload(shelf, id=5), 1), (payload(shelf, 2, why="x"), 2))
    assert found.rows.to_pylist() == [{"why": "x"}]
    assert "none of the columns" in reasons(found)[0]


def test_the_message_that_a_payload_names_is_the_one_it_is_read_as() -> None:
    shelf = Shelf(
        proto("message Order { int64 id = 1; message Line { string sku = 1; } } message Other { bool b = 1; }")
    )
    order = prefix(1) + write_indexes((0,)) + payload(shelf, id=5)
    other = prefix(1) + write_indexes((1,)) + payload(shelf, name="Other", b=True)
    missing = prefix(1) + write_indexes((4,))
    found = shelf.decode((order, 1), (other, 1), (missing, 1), (prefix(1), 1), framing="confluent")
    assert found.rows.to_pylist() == [{"id": 5}]
    told = reasons(found)
    assert "none of the columns" in told[0]
    assert told[1:] == ["the schema has no message 4", "it ends before it has named its message"]


def test_a_target_may_be_another_message_than_the_first() -> None:
    target = Shelf(proto("package a; message Order { int64 id = 1; } message Other { bool b = 1; }")).target(
        message="Other"
    )
    assert kinds(target) == {"b": "bool"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "has no end"),
        (b"\x0a\xff\xff\xff\xff\x07", "longer than what there is"),
        (b'{"id": 5}', ""),
        (b"\x0d\x01\x02\x03\x04", "at /id: it is written as another type than it has"),
        (b"\x08\x05\x10\x05\x48\x01", "at /lines: it is written as another type than it has"),
        (b"\x92\x3e\x01\x01", "none of its fields"),
        (b"\x3a\x03\x0a\x01\xff", "at /note/value: it is not text in UTF-8"),
        (b"\x13" * 5000, "group"),
    ],
)
def test_bytes_that_are_no_message_are_bad_and_it_is_said_why(data: bytes, said: str) -> None:
    assert said in only_reason(Shelf(proto(ORDER)).decode((data, 1)))


def test_messages_within_each_other_for_ever_are_bad() -> None:
    nested = b""
    for _ in range(200):
        size = len(nested)
        nested = b"\x72" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + nested
    assert "nested" in only_reason(Shelf(proto(ORDER)).decode((nested, 1)))


def test_a_time_that_no_column_has_room_for_is_bad() -> None:
    shelf = Shelf(proto(ORDER))
    order = message(shelf)
    order.at.seconds = 2**62
    assert only_reason(shelf.decode((order.SerializeToString(), 1))) == "at /at: it is beyond the range of int64"


@given(data=st.binary(max_size=40))
@settings(max_examples=150, deadline=None)
def test_whatever_the_bytes_are_a_row_is_good_or_bad(data: bytes) -> None:
    found = Shelf(proto(ORDER)).decode((data, 1))
    assert found.rows.num_rows + found.bad.num_rows == 1
