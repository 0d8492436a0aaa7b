"""The canonical form: the details that it drops, and those that it keeps."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.jsonschema.kit import DRAFT_7, schema

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema import parse


def canonical(made: Any, **references: Any) -> str:
    text = made if isinstance(made, str) else json.dumps(made)
    return parse(text, {name: json.dumps(each) for name, each in references.items()}).canonical()


SAME = [
    ('{"type":"string"}', '{\n  "type" : "string"\n}'),
    ('{"type":"string","minLength":1}', '{"minLength":1,"type":"string"}'),
    ('{"minimum":1}', '{"minimum":1.0}'),
    ('{"minimum":1000}', '{"minimum":1e3}'),
    ('{"minimum":0.5}', '{"minimum":5e-1}'),
    ('{"minimum":0}', '{"minimum":-0.0}'),
    ('{"const":{"a":1,"b":[2.0]}}', '{"const":{"b":[2],"a":1.0}}'),
    ('{"required":["a","b"]}', '{"required":["b","a"]}'),
    ('{"type":["string","null"]}', '{"type":["null","string"]}'),
    ('{"type":"string"}', '{"type":["string"]}'),
    ('{"enum":[1,"a",null]}', '{"enum":[null,"a",1]}'),
    ('{"dependentRequired":{"a":["b","c"]}}', '{"dependentRequired":{"a":["c","b"]}}'),
    ('{"const":"é"}', '{"const":"\\u00e9"}'),
    (
        '{"$schema":"http://json-schema.org/draft-07/schema#"}',
        '{"$schema":"http://json-schema.org/draft-07/schema"}',
    ),
    ('{"properties":{"a":{"required":["x","y"]}}}', '{"properties":{"a":{"required":["y","x"]}}}'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_ways_to_write_the_same_have_one_form(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(("one", "other"), [each for each in SAME if "$schema" not in each[0]])
def test_ways_to_write_the_same_are_the_same_words_to_a_reader(one: str, other: str) -> None:
    # No other test covers these.
    reader, writer = (f'{{"contains":{each},"unevaluatedItems":{{"type":"number"}}}}' for each in (one, other))
    assert parse(reader, {}).compatibility_problems(parse(writer, {})) == []


OTHER = [
    ('{"title":"a"}', '{"title":"b"}'),
    ('{"default":1}', "{}"),
    ('{"description":"a"}', "{}"),
    ('{"enum":["a"]}', '{"enum":["a","b"]}'),
    ('{"prefixItems":[{"type":"string"},{}]}', '{"prefixItems":[{},{"type":"string"}]}'),
    ('{"const":["a","b"]}', '{"const":["b","a"]}'),
    ('{"default":{"required":["a","b"]}}', '{"default":{"required":["b","a"]}}'),
    ('{"examples":[1,2]}', '{"examples":[2,1]}'),
    ('{"const":true}', '{"const":1}'),
    ('{"x-order":["b","a"]}', '{"x-order":["a","b"]}'),
]


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_somebody_could_notice_stays(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_a_property_may_be_called_like_a_keyword() -> None:
    assert canonical({"properties": {"required": {"enum": ["b", "a"]}, "enum": {}}}) == (
        '{"properties":{"enum":{},"required":{"enum":["a","b"]}}}'
    )


def test_what_it_refers_to_belongs_to_it() -> None:
    one = canonical({"$ref": "b"}, b={"type": "string"}, a={"$ref": "b"})
    assert one == '{"$ref":"b"}\n"a":{"$ref":"b"}\n"b":{"type":"string"}'
    assert one == canonical({"$ref": "b"}, a={"$ref": "b"}, b={"type": ["string"]})
    assert one != canonical({"$ref": "b"}, a={"$ref": "b"}, b={"type": "integer"})


def test_booleans_are_schemas() -> None:
    assert (canonical("true"), canonical(" false ")) == ("true", "false")


def test_lists_of_draft_7_dependencies_have_no_order() -> None:
    one = {**DRAFT_7, "dependencies": {"a": ["b", "c"], "d": {"required": ["e", "f"]}}}
    other = {**DRAFT_7, "dependencies": {"d": {"required": ["f", "e"]}, "a": ["c", "b"]}}
    assert canonical(one) == canonical(other)


@given(st.integers(0, 2**64 - 1).map(Random))
@settings(max_examples=100)
def test_the_form_of_a_form_is_itself_and_means_the_same(random: Random) -> None:
    try:
        made = parse(json.dumps(schema(random)), {})
    except InvalidSchema:
        return
    again = parse(made.canonical(), {})
    assert again.canonical() == made.canonical()
    assert again.compatibility_problems(made) == made.compatibility_problems(again) == []
