"""Attributes of a type's JSON object, read with the kind of value that each must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from penstock.schema.avro.model import SchemaPath, refuse

Value = TypeVar("Value")
Tree = dict[str, Any]

_WORDS: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", list: "an array"}


def attribute(tree: Tree, key: str, path: SchemaPath) -> Any:
    if key not in tree:
        refuse(f'"{key}" is missing', path)
    return tree[key]


def required(tree: Tree, key: str, kind: type[Value], path: SchemaPath) -> Value:
    value = attribute(tree, key, path)
    if not isinstance(value, kind) or isinstance(value, bool):
        refuse(f'"{key}" is {_WORDS[kind]}', path / key)
    return value


def optional(tree: Tree, key: str, kind: type[Value], path: SchemaPath) -> Value | None:
    """Return the attribute `key`; None if it is absent or null, because generators of schemas write null for absent
    attributes. Raises `InvalidSchema` if the value is not of `kind`."""
    return None if tree.get(key) is None else required(tree, key, kind, path)


def strings(tree: Tree, key: str, path: SchemaPath) -> tuple[str, ...]:
    values = optional(tree, key, list, path) or []
    if not all(isinstance(value, str) for value in values):
        refuse(f'"{key}" is an array of strings', path / key)
    return tuple(values)


def other_properties(tree: Tree, *known: str) -> Tree:
    """Return the attributes whose keys are not in `known`: those that the specification does not define. The model
    keeps them."""
    return {key: value for key, value in tree.items() if key not in known}
