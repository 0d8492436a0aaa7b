"""Circular proofs: pairs that a proof by itself would call compatible, with a value that shows they are not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from penstock.schema import jsonschema
from penstock.schema.errors import InvalidSchema

NOTHING: dict[str, Any] = {"not": {}}
TEXT = {"type": "string"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        ({"type": "object", "not": {"if": {"required": ["a"]}, "then": {"required": ["b"]}}}, TEXT, {"a": 1}),
        ({"not": {"if": {"type": "object"}, "then": {"properties": {"c": {"type": "null"}}}}}, TEXT, {"c": 1}),
        ({"not": {"anyOf": [{"properties": {"c": {"type": "null"}}}], "if": {}}}, NOTHING, {"c": 1}),
        ({"not": {"oneOf": [{"exclusiveMinimum": 1}]}}, NOTHING, 1),
        ({"not": {"not": {"not": {"oneOf": [{"minLength": 2}, {"type": "null"}]}}}}, NOTHING, "a"),
        (
            DRAFT_2019,
            {**DRAFT_2019, "dependencies": {"b": []}, "dependentRequired": {"b": ["a"]}},
            {"b": 1},
        ),
    ],
)
def test_a_value_of_the_writers_that_the_reader_refuses_is_a_problem(writer: Any, reader: Any, value: Any) -> None:
    assert jsonschema_rs.validator_for(writer).is_valid(value)
    assert not jsonschema_rs.validator_for(reader).is_valid(value)
    written, read = (jsonschema.parse(json.dumps(each), {}) for each in (writer, reader))
    assert read.compatibility_problems(written)


def test_recursive_schemas_are_still_compared_by_what_is_shown_of_their_parts() -> None:
    tree = {"$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
    other = {"$defs": {"u": {"type": "object", "properties": {"l": {"$ref": "#/$defs/u"}}}}, "$ref": "#/$defs/u"}
    one, another = (jsonschema.parse(json.dumps(each), {}) for each in (tree, other))
    assert one.compatibility_problems(another) == []


def test_one_name_with_schemas_in_both_words_for_it_is_refused() -> None:
    both = {**DRAFT_2019, "dependencies": {"a": {"required": ["b"]}}, "dependentSchemas": {"a": {"required": ["c"]}}}
    with pytest.raises(InvalidSchema, match="say one"):
        jsonschema.parse(json.dumps(both), {})
