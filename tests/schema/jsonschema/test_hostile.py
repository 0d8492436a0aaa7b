"""Hostile texts: each is a schema or is refused, and then nothing in it causes another error."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.jsonschema.kit import TYPES, an_array, understood, value

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema import JsonSchema, parse

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
REFERENCES = [
    *("#", "#/$defs/a", "#/definitions/a", "#a", "a", "a#", "a#/x", "#/properties/a", "#/items", "#/items/0", "#/x"),
    *(
        {"a": 1},
        5,
        None,
        "#/allOf/0",
        "#/const",
        "b.json",
        "#/%24defs/a",
        "urn:x",
        "#/x/a",
        "#/not",
        "http://x/y",
        "",
        "#/-/~2",
    ),
]
NAMES = ["a", "b", "^a", "", ".*", "$ref"]
MAPS = ["$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies", "x"]
LISTS = ["allOf", "anyOf", "oneOf", "prefixItems", "items"]
ONES = [
    *("not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "propertyNames", "items"),
    *("additionalItems", "unevaluatedItems", "contains", "contentSchema"),
]
BOUNDS = ["minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"]
SIZES = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"]


def strange(random: Random, depth: int = 3) -> Any:
    """Draw keywords of all drafts, mostly with the right kind of value under them."""
    if depth == 0 or random.random() < 0.1:
        return random.choice([{}, True, False, value(random, 1)])

    def below() -> Any:
        return strange(random, depth - 1)

    def name() -> str:
        return random.choice(NAMES)

    makers: list[Callable[[], tuple[str, Any]]] = [
        lambda: (random.choice(MAPS), {name(): below() for _ in range(2)}),
        lambda: (random.choice(LISTS), [below() for _ in range(random.randrange(1, 3))]),
        lambda: (random.choice(ONES), below()),
        lambda: (random.choice(["$ref", "$ref", "$dynamicRef"]), random.choice(REFERENCES)),
        lambda: (random.choice(["$id", "id"]), random.choice(["a", "http://x/y", "#a", "b.json#", "a/../c", "::"])),
        lambda: (random.choice(["$anchor", "$dynamicAnchor"]), random.choice(["a", "b"])),
        lambda: (random.choice(BOUNDS), random.choice([1, 2, 0.5, 1e300, 10**30, 1e-300, 0.1, True])),
        lambda: (random.choice(SIZES), random.choice([0, 1, 2, 10**20, 1.0, 2**63])),
        lambda: ("pattern", random.choice(["^a", "(", "(?=a)", "a{5}"])),
        lambda: ("type", random.choice(TYPES)),
        lambda: ("enum", [value(random, 1)]),
        lambda: (random.choice(["$recursiveAnchor", "uniqueItems"]), True),
        lambda: ("$recursiveRef", "#"),
        lambda: ("required", ["a"]),
        lambda: (name(), below()),
    ]
    return dict(random.choice(makers)() for _ in range(random.randrange(4)))


def parsed(random: Random) -> JsonSchema | None:
    made = strange(random)
    if isinstance(made, dict) and random.random() < 0.6:
        made["$schema"] = random.choice(DRAFTS)
    references = {name: json.dumps(strange(random, 2)) for name in random.sample(["a", "b.json"], random.randrange(3))}
    try:
        return parse(json.dumps(made), references)
    except InvalidSchema:
        return None


@given(st.integers(0, 2**64 - 1).map(Random))
@settings(max_examples=300)
def test_a_schema_is_understood_or_refused_and_then_everything_works(random: Random) -> None:
    one, other = parsed(random), parsed(random)
    if one is None:
        return
    assert one.canonical()
    assert one.compatibility_problems(one) == []
    validator = one.validator()
    for _ in range(4):
        payload = json.dumps(value(random)).encode()
        quick = validator.accepts_lines(memoryview(payload + b"\n"), 1)
        assert validator.fault(payload) is None or not quick
    if other is not None:
        one.compatibility_problems(other)
        other.compatibility_problems(one, lenient=True)


@given(st.one_of(st.text(max_size=40), st.text('{}[]":,0123456789eE.-\\u$refantulsy ', max_size=40)))
@settings(max_examples=200)
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with suppress(InvalidSchema):
        parse(text, {})


@given(st.binary(max_size=60), st.sampled_from([{}, {"type": "object"}, {"properties": {"a": {"pattern": "a"}}}]))
@settings(max_examples=200)
def test_any_payload_has_an_answer(payload: bytes, made: Any) -> None:
    validator = understood(made).validator()
    line = payload.replace(b"\n", b"")
    assert not validator.accepts_lines(memoryview(line + b"\n"), 1) or validator.fault(line) is None


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_ruin_others_take_no_time_here(pattern: str) -> None:
    validator = understood({"pattern": pattern}).validator()
    payload = json.dumps("a" * 100_000 + "!").encode()
    assert validator.fault(payload) is not None
    assert validator.fault(payload.replace(b"a", b"x")) is not None


def test_a_recursive_schema_takes_deep_payloads() -> None:
    validator = understood(an_array(items={"$ref": "#"})).validator()
    assert validator.fault(b"[" * 128 + b"]" * 128) is None
    assert validator.fault(b"[" * 127 + b"1" + b"]" * 127) is not None


def test_wide_payloads_have_one_fault() -> None:
    validator = understood(an_array(items={"type": "string"}, uniqueItems=True)).validator()
    assert validator.fault(json.dumps(list(range(100_000))).encode()) is not None
    choice = understood({"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}).validator()
    assert choice.fault(json.dumps([1] * 50_000).encode()) is not None
