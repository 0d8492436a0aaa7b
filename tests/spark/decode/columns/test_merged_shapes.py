"""Shapes of several schemas as one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.merged_shapes import merged
from penstock.spark.decode.columns.shapes import (
    ANYTHING,
    Entries,
    Field,
    Items,
    Leaf,
    Record,
    Shape,
    arrow_type,
    without_readers,
)

DECIMAL = Leaf(pa.decimal128(10, 2))


def record(**shapes: Shape) -> Record:
    return Record(tuple(Field(name, shape, (name,)) for name, shape in shapes.items()))


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (leaves.INT, leaves.INT, "int32"),
        (leaves.INT, leaves.LONG, "int64"),
        (leaves.INT, leaves.FLOAT, "double"),
        (leaves.LONG, leaves.DOUBLE, "double"),
        (leaves.STRING, leaves.BINARY, "binary"),
        (leaves.INT, DECIMAL, "decimal128(12, 2)"),
        (DECIMAL, Leaf(pa.decimal128(12, 4)), "decimal128(12, 4)"),
        (Leaf(pa.decimal128(38, 0)), Leaf(pa.decimal128(38, 10)), "string"),
        (DECIMAL, leaves.DOUBLE, "string"),
        (leaves.STRING, leaves.LONG, "string"),
        (leaves.DATE, leaves.DATE_TIME, "string"),
        (leaves.STRING, leaves.DATE_TIME, "string"),
        (Items(leaves.INT), Items(leaves.LONG), "list<element: int64>"),
        (Items(leaves.INT), leaves.INT, "string"),
        (Entries(leaves.STRING, leaves.INT), Entries(leaves.STRING, leaves.LONG), "map<string, int64>"),
        (Entries(leaves.STRING, leaves.INT), Entries(leaves.INT, leaves.INT), "string"),
        (record(a=leaves.INT), record(b=leaves.INT), "struct<a: int32, b: int32>"),
        (record(a=leaves.INT, b=leaves.INT), record(b=leaves.LONG), "struct<a: int32, b: int64>"),
        (record(a=leaves.INT), ANYTHING, "string"),
    ],
)
def test_two_types_become_one_that_takes_the_values_of_both(first: Shape, second: Shape, together: str) -> None:
    assert str(arrow_type(merged(first, second))) == together
    assert str(arrow_type(merged(second, first))) in (
        together,
        "struct<b: int32, a: int32>",
        "struct<b: int64, a: int32>",
    )


def test_a_field_keeps_all_that_it_was_ever_known_by() -> None:
    earlier = Record((Field("total", leaves.INT, ("total",)),))
    later = Record((Field("amount", leaves.LONG, ("amount", "total"), default=5),))
    assert merged(earlier, later) == Record((Field("amount", Leaf(pa.int64()), ("amount", "total"), default=5),))


def test_a_default_follows_its_field_into_the_wider_type() -> None:
    text = Record((Field("a", leaves.DOUBLE, ("a",)),))
    number = Record((Field("a", leaves.INT, ("a",), default=5),))
    (field,) = without_readers(merged(text, number)).fields
    assert (str(field.shape.type), field.default) == ("double", 5.0)


def test_what_only_one_of_two_requires_nothing_requires() -> None:
    first = Record((Field("a", leaves.INT, ("a",), is_required=True), Field("b", leaves.INT, ("b",), is_required=True)))
    second = Record(
        (Field("b", leaves.INT, ("b",), is_required=True), Field("c", leaves.INT, ("c",), is_required=True))
    )
    together = merged(first, second)
    assert isinstance(together, Record)
    assert {field.name: field.is_required for field in together.fields} == {"a": False, "b": True, "c": False}
