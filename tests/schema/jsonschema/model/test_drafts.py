"""Schemas without a draft: of the last one if that allows them, as always, else of an older one."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from tests.schema.jsonschema import kit
from tests.schema.jsonschema.kit import understood

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.model.drafts import Draft

TUPLE = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
NAMED = {
    "definitions": {"name": {"$id": "#name", "type": "string"}},
    "properties": {"pair": TUPLE, "name": {"$ref": "#name"}},
    "dependencies": {"name": ["pair"], "pair": {"required": ["name"]}},
}


def draft_of(made: Any) -> Draft:
    return understood(made).documents[0].draft


def takes(made: Any, value: Any) -> bool:
    return understood(made).validator().fault(json.dumps(value).encode()) is None


@pytest.mark.parametrize(
    ("made", "draft"),
    [
        ({}, Draft.D2020),
        ({"type": "object", "definitions": {"a": {}}, "dependencies": {"a": ["b"]}}, Draft.D2020),
        ({"prefixItems": [{"type": "string"}], "items": False}, Draft.D2020),
        (TUPLE, Draft.D7),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, TUPLE]}}}, Draft.D7),
        (NAMED, Draft.D7),
        ({"properties": {"$defs": TUPLE, "prefixItems": True}}, Draft.D7),
        ({"const": {"prefixItems": []}, **TUPLE}, Draft.D7),
        ({"$defs": {"a": TUPLE}}, Draft.D2019),
        ({**TUPLE, "minContains": 1, "contains": {}}, Draft.D2019),
        ({"dependentRequired": {"a": ["b"]}, "properties": {"a": TUPLE}}, Draft.D2019),
    ],
)
def test_the_draft_is_the_last_one_or_the_one_that_its_keywords_are_of(made: Any, draft: Draft) -> None:
    assert draft_of(made) is draft


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ({"items": [{"type": "strin"}]}, "/items"),
        ({"type": "strin"}, "/type"),
        ({"prefixItems": [{}], **TUPLE}, "/items"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum"),
    ],
)
def test_what_no_draft_allows_is_refused_with_its_place(made: Any, path: str) -> None:
    with pytest.raises(InvalidSchema) as error:
        understood(made)
    assert error.value.details["path"] == path


def test_what_the_older_draft_says_is_demanded() -> None:
    assert takes(TUPLE, ["a", 1])
    assert not takes(TUPLE, ["a", "b"])
    assert not takes(TUPLE, ["a", 1, 2])
    assert takes(NAMED, {"name": "x", "pair": []})
    assert not takes(NAMED, {"name": "x"})
    assert not takes(NAMED, {"pair": []})
    assert not takes(NAMED, {"name": 1, "pair": []})


SEVEN = "http://json-schema.org/draft-07/schema#"
WIDER = {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": False}
LOOSER = {**NAMED, "dependencies": {"name": ["pair"]}}


@pytest.mark.parametrize(
    ("reader", "writer", "readable"),
    [
        (WIDER, TUPLE, True),
        (TUPLE, WIDER, False),
        (LOOSER, NAMED, True),
        (NAMED, LOOSER, False),
        ({"prefixItems": WIDER["items"], "items": False}, TUPLE, True),
        ({"prefixItems": TUPLE["items"], "items": False}, WIDER, False),
    ],
)
def test_old_schemas_are_compared_as_if_they_named_their_draft(reader: Any, writer: Any, readable: bool) -> None:
    assert (understood(reader).compatibility_problems(understood(writer)) == []) is readable
    named = {"$schema": SEVEN, **writer}
    assert (understood(reader).compatibility_problems(understood(named)) == []) is readable


def test_a_schema_that_the_last_draft_allows_keeps_its_meaning() -> None:
    random = Random(6)
    last = "https://json-schema.org/draft/2020-12/schema"
    for _ in range(150):
        made = kit.schema(random)
        try:
            draft = draft_of(made)
        except InvalidSchema:  # it goes in circles
            continue
        if isinstance(made, bool):
            continue
        assert draft is Draft.D2020
        for value in (kit.value(random) for _ in range(5)):
            assert takes(made, value) == takes({"$schema": last, **made}, value)


def test_beside_a_reference_the_last_draft_demands_and_draft_7_does_not() -> None:
    short = {"definitions": {"s": {"type": "string"}}, "properties": {"a": {"$ref": "#/definitions/s", "maxLength": 1}}}
    assert not takes(short, {"a": "xx"})
    assert takes({"$schema": SEVEN, **short}, {"a": "xx"})
