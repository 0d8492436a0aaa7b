"""A small world of JSON: schemas that constrain its values, values that often conform, ways to widen a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from penstock.schema.jsonschema import JsonSchema, parse

NAMES = ["a", "b", "ab", "c"]
STRINGS = ["", "a", "b", "ab", "ba", "abc", "é", "😀", "2026-01-31", "12:00:00"]
FORMATS = ["date", "time", "hostname", "uri-reference", "other"]
NUMBERS = [-2, -1, 0, 1, 2, 3, 4, 5, 6, 0.5, 1.0, 1.5, 2.0, -0.5, 2.25, 0.1, 0.3]
PATTERNS = ["^a", "b$", "", "^ab?$"]
TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]

Schema = dict[str, Any] | bool


def understood(schema: Any, **references: Any) -> JsonSchema:
    return parse(json.dumps(schema), {name: json.dumps(each) for name, each in references.items()})


# Values


def value(random: Random, depth: int = 3) -> Any:
    scalars: list[Callable[[], Any]] = [
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.choice(NUMBERS),
        lambda: random.choice(NUMBERS),
        lambda: random.choice(STRINGS),
        lambda: random.choice(STRINGS),
    ]
    nested: list[Callable[[], Any]] = [
        lambda: [value(random, depth - 1) for _ in range(random.randrange(4))],
        lambda: {name: value(random, depth - 1) for name in random.sample(NAMES, random.randrange(4))},
    ]
    return random.choice(scalars + nested * 3 if depth else scalars)()


# Schemas


def schema(random: Random, depth: int = 3) -> Schema:
    """Draw a schema of 2020-12; some of its definitions are recursive."""
    made = _schema(random, depth)
    if isinstance(made, bool):
        return made
    definitions = {"x": _schema(random, depth - 1), "y": {"items": {"$ref": "#/$defs/y"}, "maxItems": 2}}
    return {**made, "$defs": definitions}


def _schema(random: Random, depth: int) -> Schema:
    if random.random() < 0.06:
        return random.random() < 0.7
    families = [_numbers, _strings, _values, _type]
    if depth > 0:
        families += [_objects, _objects, _arrays, _combined, _reference]
    made: dict[str, Any] = {}
    for _ in range(random.choice([1, 1, 2])):
        made |= random.choice(families)(random, depth - 1)
    if random.random() < 0.4:
        made |= _type(random, depth)
    return made


def _some(random: Random, keywords: dict[str, Callable[[], Any]], count: int = 2) -> dict[str, Any]:
    chosen = random.sample(sorted(keywords), min(len(keywords), random.randrange(1, count + 1)))
    return {keyword: keywords[keyword]() for keyword in chosen}


def _type(random: Random, _: int) -> dict[str, Any]:
    if random.random() < 0.7:
        return {"type": random.choice(TYPES)}
    return {"type": random.sample(TYPES, 2)}


def _values(random: Random, depth: int) -> dict[str, Any]:
    if random.random() < 0.3:
        return {"const": value(random, 1)}
    listed = [value(random, 1) for _ in range(random.randrange(1, 4))]
    return {"enum": list({json.dumps(each): each for each in listed}.values())}


def _numbers(random: Random, _: int) -> dict[str, Any]:
    return _some(
        random,
        {
            "minimum": lambda: random.choice([-1, 0, 0.5, 1]),
            "exclusiveMinimum": lambda: random.choice([-1, 0, 0.5]),
            "maximum": lambda: random.choice([1, 2, 3.5, 5]),
            "exclusiveMaximum": lambda: random.choice([2, 3, 4.5]),
            "multipleOf": lambda: random.choice([1, 2, 0.5, 1.5, 0.1, 3]),
        },
    )


def _strings(random: Random, _: int) -> dict[str, Any]:
    return _some(
        random,
        {
            "minLength": lambda: random.randrange(3),
            "maxLength": lambda: random.randrange(1, 4),
            "pattern": lambda: random.choice(PATTERNS),
            "format": lambda: random.choice(FORMATS),
        },
    )


def _objects(random: Random, depth: int) -> dict[str, Any]:
    def some_names() -> list[str]:
        return random.sample(NAMES, random.randrange(1, 3))

    def below() -> Schema:
        return _schema(random, depth)

    return _some(
        random,
        {
            "properties": lambda: {name: below() for name in some_names()},
            "required": some_names,
            "additionalProperties": lambda: random.choice([False, False, below()]),
            "unevaluatedProperties": lambda: random.choice([False, below()]),
            "patternProperties": lambda: {random.choice(PATTERNS): below()},
            "propertyNames": lambda: random.choice([_strings(random, 0), {"enum": some_names()}]),
            "minProperties": lambda: random.randrange(3),
            "maxProperties": lambda: random.randrange(1, 4),
            "dependentRequired": lambda: {random.choice(NAMES): some_names()},
            "dependentSchemas": lambda: {random.choice(NAMES): below()},
        },
        count=4,
    ) | ({"type": "object"} if random.random() < 0.5 else {})


def _arrays(random: Random, depth: int) -> dict[str, Any]:
    def below() -> Schema:
        return _schema(random, depth)

    return _some(
        random,
        {
            "items": below,
            "prefixItems": lambda: [below() for _ in range(random.randrange(1, 3))],
            "unevaluatedItems": lambda: random.choice([False, below()]),
            "minItems": lambda: random.randrange(3),
            "maxItems": lambda: random.randrange(1, 4),
            "uniqueItems": lambda: random.random() < 0.7,
            "contains": below,
            "minContains": lambda: random.randrange(3),
            "maxContains": lambda: random.randrange(1, 3),
        },
        count=4,
    ) | ({"type": "array"} if random.random() < 0.5 else {})


def _combined(random: Random, depth: int) -> dict[str, Any]:
    def below() -> Schema:
        return _schema(random, depth)

    def several() -> list[Schema]:
        return [below() for _ in range(random.randrange(1, 4))]

    return _some(
        random,
        {
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": below,
            "if": below,
            "then": below,
            "else": below,
        },
    )


def _reference(random: Random, _: int) -> dict[str, Any]:
    return {"$ref": random.choice(["#/$defs/x", "#/$defs/y"])}


# Tangled schemas

_PLAIN: list[Schema] = [
    *({}, True, False, {"type": "string"}, {"type": "object"}, {"type": "array"}, {"required": ["a"]}),
    *({"minimum": 1}, {"maxLength": 1}, {"const": 1}, {"properties": {"a": {"type": "null"}}}, {"$ref": "#/$defs/x"}),
]


def tangled(random: Random) -> dict[str, Any]:
    """Draw a schema of little but choices, conditions, negations and circular references."""
    made = _tangle(random, random.choice([1, 2, 3]))
    root = made if isinstance(made, dict) else {"allOf": [made]}
    return {**root, "$defs": {"x": _tangle(random, 2)}}


def _tangle(random: Random, depth: int) -> Schema:
    if depth == 0 or random.random() < 0.15:
        return random.choice(_PLAIN)

    def below() -> Schema:
        return _tangle(random, depth - 1)

    makers: list[Callable[[], Schema]] = [
        lambda: {"not": below()},
        lambda: {"if": below(), random.choice(["then", "else"]): below()},
        lambda: {random.choice(["oneOf", "anyOf", "allOf"]): [below(), below()]},
        lambda: {random.choice(["items", "additionalProperties", "contains"]): below()},
        lambda: {random.choice(["properties", "dependentSchemas"]): {"a": below()}},
    ]
    return random.choice(makers)()


# Other schemas


def changed(random: Random, made: dict[str, Any]) -> dict[str, Any]:
    """Drop or move something anywhere in a schema; the result may be wider or narrower."""
    other: dict[str, Any] = json.loads(json.dumps(made))
    holders = [holder for holder in _dicts(other) if holder]
    for _ in range(random.choice([1, 1, 2])):
        holder = random.choice(holders)
        if not holder:
            continue
        name = random.choice(sorted(holder))
        held = holder[name]
        if name == "type":
            holder[name] = random.choice(TYPES)
        elif isinstance(held, list) and len(held) > 1:
            held.pop()
        elif isinstance(held, int) and not isinstance(held, bool) and random.random() < 0.5:
            holder[name] = max(0, held + random.choice([-1, 1]))
        else:
            del holder[name]
    return other


def _dicts(made: Any) -> list[dict[str, Any]]:
    if isinstance(made, list):
        return [found for each in made for found in _dicts(each)]
    if not isinstance(made, dict):
        return []
    return [made, *(found for each in made.values() for found in _dicts(each))]


# Wider schemas

_LOOSENED = (
    "minimum",
    "exclusiveMinimum",
    "minLength",
    "minProperties",
    "minItems",
    "required",
    "pattern",
    "multipleOf",
)
_RELEASED = ("maximum", "exclusiveMaximum", "maxLength", "maxProperties", "maxItems", "uniqueItems", "propertyNames")
_TURNED = ("contains", "maxContains", "minContains", "else", "if", "not", "oneOf", "then")
_LEFT_OVER = ("unevaluatedItems", "unevaluatedProperties")


def straightforward(made: Any) -> Any:
    """Draw a schema without keywords under which wider is narrower, or which change the meaning of others."""
    if isinstance(made, list):
        return [straightforward(each) for each in made]
    if not isinstance(made, dict):
        return made
    return {name: straightforward(each) for name, each in made.items() if name not in _TURNED + _LEFT_OVER}


def widened(random: Random, made: dict[str, Any]) -> dict[str, Any]:
    """Draw a straightforward schema that takes more, in one position or another; or just as much, in other words."""
    wider: dict[str, Any] = json.loads(json.dumps(made))
    places = [place for place in _places(wider) if place]
    if not places:
        return wider
    place = random.choice(places)
    droppable = [name for name in (*_LOOSENED, *_RELEASED, "enum", "const", "type") if name in place]
    if droppable and random.random() < 0.6:
        del place[random.choice(droppable)]
    elif "enum" in place:
        place["enum"].append("one more")
    elif isinstance(place.get("type"), str):
        place["type"] = sorted({place["type"], random.choice(TYPES)})
    elif "maximum" in place:
        place["maximum"] += 1
    elif "minLength" in place:
        place["minLength"] = max(0, place["minLength"] - 1)
    elif "anyOf" in place:
        place["anyOf"].insert(0, {"const": "one more"})
    return wider


def _places(made: Any) -> list[dict[str, Any]]:
    """Yield every schema within a schema."""
    if not isinstance(made, dict):
        return []
    found = [made]
    for keyword, held in made.items():
        if keyword in ("properties", "patternProperties", "dependentSchemas", "$defs"):
            found += [place for each in held.values() for place in _places(each)]
        elif keyword in ("allOf", "anyOf", "prefixItems"):
            found += [place for each in held for place in _places(each)]
        elif keyword in ("items", "additionalProperties", "propertyNames"):
            found += _places(held)
    return found


# Compatibility cases

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}


def an_object(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


def an_array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


class Case(NamedTuple):
    """Two schemas, and the problems of each when it reads the other: kinds and paths."""

    name: str
    one: Any
    other: Any
    reading_other: list[str]
    reading_one: list[str] = []  # noqa: RUF012 - nobody changes it

    def __str__(self) -> str:
        return self.name


def problems(reader: Any, writer: Any, *, lenient: bool = False) -> list[str]:
    found = understood(reader).compatibility_problems(understood(writer), lenient=lenient)
    return [f"{each.kind} {each.path}".rstrip() for each in found]


def check(case: Case) -> None:
    assert problems(case.one, case.other) == case.reading_other
    assert problems(case.other, case.one) == case.reading_one
