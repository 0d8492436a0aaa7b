"""The kinds of JSON values, as finely as any draft tells them apart."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from penstock.schema.jsonschema.model.drafts import Draft


class Kind(StrEnum):
    NULL = "null"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    INTEGER = "integer"
    """Written without a fraction."""
    WHOLE = "1.0"
    """A number that has no fraction, and is written with one: an integer since draft 6."""
    FRACTION = "number"


Kinds = frozenset[Kind]

ALL: Final[Kinds] = frozenset(Kind)
INTEGERS: Final[Kinds] = frozenset({Kind.INTEGER, Kind.WHOLE})
NUMBERS: Final[Kinds] = INTEGERS | {Kind.FRACTION}
STRINGS: Final[Kinds] = frozenset({Kind.STRING})
OBJECTS: Final[Kinds] = frozenset({Kind.OBJECT})
ARRAYS: Final[Kinds] = frozenset({Kind.ARRAY})
FEW: Final[Kinds] = frozenset({Kind.NULL, Kind.BOOLEAN})
"""Those with few enough values to name them all."""


def kinds_of_type(said: str | list[str], draft: Draft) -> Kinds:
    """What the keyword `type` allows."""
    names = [said] if isinstance(said, str) else said
    found: set[Kind] = set()
    for name in names:
        found |= _kinds(name, draft)
    return frozenset(found)


def _kinds(name: str, draft: Draft) -> Kinds:
    if name == "number":
        return NUMBERS
    if name == "integer":
        return INTEGERS if draft > Draft.D4 else frozenset({Kind.INTEGER})
    return frozenset({Kind(name)})


def kind_of(value: Any) -> Kind:
    """Of a value as JSON parsers give it."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, float):
        return Kind.WHOLE if value.is_integer() else Kind.FRACTION
    return _KIND_OF[type(value)]


_KIND_OF: Final = {
    type(None): Kind.NULL,
    dict: Kind.OBJECT,
    list: Kind.ARRAY,
    str: Kind.STRING,
    int: Kind.INTEGER,
}


def described(kinds: Iterable[Kind]) -> str:
    """For a sentence: `integer, null`."""
    left = set(kinds)
    if left == {Kind.WHOLE}:
        return "integer written as 1.0"
    names = [str(kind) for kind in sorted(left - NUMBERS)]
    if Kind.FRACTION in left:
        names.append("number")
    elif left & INTEGERS:
        names.append("integer")
    return ", ".join(names) if names else "nothing"
