"""Fast acceptance: never yes where the exact answer is no, and often enough to be worth it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.jsonschema.kit import (
    DRAFT_4,
    DRAFT_7,
    INTEGER,
    NAMES,
    NUMBER,
    STRING,
    an_array,
    an_object,
    schema,
    understood,
    value,
)

from penstock.schema.errors import InvalidSchema
from penstock.schema.jsonschema.validation.payload import PAYLOAD_DEPTH_MAX
from penstock.schema.language import Validator

HOSTILE = [
    *(b"1e400", b"-1e999", b"1.0", b"-0", b"00", b"1.0000000000000001", b"9007199254740993", b"18446744073709551616"),
    *(b"1" * 500, b'"\\ud800"', b'"\xff"', b'"\\u0061"', b"NaN", b"1 1", b"", b"[1,]", b'{"a":1,"a":"x"}', b"\x00"),
]


def says_yes(validator: Validator, *payloads: bytes) -> bool:
    return validator.accepts_lines(memoryview(b"".join(each + b"\n" for each in payloads)), len(payloads))


def quick(made: Any, *payloads: Any) -> bool:
    validator = understood(made).validator()
    encoded = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    said = says_yes(validator, *encoded)
    assert not said or all(validator.fault(each) is None for each in encoded)
    return said


def payload(random: Random) -> bytes:
    """Draw a value as JSON, sometimes spoiled."""
    text = json.dumps(value(random), ensure_ascii=random.random() < 0.5).encode()
    place, chance = random.randrange(len(text)), random.random()
    if chance < 0.1:
        text = text[:place] + random.choice(HOSTILE) + text[place:]
    elif chance < 0.2:
        text = text[:place] + bytes([random.choice(b'{}[]",:0123456789eE.-\\ \x00\xff')]) + text[place + 1 :]
    elif chance < 0.3 and text.startswith(b"{") and len(text) > 2:
        name = json.dumps(random.choice(NAMES)).encode()
        text = b"{" + text[1:-1] + b"," + name + b":" + random.choice(HOSTILE) + b"}"
    return text.replace(b"\n", b" ")


# Never yes where the exact answer is no


@given(st.integers(0, 2**64 - 1).map(Random), st.sampled_from([{}, {}, DRAFT_7, DRAFT_4]))
@settings(max_examples=250)
def test_a_quick_yes_is_an_exact_yes(random: Random, draft: dict[str, Any]) -> None:
    made = schema(random, random.choice([1, 2, 3]))
    try:
        validator = understood(made if isinstance(made, bool) else {**made, **draft}).validator()
    except InvalidSchema:
        return
    payloads = [payload(random) for _ in range(30)]
    conforming = [each for each in payloads if validator.fault(each) is None]
    for each in payloads:
        assert not says_yes(validator, each) or each in conforming, (made, each)
    assert not says_yes(validator, *payloads) or len(conforming) == len(payloads)


@pytest.mark.parametrize(
    "payloads",
    [
        (b"", b'{"a":1} {"a":2}'),
        (b'{"a":1} {"a":2}', b""),
        (b'{"a":', b'1} {"a":2}'),
        (b'{"a":1,"x":{}', b'{}} {"a":1}'),
        (b'{"a":1}{"a":2}', b" "),
        (b'{"a":1}', b""),
        (b'{"a":1} x', b'{"a":1}'),
        (b'{"a":1}\x00', b'{"a":1}'),
    ],
)
def test_every_line_is_one_payload(payloads: tuple[bytes, ...]) -> None:
    for closed in (False, True):
        made = an_object(properties={"a": INTEGER, "x": {}}, required=["a"], additionalProperties=not closed)
        assert not quick(made, *payloads)


def test_the_count_is_checked() -> None:
    validator = understood(an_object(properties={"a": INTEGER})).validator()
    for lines, count in [(b"{}\n{}\n", 1), (b"{}\n{}\n", 3), (b"{}\n{}", 2), (b"{}\n\n", 1), (b"[]\n", 1), (b"", 1)]:
        assert not validator.accepts_lines(memoryview(lines), count)
    assert validator.accepts_lines(memoryview(b"{}\n{}\n"), 2)
    assert validator.accepts_lines(memoryview(b""), 0)


@pytest.mark.parametrize("skipped", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b"NaN", b"[1,]", b'{"\xff":1}'])
def test_what_is_skipped_is_still_json(skipped: bytes) -> None:
    made = an_object(properties={"a": INTEGER})
    assert quick(made, b'{"a":1,"other":"x"}')
    assert not quick(made, b'{"a":1,"other":' + skipped + b"}")


def test_what_is_skipped_is_not_too_deep() -> None:
    made = an_object(properties={"a": INTEGER})
    depth = PAYLOAD_DEPTH_MAX - 1
    assert quick(made, b'{"a":1,"x":' + b"[" * depth + b"]" * depth + b"}")
    for deeper in (PAYLOAD_DEPTH_MAX, 500, 5_000):
        assert not quick(made, b'{"a":1,"x":' + b"[" * deeper + b"]" * deeper + b"}")


@pytest.mark.parametrize(
    ("made", "payload"),
    [
        ({**DRAFT_4, **INTEGER}, b"1.0"),
        ({"maximum": 9007199254740992, "type": "number"}, b"9007199254740993"),
        ({"exclusiveMaximum": 9007199254740993, "type": "number"}, b"9007199254740993"),
        ({"minimum": 9007199254740993, "type": "number"}, b"9007199254740992.0"),
        ({"multipleOf": 0.1}, b"0.25"),
        ({"enum": list(range(2_000))}, b"2001"),
        ({"const": {"a": 1}}, b'{"a":2}'),
        ({"enum": [True, 1]}, b"false"),
        (an_object(properties={"a": STRING}), b'{"a":null}'),
        (an_object(properties={"a": False}), b'{"a":1}'),
        (an_object(properties={"a": INTEGER}, additionalProperties=STRING), b'{"b":1}'),
        (an_object(minProperties=1), b"{}"),
        (an_object(properties={"a": INTEGER}, maxProperties=1), b'{"a":1,"b":2}'),
        (an_object(properties={"a": INTEGER}, patternProperties={"^b": STRING}), b'{"b":1}'),
        (an_object(propertyNames={"maxLength": 1}), b'{"bb":1}'),
        (an_object(required=["a"]), b"{}"),
        (an_array(uniqueItems=True), b"[1,1]"),
        (an_array(prefixItems=[STRING], items=False), b'["a","b"]'),
        (an_array(prefixItems=[STRING]), b"[1]"),
        (an_array(contains=STRING), b"[1]"),
        ({"oneOf": [NUMBER, INTEGER]}, b"1"),
        ({"oneOf": [an_object(required=["a"]), an_object(required=["b"])]}, b'{"a":1,"b":1}'),
        ({"not": STRING}, b'"a"'),
        ({"pattern": "^a"}, b'"b"'),
        ({"if": STRING, "then": {"maxLength": 1}}, b'"ab"'),
        ({**STRING, "maxLength": 1}, '"é̂"'.encode()),
        (an_object(unevaluatedProperties=False), b'{"a":1}'),
        (an_object(dependentRequired={"a": ["b"]}), b'{"a":1}'),
    ],
)
def test_no_is_never_a_quick_yes(made: Any, payload: bytes) -> None:
    assert understood(made).validator().fault(payload) is not None
    assert not quick(made, payload)


def test_a_tuple_never_stands_beside_types_with_bounds() -> None:
    """With such types msgspec 0.22 reads memory that is not its own."""
    made = {"type": ["array", "string"], "prefixItems": [INTEGER, STRING], "minLength": 1}
    validator = understood(made).validator()
    for _ in range(10_000):
        assert not says_yes(validator, b"[]")
    assert says_yes(validator, b'"a"')


# Yes often enough

ORDER = an_object(
    properties={
        "id": {"type": "integer", "minimum": 1},
        "price": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000},
        "sku": {"type": "string", "minLength": 2, "maxLength": 5},
        "kind": {"enum": ["a", "b", 3, None]},
        "note": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "flag": {"type": "boolean"},
        "tags": an_array(items=STRING, maxItems=3),
        "point": an_array(prefixItems=[NUMBER, NUMBER], items=False, minItems=2),
        "where": {"$ref": "#/$defs/where"},
        "counts": an_object(additionalProperties=INTEGER),
        "any": {},
    },
    required=["id", "kind"],
) | {"$defs": {"where": an_object(properties={"zip": STRING}, required=["zip"], additionalProperties=False)}}

FULL = {
    "id": 1,
    "price": 2.5,
    "sku": "ab😀",
    "kind": None,
    "note": None,
    "at": "2026-01-31T12:00:00.5+01:00",
    "flag": True,
    "tags": ["a"],
    "point": [1, 2.5],
    "where": {"zip": "1"},
    "counts": {"a": 1, "b": 2},
    "any": [{"a": None}],
    "unknown": {"a": [1]},
}


@pytest.mark.parametrize(
    ("made", "payloads"),
    [
        (ORDER, [FULL, {"id": 2, "kind": 3}, {"id": 3, "kind": "a", "price": 7}]),
        ({**ORDER, "additionalProperties": False}, [{"id": 2, "kind": 3}]),
        ({"anyOf": [{"type": "null"}, ORDER], "$defs": ORDER["$defs"]}, [{"id": 1, "kind": "b"}, None]),
        (
            {"allOf": [{"$ref": "#/$defs/where"}, an_object(required=["b"])], "$defs": {"where": an_object()}},
            [{"b": 1}],
        ),
        ({"properties": {"a": INTEGER}}, [{"a": 1}, {}, "text", 5, None, [1]]),
        ({}, [1, {"a": [1.5]}, "x"]),
        (an_object(), [{}, {"a": 1}]),
        ({"enum": ["a", "b", 1]}, ["a", 1]),
        ({"type": "integer"}, [5, -5, 10**30]),
        ({"oneOf": [STRING, INTEGER]}, ["a", 1]),
        (
            {
                "oneOf": [
                    an_object(properties={"k": {"const": "a"}, "x": INTEGER}, required=["k", "x"]),
                    an_object(properties={"k": {"const": "b"}, "x": STRING}, required=["k", "x"]),
                ]
            },
            [{"k": "a", "x": 1}, {"x": "s", "k": "b"}],
        ),
        (an_object(properties={"a": {"pattern": "^a"}, "b": INTEGER}), [{"b": 1}]),
        ({**DRAFT_7, "definitions": {"x": INTEGER}, "items": {"$ref": "#/definitions/x"}}, [[1, 2]]),
        ({**DRAFT_4, "type": "array", "items": [INTEGER, STRING]}, [[1, "a"]]),
    ],
)
def test_ordinary_payloads_of_ordinary_schemas_get_a_quick_yes(made: Any, payloads: list[Any]) -> None:
    assert quick(made, *payloads)


def test_one_that_does_not_conform_spoils_the_chunk() -> None:
    good = {"id": 1, "kind": "a"}
    assert quick(ORDER, *[good] * 256)
    assert not quick(ORDER, *[good] * 255, {"id": 0, "kind": "a"})


def test_long_payloads_get_a_quick_yes_too() -> None:
    assert quick(ORDER, {"id": 1, "kind": "a", "any": "x" * 1_000}, {"id": 1, "kind": "a", "any": [1] * 500})


def test_recursive_schemas_are_left_to_exact_answers() -> None:
    tree = an_object(properties={"left": {"$ref": "#"}, "value": INTEGER}, required=["left"])
    assert not quick(tree, {"left": {"value": 1}})
