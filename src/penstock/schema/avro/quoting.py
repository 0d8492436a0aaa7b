"""Pieces of schemas as they are quoted in problems: short, with the types they use by name."""

from __future__ import annotations

from typing import Any, Final

from penstock.schema.avro.canonical import json_of
from penstock.schema.avro.model import Array, Enum, Field, Fixed, Link, Map, Primitive, Record, Type, Union
from penstock.schema.problems import FRAGMENT_CHARS_MAX, fragment

_MEMBERS_MAX: Final = FRAGMENT_CHARS_MAX // len('"x",')
"""Of a list: where there are more, the quotation ends within them."""


def quoted(piece: Type | Field) -> str:
    if isinstance(piece, Field):
        return fragment(json_of({"name": fragment(piece.name), "type": _used(piece.type)}))
    return fragment(json_of(_defined(piece)))


def _defined(type_: Type) -> Any:
    match type_:
        case Record(name=name, keyword=keyword):
            return {"name": name, "type": keyword}
        case Enum(name=name, symbols=symbols):
            return {"name": name, "symbols": symbols[:_MEMBERS_MAX], "type": "enum"}
        case Fixed(name=name, size=size):
            return {"name": name, "size": size, "type": "fixed"} | _logical(type_)
        case _:
            return _used(type_)


def _used(type_: Type) -> Any:
    match type_:
        case Primitive(kind=kind):
            return {"type": kind} | _logical(type_) if type_.logical else kind
        case Array(items=items):
            return {"items": _used(items), "type": "array"}
        case Map(values=values):
            return {"type": "map", "values": _used(values)}
        case Union(branches=branches):
            return [_used(branch) for branch in branches[:_MEMBERS_MAX]]
        case Link() | Record() | Enum() | Fixed():
            return type_.name


def _logical(type_: Primitive | Fixed) -> dict[str, Any]:
    if type_.logical is None:
        return {}
    name, precision, scale = type_.logical
    numbers = {"precision": precision, "scale": scale} if precision else {}
    return {"logicalType": name} | numbers
