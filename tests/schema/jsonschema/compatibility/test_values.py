"""Compatibility of types, and of values that are listed one by one, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import DRAFT_4, Case, check

CASES = [
    Case("a type is narrowed", {"type": "string"}, {"type": ["string", "null"]}, ["TYPE_NARROWED /type"]),
    Case("a type is changed", {"type": "string"}, {"type": "integer"}, ["TYPE_CHANGED /type"], ["TYPE_CHANGED /type"]),
    Case("an integer is a number", {"type": "integer"}, {"type": "number"}, ["TYPE_NARROWED /type"]),
    Case("no type is any type", {"type": "object"}, {}, ["TYPE_NARROWED /type"]),
    Case("true takes anything", {"type": "object"}, other=True, reading_other=["TYPE_NARROWED /type"]),
    Case("false takes nothing", one=False, other={"type": "null"}, reading_other=["FALSE_SCHEMA"]),
    Case(
        "an integer of draft 4 is not written 1.0",
        {**DRAFT_4, "type": "integer"},
        {"type": "integer"},
        ["TYPE_NARROWED /type"],
    ),
    Case(
        "whole multiples are integers",
        {"type": "integer"},
        {"type": "number", "multipleOf": 2},
        [],
        ["MULTIPLE_OF_ADDED /multipleOf"],
    ),
    Case("an enum is narrowed", {"enum": ["a", "b"]}, {"enum": ["a", "b", "c"]}, ["ENUM_ARRAY_NARROWED /enum"]),
    Case("an enum is added", {"type": "string", "enum": ["a"]}, {"type": "string"}, ["ENUM_ARRAY_ADDED /enum"]),
    Case("a const is changed", {"const": 1}, {"const": 2}, ["CONST_CHANGED /const"], ["CONST_CHANGED /const"]),
    Case("a const is added", {"const": "a"}, {"type": "string"}, ["CONST_ADDED /const"]),
    Case("a const is one value of an enum", {"const": "a"}, {"enum": ["a", "b"]}, ["CONST_CHANGED /const"]),
    Case(
        "values are held against types",
        {"type": "string"},
        {"enum": ["a", 1]},
        ["TYPE_NARROWED /type"],
        ["ENUM_ARRAY_ADDED /enum"],
    ),
    Case(
        "values are held against bounds",
        {"maximum": 3},
        {"enum": [1, 2, 5]},
        ["VALUE_NOT_READ /maximum"],
        ["ENUM_ARRAY_ADDED /enum"],
    ),
    Case("booleans are two values", {"enum": [True]}, {"type": "boolean"}, ["ENUM_ARRAY_NARROWED /enum"]),
    Case("both booleans are all of them", {"enum": [True, False]}, {"type": "boolean"}, []),
    Case("1 is 1.0", {"const": 1}, {"const": 1.0}, []),
    Case(
        "1 may be written as 1.0",
        {**DRAFT_4, "type": "integer"},
        {"const": 1},
        ["TYPE_NARROWED /type"],
        ["CONST_ADDED /const"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
