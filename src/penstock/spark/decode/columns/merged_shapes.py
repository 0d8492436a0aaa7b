"""Merged shapes: one shape that holds the values of several. Used for the target `merged`, and for choices in JSON
Schema.

Types become wider where that is possible: int and long become long, int and double become double. Otherwise the column
becomes JSON text. Two fields are the same if they share a key, which is a name, an alias or a number. The merged shape
does not know how to read values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.spark.decode.columns.leaves import wider
from penstock.spark.decode.columns.shapes import (
    ANYTHING,
    Entries,
    Field,
    Items,
    Leaf,
    Record,
    Shape,
    Wrapped,
    arrow_type,
    kind_of,
)


def merged(first: Shape, second: Shape) -> Shape:
    """Return one shape for the values of both. The second counts as the later one: its names are used for shared
    fields, and its new fields come behind those of the first."""
    match first, second:
        case (Wrapped(shape=inner), _):
            return merged(inner, second)
        case (_, Wrapped(shape=inner)):
            return merged(first, inner)
        case (Leaf(is_text=True), _) | (_, Leaf(is_text=True)):
            return ANYTHING
        case (Record(is_choice=True), _) | (_, Record(is_choice=True)):
            return _choices(first, second)
        case (Record(), Record()):
            return Record(_fields(first.fields, second.fields), _name(first, second))
        case (Leaf(), Leaf()):
            return wider(first, second) or ANYTHING
        case (Items(), Items()):
            return Items(merged(first.item, second.item))
        case (Entries(), Entries()) if first.key.type == second.key.type:
            return Entries(first.key, merged(first.value, second.value))
    return ANYTHING


def _name(first: Record, second: Record) -> str:
    return first.name if first.name == second.name else ""


def _fields(earlier: tuple[Field, ...], later: tuple[Field, ...]) -> tuple[Field, ...]:
    """Merge fields; a field that only one side has is no longer required."""
    found = [replace(field, is_required=False) for field in earlier]
    for field in later:
        place = _matching_index(found, field)
        if place is None:
            found.append(replace(field, is_required=False))
        else:
            required = earlier[place].is_required if place < len(earlier) else False
            found[place] = _field(replace(found[place], is_required=required), field)
    return tuple(found)


def _matching_index(fields: list[Field], wanted: Field) -> int | None:
    """Return the place of a field with a common key; or else with the same name, which two columns cannot share."""
    keys = set(wanted.keys)
    for place, field in enumerate(fields):
        if keys & set(field.keys):
            return place
    return next((place for place, field in enumerate(fields) if field.name == wanted.name), None)


def _field(earlier: Field, later: Field) -> Field:
    shape = merged(earlier.shape, later.shape)
    return Field(
        name=later.name,
        shape=shape,
        keys=tuple(dict.fromkeys((*later.keys, *earlier.keys))),
        default=_default(later, shape),
        is_required=earlier.is_required and later.is_required,
        get=later.get,
        pick=later.pick,
        slot=later.slot,
    )


def _default(field: Field, shape: Shape) -> Any:
    """Return the default converted to the merged type, None where that is impossible."""
    if field.default is None or arrow_type(shape) == arrow_type(field.shape):
        return field.default
    try:
        return pa.scalar(field.default, arrow_type(field.shape)).cast(arrow_type(shape)).as_py()
    except (pa.ArrowException, ValueError, TypeError):
        return None


def _choices(first: Shape, second: Shape) -> Record:
    members = list(choices(first))
    for member in choices(second):
        if not any(kind_of(each.shape) == kind_of(member.shape) for each in members):
            members.append(replace(member, name=f"member{len(members)}"))
    return Record(tuple(members), is_choice=True)


def choices(shape: Shape) -> tuple[Field, ...]:
    """Return the branches of a union. Any other shape counts as a union with one branch."""
    if isinstance(shape, Record) and shape.is_choice:
        return shape.fields
    return (Field("member0", shape, (kind_of(shape),), get=_itself),)


def _itself(value: Any) -> Any:
    return value
