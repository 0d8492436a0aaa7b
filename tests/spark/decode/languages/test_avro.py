"""Avro: types, logical types, unions, defaults, aliases; and bytes that are none of it."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.decode.kit import (
    Shelf,
    avro,
    avro_payload,
    field,
    kinds,
    only_reason,
    reasons,
    record,
    rows,
    spark_takes,
)

UTC = dt.UTC

PLAIN = record(
    field("flag", "boolean"),
    field("small", "int"),
    field("large", "long"),
    field("single", "float"),
    field("double", "double"),
    field("data", "bytes"),
    field("text", "string"),
    field("hash", {"type": "fixed", "name": "Hash", "size": 4}),
    field("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    field("tags", {"type": "array", "items": "string"}),
    field("counts", {"type": "map", "values": "int"}),
    field("maybe", ["null", "string"]),
    field("inner", record(field("x", "int"), name="Inner")),
)
LOGICAL = record(
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    field("exact", {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 3}),
    field("long", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    field("at_us", {"type": "long", "logicalType": "timestamp-micros"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    field("time_ms", {"type": "int", "logicalType": "time-millis"}),
    field("time_us", {"type": "long", "logicalType": "time-micros"}),
    field("name", {"type": "string", "logicalType": "uuid"}),
)


def decoded(schema: Any, *values: Any) -> list[dict[str, Any]]:
    return rows(Shelf(avro(schema)).decode(*((avro_payload(schema, value), 1) for value in values)))


def test_every_type_has_a_column_that_spark_takes() -> None:
    plain, logical = Shelf(avro(PLAIN)).target(), Shelf(avro(LOGICAL)).target()
    assert kinds(plain) == {
        "flag": "bool",
        "small": "int32",
        "large": "int64",
        "single": "float",
        "double": "double",
        "data": "binary",
        "text": "string",
        "hash": "binary",
        "state": "string",
        "tags": "list<element: string>",
        "counts": "map<string, int32>",
        "maybe": "string",
        "inner": "struct<x: int32>",
    }
    assert kinds(logical) == {
        "price": "decimal128(10, 2)",
        "exact": "decimal128(9, 3)",
        "long": "string",
        "day": "date32[day]",
        "at_ms": "timestamp[us, tz=UTC]",
        "at_us": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "time_ms": "int64",
        "time_us": "int64",
        "name": "string",
    }
    spark_takes([plain.fields, logical.fields])


def test_values_of_every_type_come_out_as_they_went_in() -> None:
    value = {
        "flag": True,
        "small": -5,
        "large": 2**40,
        "single": 0.5,
        "double": 0.1,
        "data": b"\x00\xff",
        "text": "grün",
        "hash": b"abcd",
        "state": "PAID",
        "tags": ["a", "b"],
        "counts": {"a": 1},
        "maybe": None,
        "inner": {"x": 7},
    }
    assert decoded(PLAIN, value, value | {"maybe": "x", "tags": []}) == [
        value | {"counts": [("a", 1)]},
        value | {"counts": [("a", 1)], "maybe": "x", "tags": []},
    ]


def test_logical_types_are_what_they_stand_for() -> None:
    at = dt.datetime(2026, 1, 31, 12, 30, 0, 123_000, UTC)
    value = {
        "price": Decimal("-12.34"),
        "exact": Decimal("1.500"),
        "long": Decimal("123456789012345678901234567890123456789012.34"),
        "day": dt.date(1969, 12, 31),
        "at_ms": at,
        "at_us": at.replace(microsecond=123_456),
        "local": at.replace(tzinfo=None),
        "time_ms": dt.time(0, 0, 1),
        "time_us": dt.time(0, 0, 0, 5),
        "name": uuid.UUID(int=5),
    }
    assert decoded(LOGICAL, value) == [
        value
        | {
            "long": "123456789012345678901234567890123456789012.34",
            "time_ms": 1_000_000,
            "time_us": 5,
            "name": str(uuid.UUID(int=5)),
        }
    ]


def test_a_uuid_in_sixteen_bytes_is_the_same_text() -> None:
    schema = record(field("id", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}))
    found = Shelf(avro(schema)).decode((uuid.UUID(int=5).bytes, 1))
    assert rows(found) == [{"id": str(uuid.UUID(int=5))}]


def test_a_decimal_may_be_written_with_more_bytes_than_it_needs() -> None:
    schema = record(
        field("d", {"type": "fixed", "name": "D", "size": 32, "logicalType": "decimal", "precision": 20, "scale": 2})
    )
    found = Shelf(avro(schema)).decode((b"\xff" * 31 + b"\x9c", 1), (b"\x7f" * 32, 1))
    assert found.rows.to_pylist() == [{"d": Decimal("-1.00")}]
    assert reasons(found) == ["at /d: it has more digits than its type"]


def test_nanoseconds_are_cut_to_microseconds() -> None:
    schema = record(field("at", {"type": "long", "logicalType": "timestamp-nanos"}))
    found = Shelf(avro(schema)).decode((avro_payload(record(field("at", "long")), {"at": 1_999}), 1))
    assert rows(found) == [{"at": dt.datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}]


def test_a_union_with_several_types_has_a_field_for_each() -> None:
    inner = record(field("x", "int"), name="Inner")
    schema = record(field("u", ["null", "string", "int", "long", inner, {"type": "array", "items": "int"}]))
    assert kinds(Shelf(avro(schema)).target()) == {
        "u": "struct<member0: string, member1: int64, member2: struct<x: int32>, member3: list<element: int32>>"
    }
    nothing = {"member0": None, "member1": None, "member2": None, "member3": None}
    values = [{"u": "a"}, {"u": 2**40}, {"u": ("Inner", {"x": 1})}, {"u": [1, 2]}, {"u": None}]
    assert decoded(schema, *values) == [
        {"u": nothing | {"member0": "a"}},
        {"u": nothing | {"member1": 2**40}},
        {"u": nothing | {"member2": {"x": 1}}},
        {"u": nothing | {"member3": [1, 2]}},
        {"u": None},
    ]


def test_branches_that_look_alike_are_told_apart_by_their_names() -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    schema = record(
        field("u", ["string", colour, record(field("x", "int"), name="A"), record(field("x", "int"), name="B")])
    )
    found = decoded(schema, {"u": ("Colour", "RED")}, {"u": ("B", {"x": 1})})
    assert [each["u"]["member1"] for each in found] == ["RED", None]
    assert [each["u"]["member3"] for each in found] == [None, {"x": 1}]


def test_a_null_or_a_record_is_that_record() -> None:
    inner = record(field("x", "int"), name="Inner")
    schema = record(field("one", ["null", inner]), field("many", {"type": "map", "values": ["null", "Inner"]}))
    assert decoded(schema, {"one": {"x": 1}, "many": {"a": {"x": 2}, "b": None}}, {"one": None, "many": {}}) == [
        {"one": {"x": 1}, "many": [("a", {"x": 2}), ("b", None)]},
        {"one": None, "many": []},
    ]


def test_a_record_within_itself_is_text_from_there_on() -> None:
    tree = record(
        field("v", "int"), field("raw", "bytes"), field("kids", {"type": "array", "items": "Tree"}), name="Tree"
    )
    leaf = {"v": 2, "raw": b"\xff", "kids": []}
    assert decoded(tree, {"v": 1, "raw": b"", "kids": [leaf]}) == [
        {"v": 1, "raw": b"", "kids": ['{"v":2,"raw":"/w==","kids":[]}']}
    ]


def test_what_is_no_record_is_one_column() -> None:
    assert decoded("string", "a") == [{"value": "a"}]
    assert decoded({"type": "array", "items": "long"}, [1, 2]) == [{"value": [1, 2]}]
    assert decoded(["null", "int"], None, 5) == [{"value": None}, {"value": 5}]
    assert decoded(["string", "int"], "a", 5) == [
        {"value": {"member0": "a", "member1": None}},
        {"value": {"member0": None, "member1": 5}},
    ]


# evolution

V1 = record(field("id", "int"), field("total", "float"), field("gone", "string"))
V2 = record(
    field("id", "long"),
    field("amount", "double", aliases=["total"]),
    field("currency", "string", default="EUR"),
    field("note", ["null", "string"], default=None),
    field("raw", "bytes", default="\u00ff\u0001"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, default="\u0001\u0000"),
    field(
        "lines", {"type": "array", "items": record(field("n", "int", default=3), name="Line")}, default=[{}, {"n": 5}]
    ),
    field("where", {"type": "map", "values": "int"}, default={"a": 1}),
    field("either", ["string", "Line"], default="x"),
)


def test_what_was_written_before_is_read_as_the_latest_has_it() -> None:
    shelf = Shelf(avro(V1), avro(V2))
    found = shelf.decode((avro_payload(V1, {"id": 5, "total": 1.5, "gone": "x"}), 1))
    assert rows(found) == [
        {
            "id": 5,
            "amount": 1.5,
            "currency": "EUR",
            "note": None,
            "raw": b"\xff\x01",
            "price": Decimal("2.56"),
            "lines": [{"n": 3}, {"n": 5}],
            "where": [("a", 1)],
            "either": {"member0": "x", "member1": None},
        }
    ]


def test_what_was_written_later_is_read_as_the_pinned_version_has_it() -> None:
    shelf = Shelf(avro(V1), avro(record(field("id", "long"), field("total", "float"))))
    newer = record(field("id", "long"), field("total", "float"))
    fits, large = ((avro_payload(newer, {"id": number, "total": 1.5}), 2) for number in (5, 2**40))
    found = shelf.decode(fits, large, pick="1")
    assert found.rows.to_pylist() == [{"id": 5, "total": 1.5, "gone": None}]
    assert "at /id" in reasons(found)[0]


def test_merged_has_the_columns_of_all_versions_under_their_latest_names() -> None:
    shelf = Shelf(avro(V1), avro(record(field("id", "long"), field("amount", "double", aliases=["total"]))))
    assert kinds(shelf.target("merged")) == {"id": "int64", "amount": "double", "gone": "string"}
    newer = avro_payload(record(field("id", "long"), field("amount", "double")), {"id": 2**40, "amount": 2.5})
    older = avro_payload(V1, {"id": 5, "total": 1.5, "gone": "x"})
    assert rows(shelf.decode((newer, 2), (older, 1), pick="merged")) == [
        {"id": 2**40, "amount": 2.5, "gone": None},
        {"id": 5, "amount": 1.5, "gone": "x"},
    ]


def test_a_type_that_became_a_union_goes_to_its_branch_and_back() -> None:
    narrow, wide = record(field("v", "string")), record(field("v", ["int", "string"]))
    shelf = Shelf(avro(narrow), avro(wide))
    texts = (avro_payload(narrow, {"v": "a"}), 1), (avro_payload(wide, {"v": "b"}), 2)
    assert [each["v"]["member1"] for each in rows(shelf.decode(*texts))] == ["a", "b"]
    found = shelf.decode(*texts, (avro_payload(wide, {"v": 5}), 2), pick="1")
    assert [each["v"] for each in found.rows.to_pylist()] == ["a", "b"]
    assert reasons(found) == ["at /v: it was written as int32, which the target has no place for"]


def test_types_with_nothing_in_common_are_bad_unless_they_are_null() -> None:
    first, second = record(field("v", ["null", "string"])), record(field("v", ["null", "long"]))
    shelf = Shelf(avro(first), avro(second))
    found = shelf.decode((avro_payload(first, {"v": "a"}), 1), (avro_payload(first, {"v": None}), 1))
    assert found.rows.to_pylist() == [{"v": None}]
    assert reasons(found) == ["at /v: it was written as string, and is to be read as int64"]


def test_merged_types_with_nothing_in_common_are_text() -> None:
    first, second = record(field("v", "string")), record(field("v", {"type": "array", "items": "long"}))
    shelf = Shelf(avro(first), avro(second))
    found = shelf.decode((avro_payload(first, {"v": "a"}), 1), (avro_payload(second, {"v": [1]}), 2), pick="merged")
    assert rows(found) == [{"v": '"a"'}, {"v": "[1]"}]


# bytes that are something else


@pytest.mark.parametrize(
    ("schema", "payload", "said"),
    [
        (PLAIN, b"", "at /flag: it ends before the value does"),
        (PLAIN, b"\x02", "at /flag: a boolean is 0 or 1"),
        (record(field("s", "string")), b"\x80\xc2\xd7\x2f" + b"x" * 50, "at /s: the length is 50000000"),
        (record(field("s", "string")), b"\x02\xff", "at /s: it is not text in UTF-8"),
        (
            record(field("a", {"type": "array", "items": "null"})),
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
            "no bytes",
        ),
        (record(field("a", {"type": "array", "items": "int"})), b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "items"),
        (record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]})), b"\x04", "there is no symbol 2"),
        (record(field("u", ["null", "int"])), b"\x08", "there is no branch 4"),
        (record(field("i", "int")), b"\x02\x02", "the value ends 1 bytes before the payload does"),
        (record(field("i", "int")), b"\xff" * 20, "more than 32 bits"),
        (
            record(field("d", {"type": "bytes", "logicalType": "decimal", "precision": 2})),
            b"\x06\x7f\xff\xff",
            "digits",
        ),
        (
            record(field("d", {"type": "bytes", "logicalType": "decimal", "precision": 2})),
            b"\x50" + b"\x7f" * 40,
            "digits",
        ),
        (
            record(field("t", {"type": "long", "logicalType": "timestamp-millis"})),
            b"\xfe" + b"\xff" * 8 + b"\x01",
            "range",
        ),
    ],
)
def test_bytes_that_are_no_value_are_bad_and_it_is_said_why(schema: Any, payload: bytes, said: str) -> None:
    assert said in only_reason(Shelf(avro(schema)).decode((payload, 1)))


def test_a_list_that_is_nested_for_ever_is_bad_and_takes_nobody_down() -> None:
    links = record(field("next", ["null", "Order"]))
    assert "nested more than" in only_reason(Shelf(avro(links)).decode((b"\x02" * 2_000_000, 1)))


@given(payload=st.binary(max_size=60), schema=st.sampled_from([PLAIN, LOGICAL, V2]))
@settings(max_examples=150, deadline=None)
def test_whatever_the_bytes_are_a_row_is_good_or_bad(payload: bytes, schema: Any) -> None:
    found = Shelf(avro(schema)).decode((payload, 1))
    assert found.rows.num_rows + found.bad.num_rows == 1
