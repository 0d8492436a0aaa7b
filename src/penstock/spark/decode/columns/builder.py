"""The builder of the target's columns from decoded values of rows: each column is made from the list of all its values.

A builder is made once for each pair of a target and a writer's schema. A field that the writer's schema lacks gets the
target's default, or null. A field that the target lacks is ignored. A value that cannot be turned into the target's
type raises `ValueMismatch` with its path in the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.client.serde.values import ValueMismatch, json_pointer
from penstock.spark.decode.columns.leaves import change, untimed
from penstock.spark.decode.columns.merged_shapes import choices
from penstock.spark.decode.columns.shapes import (
    Entries,
    Field,
    Get,
    Items,
    Leaf,
    Read,
    Record,
    Shape,
    Values,
    Wrapped,
    arrow_schema,
    arrow_type,
    kind_of,
)

Column = Callable[[Values], pa.Array]
AddGetter = Callable[[Column, Field], Column]

VALUE_ERRORS: Final = (
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    pa.ArrowException,
)
"""Errors that libraries raise for values that are not of the expected type."""


def pair_fields(target: Record, written: Record) -> Iterator[tuple[Field, Field | None]]:
    """Yield each field of the target with the written field that matches it by one of its keys; None if there is
    none."""
    known = {field.keys[0]: field for field in reversed(written.fields)}
    for field in target.fields:
        yield field, next((known[key] for key in field.keys if key in known), None)


class ColumnsBuilder:
    """A builder of batches in the target's columns from rows of one writer's schema."""

    def __init__(self, target: Record, written: Record, text: Read) -> None:
        """Prepare the columns. `text` is a function of the payloads' language that turns values of any type into JSON
        text."""
        self.schema = arrow_schema(target)
        self._columns = _Compiler(text).fields(target, written, picking=_with_row_getter)

    def build(self, rows: Values) -> pa.RecordBatch:
        """Return the rows as a batch; no row may be None. Raises `ValueMismatch`."""
        return pa.RecordBatch.from_arrays([column(rows) for column in self._columns], schema=self.schema)


def column(target: Shape, written: Shape, text: Read) -> Column:
    return _Compiler(text).column(target, written)


class _Compiler:
    def __init__(self, text: Read) -> None:
        self._text = text

    def column(self, target: Shape, written: Shape) -> Column:
        match target, written:
            case (_, Wrapped(shape=inner, get=get)):
                return _with_get(self.column(target, inner), get)
            case (Leaf(is_text=True), _):
                return self._texts(target, written)
            case (Record(is_choice=True), _) | (_, Record(is_choice=True)):
                return self._choice(target, written)
            case (Leaf(), Leaf(is_text=False)):
                return _leaf(target, written)
            case (Record(), Record()):
                return _struct(self.fields(target, written), arrow_type(target))
            case (Items(), Items()):
                return _list(self.column(target.item, written.item), arrow_type(target))
            case (Entries(), Entries()) if target.key.type == written.key.type:
                parts = self.column(target.key, written.key), self.column(target.value, written.value)
                return _map(*parts, arrow_type(target))
        return refusing(target, written)

    def fields(self, target: Record, written: Record, picking: AddGetter | None = None) -> list[Column]:
        return [self._field(*pair, picking or _with_getter) for pair in pair_fields(target, written)]

    def _field(self, target: Field, written: Field | None, picking: AddGetter) -> Column:
        if written is None:
            return _constant(target)
        return _naming_errors(target.name, picking(self.column(target.shape, written.shape), written))

    def _texts(self, target: Leaf, written: Shape) -> Column:
        is_text = isinstance(written, Leaf) and written.is_text
        read = written.read if isinstance(written, Leaf) and is_text and written.read else self._text
        return lambda values: read(values, target.type)

    def _choice(self, target: Shape, written: Shape) -> Column:
        """Return a column for a union: values of each of the writer's branches go to a matching branch of the target.

        Values of branches without a match raise `ValueMismatch`.
        """
        wanted, offered = choices(target), choices(written)
        pairs = _pair_branches(wanted, offered)
        columns = [
            _constant(field) if found is None else _with_getter(self.column(field.shape, found.shape), found)
            for field, found in pairs
        ]
        taken = [found for _, found in pairs]
        others = [each for each in offered if each not in taken]
        kind = arrow_type(target)
        make = _struct(columns, kind) if isinstance(target, Record) and target.is_choice else columns[0]
        return _rejecting(others, make) if others else make


def _pair_branches(wanted: tuple[Field, ...], offered: tuple[Field, ...]) -> list[tuple[Field, Field | None]]:
    """Pair each of the target's branches with one of the writer's; None if none is left that fits.

    A branch of the identical type is preferred to one whose type can be converted.
    """
    free = list(offered)
    exact = [_take_first(free, partial(_is_alike, field.shape)) for field in wanted]
    pairs = zip(wanted, exact, strict=True)
    return [(field, found or _take_first(free, partial(_converts, field.shape))) for field, found in pairs]


def _is_alike(target: Shape, written: Shape) -> bool:
    return kind_of(target) == kind_of(written)


def _take_first(fields: list[Field], fits: Callable[[Shape], bool]) -> Field | None:
    found = next((field for field in fields if fits(field.shape)), None)
    if found is not None:
        fields.remove(found)
    return found


def _converts(target: Shape, written: Shape) -> bool:
    if isinstance(written, Wrapped):
        return _converts(target, written.shape)
    if isinstance(written, Leaf) and isinstance(target, Leaf):
        return target.is_text or (not written.is_text and change(target, written) is not None)
    return type(written) is type(target)


# ---- columns


def _leaf(target: Leaf, written: Leaf) -> Column:
    if target.type == pa.string():
        written = untimed(written)
    turn, read, kind = change(target, written), written.read, written.type
    if turn is None or read is None:
        return refusing(target, written)
    if target.type == kind:
        return lambda values: read(values, kind)
    return lambda values: turn(read(values, kind))


def _constant(field: Field) -> Column:
    kind = arrow_type(field.shape)
    if field.default is None:
        return lambda values: pa.nulls(len(values), kind)
    scalar = pa.scalar(field.default, kind)
    return lambda values: pa.repeat(scalar, len(values))


def _struct(columns: list[Column], kind: pa.DataType) -> Column:
    fields = list(kind)

    def make(values: Values) -> pa.Array:
        return pa.StructArray.from_arrays([each(values) for each in columns], fields=fields, mask=_null_mask(values))

    return make


def _list(item: Column, kind: pa.DataType) -> Column:
    def make(values: Values) -> pa.Array:
        items = list(chain.from_iterable(each for each in values if each is not None))
        return pa.ListArray.from_arrays(_ends(values), item(items), type=kind, mask=_null_mask(values))

    return make


def _map(key: Column, value: Column, kind: pa.DataType) -> Column:
    def make(values: Values) -> pa.Array:
        entries = list(chain.from_iterable(each.items() for each in values if each is not None))
        keys, inner = key([name for name, _ in entries]), value([each for _, each in entries])
        return pa.MapArray.from_arrays(_ends(values), keys, inner, type=kind, mask=_null_mask(values))

    return make


def _ends(values: Values) -> pa.Array:
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if each is None else len(each) for each in values], out=ends[1:])
    return pa.array(ends)


def _null_mask(values: Values) -> pa.Array:
    return pa.array([each is None for each in values], pa.bool_())


def refusing(target: Shape, written: Shape) -> Column:
    """Return a column for two types without a conversion. Nulls stay null; any other value raises `ValueMismatch`."""
    kind = arrow_type(target)

    def make(values: Values) -> pa.Array:
        if any(not _is_null(each) for each in values):
            raise ValueMismatch(f"it was written as {kind_of(written)}, and is to be read as {kind_of(target)}")
        return pa.nulls(len(values), kind)

    return make


def _is_null(value: Any) -> bool:
    """Return whether a value is null: None, or JSON text `null` that was not parsed."""
    return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")


# ---- steps before a column


def _with_getter(make: Column, field: Field) -> Column:
    return _with_get(make, _getter(field))


def _with_get(make: Column, get: Get) -> Column:
    return lambda values: make([None if each is None else get(each) for each in values])


def _with_row_getter(make: Column, field: Field) -> Column:
    """Return a column over rows, none of which is None."""
    pick, get = field.pick, _getter(field)
    if pick is not None:
        return lambda values: make(pick(values))
    return lambda values: make(list(map(get, values)))


def _getter(field: Field) -> Get:
    if field.get is None:
        raise TypeError(f"{field.name} cannot be read: its shape says nothing of how")
    return field.get


def _rejecting(others: list[Field], make: Column) -> Column:
    """Return a column that raises for values of branches without a counterpart in the target."""

    def checked(values: Values) -> pa.Array:
        for field in others:
            if any(each is not None and field.get is not None and field.get(each) is not None for each in values):
                raise ValueMismatch(f"it was written as {kind_of(field.shape)}, which the target has no place for")
        return make(values)

    return checked


class _ColumnErrors(NamedTuple):
    name: str

    def locate(self, error: Exception) -> ValueMismatch:
        if isinstance(error, ValueMismatch):
            return ValueMismatch(error.message, json_pointer(self.name) + error.path)
        return ValueMismatch(error_line(error), json_pointer(self.name))


def _naming_errors(name: str, make: Column) -> Column:
    place = _ColumnErrors(name)

    def named(values: Values) -> pa.Array:
        try:
            return make(values)
        except VALUE_ERRORS as error:
            raise place.locate(error) from None

    return named


def error_line(error: Exception) -> str:
    """Return a library's error as one short line."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    text = str(error).splitlines()[0] if str(error) else ""
    return text[:200] or type(error).__name__
