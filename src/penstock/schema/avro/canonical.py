"""The canonical text: one text for all spellings of the same schema.

It is the specification's Parsing Canonical Form plus what that leaves out: documentation, aliases, defaults, order,
logical types and all other properties, sorted. A name on a type that has none (`{"type": "int", "name": "x"}`) is
dropped. Types from references appear by their full names, and each is defined on a line of its own below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.schema.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Link,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Type,
    TypeNode,
    Union,
)

_NAMES: Final = frozenset({"name", "namespace"})
"""Attributes that mean nothing on a primitive type, an array, a map or the use of another type."""

_JSON: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def to_json(value: Any) -> str:
    return _JSON.encode(value)


def canonical(schema: Schema, *, needless_names: bool = False) -> str:
    """Return the canonical text. It is the same for schemas that differ only in white space, order of keys, and
    spellings of a name or a type.

    `needless_names`: keep `name` and `namespace` also where they mean nothing, as earlier releases did.
    """
    spelling = _CanonicalWriter(schema.own, frozenset() if needless_names else _NAMES)
    lines = [spelling.of(schema.root)]
    for name in spelling.foreign:  # grows while types that need others are written
        spelling.defined = frozenset({name})
        lines.append(spelling.of(schema.types[name]))
    return "\n".join(lines)


class _CanonicalWriter:
    def __init__(self, defined: frozenset[str], ignored: frozenset[str]) -> None:
        self.defined = defined
        """Types to be written out where their definitions stand; the others are written by name."""
        self.foreign: list[str] = []
        """Names of the types from references that the schema uses, each once, in the order of first use. Their
        definitions follow on lines of their own."""
        self._named: set[str] = set(defined)
        self._ignored = ignored
        """Properties that are left out of types without a name."""

    def of(self, type_: Type) -> str:
        match type_:
            case Link(name=name):
                return self._with_properties(self._name(name), type_)
            case Primitive(kind=kind):
                return self._with_properties(to_json(kind), type_)
            case Union(branches=branches):
                return _array(map(self.of, branches))
            case Array(items=items):
                return _object({"type": to_json("array"), "items": self.of(items)}, self._rest(type_))
            case Map(values=values):
                return _object({"type": to_json("map"), "values": self.of(values)}, self._rest(type_))
            case Record() | Enum() | Fixed():
                return self._definition(type_) if type_.name in self.defined else self._name(type_.name)

    def _name(self, name: str) -> str:
        if name not in self._named:
            self._named.add(name)
            self.foreign.append(name)
        return to_json(name)

    def _with_properties(self, name: str, type_: Primitive | Link) -> str:
        other_properties = self._rest(type_)
        return _object({"type": name}, other_properties) if other_properties else name

    def _rest(self, type_: Primitive | Link | Array | Map) -> dict[str, str]:
        return {key: text for key, text in _properties(type_).items() if key not in self._ignored}

    def _definition(self, type_: Record | Enum | Fixed) -> str:
        other_properties = _properties(type_) | _naming(type_)
        match type_:
            case Record(fields=fields, keyword=keyword):
                own = {"type": to_json(keyword), "fields": _array(map(self._field, fields))}
            case Enum(symbols=symbols, default=default):
                own = {"type": to_json("enum"), "symbols": to_json(symbols)}
                other_properties |= {} if default is None else {"default": to_json(default)}
            case Fixed(size=size):
                own = {"type": to_json("fixed"), "size": to_json(size)}
        return _object({"name": to_json(type_.name)} | own, other_properties)

    def _field(self, field: Field) -> str:
        other_properties = {key: to_json(value) for key, value in field.properties.items()}
        if field.aliases:
            other_properties["aliases"] = to_json(field.aliases)
        if field.doc is not None:
            other_properties["doc"] = to_json(field.doc)
        if field.default is not None:
            other_properties["default"] = to_json(_number(field.default.value, field.type))
        if field.order != "ascending":
            other_properties["order"] = to_json(field.order)
        return _object({"name": to_json(field.name), "type": self.of(field.type)}, other_properties)


def _object(known: Mapping[str, str], other_properties: Mapping[str, str]) -> str:
    """Return a JSON object as text. The `known` members come first, in their order; the others follow, sorted by name.
    The values are JSON texts already."""
    members = [*known.items(), *sorted(other_properties.items())]
    return "{" + ",".join(f"{to_json(key)}:{text}" for key, text in members) + "}"


def _array(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"


def _naming(type_: Named) -> dict[str, str]:
    named = {"aliases": to_json(type_.aliases)} if type_.aliases else {}
    return named if type_.doc is None else named | {"doc": to_json(type_.doc)}


def _properties(type_: TypeNode) -> dict[str, str]:
    """Return a type's properties as JSON texts. The scale of a decimal is left out if it is 0, because that is the
    default."""
    ignored = isinstance(type_, Primitive | Fixed) and _has_no_scale(type_.logical)
    return {key: to_json(value) for key, value in type_.properties.items() if not (ignored and key == "scale")}


def _has_no_scale(logical: Logical | None) -> bool:
    return logical is not None and logical.name == "decimal" and logical.scale == 0


def _number(value: Any, type_: Type) -> Any:
    """Return a default, as a float if the type is float or double, so that `1` and `1.0` have the same text."""
    fractional = isinstance(type_, Primitive) and type_.kind in ("float", "double")
    return float(value) if fractional else value
