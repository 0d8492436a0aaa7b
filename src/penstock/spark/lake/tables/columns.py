"""The columns of an archive table: the system columns of every message, and the typed columns of its topic's schemas.

Typed columns follow the system columns and only ever grow. Whole numbers are 64 bits and fractions double from the
start, so that a schema whose field gets wider needs no other table. A field that changes into a type that its column
cannot hold gets a second column beside it, named after the new type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

DAY_COLUMN: Final = "_day"
_TIME: Final = pa.timestamp("us", tz="UTC")

SYSTEM_COLUMNS: Final = pa.schema(
    [
        pa.field("_id", pa.binary()),
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", _TIME),
        pa.field("_producer", pa.string()),
        pa.field("_producer_id", pa.int64()),
        pa.field("_request_id", pa.int64()),
        pa.field("_schema_id", pa.int64()),
        pa.field("_schema_version", pa.int32()),
        pa.field("_attributes", pa.map_(pa.string(), pa.string())),
        pa.field("_type", pa.string()),
        pa.field("_key", pa.binary()),
        pa.field("_value", pa.binary()),
        pa.field(DAY_COLUMN, pa.date32()),
    ]
)
"""First columns of every archive table, in this order."""

BAD_COLUMNS: Final = SYSTEM_COLUMNS.append(pa.field("_reason", pa.string()))
"""Columns of a bad-rows table: the system columns, and why the payload did not decode."""

LOG_NAMES: Final = {
    "_id": "id",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_producer": "producer_name",
    "_producer_id": "producer_id",
    "_request_id": "request_id",
    "_schema_id": "schema_id",
    "_schema_version": "schema_version",
    "_attributes": "attributes",
    "_type": "type",
    "_key": "key",
    "_value": "value",
}
"""Names in the log of the system columns that have another name there, by their name in the table."""

_RESERVED: Final = {name.lower() for name in (*SYSTEM_COLUMNS.names, "_reason")}
_UNUSABLE: Final = re.compile(r"[ ,;{}()\n\t=.`]")
"""Characters that Delta refuses in a column's name; a dot or a backtick makes a name that cannot be queried."""


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The column, its name and type, for the values of one field of a schema. `field` is the field's number."""

    field: int
    column: str
    kind: pa.DataType


def column_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the column for values of type `kind`: 64 bits for whole numbers, double for fractions. Names
    of struct fields are changed to names that tables accept."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(name, column_type(field.type)) for name, field in _named(kind)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, column_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", column_type(kind.value_type)))
    return _plain(kind)


def canonical(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the form in which schemas are compared: all fields nullable, elements of lists called
    `element`, and no large or fixed-size types."""
    return pa.schema([pa.field(field.name, _canonical(field.type)) for field in schema])


def _canonical(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _canonical(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_canonical(kind.key_type), _canonical(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _canonical(kind.value_type)))
    return _plain(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _named(kind: pa.StructType) -> Iterable[tuple[str, pa.Field]]:
    """Yield each field of a struct, after its name in the table: without characters that Delta refuses, and different
    from the other names even if case is ignored."""
    taken: set[str] = set()
    for field in kind:
        name = _free(_clean(field.name), taken)
        taken.add(name.lower())
        yield name, field


def merged_type(column: pa.DataType, kind: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that holds values of both types: the same type, or structs with the fields of both.
    Return None if there is none."""
    if column.equals(kind):
        return column
    if pa.types.is_struct(column) and pa.types.is_struct(kind):
        return _merged_struct(column, kind)
    if pa.types.is_list(column) and pa.types.is_list(kind):
        inner = merged_type(column.value_type, kind.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_map(column) and pa.types.is_map(kind) and column.key_type.equals(kind.key_type):
        inner = merged_type(column.item_type, kind.item_type)
        return None if inner is None else pa.map_(column.key_type, inner)
    if pa.types.is_decimal(column) and pa.types.is_decimal(kind):
        fits = kind.scale == column.scale and kind.precision <= column.precision
        return column if fits else None
    return None


def _merged_struct(column: pa.StructType, kind: pa.StructType) -> pa.DataType | None:
    fields = {field.name: field.type for field in column}
    for field in kind:
        inner = merged_type(fields[field.name], field.type) if field.name in fields else field.type
        if inner is None:
            return None
        fields[field.name] = inner
    return pa.struct(list(fields.items()))


def place_fields(table: pa.Schema, fields: pa.Schema) -> tuple[pa.Schema, tuple[ColumnMapping, ...]]:
    """Return the table's schema extended by the columns that these fields need, and the mapping of each field to its
    column."""
    columns = {field.name: field.type for field in table}
    by_fold = {name.lower(): name for name in columns}
    used = set(_RESERVED)
    mappings = []
    for number, field in enumerate(fields):
        kind = column_type(field.type)
        name, together = _column_for(_clean(field.name), kind, columns, by_fold, used)
        columns[name] = together
        by_fold[name.lower()] = name
        used.add(name.lower())
        mappings.append(ColumnMapping(number, name, together))
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()]), tuple(mappings)


def _column_for(
    name: str, kind: pa.DataType, columns: dict[str, pa.DataType], by_fold: dict[str, str], used: set[str]
) -> tuple[str, pa.DataType]:
    """Return the name and the new type of the column for values of type `kind`. It is the column `name`, or, if that
    cannot hold the values, the first other candidate that can or that does not exist yet."""
    for candidate in _candidates(name, kind):
        if candidate.lower() in used:
            continue
        existing = by_fold.get(candidate.lower())
        if existing is None:
            return candidate, kind
        together = merged_type(columns[existing], kind)
        if together is not None:
            return existing, together
    raise AssertionError("candidates never end")


def _candidates(name: str, kind: pa.DataType) -> Iterable[str]:
    yield name
    yield f"{name}__{_kind_name(kind)}"
    number = 2
    while True:
        yield f"{name}__{number}"
        number += 1


def _kind_name(kind: pa.DataType) -> str:
    return re.sub(r"[^a-z0-9]+", "_", str(kind).lower()).strip("_")[:40] if not pa.types.is_nested(kind) else "nested"


def _clean(name: str) -> str:
    return _UNUSABLE.sub("_", name) or "_"


def _free(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free.lower() in taken:
        free, number = f"{name}__{number}", number + 1
    return free
