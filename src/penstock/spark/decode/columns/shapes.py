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
"""A function that makes an array of this type from a language's values; None is null. Raises a `ValueError` or its
like."""
Get = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")
DECIMAL_DIGITS_MAX: Final = 38
"""Digits of the longest decimal that Spark and the tables hold."""

DEPTH_MAX: Final = 32
"""Levels of records, lists and maps: deeper values are JSON text. Spark's own plans grow with each level."""
SHAPES_MAX: Final = 10_000
"""Shapes of one schema, with references written out as often as they are used. Further ones are JSON text."""

ROOT_COLUMN: Final = "value"
"""The one column of payloads that are no records."""
ROOT_KEY: Final = "$"


@dataclass(frozen=True, slots=True)
class Leaf:
    type: pa.DataType
    read: Read | None = None
    is_text: bool = False
    """JSON text of a value of any kind: of recursive types, and of types without a common type."""


@dataclass(frozen=True, slots=True)
class Record:
    fields: tuple[Field, ...]
    name: str = ""
    is_choice: bool = False
    """A union, with one field for each of its branches: at most one field has a value."""


@dataclass(frozen=True, slots=True)
class Items:
    item: Shape


@dataclass(frozen=True, slots=True)
class Entries:
    key: Leaf
    value: Shape


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A written value within another one, from which `get` takes it."""

    shape: Shape
    get: Get


Shape = Leaf | Record | Items | Entries | Wrapped


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    """The name of the column."""
    shape: Shape
    keys: tuple[str, ...]
    """Keys of the field in payloads: names and aliases; in Protobuf numbers. Its own comes first."""
    default: Any = None
    """The value for messages whose schema lacks the field; as `pa.scalar` takes it."""
    is_required: bool = False
    get: Get | None = None
    pick: Callable[[Values], Values] | None = None
    """The getter for many values at once, none of which is None; if there is no `pick`, `get` is called for each."""
    slot: str = ""
    """The attribute that holds the value, where values are objects made for the purpose."""


ANYTHING: Final = Leaf(pa.string(), is_text=True)


def arrow_type(shape: Shape) -> pa.DataType:
    """Return the Arrow type as Spark names it: Spark compares the names of inner fields, too."""
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
    """Return a nullable Arrow field: a schema that requires a field may come after messages without it."""
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
    """Return the shape without readers, so that it can be pickled.

    No record has two names that differ by case alone, which Spark and the tables would take for one.
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
    """Return a word for people, which also tells the branches of a union apart."""
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
    """The bound on the size of a shape. Builders of shapes detect recursive types themselves."""

    def __init__(self) -> None:
        self._left = SHAPES_MAX

    def allows(self, depth: int) -> bool:
        self._left -= 1
        return self._left >= 0 and depth < DEPTH_MAX
