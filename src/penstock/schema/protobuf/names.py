"""Names that are derived from other names."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
QUALIFIED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def camel_case(name: str) -> str:
    """Return the name of a field in JSON: `order_id` is `orderId`."""
    first, *others = name.split("_")
    return first + "".join(_capitalised(word) for word in others)


def map_entry_name(field: str) -> str:
    """Return the name of the message made for a map: `order_lines` has `OrderLinesEntry`."""
    return "".join(_capitalised(word) for word in field.split("_")) + "Entry"


def value_name(enum: str, value: str) -> str:
    """Return an enum value's name without the enum's name before it, in one letter case: `ORDER_STATE_NEW` of
    `OrderState` is `New`.

    Two values of one enum with the same result could not be distinguished in other languages.
    """
    rest, prefix = value.lower(), enum.replace("_", "").lower()
    taken = _prefix_length(rest, prefix)
    rest = rest[taken:].lstrip("_") if taken else rest
    return "".join(_capitalised(word) for word in (rest or value.lower()).split("_"))


def synthetic_oneof(field: str, taken: Container[str]) -> str:
    """Return the name of the oneof made for an `optional` of proto3. `taken`: names that the message already has."""
    name = field if field.startswith("_") else f"_{field}"
    while name in taken:
        name = f"X{name}"
    return name


def local(name: str, package: str) -> str:
    """Return a full name without its package."""
    return name.removeprefix(f"{package}.") if package else name


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]


def _prefix_length(name: str, prefix: str) -> int:
    """Return how many characters of `name` match `prefix`, underscores aside; 0 if it does not begin with the prefix or
    has nothing after it."""
    matched = 0
    for index, character in enumerate(name):
        if matched == len(prefix):
            return index
        if character == prefix[matched]:
            matched += 1
        elif character != "_":
            return 0
    return 0
