"""The comparison as a whole: contents of a problem, leniency, recursion, and an end to every comparison."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.schema.jsonschema.kit import INTEGER, NUMBER, STRING, an_array, an_object, problems, understood

from penstock.schema.problems import FRAGMENT_CHARS_MAX, PROBLEMS_MAX, Problem

# Problems


def test_a_problem_says_what_is_wrong_where_and_what_would_mend_it() -> None:
    reader = understood(an_object(properties={"age": {"type": "integer", "maximum": 99}}))
    writer = understood(an_object(properties={"age": {"type": "integer", "maximum": 150}}))
    assert reader.compatibility_problems(writer) == [
        Problem(
            kind="MAXIMUM_DECREASED",
            path="/properties/age/maximum",
            message="the writer may write more than 99, the reader does not take that",
            reader="99",
            writer="150",
            fix="raise the reader's maximum, or remove it",
        )
    ]


def test_what_is_quoted_is_short() -> None:
    long = {"enum": ["x" * 1_000, "y" * 1_000]}
    found = understood({"const": "z"}).compatibility_problems(understood(long))
    assert len(found) == 1
    for text in (found[0].message, found[0].reader, found[0].writer, found[0].fix):
        assert len(text) <= FRAGMENT_CHARS_MAX


def test_every_rule_that_is_broken_is_told() -> None:
    reader = an_object(properties={"a": STRING, "b": {"type": "string", "maxLength": 5}}, required=["a", "b"])
    writer = an_object(properties={"a": NUMBER, "b": {"type": "string", "maxLength": 9}})
    assert problems(reader, writer) == [
        "REQUIRED_ATTRIBUTE_ADDED /required/0",
        "REQUIRED_ATTRIBUTE_ADDED /required/1",
        "TYPE_CHANGED /properties/a/type",
        "MAX_LENGTH_DECREASED /properties/b/maxLength",
    ]


def test_there_are_not_too_many() -> None:
    reader = an_object(properties={f"p{n}": INTEGER for n in range(PROBLEMS_MAX + 50)})
    writer = an_object(properties={f"p{n}": NUMBER for n in range(PROBLEMS_MAX + 50)})
    assert len(problems(reader, writer)) == PROBLEMS_MAX


def test_a_place_in_another_document_has_its_name() -> None:
    reader = understood({"properties": {"a": {"$ref": "b.json"}}}, **{"b.json": an_object(properties={"x": INTEGER})})
    writer = understood({"properties": {"a": {"$ref": "c.json"}}}, **{"c.json": an_object(properties={"x": NUMBER})})
    assert [each.path for each in reader.compatibility_problems(writer)] == ["b.json#/properties/x/type"]
    assert writer.compatibility_problems(reader) == []


def test_a_definition_that_is_used_often_is_complained_of_once() -> None:
    def made(kind: dict[str, Any]) -> dict[str, Any]:
        use = {"$ref": "#/$defs/money"}
        return an_object(properties={"net": use, "tax": use, "all": an_array(items=use)}, **{"$defs": {"money": kind}})

    assert problems(made(INTEGER), made(NUMBER)) == ["TYPE_NARROWED /$defs/money/type"]


# Leniency


@pytest.mark.parametrize(
    ("reader", "writer", "strict", "lenient"),
    [
        (
            an_object(properties={"a": STRING, "b": STRING}),
            an_object(properties={"a": STRING}),
            ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b"],
            [],
        ),
        (
            an_object(properties={"a": an_object(properties={"b": STRING})}),
            an_object(properties={"a": an_object()}),
            ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/a/properties/b"],
            [],
        ),
        (
            an_object(properties={"a": STRING, "b": STRING}, required=["b"]),
            an_object(properties={"a": STRING}),
            [
                "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /required/0",
                "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",
            ],
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /required/0"],
        ),
        (
            an_object(properties={"a": STRING, "b": STRING}),
            an_object(properties={"a": STRING}, additionalProperties=INTEGER),
            ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b"],
            ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b"],
        ),
        (
            an_object(properties={"a": STRING}, additionalProperties=False),
            an_object(properties={"a": STRING}),
            ["ADDITIONAL_PROPERTIES_REMOVED /additionalProperties"],
            ["ADDITIONAL_PROPERTIES_REMOVED /additionalProperties"],
        ),
        (
            {"type": "object", "not": an_object(properties={"b": STRING}, required=["b"])},
            {"type": "object", "not": an_object(required=["b"])},
            [],
            [],
        ),
        (
            {"type": "object", "not": an_object(required=["b"])},
            {"type": "object", "not": an_object(properties={"b": STRING}, required=["b"])},
            ["NOT_TYPE_EXTENDED /not"],
            ["NOT_TYPE_EXTENDED /not"],
        ),
    ],
)
def test_leniency_forgives_optional_properties_and_nothing_else(
    reader: Any, writer: Any, strict: list[str], lenient: list[str]
) -> None:
    assert problems(reader, writer) == strict
    assert problems(reader, writer, lenient=True) == lenient


# Recursion


def test_what_was_shown_by_a_wrong_assumption_is_not_believed() -> None:
    """`a` is tried first and fails; the result that `b` was fine as long as `a` was must be dropped."""

    def made(kind: dict[str, Any]) -> dict[str, Any]:
        return an_object(
            properties={"p": {"anyOf": [{"$ref": "#/$defs/a"}, an_object()]}, "q": {"$ref": "#/$defs/b"}},
            **{
                "$defs": {
                    "a": an_object(properties={"b": {"$ref": "#/$defs/b"}, "x": kind}),
                    "b": an_object(properties={"a": {"$ref": "#/$defs/a"}}),
                }
            },
        )

    assert problems(made(INTEGER), made(NUMBER)) == ["TYPE_NARROWED /$defs/a/properties/x/type"]
    assert problems(made(NUMBER), made(INTEGER)) == []


def test_definitions_that_all_refer_to_each_other_are_compared_to_the_end() -> None:
    def made(least: int) -> dict[str, Any]:
        count = 150
        definitions = {
            f"d{n}": an_object(
                properties={name: {"$ref": f"#/$defs/d{(7 * n + way) % count}"} for way, name in enumerate("abcd")},
                minProperties=least if n == count - 1 else 0,
            )
            for n in range(count)
        }
        return {"$ref": "#/$defs/d0", "$defs": definitions}

    assert problems(made(2), made(1)) == ["MIN_PROPERTIES_INCREASED /$defs/d149/minProperties"]
    assert problems(made(1), made(2)) == []


def test_large_choices_with_tags_are_compared_branch_by_branch() -> None:
    def made(most: int) -> dict[str, Any]:
        return {
            "oneOf": [
                an_object(properties={"kind": {"const": f"k{n}"}, "x": {"maximum": most}}, required=["kind"])
                for n in range(80)
            ]
        }

    assert problems(made(2), made(1)) == []
    assert problems(made(1), made(2))[0] == "MAXIMUM_DECREASED /oneOf/0/properties/x/maximum"


# Termination


def chain(length: int, end: dict[str, Any]) -> dict[str, Any]:
    links = {f"d{n}": an_object(properties={"next": {"$ref": f"#/$defs/d{n + 1}"}}) for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": end}}


def choices(count: int, least: int) -> dict[str, Any]:
    return {
        "allOf": [
            {"anyOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}, {"minProperties": least}]}
            for n in range(count)
        ]
    }


def denials(depth: int, most: int) -> dict[str, Any]:
    made: dict[str, Any] = {"maximum": most}
    for n in range(depth):
        made = {"not": {"allOf": [made, {"minimum": -n - 100}]}}
    return made


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (chain(1_000, INTEGER), chain(1_000, NUMBER)),
        (choices(15, 2), choices(15, 1)),
        (denials(16, 1), denials(16, 2)),
        ({"enum": list(range(20_000))}, {"enum": list(range(20_001))}),
        (an_array(minItems=10**15, contains=INTEGER, minContains=10**14), an_array(minItems=10**15)),
        (an_object(dependentRequired={f"a{n}": [f"a{n + 1}"] for n in range(1_000)}), an_object(required=["a0"])),
    ],
    ids=["chain", "choices", "denials", "enum", "counts", "dependencies"],
)
def test_every_comparison_ends_and_what_was_not_shown_is_a_problem(reader: Any, writer: Any) -> None:
    before = sys.getrecursionlimit()
    assert problems(reader, writer) != []
    assert problems(reader, reader) == []
    problems(writer, reader, lenient=True)
    assert sys.getrecursionlimit() == before
