"""Avro compatibility in both directions, and the texts of the problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from tests.schema.avro.kit import array, enum, fixed, logical, map_, parsed, record, reread, verdict, written
from tests.schema.avro.kit import field as member

from penstock.schema.problems import FRAGMENT_CHARS_MAX, PROBLEMS_MAX, Problem

Expected = list[tuple[str, str]]

MISMATCH: Final = "TYPE_MISMATCH"
NAME: Final = "NAME_MISMATCH"
SIZE: Final = "FIXED_SIZE_MISMATCH"
SYMBOLS: Final = "MISSING_ENUM_SYMBOLS"
DEFAULT: Final = "READER_FIELD_MISSING_DEFAULT_VALUE"
BRANCH: Final = "MISSING_UNION_BRANCH"
DECIMAL: Final = "DECIMAL_MISMATCH"
LOGICAL: Final = "LOGICAL_TYPE_MISMATCH"


@dataclass(frozen=True)
class Case:
    """Two schemas, and the problems of the second reading the first (forwards in time) and of the first reading the
    second."""

    title: str
    old: Any
    new: Any
    new_reads_old: Expected = field(default_factory=list)
    old_reads_new: Expected = field(default_factory=list)


def evolving(*fields: Any) -> Any:
    return record("shop.Order", member("id", "long"), *fields)


def holding(type_: Any) -> Any:
    return record("Holder", member("held", type_))


def tree(value: str, **more: Any) -> Any:
    return record("Node", member("value", value), member("children", array("Node")), **more)


PROMOTED: Final = [
    Case(f"{old} to {new}", old, new, [], [(MISMATCH, "")])
    for old, new in [
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
    ]
]
UNLIKE: Final = [
    Case(f"{old} to {new}", old, new, [(MISMATCH, "")], [(MISMATCH, "")])
    for old, new in [
        ("null", "int"),
        ("boolean", "int"),
        ("string", "int"),
        ("bytes", "double"),
        ("boolean", "string"),
        ("null", "boolean"),
    ]
]
PRIMITIVE: Final = [
    *PROMOTED,
    *UNLIKE,
    Case("string to bytes and back", "string", "bytes"),
    Case("an object that says no more than its type", "int", {"type": "int"}),
]

RECORDS: Final = [
    Case("a field with a default is added", evolving(), evolving(member("note", "string", default=""))),
    Case(
        "a field without a default is added",
        evolving(),
        evolving(member("note", "string")),
        [(DEFAULT, "/fields/1")],
    ),
    Case(
        "fields change places",
        record("R", member("a", "int"), member("b", "string")),
        record("R", member("b", "string"), member("a", "int")),
    ),
    Case(
        "a field is renamed and remembers",
        record("R", member("old", "int")),
        record("R", member("new", "int", aliases=["older", "old"])),
        [],
        [(DEFAULT, "/fields/0")],
    ),
    Case(
        "a field is renamed and forgets",
        record("R", member("old", "int")),
        record("R", member("new", "int")),
        [(DEFAULT, "/fields/0")],
        [(DEFAULT, "/fields/0")],
    ),
    Case(
        "a field changes its type",
        evolving(member("sum", "int")),
        evolving(member("sum", "string")),
        [(MISMATCH, "/fields/1/type")],
        [(MISMATCH, "/fields/1/type")],
    ),
    Case(
        "a default does not help a field that was written as something else",
        evolving(member("sum", "int")),
        evolving(member("sum", "string", default="")),
        [(MISMATCH, "/fields/1/type")],
        [(MISMATCH, "/fields/1/type")],
    ),
    Case("a record moves to another namespace", record("a.R", member("x", "int")), record("b.c.R", member("x", "int"))),
    Case("a record is renamed and forgets", record("Old"), record("New"), [(NAME, "/name")], [(NAME, "/name")]),
    Case("a record is renamed and remembers", record("n.Old"), record("n.New", aliases=["Old"]), [], [(NAME, "/name")]),
    Case(
        "an alias belongs to the namespace of its type",
        record("Old"),
        record("n.New", aliases=["Old"]),
        [(NAME, "/name")],
        [(NAME, "/name")],
    ),
    Case(
        "a renamed record says what else is wrong with it",
        record("Old"),
        record("New", member("x", "int")),
        [(NAME, "/name"), (DEFAULT, "/fields/0")],
        [(NAME, "/name")],
    ),
    Case("an error is a record", record("R") | {"type": "error"}, record("R")),
    Case("a record becomes a map", record("R"), map_("int"), [(MISMATCH, "")], [(MISMATCH, "")]),
]

ENUMS: Final = [
    Case("a symbol is added", enum("E", "A", "B"), enum("E", "A", "B", "C"), [], [(SYMBOLS, "/symbols")]),
    Case(
        "a symbol is added where there is a default",
        enum("E", "A", "B", default="A"),
        enum("E", "A", "B", "C", default="A"),
    ),
    Case("symbols change places", enum("E", "A", "B"), enum("E", "B", "A")),
    Case(
        "the default of a field is not the default of its enum",
        holding(enum("E", "A", "B")),
        record("Holder", member("held", enum("E", "A"), default="A")),
        [(SYMBOLS, "/fields/0/type/symbols")],
    ),
    Case("an enum is renamed", enum("E", "A"), enum("F", "A"), [(NAME, "/name")], [(NAME, "/name")]),
    Case("an enum becomes a string", enum("E", "A"), "string", [(MISMATCH, "")], [(MISMATCH, "")]),
]

FIXED: Final = [
    Case("a fixed grows", fixed("F", 4), fixed("F", 8), [(SIZE, "/size")], [(SIZE, "/size")]),
    Case("a fixed is renamed", fixed("F", 4), fixed("G", 4), [(NAME, "/name")], [(NAME, "/name")]),
    Case("a fixed is renamed and remembers", fixed("F", 4), fixed("G", 4, aliases=["F"]), [], [(NAME, "/name")]),
    Case("a fixed becomes bytes", fixed("F", 4), "bytes", [(MISMATCH, "")], [(MISMATCH, "")]),
]

CONTAINERS: Final = [
    Case("items are promoted", array("int"), array("long"), [], [(MISMATCH, "/items")]),
    Case("values are promoted", map_("int"), map_("long"), [], [(MISMATCH, "/values")]),
    Case("an array becomes a map", array("int"), map_("int"), [(MISMATCH, "")], [(MISMATCH, "")]),
    Case(
        "deep within",
        holding(array(map_(["null", record("R", member("x", "int"))]))),
        holding(array(map_(["null", record("R", member("x", "string"))]))),
        [(MISMATCH, "/fields/0/type/items/values/1/fields/0/type")],
        [(MISMATCH, "/fields/0/type/items/values/1/fields/0/type")],
    ),
]

UNIONS: Final = [
    Case("a type becomes optional", "int", ["null", "int"], [], [(MISMATCH, "")]),
    Case("a union of one is as good as its branch", ["int"], "int"),
    Case("branches change places", ["int", "string"], ["string", "int"]),
    Case("a branch is added", ["int"], ["int", "null"], [], [(BRANCH, "/1")]),
    Case("a branch is promoted", ["int", "null"], ["null", "long"], [], [(BRANCH, "/1")]),
    Case(
        "all branches are promoted to one type",
        ["int", "long", "float"],
        "double",
        [],
        [(BRANCH, "")],
    ),
    Case("no branch is left", ["int", "null"], [], [(BRANCH, "/0"), (BRANCH, "/1")]),
    Case("nothing was ever written", [], "int", [], [(BRANCH, "")]),
    Case(
        "a branch with the very name is preferred to one with the same last part",
        [record("a.R", member("x", "int")), record("b.R", member("y", "int"))],
        [record("b.R", member("y", "int")), record("a.R", member("x", "int"))],
    ),
    Case(
        "the branch that matches is looked into",
        ["null", record("R", member("x", "int"))],
        ["null", record("R", member("x", "int"), member("y", "int"))],
        [(DEFAULT, "/1/fields/1")],
    ),
    Case(
        "an array has only one branch to be read by",
        array("int"),
        ["null", array("string")],
        [(MISMATCH, "/1/items")],
        [(MISMATCH, ""), (MISMATCH, "/items")],
    ),
    Case(
        "a branch is known by its alias",
        ["null", record("Old")],
        ["null", record("New", aliases=["Old"])],
        [],
        [(BRANCH, "/1")],
    ),
    Case(
        "among fixed of one name the size decides",
        fixed("c.F", 8),
        [fixed("a.F", 4), fixed("b.F", 8)],
        [],
        [(SIZE, "/size")],
    ),
    Case(
        "a named type in place of another",
        holding(["null", enum("E", "A")]),
        holding(["null", record("E")]),
        [(BRANCH, "/fields/0/type/1")],
        [(BRANCH, "/fields/0/type/1")],
    ),
]

LOGICALS: Final = [
    Case("a meaning is added", "int", logical("int", "date")),
    Case(
        "a date becomes a time of day",
        logical("int", "date"),
        logical("int", "time-millis"),
        [(LOGICAL, "")],
        [(LOGICAL, "")],
    ),
    Case(
        "milliseconds become microseconds, and the number would be promoted",
        logical("int", "time-millis"),
        logical("long", "time-micros"),
        [(LOGICAL, "")],
        [(MISMATCH, "")],
    ),
    Case("a date is read as a number", logical("int", "date"), "long", [], [(MISMATCH, "")]),
    Case(
        "the scale of a decimal changes",
        logical("bytes", "decimal", precision=9, scale=2),
        logical("bytes", "decimal", precision=9, scale=4),
        [(DECIMAL, "")],
        [(DECIMAL, "")],
    ),
    Case(
        "the precision of a decimal changes",
        fixed("D", 8, logicalType="decimal", precision=9),
        fixed("D", 8, logicalType="decimal", precision=8),
        [(DECIMAL, "")],
        [(DECIMAL, "")],
    ),
    Case(
        "a scale of nought need not be written",
        logical("bytes", "decimal", precision=9),
        logical("bytes", "decimal", precision=9, scale=0),
    ),
    Case("a meaning that nobody knows is none", logical("int", "date"), logical("int", "ours")),
    Case("a decimal that makes no sense is bytes", logical("bytes", "decimal", precision=2, scale=3), "bytes"),
    Case(
        "a fixed with another meaning",
        holding(fixed("F", 12, logicalType="duration")),
        holding(fixed("F", 12, logicalType="decimal", precision=5)),
        [(LOGICAL, "/fields/0/type")],
        [(LOGICAL, "/fields/0/type")],
    ),
]

RECURSIVE: Final = [
    Case("a tree stays a tree", tree("int"), tree("long"), [], [(MISMATCH, "/fields/0/type")]),
    Case(
        "a problem within a type is told once, however often it is used",
        record("P", member("a", record("Q", member("x", "int"))), member("b", "Q"), member("c", array("Q"))),
        record("P", member("a", record("Q", member("y", "int"))), member("b", "Q"), member("c", array("Q"))),
        [(DEFAULT, "/fields/0/type/fields/0")],
        [(DEFAULT, "/fields/0/type/fields/0")],
    ),
    Case(
        "a use of the wrong type is told at each use",
        record("P", member("a", enum("Q", "A")), member("b", "Q")),
        record("P", member("a", fixed("Q", 1)), member("b", "Q")),
        [(MISMATCH, "/fields/0/type"), (MISMATCH, "/fields/1/type")],
        [(MISMATCH, "/fields/0/type"), (MISMATCH, "/fields/1/type")],
    ),
    Case(
        "two types that contain each other",
        record("A", member("b", ["null", record("B", member("a", ["null", "A"]), member("x", "int"))])),
        record("A", member("b", ["null", record("B", member("a", ["null", "A"]), member("x", "boolean"))])),
        [(MISMATCH, "/fields/0/type/1/fields/1/type")],
        [(MISMATCH, "/fields/0/type/1/fields/1/type")],
    ),
]

CASES: Final = [*PRIMITIVE, *RECORDS, *ENUMS, *FIXED, *CONTAINERS, *UNIONS, *LOGICALS, *RECURSIVE]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_new_schema_reads_what_the_old_one_wrote(case: Case) -> None:
    assert verdict(case.new, case.old) == case.new_reads_old


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_old_schema_reads_what_the_new_one_writes(case: Case) -> None:
    assert verdict(case.old, case.new) == case.old_reads_new


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_every_schema_of_the_table_reads_itself(case: Case) -> None:
    assert verdict(case.old, case.old) == verdict(case.new, case.new) == []


WITNESSES: Final = [
    (MISMATCH, "int", "string", "text"),
    (MISMATCH, array("int"), array("string"), ["text"]),
    (BRANCH, ["null", "int"], ["null", "string"], "text"),
    (BRANCH, ["null", "int"], "string", "text"),
    (DEFAULT, record("R", member("new", "int")), record("R", member("old", "int")), {"old": 1}),
    (NAME, record("New"), record("Old"), {}),
    (SYMBOLS, enum("E", "A"), enum("E", "A", "B"), "B"),
    (SIZE, fixed("F", 2), fixed("F", 3), b"abc"),
]


@pytest.mark.parametrize(("kind", "reader", "writer", "value"), WITNESSES)
def test_a_problem_is_a_value_that_another_implementation_fails_to_read(
    kind: str, reader: Any, writer: Any, value: Any
) -> None:
    assert [found for found, _ in verdict(reader, writer)] == [kind]
    payload = written(writer, value)
    assert reread(payload, writer) == value
    with pytest.raises(Exception, match=r"[Mm]ismatch|No default value|not found in reader"):
        reread(payload, writer, reader)


# Texts of problems


def only(reader: Any, writer: Any) -> Problem:
    (problem,) = parsed(reader).compatibility_problems(parsed(writer))
    return problem


def test_a_problem_tells_a_person_what_is_wrong_and_what_would_mend_it() -> None:
    problem = only(evolving(member("note", "string")), evolving())
    assert problem == Problem(
        kind=DEFAULT,
        path="/fields/1",
        message='field "note" of record "shop.Order" is not in what the writer writes, and has no default',
        reader='{"name":"note","type":"string"}',
        writer='{"name":"shop.Order","type":"record"}',
        fix='give field "note" a default, or the name that the writer has for it as an alias',
    )


@pytest.mark.parametrize(
    ("reader", "writer", "fix"),
    [
        ("boolean", "int", "read it as int or long or float or double, or as a union with a branch for it"),
        (["null"], ["null", "int"], "add int to the reader's union"),
        (record("New"), record("n.Old"), 'give record "New" the alias "n.Old"'),
        (enum("E", "A"), enum("E", "A", "B", "C"), "add B, C to the reader's symbols, or give its enum a default"),
        (fixed("F", 2), fixed("F", 3), "keep the size of 3 bytes, or define a type of another name"),
        (
            logical("int", "date"),
            logical("int", "time-millis"),
            "keep time-millis, or add a field of another name for date",
        ),
    ],
)
def test_following_the_advice_is_possible(reader: Any, writer: Any, fix: str) -> None:
    assert only(reader, writer).fix == fix


def test_a_problem_within_a_reference_names_the_reference() -> None:
    order = record("Order", member("to", "geo.Address"))
    old = parsed(order, {"geo.Address": record("geo.Address")})
    new = parsed(order, {"geo.Address": record("geo.Address", member("zip", "string"))})
    assert [problem.path for problem in new.compatibility_problems(old)] == ["geo.Address#/fields/0"]


def test_lenient_or_not_is_the_same() -> None:
    new, old = parsed(evolving(member("x", "int"))), parsed(evolving())
    assert new.compatibility_problems(old, lenient=True) == new.compatibility_problems(old)


# Bounds


def test_no_more_problems_are_told_than_somebody_would_mend() -> None:
    reader = record("R", *(member(f"f{each}", "int") for each in range(PROBLEMS_MAX + 50)))
    assert len(verdict(reader, record("R"))) == PROBLEMS_MAX


def test_quotations_are_short_however_large_the_types_are() -> None:
    reader = [enum(f"E{each}", *(f"SYMBOL_{symbol}" for symbol in range(50))) for each in range(50)]
    problem = only(reader, holding("int"))
    assert len(problem.reader) == FRAGMENT_CHARS_MAX
    assert problem.reader.endswith("...")


def test_a_chain_of_thousands_of_types_is_followed_without_recursion() -> None:
    links = [record("R0", member("next", "int"))]
    links += [record(f"R{each}", member("next", f"R{each - 1}")) for each in range(1, 1500)]
    assert verdict(links, links) == []


def ring(prefix: str, length: int) -> Any:
    """Return records of one name in as many namespaces, each of which holds the next, and the last the first."""
    inner: Any = f"{prefix}0.R"
    for each in reversed(range(length)):
        inner = record(f"{prefix}{each}.R", member("next", inner), *(member(f"f{place}", "int") for place in range(20)))
    return inner


def test_a_comparison_that_would_take_too_long_is_not_a_yes() -> None:
    """Every record of one ring is compared with every record of the other."""
    assert verdict(ring("a", 59), ring("b", 59)) == []
    assert verdict(ring("a", 59), ring("b", 61)) == [("COMPARISON_TOO_LARGE", "")]
