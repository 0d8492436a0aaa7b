"""The Avro parser: every rule of the specification, and the path at which it was broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.avro.kit import array, enum, field, fixed, map_, parsed, record
from tests.schema.avro.strategies import schemas

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema import avro
from penstock.schema.avro import AvroSchema
from penstock.schema.avro.model import Default, Enum, Field, Fixed, Link, Primitive, Record, Union
from penstock.schema.errors import InvalidSchema


def refused(tree: Any, references: Any = None) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        parsed(tree, references)
    return caught.value


def outcome_of(text: str) -> AvroSchema | InvalidSchema:
    try:
        return avro.parse(text, {})
    except InvalidSchema as refusal:
        return refusal


def root(tree: Any) -> Any:
    return parsed(tree).schema.root


def fields(*trees: Any, name: str = "R") -> tuple[Field, ...]:
    made = root(record(name, *trees))
    assert isinstance(made, Record)
    return made.fields


# Accepted schemas


@pytest.mark.parametrize("name", ["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
def test_a_primitive_type_is_its_name_or_an_object_with_it(name: str) -> None:
    assert isinstance(root(name), Primitive)
    assert root(name).kind == root({"type": name}).kind == name


def test_a_field_is_all_that_is_said_of_it() -> None:
    (made,) = fields(field("x", "int", doc="why", default=1, order="ignore", aliases=["y", "not a name"], unit="m"))
    assert (made.name, made.doc, made.order, made.aliases) == ("x", "why", "ignore", ("y", "not a name"))
    assert made.default == Default(1)
    assert made.properties == {"unit": "m"}
    assert str(made.path) == "/fields/0"


def test_null_is_a_default_and_no_default_is_none() -> None:
    absent, null = fields(field("a", "null"), field("b", "null", default=None))
    assert absent.default is None
    assert null.default == Default(None)


def test_an_error_is_a_record_by_another_word() -> None:
    made = root(record("E") | {"type": "error"})
    assert isinstance(made, Record)
    assert made.keyword == "error"


def test_what_generators_write_as_null_is_not_there() -> None:
    made = root(
        record("R", field("x", "int", doc=None, aliases=None, order=None), doc=None, namespace=None, aliases=None)
    )
    assert (made.name, made.doc, made.aliases, made.properties) == ("R", None, (), {})


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        (fixed("F", 1), "F"),
        (fixed("a.b.F", 1), "a.b.F"),
        (fixed("F", 1, namespace="a.b"), "a.b.F"),
        (fixed("F", 1, namespace=""), "F"),
        (fixed("a.F", 1, namespace="b"), "a.F"),
        (fixed("a.F", 1, namespace="not a namespace"), "a.F"),
        (fixed("record", 1), "record"),
    ],
)
def test_a_full_name_is_the_name_or_made_of_both(tree: Any, name: str) -> None:
    assert root(tree).name == name


def test_a_type_within_is_in_the_namespace_of_the_type_around() -> None:
    inner = record("Inner", field("f", fixed("F", 1)), field("g", fixed("F", 1, namespace="")))
    types = parsed(record("a.b.Outer", field("inner", inner), field("x.y", "int") | {"name": "x"})).schema.types
    assert list(types) == ["a.b.F", "F", "a.b.Inner", "a.b.Outer"]


def test_an_alias_is_in_the_namespace_of_its_type() -> None:
    assert root(enum("a.E", "X", aliases=["B", "x.C"])).aliases == ("a.B", "x.C")


def test_a_name_without_dots_means_the_namespace_around_and_no_other() -> None:
    defining = field("first", fixed("F", 1))
    assert isinstance(fields(defining, field("again", "F"), name="a.R")[1].type, Link)
    refusal = refused(record("a.R", field("first", fixed("b.F", 1)), field("again", "F")))
    assert refusal.details["path"] == "/fields/1/type"
    assert "a.F" in refusal.message


def test_a_record_may_contain_itself_but_not_what_comes_later() -> None:
    parsed(record("R", field("next", ["null", "R"])))
    assert refused(record("R", field("a", "F"), field("b", fixed("F", 1)))).details["path"] == "/fields/0/type"
    assert refused([{"type": "array", "items": "E"}, enum("E", "A")]).details["path"] == "/0/items"


def test_an_object_may_name_a_type_that_is_defined() -> None:
    made = root([enum("E", "A"), {"type": "map", "values": {"type": "E", "why": 1}}])
    assert isinstance(made, Union)
    link = made.branches[1].values  # type: ignore[union-attr]
    assert isinstance(link, Link)
    assert (link.name, link.properties) == ("E", {"why": 1})


def test_an_empty_union_an_empty_enum_and_an_empty_fixed_are_allowed() -> None:
    assert isinstance(root([]), Union)
    assert isinstance(root(enum("E")), Enum)
    assert isinstance(root(fixed("F", 0)), Fixed)


# Refused schemas, and the paths

BROKEN: list[tuple[str, Any, str, str]] = [
    ("a number", 1, "", "a string, an object or an array"),
    ("null", None, "", "a string, an object or an array"),
    ("an unknown name", "strnig", "", '"strnig" is not defined'),
    ("an object without a type", {"name": "R"}, "", '"type" is missing'),
    ("a type that is an object", {"type": {"type": "int"}}, "/type", '"type" is a string'),
    ("a record without a name", {"type": "record", "fields": []}, "", '"name" is missing'),
    ("a record without fields", {"type": "record", "name": "R"}, "", '"fields" is missing'),
    ("fields that are no array", {"type": "record", "name": "R", "fields": {}}, "/fields", "an array"),
    ("a field that is no object", record("R", "x"), "/fields/0", "an object"),  # type: ignore[arg-type]
    ("a field without a name", record("R", {"type": "int"}), "/fields/0", '"name" is missing'),
    ("a field without a type", record("R", {"name": "x"}), "/fields/0", '"type" is missing'),
    ("a field with a bad name", record("R", field("x-y", "int")), "/fields/0/name", "not a name for a field"),
    ("a field with a dot", record("R", field("x.y", "int")), "/fields/0/name", "not a name for a field"),
    ("a field twice", record("R", field("x", "int"), field("x", "int")), "/fields/1/name", 'two fields "x"'),
    (
        "an alias that is another field",
        record("R", field("x", "int"), field("y", "int", aliases=["x"])),
        "/fields/1/aliases",
        'alias "x"',
    ),
    (
        "an alias of two fields",
        record("R", field("x", "int", aliases=["z"]), field("y", "int", aliases=["z"])),
        "/fields/1/aliases",
        'alias "z"',
    ),
    ("aliases that are no strings", record("R", aliases=[1]), "/aliases", "an array of strings"),
    ("aliases that are one string", record("R", aliases="x"), "/aliases", "an array"),
    ("an unknown order", record("R", field("x", "int", order="up")), "/fields/0/order", "one of ascending"),
    ("documentation that is no string", record("R", doc=1), "/doc", '"doc" is a string'),
    ("a name that begins with a digit", record("1R"), "/name", "not a name"),
    ("an empty name", record(""), "/name", "not a name"),
    ("a name with an empty part", record("a..R"), "/name", "not a name"),
    ("a name that begins with a dot", record(".R"), "/name", "not a name"),
    ("a name in another script", record("Ré"), "/name", "not a name"),
    ("a name with a newline", record("R\n"), "/name", "not a name"),
    ("a namespace that is none", record("R", namespace="a-b"), "/namespace", "not a namespace"),
    ("a namespace that is no string", record("R", namespace=1), "/namespace", "a string"),
    ("the name of a primitive type", fixed("int", 1), "/name", "primitive type"),
    ("the name of a primitive type in a namespace", fixed("a.string", 1), "/name", "primitive type"),
    ("a type twice", [fixed("F", 1), array(fixed("F", 1))], "/1/items/name", "defined already"),
    ("an alias that is another type", [fixed("F", 1), fixed("G", 1, aliases=["F"])], "/1/aliases", 'alias "F"'),
    ("a type that is another's alias", [fixed("F", 1, aliases=["G"]), fixed("G", 1)], "/1/name", "an alias"),
    ("an enum without symbols", {"type": "enum", "name": "E"}, "", '"symbols" is missing'),
    ("symbols that are no array", {"type": "enum", "name": "E", "symbols": "A"}, "/symbols", "an array"),
    ("symbols that are no strings", {"type": "enum", "name": "E", "symbols": [1]}, "/symbols", "an array of strings"),
    ("a bad symbol", enum("E", "A", "b c"), "/symbols/1", "not a name for a symbol"),
    ("a symbol twice", enum("E", "A", "B", "A"), "/symbols/2", '"A" occurs twice'),
    ("a default that is no symbol", enum("E", "A", default="B"), "/default", "not among the symbols"),
    ("a default that is no string", enum("E", "A", default=0), "/default", "a string"),
    ("a fixed without a size", {"type": "fixed", "name": "F"}, "", '"size" is missing'),
    ("a fixed with a size in quotes", {"type": "fixed", "name": "F", "size": "4"}, "/size", "a whole number"),
    ("a fixed with half a byte", {"type": "fixed", "name": "F", "size": 0.5}, "/size", "a whole number"),
    ("a fixed with a size that is true", {"type": "fixed", "name": "F", "size": True}, "/size", "a whole number"),
    ("a fixed with less than nothing", fixed("F", -1), "/size", "0 to"),
    ("a fixed with more than anybody has", fixed("F", 2**31), "/size", "0 to"),
    ("an array without items", {"type": "array"}, "", '"items" is missing'),
    ("a map without values", {"type": "map"}, "", '"values" is missing'),
    ("bad items", array("what"), "/items", '"what" is not defined'),
    ("bad values", map_(["null", 1]), "/values/1", "a string, an object or an array"),
    ("a union in a union", ["null", ["int"]], "/1", "a union may not directly contain a union"),
    ("a type twice in a union", ["null", "int", {"type": "int", "logicalType": "date"}], "/2", '"int" only once'),
    ("two arrays in a union", [array("int"), array("long")], "/1", '"array" only once'),
    ("a named type twice in a union", array([fixed("F", 1), "F"]), "/items/1", '"F" only once'),
]


@pytest.mark.parametrize(("tree", "path", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_rule_is_named_at_its_place(tree: Any, path: str, words: str) -> None:
    refusal = refused(tree)
    assert refusal.details == {"path": path}
    assert words in refusal.message


def test_types_of_different_names_may_share_a_union() -> None:
    parsed(["null", fixed("a.F", 1), fixed("b.F", 1), enum("E", "A"), array("int"), map_("int")])


# References


def test_types_of_references_are_used_by_their_full_names() -> None:
    address = record("geo.Address", field("country", enum("Country", "CH", "FR")))
    order = record("Order", field("to", "geo.Address"), field("from", "geo.Country"))
    schema = parsed(order, {"geo.Address": address}).schema
    assert list(schema.types) == ["geo.Country", "geo.Address", "Order"]
    assert schema.own == {"Order"}


def test_a_reference_may_need_another_that_comes_before_it() -> None:
    references = {"A": fixed("A", 1), "B": record("B", field("a", "A"))}
    parsed(record("C", field("b", "B")), references)
    refusal = refused("C", {"B": references["B"], "A": references["A"]})
    assert refusal.message == 'in reference "B": type "A" is not defined before it is used, nor by a reference'
    assert refusal.details["path"] == "B#/fields/0/type"


def test_one_text_may_stand_for_several_names() -> None:
    both = [fixed("A", 1), fixed("B", 1)]
    parsed(["A", "B"], {"A": both, "B": both})


def test_what_a_reference_defines_is_not_defined_again() -> None:
    assert refused(fixed("A", 1), {"A": fixed("A", 1)}).details["path"] == "/name"
    assert refused("A", {"A": fixed("A", 1), "B": fixed("A", 2)}).details["path"] == "B#/name"


def test_a_reference_that_is_no_schema_is_named() -> None:
    with pytest.raises(InvalidSchema, match='in reference "A": it is not JSON'):
        avro.parse('"A"', {"A": "{"})


# Depth


def nested(depth: int) -> Any:
    tree: Any = "int"
    for level in range(depth):
        tree = record(f"R{level}", field("f", tree))
    return tree


def test_types_are_nested_to_a_limit() -> None:
    assert parsed(nested(SCHEMA_DEPTH_MAX)).canonical()
    assert "nested more than 64 deep" in refused(nested(SCHEMA_DEPTH_MAX + 1)).message


# Random schemas

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
_WORDS = st.sampled_from(
    ["type", "name", "fields", "items", "values", "symbols", "size", "default", "record", "enum", "array", "int", "R"]
)
_ANYTHING = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=15,
)


@given(_ANYTHING)
@settings(max_examples=60)
def test_any_json_is_a_schema_or_refused_with_a_place(tree: Any) -> None:
    outcome = outcome_of(json.dumps(tree))
    if isinstance(outcome, InvalidSchema):
        assert "path" in outcome.details
    else:
        assert avro.parse(outcome.canonical(), {}).canonical() == outcome.canonical()


@given(schemas(), st.data())
@settings(max_examples=60)
def test_a_schema_with_anything_in_place_of_a_part_is_a_schema_or_refused(tree: Any, data: st.DataObject) -> None:
    pieces = json.dumps(tree).split('"')
    place = data.draw(st.integers(0, len(pieces) - 1))
    pieces[place] = data.draw(st.sampled_from(["type", "T1", "", "[", "}", "null", ":", "\\ud800", "\0"]))
    assert isinstance(outcome_of('"'.join(pieces)), AvroSchema | InvalidSchema)
