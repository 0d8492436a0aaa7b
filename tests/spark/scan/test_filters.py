"""Filters: what Spark asks, what is done here, and that it is exact."""

from __future__ import annotations

import operator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from tests.spark.source_kit import EPOCH, TYPES, Row, location, make_logs, unchanged

from penstock.spark.scan.filters import NO_FILTERS, translate
from penstock.spark.scan.slice_reader import batches
from penstock.spark.scan.slices import open_data, plan_slices, view_within

COMPARED = {
    spark.EqualTo: operator.eq,
    spark.EqualNullSafe: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("filters") / "data", seed=5, messages=200)


def passes(row: Row, one: Any) -> bool:
    """Return whether a row passes a filter, by a plain reading of it."""
    value = row[one.attribute[0]]
    if isinstance(one, spark.In):
        return value in one.value
    if isinstance(one, spark.StringStartsWith):
        return bool(value.startswith(one.value))
    if isinstance(one, spark.IsNotNull):
        return value is not None
    return bool(COMPARED[type(one)](value, one.value))


def some_values(rows: list[Row]) -> dict[str, Any]:
    row = st.sampled_from(rows)
    around = st.sampled_from((-1500, -1000, -1, 0, 1, 1000))
    return {
        "topic": st.sampled_from(("/default/orders", "/shop/carts", "/default/empty", "nothing")),
        "partition": st.integers(-1, 4),
        "offset": st.integers(-2, len(rows)),
        "timestamp": st.builds(lambda one, us: one["timestamp"] + timedelta(microseconds=us), row, around),
        "id": st.one_of(row.map(lambda one: one["id"]), row.map(lambda one: one["id"][:9]), st.binary(max_size=20)),
        "type": st.sampled_from((*TYPES, "order")),
    }


@st.composite
def some_filters(draw: st.DrawFn, rows: list[Row]) -> list[Any]:
    values = some_values(rows)
    found: list[Any] = []
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.sampled_from(sorted(values)))
        texts = column in ("topic", "type")
        kinds: list[Any] = [spark.EqualTo, spark.In, spark.StringStartsWith] if texts else [*COMPARED, spark.In]
        kind = draw(st.sampled_from(kinds))
        value = draw(st.lists(values[column], max_size=3)) if kind is spark.In else draw(values[column])
        found.append(kind((column,), value))
    return found


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_filters_keep_exactly_the_rows_that_spark_would(logs: Path, data: st.DataObject) -> None:
    everything = [row for rows in unchanged(logs).values() for row in rows]
    asked = data.draw(some_filters(everything))
    filters, left = translate(asked)
    assert left == []
    found: list[Row] = []
    reader = open_data(location(logs))
    for (topic, partition), rows in unchanged(logs).items():
        if filters.matches_partition(topic, partition):
            view = view_within(reader, topic, partition, 0, len(rows))
            span = filters.clip(reader.disk, view, 0, len(rows))
            for part in plan_slices(
                location(logs), {(topic, partition): span}, slices_min=data.draw(st.integers(0, 3))
            ):
                for batch in batches(part, list(everything[0]), filters=filters):
                    found += batch.to_pylist()
    assert found == [row for row in everything if all(passes(row, one) for one in asked)]


def test_the_range_read_is_no_larger_than_the_one_asked_for(logs: Path) -> None:
    rows = unchanged(logs)["/default/orders", 0]
    reader = open_data(location(logs))
    view = view_within(reader, "/default/orders", 0, 0, len(rows))
    low, high = rows[10]["timestamp"], rows[80]["timestamp"]
    wanted = [row["offset"] for row in rows if low <= row["timestamp"] < high]
    filters, _ = translate([spark.GreaterThanOrEqual(("timestamp",), low), spark.LessThan(("timestamp",), high)])
    assert filters.clip(reader.disk, view, 0, len(rows)) == (wanted[0], wanted[-1] + 1)
    ids = rows[7]["id"], rows[9]["id"]
    filters, _ = translate([spark.GreaterThan(("id",), ids[0]), spark.LessThanOrEqual(("id",), ids[1])])
    assert filters.clip(reader.disk, view, 0, len(rows)) == (8, 10)


@pytest.mark.parametrize(
    "one",
    [
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("key", "part"), 1),
        spark.EqualTo(("offset",), "text"),
        spark.EqualTo(("offset",), 1.5),
        spark.EqualTo(("type",), 5),
        spark.EqualNullSafe(("type",), None),
        spark.EqualNullSafe(("id",), None),
        spark.EqualNullSafe(("offset",), None),
        spark.GreaterThan(("timestamp",), EPOCH.replace(tzinfo=None)),
        spark.In(("id",), ("text",)),
        spark.IsNotNull(("key",)),
        spark.IsNull(("offset",)),
        spark.Not(spark.EqualTo(("type",), "x")),
        spark.StringEndsWith(("type",), "x"),
    ],
)
def test_what_cannot_be_done_here_is_left_to_spark(one: Any) -> None:
    assert translate([one]) == (NO_FILTERS, [one])


def test_a_null_in_a_list_is_equal_to_nothing() -> None:
    filters, left = translate([spark.In(("partition",), (0, None))])
    assert left == []
    assert [number for number in range(3) if number in filters.partition] == [0]


def test_columns_that_are_never_null_need_no_look() -> None:
    never = ("value", "topic", "partition", "offset", "timestamp", "id", "type", "producer_id", "attributes")
    assert translate([spark.IsNotNull((name,)) for name in never]) == (NO_FILTERS, [])
