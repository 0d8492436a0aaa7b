"""JSON: which columns a JSON Schema has, and what payloads become in them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.decode.kit import Shelf, json_schema, kinds, only_reason, properties, reasons, rows, spark_takes

from penstock.spark.decode.languages.json_rows import JsonReader
from penstock.spark.decode.languages.json_schema import JsonWriterSchema

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
DATE_TIME = {"type": "string", "format": "date-time"}


def columns(schema: Any) -> dict[str, str]:
    target = Shelf(json_schema(schema)).target()
    spark_takes([target.fields])
    return kinds(target)


def column(kind: Any) -> str:
    return columns(properties(c=kind))["c"]


def read(schema: Any, *payloads: bytes) -> list[dict[str, Any]]:
    return rows(Shelf(json_schema(schema)).decode(*((payload, 1) for payload in payloads)))


def refused(schema: Any, payload: bytes) -> str:
    return only_reason(Shelf(json_schema(schema)).decode((payload, 1)))


@pytest.mark.parametrize(
    ("kind", "column_type"),
    [
        (STRING, "string"),
        (INTEGER, "int64"),
        (NUMBER, "double"),
        (BOOLEAN, "bool"),
        (DATE_TIME, "timestamp[us, tz=UTC]"),
        ({"type": "string", "format": "date"}, "date32[day]"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": 5}, "int64"),
        ({"minimum": 5}, "double"),
        ({"type": "array", "items": INTEGER}, "list<element: int64>"),
        ({"type": "array"}, "list<element: string>"),
        ({"type": "array", "prefixItems": [INTEGER]}, "string"),
        ({"type": "object", "additionalProperties": INTEGER}, "map<string, int64>"),
        ({"type": "object", "additionalProperties": False}, "string"),
        ({"type": "object"}, "string"),
        ({}, "string"),
        (True, "string"),
        (False, "string"),
        (properties(x=INTEGER), "struct<x: int64>"),
        ({"properties": {"x": INTEGER}}, "struct<x: int64>"),
        ({"oneOf": [{"type": "null"}, INTEGER]}, "int64"),
        ({"anyOf": [INTEGER, STRING]}, "string"),
        ({"oneOf": [properties(x=INTEGER), properties(x=NUMBER, y=STRING)]}, "struct<x: double, y: string>"),
        ({"allOf": [properties(x=NUMBER), properties(x=INTEGER, y=STRING)]}, "struct<x: int64, y: string>"),
        ({"allOf": [STRING, DATE_TIME]}, "timestamp[us, tz=UTC]"),
        (
            {"$ref": "#/properties/c/$defs/money", "$defs": {"money": properties(amount=NUMBER)}},
            "struct<amount: double>",
        ),
    ],
)
def test_the_type_of_a_column_follows_from_the_schema(kind: Any, column_type: str) -> None:
    assert column(kind) == column_type


def test_names_that_differ_by_case_alone_become_two() -> None:
    schema = properties(id=INTEGER, ID=STRING)
    assert columns(schema) == {"id": "int64", "ID_2": "string"}
    assert read(schema, b'{"ID": "x", "id": 5}') == [{"id": 5, "ID_2": "x"}]


def test_a_schema_that_leads_back_to_itself_is_text_from_there_on() -> None:
    schema = properties(v=INTEGER, kids={"type": "array", "items": {"$ref": "#"}})
    assert columns(schema) == {"v": "int64", "kids": "list<element: string>"}
    assert read(schema, b'{"v": 1, "kids": [{"v": 2, "kids": []}]}') == [{"v": 1, "kids": ['{"v": 2, "kids": []}']}]


def test_definitions_that_double_at_every_step_do_not_grow_without_bound() -> None:
    steps = {f"s{n}": properties(a={"$ref": f"#/$defs/s{n + 1}"}, b={"$ref": f"#/$defs/s{n + 1}"}) for n in range(30)}
    schema = properties(c={"$ref": "#/$defs/s0"}) | {"$defs": steps | {"s30": INTEGER}}
    assert column_count(Shelf(json_schema(schema)).target().fields.field("c").type) < 12_000


def column_count(kind: Any) -> int:
    return 1 + sum(column_count(each.type) for each in kind) if hasattr(kind, "num_fields") and kind.num_fields else 1


def test_values_come_out_as_they_were_written() -> None:
    schema = properties(
        a=INTEGER,
        b=NUMBER,
        c={"type": "array", "items": properties(x=STRING)},
        d={"type": "object", "additionalProperties": {"type": "array", "items": BOOLEAN}},
        e={},
    )
    payload = (
        b'{"a": -5, "b": 1e3, "c": [{"x": "\\u00fc"}, {}], "d": {"k": [true, null]}, "e": {"any": [1, 2.50]}, "z": 0}'
    )
    assert read(schema, payload, b'{"e": null}') == [
        {"a": -5, "b": 1000.0, "c": [{"x": "ü"}, {"x": None}], "d": [("k", [True, None])], "e": '{"any": [1, 2.50]}'},
        {"a": None, "b": None, "c": None, "d": None, "e": None},
    ]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31T12:00:00Z", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("2026-01-31t12:00:00.5z", dt.datetime(2026, 1, 31, 12, 0, 0, 500_000, dt.UTC)),
        ("2026-01-31T12:00:00+02:00", dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
        ("2026-01-31T12:00:00", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)),
        ("2026-01-31 12:00:00.123456789Z", dt.datetime(2026, 1, 31, 12, 0, 0, 123_456, dt.UTC)),
        ("2016-12-31T23:59:60Z", dt.datetime(2017, 1, 1, tzinfo=dt.UTC)),
        ("0001-01-01T00:00:00Z", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, at: dt.datetime) -> None:
    payload = json.dumps({"t": text}).encode()
    assert read(properties(t=DATE_TIME), payload) == [{"t": at}]
    assert read(properties(t=DATE_TIME), payload, b'{"t": "2020-01-01T00:00:00Z"}')[0] == {"t": at}


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01T00:00:00Z", "2026-01-31T25:00:00Z", "2026-01-31", "20260131T120000Z"]
)
def test_what_is_no_time_is_bad(text: str) -> None:
    assert "/t: " in refused(properties(t=DATE_TIME), json.dumps({"t": text}).encode())


def test_an_integer_may_be_written_with_a_fraction_that_is_zero() -> None:
    schema = properties("a", a=INTEGER)
    assert read(schema, b'{"a": 1.0}', b'{"a": 2e2}', b'{"a": 3}') == [{"a": 1}, {"a": 200}, {"a": 3}]
    assert refused(schema, b'{"a": 1.5}') == "at /a: 1.5 is no integer"


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    assert read(properties(a=INTEGER), b'{"a": 1, "a": 2}', b'{"a": 3}') == [{"a": 2}, {"a": 3}]


def test_what_is_required_has_to_be_there_unless_it_may_be_null() -> None:
    schema = properties("a", "b", a=INTEGER, b={"type": ["string", "null"]}, c=STRING)
    assert read(schema, b'{"a": 1}', b'{"a": 1, "c": null}') == [{"a": 1, "b": None, "c": None}] * 2
    assert "`a`" in refused(schema, b"{}")
    assert "$.a" in refused(schema, b'{"a": null}')


def test_one_branch_of_a_choice_does_not_require_what_the_other_does() -> None:
    schema = {"oneOf": [properties("a", "k", a=INTEGER, k=STRING), properties("b", "k", b=INTEGER, k=STRING)]}
    assert read(schema, b'{"k": "x", "a": 1}', b'{"k": "x", "b": 1}') == [
        {"a": 1, "k": "x", "b": None},
        {"a": None, "k": "x", "b": 1},
    ]
    assert "`k`" in refused(schema, b'{"a": 1}')


def test_a_default_is_for_messages_whose_schema_does_not_have_the_field() -> None:
    added = properties(a=INTEGER, b=STRING | {"default": "x"}, c=INTEGER | {"default": "nonsense"}, t=DATE_TIME)
    shelf = Shelf(json_schema(properties(a=INTEGER)), json_schema(added))
    assert rows(shelf.decode((b'{"a": 1}', 1), (b'{"a": 1}', 2))) == [
        {"a": 1, "b": "x", "c": None, "t": None},
        {"a": 1, "b": None, "c": None, "t": None},
    ]


def test_payloads_that_are_no_objects_are_one_column() -> None:
    assert read(INTEGER, b"5", b"6.0") == [{"value": 5}, {"value": 6}]
    assert read({"type": ["string", "null"]}, b'"a"', b"null") == [{"value": "a"}, {"value": None}]
    assert read({"type": "array", "items": INTEGER}, b"[1]", b"\n[2] ") == [{"value": [1]}, {"value": [2]}]
    assert read({}, b'{"a" :1}', b"7") == [{"value": '{"a" :1}'}, {"value": "7"}]


def test_a_type_that_changed_is_text_in_the_merged_columns() -> None:
    shelf = Shelf(json_schema(properties(a=INTEGER)), json_schema(properties(a=STRING)))
    found = shelf.decode((b'{"a": 5}', 1), (b'{"a": "x"}', 2), pick="merged")
    assert rows(found) == [{"a": "5"}, {"a": '"x"'}]
    found = shelf.decode((b'{"a": 5}', 1), (b'{"a": "x"}', 2), (b'{"a": null}', 1))
    assert found.rows.to_pylist() == [{"a": "x"}, {"a": None}]
    assert reasons(found) == ["at /a: it was written as int64, and is to be read as string"]


def test_a_text_of_which_it_was_said_later_that_it_is_a_time_is_read_either_way() -> None:
    shelf = Shelf(json_schema(properties(t=STRING)), json_schema(properties(t=DATE_TIME)))
    first, second = (b'{"t": "2026-01-31T12:00:00+02:00"}', 1), (b'{"t": "2026-01-31t10:00:00Z"}', 2)
    at = dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)
    assert rows(shelf.decode(first, second)) == [{"t": at}, {"t": at}]
    as_texts = [{"t": "2026-01-31T12:00:00+02:00"}, {"t": "2026-01-31t10:00:00Z"}]
    assert rows(shelf.decode(first, second, pick="1")) == as_texts
    assert rows(shelf.decode(first, second, pick="merged")) == as_texts
    assert reasons(shelf.decode((b'{"t": "soon"}', 1), (b"{}", 1))) == [
        "at /t: 'soon' is no date and time such as 2026-01-31T12:00:00Z"
    ]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "it is empty"),
        (b"  ", "truncated"),
        (b"{", "truncated"),
        (b"null", "Expected `object`"),
        (b"[1]", "Expected `object`"),
        (b'{"a": 1}{"a": 2}', "trailing characters"),
        (b'{"a": "x"}', "Expected `int | null`, got `str`"),
        (b'{"a": true}', "Expected `int | null`, got `bool`"),
        (b'{"a": NaN}', "malformed"),
        (b'{"a": 99999999999999999999}', "at /a: it is beyond the range of int64"),
        (b'{"a": 1e30}', "at /a: it is beyond the range of int64"),
        (b'{"a": ' + b"9" * 5000 + b"}", "out of range"),
        (b'{"z": "\xff"}', "not text in UTF-8"),
        (b'{"s": "\\ud800"}', "truncated"),
        (b'{"z": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
        (b'{"f": 1e999}', "out of range"),
        (b"\x00\x00\x00\x00\x01{}", "framing='confluent'"),
    ],
)
def test_payloads_that_are_something_else_are_bad_and_it_is_said_why(payload: bytes, said: str) -> None:
    assert said in refused(properties(a=INTEGER, s=STRING, f=NUMBER), payload)


# all at once, and each by itself

OBJECT = properties("a", a=INTEGER, s=STRING, f=NUMBER, l={"type": "array", "items": INTEGER}, r={})
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from([*"asflrxyz"]), VALUES, max_size=6)
CLEAN = st.fixed_dictionaries(
    {"a": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "s": st.text(max_size=4) | st.none(),
        "f": st.integers(-(2**70), 2**70) | FLOATS,
        "l": st.lists(st.none() | st.integers(0, 9), max_size=3),
        "r": VALUES,
        "x": VALUES,
    },
)
PAYLOADS = st.one_of(
    CLEAN.map(lambda value: json.dumps(value).encode()),
    OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")),
    st.sampled_from(
        [b'{"a":1}{"a":2}', b'{"x":"}', b'{"}', b'{"a":1}\n', b"{}", b"", b'{"a":01}', b'{"a":1.0}', b"{\n}"]
    ),
    st.binary(max_size=6).map(lambda data: b'{"a":1,"x":"' + data + b'"}'),
)


@given(payloads=st.lists(PAYLOADS, min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_a_payload_is_read_the_same_whatever_stands_beside_it(payloads: list[bytes]) -> None:
    shelf = Shelf(json_schema(OBJECT))
    together = shelf.decode(*((payload, 1) for payload in payloads))
    alone = [shelf.decode((payload, 1)) for payload in payloads]
    assert together.rows.to_pylist() == [row for each in alone for row in each.rows.to_pylist()]
    assert reasons(together) == [reason for each in alone for reason in reasons(each)]


@given(values=st.lists(CLEAN, min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_clean_payloads_are_what_json_says_they_are(values: list[dict[str, Any]]) -> None:
    payloads = [json.dumps(value).encode() for value in values]
    found = read(OBJECT, *payloads)
    for value, row in zip(values, found, strict=True):
        assert (row["a"], row["s"], row["l"]) == (value["a"], value.get("s"), value.get("l"))
        assert row["f"] == (None if value.get("f") is None else float(value["f"]))
        assert (None if row["r"] is None else json.loads(row["r"])) == value.get("r")


def test_plain_objects_are_decoded_all_at_once() -> None:
    import pyarrow as pa

    shelf = Shelf(json_schema(OBJECT))
    reader = JsonReader(shelf.target().shape, JsonWriterSchema(shelf.open().schema(1)).shape)
    plain = pa.array([b'{"a": 1}', b'{"a":\n2}'])
    assert reader._decode_together(plain) is not None
    for other in (b'{"a": 1} ', b'{"a": "x"}', b'{"a": 1}{"a": 2}', b'{"a": 1, "x": "\xff"}'):
        assert reader._decode_together(pa.array([b'{"a": 1}', other])) is None
