"""The columns of a topic: exactly Spark's types, exactly what was asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.source_kit import location, make_logs, unchanged

from penstock.core.errors import InvalidRequest
from penstock.spark.scan.columns import COLUMNS, DEFAULT_NAMES, NAMES, NULLABLE, BatchBuilder, schema_of
from penstock.spark.scan.slice_reader import blocks
from penstock.spark.scan.slices import Slice


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("columns") / "data")


def test_columns_stand_in_the_order_they_are_asked_for() -> None:
    assert schema_of(["value", "key"]).names == ["value", "key"]


@pytest.mark.parametrize(
    ("names", "what"), [([], "no columns"), (["offset", "ofset"], "'ofset'"), (["id", "id"], "twice")]
)
def test_columns_that_are_not_there_or_twice_are_refused_by_name(names: list[str], what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        schema_of(names)


def test_attributes_are_made_only_on_request() -> None:
    assert set(NAMES) - set(DEFAULT_NAMES) == {"attributes"}


def test_every_batch_has_the_types_of_the_columns_whatever_its_size(logs: Path) -> None:
    part = Slice(location(logs), "/default/orders", 0, 0, 50, 0)
    maker = BatchBuilder(NAMES, part.topic, part.partition, rows_max=4)
    rows = unchanged(logs)["/default/orders", 0]
    for rows_max in (1, 7, 50):
        for block in blocks(part, rows_max=rows_max):
            batch = maker.batch(block)
            batch.validate(full=True)
            assert batch.schema == COLUMNS
            first = int(block.offsets.start)
            assert batch.to_pylist() == rows[first : first + len(block)]


def test_a_batch_stays_as_it_is_when_the_block_is_gone(logs: Path) -> None:
    part = Slice(location(logs), "/default/orders", 0, 0, 1, 0)
    (block,) = blocks(part)
    batch = BatchBuilder(NAMES, part.topic, part.partition, rows_max=1).batch(block)
    before = batch.to_pylist()
    block.data.fill(0)
    assert batch.to_pylist() == before


def test_the_types_are_those_that_spark_makes_of_its_own() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    assert to_arrow_schema(from_arrow_schema(COLUMNS), timezone="UTC") == COLUMNS
    assert {field.name for field in COLUMNS if field.nullable} == NULLABLE
    assert pa.types.is_map(COLUMNS.field("attributes").type)
