"""Shapes: descriptions of payloads that are the same for all schema languages: leaves, records, lists and maps.

A shape is used in two ways. As the *target* it describes columns: it is made on the driver, and pickled. As the
*writer's* shape it also has functions that take values out of payloads (`read`, `get`, `Wrapped`); it is made by the
module of its language, and is not pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

Values = Sequence[Any]
Read = Callable[[Values, pa.DataType], pa.Array]
"""A function that makes an array of a given type from values of a language; None becomes null. Raises `ValueError` or
another of `VALUE_ERRORS` for a value that does not fit."""
Get = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")
DECIMAL_DIGITS_MAX: Final = 38
"""Digits of the longest decimal that Spark and the tables hold."""

DEPTH_MAX: Final = 32
"""The most levels of records, lists and maps: values deeper than that are JSON text. Spark's own plans grow with each
level."""
SHAPES_MAX: Final = 10_000
"""The most shapes of one schema; a type counts as often as it is used. Any further ones are JSON text."""

ROOT_COLUMN: Final = "value"
"""The name of the column for payloads that are no records."""
ROOT_KEY: Final = "$"


@dataclass(frozen=True, slots=True)
class Leaf:
    type: pa.DataType
    read: Read | None = None
    is_text: bool = False
    """True if the column has JSON text for values of any type: for recursive types, and for types without a common
    type."""


@dataclass(frozen=True, slots=True)
class Record:
    fields: tuple[Field, ...]
    name: str = ""
    is_choice: bool = False
    """True for a union, which has one field for each of its branches: at most one of them has a value."""


@dataclass(frozen=True, slots=True)
class Items:
    item: Shape


@dataclass(frozen=True, slots=True)
class Entries:
    key: Leaf
    value: Shape


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A shape whose written value lies within another value, from which `get` takes it, as in Protobuf's wrappers."""

    shape: Shape
    get: Get


Shape = Leaf | Record | Items | Entries | Wrapped


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    """The name of the column."""
    shape: Shape
    keys: tuple[str, ...]
    """Keys of the field in payloads: its name and aliases, or in Protobuf its number. The field's own name is the
    first."""
    default: Any = None
    """The value for messages whose schema lacks the field, in a form that `pa.scalar` accepts; None for null."""
    is_required: bool = False
    get: Get | None = None
    pick: Callable[[Values], Values] | None = None
    """A getter for many values at once, none of which is None. If it is None, `get` is called for each value."""
    slot: str = ""
    """The attribute that holds the value, if rows are objects of a class made for the schema (JSON); else ""."""


ANYTHING: Final = Leaf(pa.string(), is_text=True)


def arrow_type(shape: Shape) -> pa.DataType:
    """Return the Arrow type, with inner fields named as Spark names them: Spark compares these names, too."""
    match shape:
        case Leaf(type=kind):
            return kind
        case Record(fields=fields):
            return pa.struct([arrow_field(each) for each in fields])
        case Items(item=item):
            return pa.list_(pa.field("element", arrow_type(item)))
        case Entries(key=key, value=value):
            return pa.map_(key.type, pa.field("value", arrow_type(value)))
        case Wrapped(shape=inner):
            return arrow_type(inner)


def arrow_field(field: Field) -> pa.Field:
    """Return the Arrow field, which may always be null: an older schema may lack a field that a newer one requires."""
    return pa.field(field.name, arrow_type(field.shape))


def arrow_schema(record: Record) -> pa.Schema:
    return pa.schema([arrow_field(each) for each in record.fields])


def root_record(shape: Shape) -> Record:
    """Return the record of a whole payload. A payload that is no record has a single column."""
    if isinstance(shape, Record) and not shape.is_choice:
        return shape
    return Record((Field(ROOT_COLUMN, shape, (ROOT_KEY,), get=_itself),))


def is_bare_value(record: Record) -> bool:
    return len(record.fields) == 1 and record.fields[0].keys == (ROOT_KEY,)


def _itself(value: Any) -> Any:
    return value


def without_readers(shape: Shape) -> Any:
    """Return the shape without its functions, so that it can be pickled.

    Fields of a record whose names differ by case alone are renamed, since Spark and the tables would take them for one.
    """
    match shape:
        case Leaf():
            return replace(shape, read=None)
        case Record(fields=fields):
            names = _distinct(each.name for each in fields)
            return replace(shape, fields=tuple(_bare_field(*each) for each in zip(fields, names, strict=True)))
        case Items(item=item):
            return Items(without_readers(item))
        case Entries(key=key, value=value):
            return Entries(without_readers(key), without_readers(value))
        case Wrapped(shape=inner):
            return without_readers(inner)


def _bare_field(field: Field, name: str) -> Field:
    return replace(
        field, name=name, shape=without_readers(field.shape), is_required=False, get=None, pick=None, slot=""
    )


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """Yield names made distinct: `id`, `ID` become `id`, `ID_2`."""
    taken: set[str] = set()
    for name in names:
        found, number = name, 1
        while found.casefold() in taken:
            number += 1
            found = f"{name}_{number}"
        taken.add(found.casefold())
        yield found


def kind_of(shape: Shape) -> str:
    """Return a name of the shape's type, for error messages and for comparing the branches of a union."""
    match shape:
        case Leaf(is_text=True):
            return "any JSON"
        case Leaf(type=kind):
            return str(kind)
        case Record(is_choice=True):
            return "union"
        case Record(name=name):
            return f"record {name}".rstrip()
        case Items():
            return "array"
        case Entries():
            return "map"
        case Wrapped(shape=inner):
            return kind_of(inner)


class Budget:
    """A limit on the size of one schema's shape. It does not detect recursive types: the builders of shapes do."""

    def __init__(self) -> None:
        self._left = SHAPES_MAX

    def allows(self, depth: int) -> bool:
        self._left -= 1
        return self._left >= 0 and depth < DEPTH_MAX
