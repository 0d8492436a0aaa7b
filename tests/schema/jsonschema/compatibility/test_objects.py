"""Compatibility of the properties of objects, in both directions."""

from __future__ import annotations

import pytest
from tests.schema.jsonschema.kit import DRAFT_7, INTEGER, NUMBER, STRING, Case, an_array, an_object, check

CASES = [
    Case(
        "a property is added to open content",
        an_object(properties={"a": STRING, "b": STRING}),
        an_object(properties={"a": STRING}),
        ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b"],
    ),
    Case(
        "a property that takes anything is added to open content",
        an_object(properties={"a": STRING, "b": {}}),
        an_object(properties={"a": STRING}),
        [],
    ),
    Case(
        "a property is added to closed content",
        an_object(properties={"a": STRING}, additionalProperties=False),
        an_object(properties={"a": STRING, "b": STRING}, additionalProperties=False),
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /additionalProperties"],
    ),
    Case(
        "a property is covered by partially open content",
        an_object(properties={"a": STRING}, additionalProperties=STRING),
        an_object(properties={"a": STRING, "b": STRING}, additionalProperties=STRING),
        [],
    ),
    Case(
        "a property is not covered by partially open content",
        an_object(properties={"a": INTEGER}, additionalProperties=STRING),
        an_object(properties={"a": INTEGER, "b": INTEGER}, additionalProperties=STRING),
        ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /additionalProperties"],
        ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b"],
    ),
    Case(
        "a property is narrowed",
        an_object(properties={"a": INTEGER}),
        an_object(properties={"a": NUMBER}),
        ["TYPE_NARROWED /properties/a/type"],
    ),
    Case(
        "a property is narrowed far below",
        an_object(properties={"a": an_object(properties={"b": an_array(items=INTEGER)})}),
        an_object(properties={"a": an_object(properties={"b": an_array(items=NUMBER)})}),
        ["TYPE_NARROWED /properties/a/properties/b/items/type"],
    ),
    Case(
        "a property is forbidden",
        an_object(properties={"a": False}),
        an_object(properties={"a": STRING}),
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a"],
    ),
    Case(
        "content is closed",
        an_object(properties={"a": STRING}, additionalProperties=False),
        an_object(properties={"a": STRING}),
        ["ADDITIONAL_PROPERTIES_REMOVED /additionalProperties"],
    ),
    Case(
        "content is partially closed",
        an_object(additionalProperties=STRING),
        an_object(),
        ["ADDITIONAL_PROPERTIES_NARROWED /additionalProperties"],
    ),
    Case(
        "other properties are narrowed",
        an_object(additionalProperties=INTEGER),
        an_object(additionalProperties=NUMBER),
        ["ADDITIONAL_PROPERTIES_NARROWED /additionalProperties"],
    ),
    Case(
        "an attribute is required",
        an_object(properties={"a": STRING}, required=["a"]),
        an_object(properties={"a": STRING}),
        ["REQUIRED_ATTRIBUTE_ADDED /required/0"],
    ),
    Case(
        "a new attribute is required",
        an_object(properties={"a": STRING, "b": STRING}, required=["a", "b"], additionalProperties=False),
        an_object(properties={"a": STRING}, required=["a"], additionalProperties=False),
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /required/1"],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /additionalProperties"],
    ),
    Case(
        "a pattern of properties is added",
        an_object(patternProperties={"^a": STRING}),
        an_object(),
        ["PATTERN_PROPERTY_ADDED /patternProperties/^a"],
    ),
    Case(
        "a pattern of properties is narrowed",
        an_object(patternProperties={"^a": INTEGER}),
        an_object(patternProperties={"^a": NUMBER}),
        ["TYPE_NARROWED /patternProperties/^a/type"],
    ),
    Case(
        "a pattern of properties is removed",
        an_object(additionalProperties=False),
        an_object(patternProperties={"^a": STRING}, additionalProperties=False),
        ["PATTERN_PROPERTY_REMOVED /additionalProperties"],
    ),
    Case(
        "a named property is like a pattern",
        an_object(patternProperties={"^a": STRING}),
        an_object(properties={"ab": INTEGER}, additionalProperties=False),
        ["TYPE_CHANGED /patternProperties/^a/type"],
        [
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/ab",
            "PATTERN_PROPERTY_REMOVED /additionalProperties",
            "ADDITIONAL_PROPERTIES_REMOVED /additionalProperties",
        ],
    ),
    Case(
        "a pattern that matches everything leaves nothing",
        an_object(patternProperties={".*": STRING}, additionalProperties=False),
        an_object(additionalProperties=STRING),
        [],
    ),
    Case(
        "a pattern that matches the empty name matches every name",
        an_object(patternProperties={"(ab)*|c": STRING}, additionalProperties=False),
        an_object(additionalProperties=STRING),
        [],
    ),
    Case(
        "names are restricted",
        an_object(propertyNames={"maxLength": 3}),
        an_object(),
        ["MAX_LENGTH_ADDED /propertyNames/maxLength"],
    ),
    Case(
        "names are restricted more",
        an_object(propertyNames={"maxLength": 3}),
        an_object(propertyNames={"maxLength": 5}),
        ["MAX_LENGTH_DECREASED /propertyNames/maxLength"],
    ),
    Case(
        "names are listed",
        an_object(propertyNames={"enum": ["a", "b"]}, additionalProperties=STRING),
        an_object(properties={"a": STRING, "b": STRING}, additionalProperties=False),
        [],
    ),
    Case(
        "a name is not taken",
        an_object(propertyNames={"maxLength": 1}),
        an_object(properties={"ab": STRING}, additionalProperties=False),
        ["PROPERTY_NAMES_NARROWED /propertyNames"],
        ["ADDITIONAL_PROPERTIES_REMOVED /additionalProperties"],
    ),
    Case(
        "fewer properties are taken",
        an_object(maxProperties=1),
        an_object(maxProperties=2),
        ["MAX_PROPERTIES_DECREASED /maxProperties"],
    ),
    Case(
        "more properties are wanted",
        an_object(minProperties=2),
        an_object(minProperties=1),
        ["MIN_PROPERTIES_INCREASED /minProperties"],
    ),
    Case(
        "properties are counted",
        an_object(minProperties=1, maxProperties=2),
        an_object(properties={"a": STRING, "b": STRING}, required=["a"], additionalProperties=False),
        [],
        [
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /required/0",
            "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/a",
            "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",
            "ADDITIONAL_PROPERTIES_REMOVED /additionalProperties",
        ],
    ),
    Case(
        "a dependency is added",
        an_object(dependentRequired={"a": ["b"]}),
        an_object(),
        ["DEPENDENCY_ARRAY_ADDED /dependentRequired/a"],
    ),
    Case(
        "a dependency is extended",
        an_object(dependentRequired={"a": ["b", "c"]}),
        an_object(dependentRequired={"a": ["b"]}),
        ["DEPENDENCY_ARRAY_EXTENDED /dependentRequired/a"],
    ),
    Case(
        "a dependency holds anyway",
        an_object(dependentRequired={"a": ["b"]}),
        an_object(required=["b"]),
        [],
        ["REQUIRED_ATTRIBUTE_ADDED /required/0"],
    ),
    Case(
        "a dependency of draft 7",
        {**DRAFT_7, **an_object(dependencies={"a": ["b"]})},
        {**DRAFT_7, **an_object(dependencies={"a": ["c"]})},
        ["DEPENDENCY_ARRAY_EXTENDED /dependencies/a"],
        ["DEPENDENCY_ARRAY_EXTENDED /dependencies/a"],
    ),
    Case(
        "a dependent schema is added",
        an_object(dependentSchemas={"a": {"required": ["b"]}}),
        an_object(),
        ["REQUIRED_ATTRIBUTE_ADDED /dependentSchemas/a/required/0"],
    ),
    Case(
        "a dependent schema is narrowed",
        an_object(dependentSchemas={"a": {"properties": {"b": INTEGER}}}),
        an_object(dependentSchemas={"a": {"properties": {"b": NUMBER}}}),
        ["TYPE_NARROWED /dependentSchemas/a/properties/b/type"],
    ),
    Case(
        "what is unevaluated is forbidden",
        an_object(allOf=[{"properties": {"a": STRING}}], unevaluatedProperties=False),
        an_object(allOf=[{"properties": {"a": STRING}}]),
        ["ADDITIONAL_PROPERTIES_REMOVED /unevaluatedProperties"],
    ),
    Case(
        "what is unevaluated is narrowed",
        an_object(properties={"a": STRING}, unevaluatedProperties=INTEGER),
        an_object(properties={"a": STRING}, unevaluatedProperties=NUMBER),
        ["ADDITIONAL_PROPERTIES_NARROWED /unevaluatedProperties"],
    ),
    Case(
        "what allOf evaluates is removed",
        an_object(allOf=[{"properties": {"a": STRING}}], unevaluatedProperties=False),
        an_object(allOf=[{"properties": {"a": STRING, "b": STRING}}], unevaluatedProperties=False),
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /unevaluatedProperties"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_reads_another_or_says_what_is_in_the_way(case: Case) -> None:
    check(case)
