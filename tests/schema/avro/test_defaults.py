"""Defaults: values of their fields' types, in the specification's JSON encoding."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.avro.kit import array, enum, field, fixed, logical, map_, parsed, record

from penstock.schema.avro.defaults import STEPS_MAX
from penstock.schema.errors import InvalidSchema

POINT = record("Point", field("x", "int"), field("y", "int", default=0))

GOOD: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", False),
    ("int", 2**31 - 1),
    ("int", -(2**31)),
    ("long", -(2**63)),
    ("float", 1),
    ("float", -1.5),
    ("double", 1e300),
    ("double", 2**70),
    ("string", ""),
    ("string", "€"),
    ("bytes", ""),
    ("bytes", "\x00\xff"),
    (logical("int", "date"), 0),
    (logical("bytes", "decimal", precision=2), "\u0001"),
    (fixed("F", 2), "\x00\xff"),
    (fixed("F", 0), ""),
    (enum("E", "A", "B"), "B"),
    (array("int"), []),
    (array("int"), [1, 2]),
    (map_("int"), {}),
    (map_(["null", "int"]), {"a": None, "b": 1}),
    (POINT, {"x": 1}),
    (POINT, {"x": 1, "y": 2}),
    (array(POINT), [{"x": 1}]),
    (["null", "int"], None),
    (["null", "int"], 1),
    (["int", "null"], None),
    (["null", POINT], {"x": 1}),
]

BAD: list[tuple[Any, Any]] = [
    ("null", "null"),
    ("boolean", 0),
    ("boolean", "true"),
    ("int", None),
    ("int", True),
    ("int", 1.0),
    ("int", "1"),
    ("int", 2**31),
    ("long", 2**63),
    ("float", "NaN"),
    ("float", 1e300),
    ("double", 10**400),
    ("double", True),
    ("string", None),
    ("string", 1),
    ("bytes", "€"),
    ("bytes", [1]),
    (fixed("F", 2), "a"),
    (fixed("F", 2), 12),
    (enum("E", "A"), "B"),
    (enum("E", "A"), ["A"]),
    (array("int"), {}),
    (array("int"), [1, "2"]),
    (map_("int"), []),
    (map_("int"), {"a": "1"}),
    (POINT, {}),
    (POINT, {"x": 1, "y": "2"}),
    (POINT, []),
    (["null", "int"], "1"),
    ([], None),
]


@pytest.mark.parametrize(("type_", "default"), GOOD)
def test_a_value_of_the_type_is_a_default(type_: Any, default: Any) -> None:
    assert parsed(record("R", field("f", type_, default=default))).canonical()


@pytest.mark.parametrize(("type_", "default"), BAD)
def test_anything_else_is_refused(type_: Any, default: Any) -> None:
    with pytest.raises(InvalidSchema, match='the default of field "f" is not a value of its type') as caught:
        parsed(record("R", field("f", type_, default=default)))
    assert caught.value.details["path"] == "/fields/0/default"


def test_a_default_of_a_type_that_contains_itself_ends_where_the_value_does() -> None:
    node = record("Node", field("next", ["null", "Node"], default={"next": {"next": None}}))
    parsed(node)
    with pytest.raises(InvalidSchema, match="is not a value"):
        parsed(record("Node", field("next", ["null", "Node"], default={"next": {"next": 1}})))


def test_a_default_may_leave_out_what_has_a_default() -> None:
    parsed(record("Node", field("next", "Node", default={})))


def twins(default: Any) -> Any:
    """Return two records that each hold either: every level of a value could be both."""
    second = record("B", field("f", ["null", "A", "B"]))
    first = record("A", field("f", ["null", "A", second]))
    return record("R", field("r", ["null", first, "B"], default=default))


def test_a_value_that_could_be_many_things_at_every_level_is_looked_at_once_for_each() -> None:
    good: Any = None
    bad: Any = "neither"
    for _ in range(25):
        good, bad = {"f": good}, {"f": bad}
    parsed(twins(good))
    with pytest.raises(InvalidSchema, match="is not a value"):
        parsed(twins(bad))


def test_defaults_that_take_too_long_are_refused() -> None:
    """A default that only the last branch takes is checked against all of them."""
    kinds = [*(enum(f"E{each}", "A") for each in range(2000)), enum("Last", "Z")]
    parsed(record("R", field("f", array(kinds), default=["Z"] * 40)))
    with pytest.raises(InvalidSchema, match=f"take more than {STEPS_MAX} steps"):
        parsed(record("R", field("f", array(kinds), default=["Z"] * 60)))
