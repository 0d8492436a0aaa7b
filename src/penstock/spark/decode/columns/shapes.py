"""Shapes: what a payload is made of, in no language of its own: leaves, records, lists, maps, and their Arrow types.

A shape stands for two things. As the *target* it describes columns: it is made on the driver, and travels. As the
*writer's* shape it also knows how to take values out of payloads (`read`, `get`, `Wrapped`), stays in its process, and
is made by the module of its language. Neither Spark nor a payload comes in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

Values = Sequence[Any]
Read = Callable[[Values, pa.DataType], pa.Array]
"""An array of this type, of values as a language has them; None is null. Raises a `ValueError` or its like."""
Get = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")
DECIMAL_DIGITS_MAX: Final = 38
"""What Spark and the tables have room for."""

DEPTH_MAX: Final = 32
"""Levels of records, lists and maps: what lies deeper is JSON text. Spark's own plans grow with each."""
SHAPES_MAX: Final = 10_000
"""In one schema, with what is referred to written out as often as it is used. What comes after is JSON text."""

ROOT_COLUMN: Final = "value"
"""The one column of payloads that are no records."""
ROOT_KEY: Final = "$"


@dataclass(frozen=True, slots=True)
class Leaf:
    type: pa.DataType
    read: Read | None = None
    is_text: bool = False
    """JSON text of a value of any kind: of recursive types, and of what has no type that all agree on."""


@dataclass(frozen=True, slots=True)
class Record:
    fields: tuple[Field, ...]
    name: str = ""
    is_choice: bool = False
    """Of its fields at most one has a value: a union, with one field for each of its branches."""


@dataclass(frozen=True, slots=True)
class Items:
    item: Shape


@dataclass(frozen=True, slots=True)
class Entries:
    key: Leaf
    value: Shape


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What was written lies within something else, which `get` takes it out of."""

    shape: Shape
    get: Get


Shape = Leaf | Record | Items | Entries | Wrapped


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    """Of the column."""
    shape: Shape
    keys: tuple[str, ...]
    """What it is known by in payloads: names, and aliases; in Protobuf numbers. Its own comes first."""
    default: Any = None
    """For messages whose schema does not have the field; as `pa.scalar` takes it."""
    is_required: bool = False
    get: Get | None = None
    pick: Callable[[Values], Values] | None = None
    """The same of many at once, none of which is None; `get` of each, if it is None."""
    slot: str = ""
    """The attribute that holds it, where values are objects made for the purpose."""


ANYTHING: Final = Leaf(pa.string(), is_text=True)


def arrow_type(shape: Shape) -> pa.DataType:
    """As Spark writes it down: it compares the names of inner fields too."""
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
    """Every column may be null: a schema that requires a field may come after messages without it."""
    return pa.field(field.name, arrow_type(field.shape))


def arrow_schema(record: Record) -> pa.Schema:
    return pa.schema([arrow_field(each) for each in record.fields])


def root_record(shape: Shape) -> Record:
    """What a whole payload is. One that is no record has a single column."""
    if isinstance(shape, Record) and not shape.is_choice:
        return shape
    return Record((Field(ROOT_COLUMN, shape, (ROOT_KEY,), get=_itself),))


def is_bare_value(record: Record) -> bool:
    return len(record.fields) == 1 and record.fields[0].keys == (ROOT_KEY,)


def _itself(value: Any) -> Any:
    return value


def without_readers(shape: Shape) -> Any:
    """What columns look like, and nothing of how payloads are read: it can be pickled. In no record two names differ
    by their case alone, which Spark and the tables would take for one."""
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
    """`id`, `ID` become `id`, `ID_2`."""
    taken: set[str] = set()
    for name in names:
        found, number = name, 1
        while found.casefold() in taken:
            number += 1
            found = f"{name}_{number}"
        taken.add(found.casefold())
        yield found


def kind_of(shape: Shape) -> str:
    """A word for people, and what the branches of a union are told apart by."""
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
    """How large a shape may get. Recursive types are not its concern: who builds shapes knows where it has been."""

    def __init__(self) -> None:
        self._left = SHAPES_MAX

    def allows(self, depth: int) -> bool:
        self._left -= 1
        return self._left >= 0 and depth < DEPTH_MAX
