"""The check that defaults of fields are values of their fields' types, in the specification's JSON encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema.avro.model import Array, Enum, Field, Fixed, Link, Map, Primitive, Record, Type, Union, refuse
from penstock.schema.problems import fragment

STEPS_MAX: Final = 100_000
"""Visits of values while checking all defaults of a schema: as many as the largest text has values. Only unions within
unions could need more, because a value is tried with every branch."""

Types = Mapping[str, Record | Enum | Fixed]


def check_defaults(types: Types) -> None:
    """Raise `InvalidSchema` for the first default that is not a value of its type, or if the check takes too long."""
    checker = _DefaultChecker(types)
    for field in _fields(types):
        checker.check(field)


def _fields(types: Types) -> Iterator[Field]:
    for type_ in types.values():
        if isinstance(type_, Record):
            yield from type_.fields


class _DefaultChecker:
    def __init__(self, types: Types) -> None:
        self._types = types
        self._steps = 0
        self._known: dict[tuple[int, int], bool] = {}
        """Results of `_is_record`, by the `id`s of the record type and the value. Many branches may ask about the same
        pair."""
        self._symbols: dict[str, frozenset[str]] = {}

    def check(self, field: Field) -> None:
        """Raise `InvalidSchema` if the field's default is not a value of its type. The default of a union may be a
        value of any branch; until 1.12 the specification required the first branch."""
        if field.default is None:
            return
        conforms = self._conforms(field.default.value, field.type, 0)
        if self._steps > STEPS_MAX:
            refuse(f"the defaults take more than {STEPS_MAX} steps to check", field.path / "default")
        if not conforms:
            named = fragment(field.name)
            refuse(
                f'the default of field "{named}" is not a value of its type, {_type_words(field.type)}',
                field.path / "default",
            )

    def _conforms(self, value: Any, type_: Type, depth: int) -> bool:
        """Return whether a value is of a type; False where it is nested too deep or takes too many steps."""
        self._steps += 1
        if self._steps > STEPS_MAX or depth > SCHEMA_DEPTH_MAX:
            return False
        match self._types[type_.name] if isinstance(type_, Link) else type_:
            case Primitive(kind=kind):
                return _PRIMITIVES[kind](value)
            case Union(branches=branches):
                return any(self._conforms(value, branch, depth + 1) for branch in branches)
            case Array(items=items):
                return isinstance(value, list) and all(self._conforms(item, items, depth + 1) for item in value)
            case Map(values=values):
                return isinstance(value, dict) and all(
                    self._conforms(item, values, depth + 1) for item in value.values()
                )
            case Enum() as enum:
                return isinstance(value, str) and value in self._symbols_of(enum)
            case Fixed(size=size):
                return _is_binary(value) and len(value) == size
            case Record() as record:
                return isinstance(value, dict) and self._is_record(value, record, depth)

    def _symbols_of(self, enum: Enum) -> frozenset[str]:
        if enum.name not in self._symbols:
            self._symbols[enum.name] = frozenset(enum.symbols)
        return self._symbols[enum.name]

    def _is_record(self, value: dict[str, Any], record: Record, depth: int) -> bool:
        key = id(record), id(value)
        if key not in self._known:
            self._known[key] = all(self._has_field(value, field, depth) for field in record.fields)
        return self._known[key]

    def _has_field(self, value: dict[str, Any], field: Field, depth: int) -> bool:
        if field.name not in value:
            return field.default is not None
        return self._conforms(value[field.name], field.type, depth + 1)


def _type_words(type_: Type) -> str:
    return f'"{fragment(type_.name)}"' if isinstance(type_, Link) else str(type_)


def _is_whole(value: Any, bits: int) -> bool:
    limit = 1 << (bits - 1)
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _is_number(value: Any, layout: str) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        struct.pack(layout, value)
    except (OverflowError, struct.error):
        return False
    return True


def _is_binary(value: Any) -> bool:
    """Return whether a value is a string that stands for bytes: each character, at most U+00FF, is one byte."""
    return isinstance(value, str) and (value.isascii() or max(value) <= "\xff")


_PRIMITIVES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_whole(value, 32),
    "long": lambda value: _is_whole(value, 64),
    "float": lambda value: _is_number(value, "<f"),
    "double": lambda value: _is_number(value, "<d"),
    "bytes": _is_binary,
    "string": lambda value: isinstance(value, str),
}
