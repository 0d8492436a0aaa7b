"""The conversion of Arrow arrays to the type of the column that they are written to or read as."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def cast_array(column: pa.Array, kind: pa.DataType, *, by_position: bool = False) -> pa.Array:
    """Return the values of `column` as an array of type `kind`, which must be able to hold them. Struct fields that the
    array lacks are null.

    Struct fields are matched by name; with `by_position` by position, for types that differ only in names.
    """
    if column.type.equals(kind):
        return column
    if pa.types.is_struct(kind):
        return _struct(column, kind, by_position=by_position)
    if pa.types.is_list(kind):
        return _list(column, kind, by_position=by_position)
    if pa.types.is_map(kind):
        return _map(column, kind, by_position=by_position)
    return column.cast(kind)


def _struct(column: pa.StructArray, kind: pa.StructType, *, by_position: bool) -> pa.Array:
    positions = {field.name: number for number, field in enumerate(column.type)}
    fields = []
    for number, field in enumerate(kind):
        position = number if by_position else positions.get(field.name)
        if position is None:
            fields.append(pa.nulls(len(column), field.type))
        else:
            fields.append(cast_array(column.field(position), field.type, by_position=by_position))
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=_mask(column))


def _list(column: pa.ListArray, kind: pa.ListType, *, by_position: bool) -> pa.Array:
    sizes = pc.fill_null(pc.list_value_length(column), 0)
    inner = cast_array(column.flatten(), kind.value_type, by_position=by_position)
    return pa.ListArray.from_arrays(_ends(sizes), inner, type=kind, mask=_mask(column))


def _map(column: pa.MapArray, kind: pa.MapType, *, by_position: bool) -> pa.Array:
    """Convert keys and values of a map. It is first cast to a list of its entries, since flattening a list leaves out
    the entries of null maps and those outside of a slice."""
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    inner = entries.flatten()
    sizes = pc.fill_null(pc.list_value_length(entries), 0)
    keys = cast_array(inner.field(0), kind.key_type, by_position=by_position)
    items = cast_array(inner.field(1), kind.item_type, by_position=by_position)
    return pa.MapArray.from_arrays(_ends(sizes), keys, items, type=kind, mask=_mask(column))


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _ends(sizes: pa.Array) -> pa.Array:
    """Return the list offsets, as Arrow has them, for consecutive lists of these sizes: 0, then each list's end."""
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes).cast(pa.int32())])
