"""The column that a field goes to, and the growth of columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.lake.tables.cast import cast_array
from penstock.spark.lake.tables.columns import SYSTEM_COLUMNS, canonical, column_type, merged_type, place_fields

LEAVES = st.sampled_from(
    [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.date32()]
)


def struct_of(kinds: list[pa.DataType]) -> pa.DataType:
    return pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])


TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(struct_of),
    ),
    max_leaves=5,
)


def schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


def columns(table: pa.Schema, fields: pa.Schema) -> list[str]:
    return [mapping.column for mapping in place_fields(table, fields)[1]]


def test_numbers_are_as_wide_as_they_get() -> None:
    inner = pa.list_(pa.struct([("a", pa.float32())]))
    assert column_type(pa.int8()) == pa.int64()
    assert column_type(pa.uint16()) == pa.int64()
    assert column_type(inner) == pa.list_(pa.field("element", pa.struct([("a", pa.float64())])))
    assert column_type(pa.map_(pa.string(), pa.int32())) == pa.map_(pa.string(), pa.int64())


def test_a_field_that_gets_wider_keeps_its_column() -> None:
    table, _ = place_fields(SYSTEM_COLUMNS, schema(a=pa.int32()))
    grown_schema, mappings = place_fields(table, schema(a=pa.int64()))
    assert grown_schema == table
    assert [mapping.column for mapping in mappings] == ["a"]


def test_a_field_of_another_type_gets_a_column_beside_it() -> None:
    table, _ = place_fields(SYSTEM_COLUMNS, schema(a=pa.int32()))
    grown_schema, mappings = place_fields(table, schema(a=pa.string()))
    assert [mapping.column for mapping in mappings] == ["a__string"]
    assert columns(grown_schema, schema(a=pa.string())) == ["a__string"]
    assert columns(grown_schema, schema(a=pa.int64())) == ["a"]
    assert columns(grown_schema, schema(a=pa.bool_())) == ["a__bool"]


def test_system_columns_are_never_written_over() -> None:
    found = columns(SYSTEM_COLUMNS, schema(_id=pa.int64(), _ID=pa.binary(), _day=pa.date32()))
    assert found == ["_id__int64", "_ID__binary", "_day__date32_day"]


def test_names_that_differ_in_capital_letters_alone_are_kept_apart() -> None:
    assert columns(SYSTEM_COLUMNS, schema(name=pa.string(), Name=pa.string())) == ["name", "Name__string"]


def test_structs_grow_by_fields() -> None:
    one, other = pa.struct([("a", pa.int64())]), pa.struct([("b", pa.string())])
    both = pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert merged_type(one, other) == both
    assert merged_type(pa.list_(pa.field("element", one)), pa.list_(pa.field("element", other))) == pa.list_(
        pa.field("element", both)
    )
    assert merged_type(one, pa.struct([("a", pa.string())])) is None
    assert merged_type(pa.decimal128(10, 2), pa.decimal128(8, 2)) == pa.decimal128(10, 2)
    assert merged_type(pa.decimal128(10, 2), pa.decimal128(10, 3)) is None


@given(TYPES, TYPES)
def test_whatever_comes_has_a_column_and_what_was_there_stays(one: pa.DataType, other: pa.DataType) -> None:
    table, _ = place_fields(SYSTEM_COLUMNS, schema(a=one))
    grown_schema, mappings = place_fields(table, schema(a=other, b=one))
    assert grown_schema.names[: len(table.names)] == table.names
    assert len({mapping.column for mapping in mappings}) == 2
    assert place_fields(grown_schema, schema(a=other, b=one)) == (grown_schema, mappings)
    assert canonical(grown_schema) == grown_schema


VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        found: st.SearchStrategy[Any] = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        entry = st.tuples(st.text(max_size=3), values_of(kind.item_type))
        found = st.lists(entry, max_size=3, unique_by=lambda each: each[0])
    elif pa.types.is_struct(kind):
        found = st.fixed_dictionaries({each.name: values_of(each.type) for each in kind})
    else:
        found = VALUES[kind]
    return st.none() | found


@given(st.data(), TYPES)
def test_values_are_the_same_in_a_wider_type_also_of_a_slice(data: st.DataObject, kind: pa.DataType) -> None:
    values = data.draw(st.lists(values_of(kind), max_size=6))
    column = pa.array(values, kind)
    begin = data.draw(st.integers(0, len(values)))
    wide = column_type(kind)
    assert cast_array(column.slice(begin), wide, by_position=True).to_pylist() == values[begin:]
    assert cast_array(column.slice(begin), wide).to_pylist() == values[begin:]


def test_fields_that_are_not_there_are_null() -> None:
    column = pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))
    wide = pa.struct([("b", pa.string()), ("a", pa.int64())])
    assert cast_array(column, wide).to_pylist() == [{"b": None, "a": 1}, None]


def test_fields_are_taken_by_their_places_where_only_names_differ() -> None:
    column = pa.array([{"x y": 1}], pa.struct([("x y", pa.int32())]))
    assert cast_array(column, pa.struct([("x_y", pa.int64())]), by_position=True).to_pylist() == [{"x_y": 1}]
