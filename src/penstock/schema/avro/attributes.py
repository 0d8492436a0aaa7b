"""What stands under a key of a type's JSON object, of the kind that it must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from penstock.schema.avro.model import Place, refuse

Value = TypeVar("Value")
Tree = dict[str, Any]

_WORDS: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", list: "an array"}


def given(tree: Tree, key: str, place: Place) -> Any:
    if key not in tree:
        refuse(f'"{key}" is missing', place)
    return tree[key]


def required(tree: Tree, key: str, kind: type[Value], place: Place) -> Value:
    value = given(tree, key, place)
    if not isinstance(value, kind) or isinstance(value, bool):
        refuse(f'"{key}" is {_WORDS[kind]}', place / key)
    return value


def optional(tree: Tree, key: str, kind: type[Value], place: Place) -> Value | None:
    """Generators of schemas write null for what they have not got."""
    return None if tree.get(key) is None else required(tree, key, kind, place)


def strings(tree: Tree, key: str, place: Place) -> tuple[str, ...]:
    values = optional(tree, key, list, place) or []
    if not all(isinstance(value, str) for value in values):
        refuse(f'"{key}" is an array of strings', place / key)
    return tuple(values)


def rest(tree: Tree, *known: str) -> Tree:
    """What the specification does not know, and keeps."""
    return {key: value for key, value in tree.items() if key not in known}
