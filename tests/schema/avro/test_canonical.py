"""The canonical text: one for all spellings of a schema, and another for any noticeable difference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.avro.kit import array, enum, field, fixed, logical, map_, parsed, record
from tests.schema.avro.strategies import evolutions, schemas

from penstock.schema import avro


def canonical(tree: Any, references: Any = None) -> str:
    return parsed(tree, references).canonical()


SAME: list[tuple[str, Any, Any]] = [
    ("a primitive type as an object", "int", {"type": "int"}),
    ("a namespace of its own or in the name", fixed("a.F", 1), fixed("F", 1, namespace="a")),
    ("a namespace that is ignored", fixed("a.F", 1), fixed("a.F", 1, namespace="b")),
    ("no namespace", fixed("F", 1), fixed("F", 1, namespace="")),
    ("a name that is inherited", record("a.R", field("f", fixed("F", 1))), record("a.R", field("f", fixed("a.F", 1)))),
    (
        "a use by full name or short",
        record("a.R", field("f", ["null", "R"])),
        record("a.R", field("f", ["null", "a.R"])),
    ),
    ("an alias in full or short", fixed("a.F", 1, aliases=["G"]), fixed("a.F", 1, aliases=["a.G"])),
    ("no aliases", fixed("F", 1), fixed("F", 1, aliases=[])),
    ("no documentation", record("R"), record("R", doc=None)),
    ("the order that is usual", record("R", field("f", "int")), record("R", field("f", "int", order="ascending"))),
    (
        "a number with a point",
        record("R", field("f", "double", default=1)),
        record("R", field("f", "double", default=1.0)),
    ),
    (
        "a scale of nought",
        logical("bytes", "decimal", precision=4),
        logical("bytes", "decimal", precision=4, scale=0),
    ),
    (
        "keys of a default in another order",
        record("R", field("f", map_("int"), default={"a": 1, "b": 2})),
        record("R", field("f", map_("int"), default={"b": 2, "a": 1})),
    ),
    (
        "keys of a property in another order",
        {"type": "int", "x": {"a": 1, "b": 2}},
        {"x": {"b": 2, "a": 1}, "type": "int"},
    ),
    ("an object that uses a type", [fixed("F", 1), array("F")], [fixed("F", 1), array({"type": "F"})]),
]

DIFFERENT: list[tuple[str, Any, Any]] = [
    ("the type", "int", "long"),
    ("the name", fixed("F", 1), fixed("G", 1)),
    ("the namespace", fixed("a.F", 1), fixed("b.F", 1)),
    ("the size", fixed("F", 1), fixed("F", 2)),
    (
        "the order of fields",
        record("R", field("a", "int"), field("b", "int")),
        record("R", field("b", "int"), field("a", "int")),
    ),
    ("the order of symbols", enum("E", "A", "B"), enum("E", "B", "A")),
    ("the order of branches", ["null", "int"], ["int", "null"]),
    ("a union of one", "int", ["int"]),
    ("documentation of a type", record("R"), record("R", doc="")),
    ("documentation of a field", record("R", field("f", "int")), record("R", field("f", "int", doc="why"))),
    ("aliases of a type", record("R"), record("R", aliases=["Q"])),
    ("aliases of a field", record("R", field("f", "int")), record("R", field("f", "int", aliases=["g"]))),
    ("a default", record("R", field("f", "int")), record("R", field("f", "int", default=0))),
    ("another default", record("R", field("f", "int", default=1)), record("R", field("f", "int", default=0))),
    (
        "a default that is of another branch",
        record("R", field("f", ["int", "double"], default=1)),
        record("R", field("f", ["int", "double"], default=1.0)),
    ),
    ("no default and null", record("R", field("f", "null")), record("R", field("f", "null", default=None))),
    ("the default of an enum", enum("E", "A"), enum("E", "A", default="A")),
    ("the order of sorting", record("R", field("f", "int")), record("R", field("f", "int", order="ignore"))),
    ("a meaning", "int", logical("int", "date")),
    ("a meaning that nobody knows", "int", logical("int", "ours")),
    ("a scale of a decimal that is none", logical("bytes", "decimal"), logical("bytes", "decimal", scale=0)),
    ("a property of a type", array("int"), array("int") | {"java-class": "java.util.List"}),
    ("a property of a field", record("R", field("f", "int")), record("R", field("f", "int", unit="m"))),
    ("a property that is null", "int", {"type": "int", "x": None}),
    ("a record and an error", record("R"), record("R") | {"type": "error"}),
]


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_what_means_the_same_has_the_same_text(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(("one", "other"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT])
def test_what_could_be_noticed_makes_another_text(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


def test_the_text_is_the_specifications_with_the_rest_behind_it() -> None:
    tree = record(
        "R", field("f", "int", order="ignore", doc="d", default=1, aliases=["g"], z=[1], a={}), namespace="a.b"
    )
    assert canonical(tree) == (
        '{"name":"a.b.R","type":"record","fields":['
        '{"name":"f","type":"int","a":{},"aliases":["g"],"default":1,"doc":"d","order":"ignore","z":[1]}]}'
    )


# Random schemas


@given(schemas(logicals=False))
@settings(max_examples=60)
def test_where_there_is_no_more_to_say_it_is_the_specifications(tree: Any) -> None:
    assert canonical(tree) == to_parsing_canonical_form(tree)


@given(evolutions())
@settings(max_examples=60)
def test_the_canonical_form_is_a_schema_with_the_same_canonical_form(pair: tuple[Any, Any]) -> None:
    text = canonical(pair[1])
    assert avro.parse(text, {}).canonical() == text


@given(evolutions())
@settings(max_examples=60)
def test_one_text_means_that_both_read_each_other(pair: tuple[Any, Any]) -> None:
    one, other = map(parsed, pair)
    if one.canonical() == other.canonical():
        assert one.compatibility_problems(other) == other.compatibility_problems(one) == []


def rewritten(tree: Any, draw: Any) -> Any:
    """Draw another spelling of the same schema."""
    if isinstance(tree, dict):
        keys = draw(st.permutations(list(tree)))
        return {key: rewritten(tree[key], draw) if key != "name" else tree[key] for key in keys}
    if isinstance(tree, list):
        return [rewritten(each, draw) for each in tree]
    return tree


@given(evolutions(), st.data())
@settings(max_examples=60)
def test_spaces_and_the_order_of_keys_make_no_difference(pair: tuple[Any, Any], data: st.DataObject) -> None:
    again = json.dumps(rewritten(pair[1], data.draw), indent=data.draw(st.integers(0, 3)))
    assert avro.parse(again, {}).canonical() == canonical(pair[1])


# References


ORDER = record("Order", field("to", "geo.Address"), field("from", "geo.Address"))
ADDRESS = record("geo.Address", field("street", "string"))


def test_a_type_of_a_reference_stands_there_by_name_and_is_defined_below() -> None:
    assert canonical(ORDER, {"geo.Address": ADDRESS}).splitlines() == [
        '{"name":"Order","type":"record","fields":[{"name":"to","type":"geo.Address"},{"name":"from","type":"geo.Address"}]}',
        '{"name":"geo.Address","type":"record","fields":[{"name":"street","type":"string"}]}',
    ]


def test_another_reference_makes_another_text() -> None:
    other = record("geo.Address", field("street", "bytes"))
    assert canonical(ORDER, {"geo.Address": ADDRESS}) != canonical(ORDER, {"geo.Address": other})


def test_a_type_of_a_reference_is_not_one_of_ones_own() -> None:
    own = record("Order", field("to", ADDRESS), field("from", "geo.Address"))
    assert canonical(own) != canonical(ORDER, {"geo.Address": ADDRESS})


def test_what_a_reference_needs_is_there_too_and_what_nobody_needs_is_not() -> None:
    country = enum("geo.Country", "CH")
    address = record("geo.Address", field("country", "geo.Country"))
    text = canonical(ORDER, {"x": fixed("Unused", 1), "geo.Country": country, "geo.Address": address})
    assert [json.loads(line)["name"] for line in text.splitlines()] == ["Order", "geo.Address", "geo.Country"]


def test_it_does_not_matter_which_text_defines_what_is_referred_to() -> None:
    country = enum("geo.Country", "CH")
    apart = {"c": country, "a": record("geo.Address", field("country", "geo.Country"))}
    together = {"a": record("geo.Address", field("country", country))}
    assert canonical(ORDER, apart) == canonical(ORDER, together)
