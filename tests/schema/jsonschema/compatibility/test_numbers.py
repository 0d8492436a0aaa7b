"""Compatibility of bounds and multiples, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import DRAFT_4, NUMBER, Case, check

CASES = [
    Case("a minimum is added", {"minimum": 1}, NUMBER, ["MINIMUM_ADDED /minimum"], ["TYPE_NARROWED /type"]),
    Case("a minimum is raised", {"minimum": 5}, {"minimum": 3}, ["MINIMUM_INCREASED /minimum"]),
    Case("a maximum is added", {"maximum": 1}, NUMBER, ["MAXIMUM_ADDED /maximum"], ["TYPE_NARROWED /type"]),
    Case("a maximum is lowered", {"maximum": 3}, {"maximum": 5}, ["MAXIMUM_DECREASED /maximum"]),
    Case(
        "an exclusive minimum excludes one more",
        {"exclusiveMinimum": 1},
        {"minimum": 1},
        ["EXCLUSIVE_MINIMUM_INCREASED /exclusiveMinimum"],
    ),
    Case(
        "an exclusive maximum excludes one more",
        {"exclusiveMaximum": 1},
        {"maximum": 1},
        ["EXCLUSIVE_MAXIMUM_DECREASED /exclusiveMaximum"],
    ),
    Case(
        "an exclusive maximum is lowered",
        {"exclusiveMaximum": 1},
        {"exclusiveMaximum": 2},
        ["EXCLUSIVE_MAXIMUM_DECREASED /exclusiveMaximum"],
    ),
    Case(
        "integers stop at the next integer",
        {"type": "integer", "exclusiveMinimum": 4},
        {"type": "integer", "minimum": 5},
        [],
    ),
    Case("a bound between integers", {"type": "integer", "maximum": 5}, {"type": "integer", "maximum": 5.5}, []),
    Case(
        "draft 4 excludes with a boolean",
        {**DRAFT_4, "minimum": 1, "exclusiveMinimum": True},
        {"minimum": 1},
        ["EXCLUSIVE_MINIMUM_INCREASED /minimum"],
    ),
    Case(
        "multiples are added",
        {"multipleOf": 2},
        {"type": "number"},
        ["MULTIPLE_OF_ADDED /multipleOf"],
        ["TYPE_NARROWED /type"],
    ),
    Case("multiples of multiples", {"multipleOf": 6}, {"multipleOf": 3}, ["MULTIPLE_OF_CHANGED /multipleOf"]),
    Case(
        "multiples of something else",
        {"multipleOf": 2},
        {"multipleOf": 3},
        ["MULTIPLE_OF_CHANGED /multipleOf"],
        ["MULTIPLE_OF_CHANGED /multipleOf"],
    ),
    Case("multiples are decimal", {"multipleOf": 0.3}, {"multipleOf": 0.1}, ["MULTIPLE_OF_CHANGED /multipleOf"]),
    Case("multiples of both", {"allOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, {"multipleOf": 6}, []),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
