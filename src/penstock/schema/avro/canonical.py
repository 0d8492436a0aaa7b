"""One text for all ways to write the same schema.

It is the specification's Parsing Canonical Form, and keeps what that leaves out: documentation, aliases, defaults,
order, logical types and all other properties, sorted. A name of what has none (`{"type": "int", "name": "x"}`) is gone.
Types from references stand in it by their full names, and each is defined on a line of its own below.
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
    Node,
    Primitive,
    Record,
    Schema,
    Type,
    Union,
)

_NAMES: Final = frozenset({"name", "namespace"})
"""Words of the specification that say nothing of a primitive type, an array, a map or the use of another type."""

_JSON: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def json_of(value: Any) -> str:
    return _JSON.encode(value)


def canonical(schema: Schema, *, needless_names: bool = False) -> str:
    """Equal for schemas that differ in white space, order of keys and ways to write a name or a type, and only for
    those. `needless_names`: also names of types that have none count."""
    spelling = _Spelling(schema.own, frozenset() if needless_names else _NAMES)
    lines = [spelling.of(schema.root)]
    for name in spelling.foreign:  # grows as types are spelled that need others
        spelling.defined = frozenset({name})
        lines.append(spelling.of(schema.types[name]))
    return "\n".join(lines)


class _Spelling:
    def __init__(self, defined: frozenset[str], unsaid: frozenset[str]) -> None:
        self.defined = defined
        """Types to be spelled out where their definitions stand; the others are named."""
        self.foreign: list[str] = []
        """Types that were named and are not spelled out, each once, in the order of their first use."""
        self._named: set[str] = set(defined)
        self._unsaid = unsaid
        """Properties that are left out of types without a name."""

    def of(self, type_: Type) -> str:
        match type_:
            case Link(name=name):
                return self._with_properties(self._name(name), type_)
            case Primitive(kind=kind):
                return self._with_properties(json_of(kind), type_)
            case Union(branches=branches):
                return _array(map(self.of, branches))
            case Array(items=items):
                return _object({"type": json_of("array"), "items": self.of(items)}, self._rest(type_))
            case Map(values=values):
                return _object({"type": json_of("map"), "values": self.of(values)}, self._rest(type_))
            case Record() | Enum() | Fixed():
                return self._definition(type_) if type_.name in self.defined else self._name(type_.name)

    def _name(self, name: str) -> str:
        if name not in self._named:
            self._named.add(name)
            self.foreign.append(name)
        return json_of(name)

    def _with_properties(self, name: str, type_: Primitive | Link) -> str:
        rest = self._rest(type_)
        return _object({"type": name}, rest) if rest else name

    def _rest(self, type_: Primitive | Link | Array | Map) -> dict[str, str]:
        return {key: text for key, text in _properties(type_).items() if key not in self._unsaid}

    def _definition(self, type_: Record | Enum | Fixed) -> str:
        rest = _properties(type_) | _naming(type_)
        match type_:
            case Record(fields=fields, keyword=keyword):
                own = {"type": json_of(keyword), "fields": _array(map(self._field, fields))}
            case Enum(symbols=symbols, default=default):
                own = {"type": json_of("enum"), "symbols": json_of(symbols)}
                rest |= {} if default is None else {"default": json_of(default)}
            case Fixed(size=size):
                own = {"type": json_of("fixed"), "size": json_of(size)}
        return _object({"name": json_of(type_.name)} | own, rest)

    def _field(self, field: Field) -> str:
        rest = {key: json_of(value) for key, value in field.properties.items()}
        if field.aliases:
            rest["aliases"] = json_of(field.aliases)
        if field.doc is not None:
            rest["doc"] = json_of(field.doc)
        if field.default is not None:
            rest["default"] = json_of(_number(field.default.value, field.type))
        if field.order != "ascending":
            rest["order"] = json_of(field.order)
        return _object({"name": json_of(field.name), "type": self.of(field.type)}, rest)


def _object(known: Mapping[str, str], rest: Mapping[str, str]) -> str:
    """Of texts: what the specification orders in its order, then the rest by name."""
    members = [*known.items(), *sorted(rest.items())]
    return "{" + ",".join(f"{json_of(key)}:{text}" for key, text in members) + "}"


def _array(texts: Iterable[str]) -> str:
    return "[" + ",".join(texts) + "]"


def _naming(type_: Named) -> dict[str, str]:
    named = {"aliases": json_of(type_.aliases)} if type_.aliases else {}
    return named if type_.doc is None else named | {"doc": json_of(type_.doc)}


def _properties(type_: Node) -> dict[str, str]:
    """A scale of nought need not be written."""
    unsaid = isinstance(type_, Primitive | Fixed) and _has_no_scale(type_.logical)
    return {key: json_of(value) for key, value in type_.properties.items() if not (unsaid and key == "scale")}


def _has_no_scale(logical: Logical | None) -> bool:
    return logical is not None and logical.name == "decimal" and logical.scale == 0


def _number(value: Any, type_: Type) -> Any:
    """`1` and `1.0` are the same number where the field holds fractions."""
    fractional = isinstance(type_, Primitive) and type_.kind in ("float", "double")
    return float(value) if fractional else value
