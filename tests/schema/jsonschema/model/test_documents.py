"""The parser: five drafts, references that stay inside, and a message with a path for everything that is refused."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.schema.jsonschema.kit import DRAFT_4, DRAFT_7, INTEGER, STRING, an_object, understood

from penstock.core.schemas import SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX
from penstock.schema import jsonschema
from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema import parse
from penstock.schema.jsonschema.model.drafts import Draft
from penstock.schema.language import Language, ParsedSchema

DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


def refused(text: Any, **references: Any) -> InvalidSchema:
    source = text if isinstance(text, str) else json.dumps(text)
    with pytest.raises(InvalidSchema) as caught:
        parse(source, {name: json.dumps(each) for name, each in references.items()})
    return caught.value


def accepts(made: Any, payload: Any, **references: Any) -> bool:
    return understood(made, **references).validator().fault(json.dumps(payload).encode()) is None


def test_it_is_a_language_of_the_registry() -> None:
    spoken: Language = jsonschema
    made: ParsedSchema = spoken.parse("{}", {})
    assert made.compatibility_problems(made) == []


# Drafts


@pytest.mark.parametrize(
    ("made", "payload", "expected"),
    [
        ({**DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, 1, False),
        ({**DRAFT_4, "minimum": 1, "exclusiveMinimum": False}, 1, True),
        ({**DRAFT_4, "type": "integer"}, 1.0, False),
        ({**DRAFT_4, "const": 1}, 2, True),
        ({**DRAFT_7, "const": 1}, 2, False),
        ({**DRAFT_7, "type": "integer"}, 1.0, True),
        ({**DRAFT_7, "exclusiveMinimum": 1}, 1, False),
        ({**DRAFT_7, "items": [STRING], "additionalItems": False}, ["a", "b"], False),
        ({**DRAFT_7, "dependencies": {"a": ["b"]}}, {"a": 1}, False),
        ({**DRAFT_7, "$ref": "#/definitions/a", "definitions": {"a": {}}, "type": "null"}, 1, True),
        ({**DRAFT_2019, "$ref": "#/$defs/a", "$defs": {"a": {}}, "type": "null"}, 1, False),
        ({**DRAFT_2019, "items": [STRING], "unevaluatedItems": False}, ["a", "b"], False),
        ({"prefixItems": [STRING], "items": False}, ["a", "b"], False),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, False),
        ({**DRAFT_7, "contentEncoding": "base64", "contentMediaType": "application/json"}, "!", True),
        ({"format": "date"}, "someday", False),
        ({"format": "somehow"}, "someday", True),
        ({"format": "regex"}, "(", True),
    ],
)
def test_a_schema_means_what_its_draft_says(made: Any, payload: Any, expected: bool) -> None:
    assert accepts(made, payload) is expected


def test_the_default_is_2020_12() -> None:
    assert accepts({"prefixItems": [STRING]}, [1]) is False
    assert refused({"$schema": Draft.D2020.uri, "items": [STRING]}).details["path"] == "/items"


@pytest.mark.parametrize("named", ["http://json-schema.org/draft-03/schema#", "http://json-schema.org/schema#", "x", 5])
def test_other_drafts_are_refused(named: Any) -> None:
    error = refused({"$schema": named})
    assert error.details["path"] == "/$schema"
    assert "2020-12" in error.message


def test_a_boolean_is_no_schema_in_draft_4() -> None:
    refused({**DRAFT_4, "properties": {"a": True}})
    assert accepts({**DRAFT_7, "properties": {"a": True}}, {"a": 1})


def test_a_schema_within_is_of_the_same_draft() -> None:
    error = refused({"$defs": {"a": {"$id": "a", **DRAFT_7}}})
    assert error.details["path"] == "/$defs/a/$schema"


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ({"type": "text"}, "/type"),
        ({"properties": {"a/b": {"minLength": -1}}}, "/properties/a~1b/minLength"),
        ({"anyOf": []}, "/anyOf"),
        ({"items": {"required": "a"}}, "/items/required"),
        ({"$defs": {"a": {"multipleOf": 0}}}, "/$defs/a/multipleOf"),
        ({"properties": []}, "/properties"),
        ({**DRAFT_4, "minimum": 1, "exclusiveMinimum": 1}, "/exclusiveMinimum"),
        ({**DRAFT_4, "$defs": {"a": {"maximum": 5, "exclusiveMaximum": 3}}}, "/$defs/a/exclusiveMaximum"),
        ({**DRAFT_4, "$defs": {"a": True}}, "/$defs/a"),
        ({**DRAFT_7, "$defs": {"a": {"$defs": {"b": {"multipleOf": 0}}}}}, "/$defs/a/$defs/b/multipleOf"),
    ],
)
def test_what_breaks_the_rules_of_its_draft_is_refused_with_its_place(made: Any, path: str) -> None:
    assert str(refused(made).details["path"]).startswith(path)


# References


def test_references_lead_to_definitions_anchors_and_ids() -> None:
    made = {
        "$id": "http://example.com/root.json",
        "properties": {
            "pointer": {"$ref": "#/$defs/a"},
            "anchor": {"$ref": "#named"},
            "id": {"$ref": "other.json"},
            "within": {"$ref": "other.json#/properties/x"},
            "whole": {"$ref": "http://example.com/root.json#/$defs/a"},
            "escaped": {"$ref": "#/$defs/b~1%25%20c"},
        },
        "$defs": {
            "a": INTEGER,
            "b/% c": INTEGER,
            "named": {"$anchor": "named", **INTEGER},
            "other": {"$id": "other.json", "properties": {"x": INTEGER}, **INTEGER},
        },
    }
    for name in made["properties"]:
        assert accepts(made, {name: 1})
        assert not accepts(made, {name: "a"})


def test_ids_of_earlier_drafts_are_anchors_too() -> None:
    made = {**DRAFT_7, "$ref": "#a", "definitions": {"x": {"$id": "#a", **INTEGER}}}
    assert not accepts(made, "a")
    older = {**DRAFT_4, "$ref": "#a", "definitions": {"x": {"id": "#a", **INTEGER}}}
    assert not accepts(older, "a")


def test_a_reference_means_a_registered_schema_by_its_name() -> None:
    made = {"properties": {"a": {"$ref": "address.json"}, "b": {"$ref": "address.json#/$defs/zip"}}}
    address = {**an_object(properties={"zip": {"$ref": "#/$defs/zip"}}), "$defs": {"zip": STRING}}
    assert accepts(made, {"a": {"zip": "1"}, "b": "1"}, **{"address.json": address})
    assert not accepts(made, {"a": {"zip": 1}}, **{"address.json": address})
    assert not accepts(made, {"b": 1}, **{"address.json": address})


@pytest.mark.parametrize("name", ["b.json", "http://example.com/dir/b.json"])
def test_a_name_is_what_stands_in_the_reference_or_what_that_means(name: str) -> None:
    made = {"$id": "http://example.com/dir/a.json", "$ref": "b.json"}
    assert not accepts(made, 1, **{name: STRING})


def test_registered_schemas_refer_to_each_other_and_keep_their_drafts() -> None:
    references = {"b": {**DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, "a": {"items": {"$ref": "b"}}}
    assert accepts({"$ref": "a"}, [2], **references)
    assert not accepts({"$ref": "a"}, [1], **references)


@pytest.mark.parametrize(
    "reference",
    [
        "http://localhost:1/x.json",
        "file:///etc/passwd",
        "other.json",
        "../../etc/passwd",
        "//host/x",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "urn:penstock:0",
    ],
)
def test_what_is_not_registered_is_refused(reference: str) -> None:
    error = refused({"properties": {"a": {"$ref": reference}}})
    assert "is not registered" in error.message
    assert error.details["path"] == "/properties/a/$ref"


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/b", "#nowhere", "#/type", "#/%ff", "#/enum/0", "#/prefixItems/00", "#/prefixItems/" + "9" * 5000, "#/-"],
)
def test_what_leads_to_no_schema_is_refused(reference: str) -> None:
    made = {"$defs": {"a": {"$ref": reference}}, "type": "string", "enum": [{}], "prefixItems": [{}]}
    assert "leads to no schema" in refused(made).message


def test_a_reference_may_lead_where_nobody_expects_a_schema() -> None:
    made = {"x-types": {"a": {"items": {"$ref": "#/x-types/b"}}, "b": INTEGER}, "$ref": "#/x-types/a"}
    assert not accepts(made, ["a"])
    assert refused({"x-types": {"a": {"type": "text"}}, "$ref": "#/x-types/a"}).details["path"] == "/x-types/a/type"


def test_a_fault_in_another_schema_is_placed_there() -> None:
    assert refused({"$ref": "a"}, a={"items": {"type": "text"}}).details["path"] == "a#/items/type"
    assert refused({"$ref": "a"}, a={"$ref": "b"}).details["path"] == "a#/$ref"
    assert "a: it is not JSON" in _refused_text("{}", {"a": "{"}).message


def _refused_text(text: str, references: dict[str, str]) -> InvalidSchema:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, references)
    return caught.value


@pytest.mark.parametrize(
    "made",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"if": {"$ref": "#/$defs/a"}}}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
    ],
)
def test_what_refers_to_itself_without_going_deeper_is_refused(made: Any) -> None:
    assert "refers to itself" in refused(made).message


def test_a_reference_is_a_string_in_draft_4_too() -> None:
    assert refused({**DRAFT_4, "items": {"$ref": {"a": 1}}}).details["path"] == "/items/$ref"


def test_recursive_schemas_are_schemas() -> None:
    tree = an_object(properties={"value": INTEGER, "left": {"$ref": "#"}, "right": {"$ref": "#"}})
    assert accepts(tree, {"left": {"value": 1, "right": {}}})
    assert not accepts(tree, {"left": {"right": {"value": "a"}}})


def test_a_dynamic_reference_is_an_ordinary_one_where_only_one_schema_has_a_say() -> None:
    made = {"$dynamicAnchor": "node", "type": "object", "additionalProperties": {"$dynamicRef": "#node"}}
    assert accepts(made, {"a": {"b": {}}})
    assert not accepts(made, {"a": {"b": 1}})
    older = {**DRAFT_2019, "$recursiveAnchor": True, "type": "object", "additionalProperties": {"$recursiveRef": "#"}}
    assert not accepts(older, {"a": {"b": 1}})
    rival = {**made, "$defs": {"x": {"$id": "x", "$dynamicAnchor": "node"}}}
    assert "depends on who refers" in refused(rival).message


@pytest.mark.parametrize("keyword", ["$id", "$anchor"])
def test_two_schemas_do_not_have_one_name(keyword: str) -> None:
    assert "two schemas" in refused({"$defs": {"a": {keyword: "x"}, "b": {keyword: "x"}}}).message


def test_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError(arguments, options)

    monkeypatch.setattr(socket, "socket", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(Path, "open", never)
    refused({"$id": "http://localhost:1/", "$ref": "x", "items": {"$ref": "file:///etc/passwd"}})


# Patterns


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?!a)", "(?<=a)b", r"(a)\1"])
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_patterns_that_need_backtracking_are_refused(pattern: str, place: str) -> None:
    made = {"items": {place: pattern if place == "pattern" else {pattern: {}}}}
    error = refused(made)
    assert "needs backtracking" in error.message
    assert error.details["path"] == "/items"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{99999999}", "((a{200}){200}){200}"])
def test_patterns_that_are_none_or_too_large_are_refused(pattern: str) -> None:
    assert "is not a regular expression, or too large a one" in refused({"pattern": pattern}).message


def test_patterns_are_searched_for_and_know_their_classes() -> None:
    assert accepts({"pattern": r"b\d"}, "ab1c")
    assert not accepts({"pattern": r"^\d$"}, "٣")
    assert not accepts({"pattern": "^a$"}, "a\n")


def test_patterns_have_a_limit_together() -> None:
    many = {"properties": {f"p{n}": {"pattern": f"^{n}$"} for n in range(501)}}
    assert "more than 500 different patterns" in refused(many).message
    large = {"allOf": [{"pattern": rf"{n}\p{{L}}{{1,50}}"} for n in range(9)]}
    assert "too large together" in refused(large).message


# Limits


def nested(depth: int) -> str:
    return '{"not":' * depth + "{}" + "}" * depth


def test_depth_and_size_are_limited() -> None:
    parse(nested(SCHEMA_DEPTH_MAX), {})
    assert f"more than {SCHEMA_DEPTH_MAX} deep" in refused(nested(SCHEMA_DEPTH_MAX + 1)).message
    assert "deep" in refused('{"const":' + "[" * 100_000).message
    parse(json.dumps({"title": "x" * (SCHEMA_BYTES_MAX - 20)}), {})
    assert "bytes" in refused({"title": "x" * SCHEMA_BYTES_MAX}).message
    assert "bytes" in refused('{"title":"' + "é" * (SCHEMA_BYTES_MAX // 2) + '"}').message


def test_the_number_of_schemas_is_limited() -> None:
    assert "schemas in it" in refused({"properties": {f"p{n}": {} for n in range(5_000)}}).message
    half: dict[str, Any] = {"properties": {f"p{n}": {} for n in range(2_600)}}
    assert "with all it refers to" in refused(half, other=half).message


def test_references_that_double_are_refused_before_they_cost_anything() -> None:
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(40)
    }
    made = {"$ref": "#/$defs/a0", "$defs": {**definitions, "a40": STRING}}
    assert "schemas would be asked about one value" in refused(made).message


# Text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{}}",
        "[]",
        "1",
        "null",
        '"string"',
        "{'type': 'string'}",
        '{"type":"string","type":"integer"}',
        '{"const":{"a":1,"a":1}}',
        '{"minimum":NaN}',
        '{"minimum":Infinity}',
        '{"minimum":-Infinity}',
        '{"minimum":1e999}',
        '{"minimum":1e-999}',
        '{"minimum":1e99999999999999999999}',
        '{"minimum":' + "9" * 500 + "}",
        '{"minimum":' + "9" * 5_000 + "}",
        '{"minimum":0.' + "1" * 5_000 + "}",
        '{"const":"\x00"}',
        '{"const":"\\ud800"}',
        '{"const":"\\udc00\\ud800"}',
        '{"\\ud800":1}',
        '{"const":"\ud800"}',
        "\ufeff{}",
        '{"const":01}',
        "\x00",
    ],
)
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    assert refused(text).message


def test_characters_that_json_can_hold_are_kept() -> None:
    made = '{"const":"\\u0000😀\\ud83d\\ude00"}'
    assert parse(made, {}).validator().fault('"\\u0000😀😀"'.encode()) is None
