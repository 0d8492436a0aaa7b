"""Compatibility of schemas made of schemas, and of references between them, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import INTEGER, NUMBER, STRING, Case, an_array, an_object, check

CASES = [
    Case("allOf is all of them", {"allOf": [{"minimum": 1}, {"maximum": 5}]}, {"minimum": 1, "maximum": 5}, []),
    Case(
        "allOf gets one more",
        {"allOf": [{"type": "string"}, {"maxLength": 5}]},
        {"allOf": [{"type": "string"}]},
        ["MAX_LENGTH_ADDED /allOf/1/maxLength"],
    ),
    Case(
        "anyOf loses a branch",
        {"anyOf": [STRING, INTEGER]},
        {"anyOf": [STRING, INTEGER, {"type": "null"}]},
        ["SUM_TYPE_NARROWED /anyOf"],
    ),
    Case("anyOf is a list of types", {"anyOf": [STRING, INTEGER]}, {"type": ["string", "integer"]}, []),
    Case(
        "a branch of anyOf is narrowed",
        {"anyOf": [{"type": "object", "properties": {"a": INTEGER}}, {"type": "null"}]},
        {"anyOf": [{"type": "object", "properties": {"a": NUMBER}}, {"type": "null"}]},
        ["TYPE_NARROWED /anyOf/0/properties/a/type"],
    ),
    Case(
        "anyOf of bounds",
        {"anyOf": [{"type": "number", "maximum": 1}, {"type": "number", "minimum": 5}]},
        {"type": "number"},
        ["SUM_TYPE_ADDED /anyOf"],
    ),
    Case("oneOf becomes anyOf", {"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, []),
    Case(
        "branches of oneOf overlap",
        {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        {"type": "integer"},
        ["ONE_OF_BRANCHES_OVERLAP /oneOf"],
        ["TYPE_CHANGED /type"],
    ),
    Case(
        "branches are told apart by a tag",
        {
            "oneOf": [
                an_object(properties={"k": {"const": "a"}, "x": STRING}, required=["k"]),
                an_object(properties={"k": {"const": "b"}}, required=["k"]),
            ]
        },
        {
            "oneOf": [
                an_object(properties={"k": {"const": "a"}, "x": STRING}, required=["k"]),
                an_object(properties={"k": {"const": "b"}}, required=["k"]),
                an_object(properties={"k": {"const": "c"}}, required=["k"]),
            ]
        },
        ["SUM_TYPE_NARROWED /oneOf"],
    ),
    Case(
        "not refuses more",
        {"not": {"type": ["string", "null"]}},
        {"not": {"type": "string"}},
        ["NOT_TYPE_EXTENDED /not"],
    ),
    Case(
        "not refuses longer ones",
        {"type": "string", "not": {"minLength": 5}},
        {"type": "string", "not": {"minLength": 10}},
        ["NOT_TYPE_EXTENDED /not"],
    ),
    Case("not is added", {"not": {"required": ["a"]}}, an_object(), ["NOT_TYPE_ADDED /not"], ["TYPE_NARROWED /type"]),
    Case(
        "then is narrowed",
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"if": {"required": ["a"]}},
        ["REQUIRED_ATTRIBUTE_ADDED /then/required/0"],
    ),
    Case(
        "else is narrowed",
        {"if": {"type": "string"}, "else": {"maximum": 3}},
        {"if": {"type": "string"}, "else": {"maximum": 5}},
        ["MAXIMUM_DECREASED /else/maximum"],
    ),
    Case(
        "the condition is another",
        {"if": {"required": ["a"]}, "then": {"required": ["c"]}},
        {"if": {"required": ["b"]}, "then": {"required": ["c"]}},
        ["REQUIRED_ATTRIBUTE_ADDED /then/required/0"],
        ["REQUIRED_ATTRIBUTE_ADDED /then/required/0"],
    ),
    Case(
        "a definition is narrowed",
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "number"}}},
        ["TYPE_NARROWED /$defs/a/type"],
    ),
    Case(
        "a recursive definition is narrowed",
        {"$ref": "#/$defs/t", "$defs": {"t": an_object(properties={"v": INTEGER, "n": {"$ref": "#/$defs/t"}})}},
        {"$ref": "#/$defs/t", "$defs": {"t": an_object(properties={"v": NUMBER, "n": {"$ref": "#/$defs/t"}})}},
        ["TYPE_NARROWED /$defs/t/properties/v/type"],
    ),
    Case(
        "a recursive definition is unrolled",
        {"$ref": "#/$defs/t", "$defs": {"t": an_array(items={"$ref": "#/$defs/t"})}},
        an_array(
            items=an_array(items={"$ref": "#/$defs/t"}),
            **{"$defs": {"t": an_array(items=an_array(items={"$ref": "#/$defs/t"}))}},
        ),
        [],
    ),
    Case(
        "nothing can be written",
        {"type": "string"},
        {"type": "integer", "minimum": 5, "maximum": 3},
        [],
        ["TYPE_CHANGED /type"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
