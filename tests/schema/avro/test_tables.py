"""The specification's rules of schema resolution as tables, checked here and by Avro's own checker.

Every row goes to this project and to `avro.compatibility` of the Avro project's Python library. A row on which the two
differ names the reason.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse
from tests.schema.avro.kit import array, enum, field, fixed, map_, record, verdict

PRIMITIVES: Final = """
reader  | null boolean int long float double bytes string
null    | x    -       -   -    -     -      -     -
boolean | -    x       -   -    -     -      -     -
int     | -    -       x   -    -     -      -     -
long    | -    -       x   x    -     -      -     -
float   | -    -       x   x    x     -      -     -
double  | -    -       x   x    x     x      -     -
bytes   | -    -       -   -    -     -      x     x
string  | -    -       -   -    -     -      x     x
"""
"""The writer's primitive types that the reader's, in the first column, can read."""

LETTERS: Final = enum("Letters", "A", "B")
MORE_LETTERS: Final = enum("Letters", "A", "B", "C")
FOUR: Final = fixed("Bytes", 4)
EIGHT: Final = fixed("Bytes", 8)
ID: Final = field("id", "int")
ID_OR_0: Final = field("id", "int", default=0)
NAME: Final = field("name", "string")
NAME_OR_NONE: Final = field("name", "string", default="")


def order(*fields: Any, **more: Any) -> dict[str, Any]:
    return record("Order", *fields, **more)


READS: Final[list[tuple[str, Any, Any]]] = [
    ("an array of the same", array("string"), array("string")),
    ("an array of promoted items", array("long"), array("int")),
    ("a map of the same", map_("int"), map_("int")),
    ("a map of promoted values", map_("long"), map_("int")),
    ("an enum of the same symbols", LETTERS, LETTERS),
    ("an enum with more symbols", MORE_LETTERS, LETTERS),
    ("an enum with a default for the others", enum("Letters", "A", "B", default="A"), MORE_LETTERS),
    ("a fixed of the same size", FOUR, FOUR),
    ("a union for one of its types", ["int", "string"], "int"),
    ("a type for a union of it alone", "int", ["int"]),
    ("a type for a union of what is promoted to it", "double", ["int", "long", "float", "double"]),
    ("a union in another order", ["int", "string"], ["string", "int"]),
    ("a union of a promoted type", ["double"], ["int", "float"]),
    ("a union of text for bytes", ["string"], ["bytes"]),
    ("a union with one type more", ["null", "int"], ["int"]),
    ("an empty record", order(), order(ID)),
    ("a record with a field less", order(ID), order(ID, NAME)),
    ("a record with the other field less", order(NAME), order(ID, NAME)),
    ("a record with a new field that has a default", order(ID, NAME_OR_NONE), order(ID)),
    ("a record with new fields that all have defaults", order(ID_OR_0, NAME_OR_NONE), order()),
    ("a record without the writer's defaults", order(ID, NAME), order(ID_OR_0, NAME_OR_NONE)),
    ("a record with a promoted field", order(field("id", "long")), order(ID)),
    ("a record of another namespace", order(ID), order(ID, namespace="shop")),
    ("a record with an alias of the writer's name", record("Sale", ID, aliases=["Order"]), order(ID)),
    ("a field with an alias of the writer's name", order(field("number", "int", aliases=["id"])), order(ID, NAME)),
]

DOES_NOT_READ: Final[list[tuple[str, Any, Any, set[str]]]] = [
    ("a map for an array", map_("int"), array("int"), {"/"}),
    ("an array for a map", array("int"), map_("int"), {"/"}),
    ("an array of narrower items", array("int"), array("long"), {"/items"}),
    ("a map of narrower values", map_("int"), map_("long"), {"/values"}),
    ("an enum with a symbol less", LETTERS, MORE_LETTERS, {"/symbols"}),
    ("an enum of another name", LETTERS, enum("Signs", "A", "B"), {"/name"}),
    ("an enum for a number", LETTERS, "int", {"/"}),
    ("a number for an enum", "int", LETTERS, {"/"}),
    ("a shorter fixed", FOUR, EIGHT, {"/size"}),
    ("a longer fixed", EIGHT, FOUR, {"/size"}),
    ("a fixed of another name", FOUR, fixed("Others", 4), {"/name"}),
    ("a fixed for a text", FOUR, "string", {"/"}),
    ("a union with a type less", ["int"], ["int", "string"], {"/1"}),
    ("a union with several types less", ["int"], ["int", "long", "float"], {"/1", "/2"}),
    ("a union of a narrower type", ["int"], ["long"], {"/0"}),
    ("a union with another record", ["int", order(ID)], ["int", record("Sale", ID)], {"/1"}),
    ("a type for a union of wider ones", "int", ["int", "float"], {"/"}),
    ("a record of another name", order(), record("Sale"), {"/name"}),
    ("a record for a number", order(ID), "int", {"/"}),
    ("a new field without a default", order(ID), order(), {"/fields/0"}),
    ("a second new field without a default", order(ID_OR_0, NAME), order(ID), {"/fields/1"}),
    ("a field of a fixed of another size", order(ID, field("b", EIGHT)), order(ID, field("b", FOUR)),
     {"/fields/1/type/size"}),
    ("a field of an enum with a symbol less", order(field("l", LETTERS)), order(field("l", MORE_LETTERS)),
     {"/fields/0/type/symbols"}),
    ("a field of a union with a type less", order(field("u", ["int"])), order(field("u", ["int", "string"])),
     {"/fields/0/type/1"}),
]  # fmt: skip


def primitives() -> list[Any]:
    head, *rows = [line.replace("|", "").split() for line in PRIMITIVES.strip().splitlines()]
    return [
        pytest.param(reader, writer, mark == "x", id=f"{reader}-reads-{writer}")
        for reader, *marks in rows
        for writer, mark in zip(head[1:], marks, strict=True)
    ]


def avros_own(reader: Any, writer: Any) -> bool:
    checker: Any = ReaderWriterCompatibilityChecker
    result = checker().get_compatibility(parse(json.dumps(reader)), parse(json.dumps(writer)))
    return bool(result.compatibility is SchemaCompatibilityType.compatible)


@pytest.mark.parametrize(("reader", "writer", "reads"), primitives())
def test_primitive_types_are_promoted_as_the_specification_says(reader: str, writer: str, *, reads: bool) -> None:
    assert (not verdict(reader, writer), avros_own(reader, writer)) == (reads, reads)


@pytest.mark.parametrize(("title", "reader", "writer"), READS, ids=[row[0].replace(" ", "-") for row in READS])
def test_the_reader_reads_what_the_writer_wrote(title: str, reader: Any, writer: Any) -> None:
    assert verdict(reader, writer) == []
    assert avros_own(reader, writer), title


@pytest.mark.parametrize(
    ("title", "reader", "writer", "places"),
    DOES_NOT_READ,
    ids=[row[0].replace(" ", "-") for row in DOES_NOT_READ],
)
def test_the_reader_does_not_read_it_and_the_place_is_named(
    title: str, reader: Any, writer: Any, places: set[str]
) -> None:
    assert {path or "/" for _, path in verdict(reader, writer)} == places
    assert not avros_own(reader, writer), title
