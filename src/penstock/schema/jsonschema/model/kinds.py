"""The kinds of JSON values, as finely as any draft distinguishes them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from penstock.schema.jsonschema.model.drafts import Draft


class ValueKind(StrEnum):
    NULL = "null"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    INTEGER = "integer"
    """A number written without a fraction, such as 1."""
    WHOLE = "1.0"
    """A number written with a fraction of zero, such as 1.0. It is an integer since draft 6."""
    FRACTION = "number"


ValueKinds = frozenset[ValueKind]

ALL: Final[ValueKinds] = frozenset(ValueKind)
INTEGERS: Final[ValueKinds] = frozenset({ValueKind.INTEGER, ValueKind.WHOLE})
NUMBERS: Final[ValueKinds] = INTEGERS | {ValueKind.FRACTION}
STRINGS: Final[ValueKinds] = frozenset({ValueKind.STRING})
OBJECTS: Final[ValueKinds] = frozenset({ValueKind.OBJECT})
ARRAYS: Final[ValueKinds] = frozenset({ValueKind.ARRAY})
FEW: Final[ValueKinds] = frozenset({ValueKind.NULL, ValueKind.BOOLEAN})
"""Kinds with few enough values to list them all."""


def kinds_of_type(types: str | list[str], draft: Draft) -> ValueKinds:
    """Return the kinds that the keyword `type` allows."""
    names = [types] if isinstance(types, str) else types
    kinds: set[ValueKind] = set()
    for name in names:
        kinds |= _kinds(name, draft)
    return frozenset(kinds)


def _kinds(name: str, draft: Draft) -> ValueKinds:
    if name == "number":
        return NUMBERS
    if name == "integer":
        return INTEGERS if draft > Draft.D4 else frozenset({ValueKind.INTEGER})
    return frozenset({ValueKind(name)})


def kind_of(value: Any) -> ValueKind:
    """Return the kind of a value that a JSON parser returned."""
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    if isinstance(value, float):
        return ValueKind.WHOLE if value.is_integer() else ValueKind.FRACTION
    return _KIND_OF[type(value)]


_KIND_OF: Final = {
    type(None): ValueKind.NULL,
    dict: ValueKind.OBJECT,
    list: ValueKind.ARRAY,
    str: ValueKind.STRING,
    int: ValueKind.INTEGER,
}


def kind_names(kinds: Iterable[ValueKind]) -> str:
    """Return the kinds as words for a message: `integer, null`."""
    left = set(kinds)
    if left == {ValueKind.WHOLE}:
        return "integer written as 1.0"
    names = [str(kind) for kind in sorted(left - NUMBERS)]
    if ValueKind.FRACTION in left:
        names.append("number")
    elif left & INTEGERS:
        names.append("integer")
    return ", ".join(names) if names else "nothing"
