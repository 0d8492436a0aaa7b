"""DataFrames written into tables and read from them. Workers write the rows where they are; the driver commits."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.cast import cast_array
from penstock.spark.lake.tables.columns import canonical, merged_type
from penstock.spark.lake.tables.compaction import file_layout_of
from penstock.spark.lake.tables.file_writer import FileWriter
from penstock.spark.lake.tables.table import AlreadyCommitted, CommitMarker, Committed, DataFile, LakeTable
from penstock.spark.lake.tables.table_scan import file_batches
from penstock.spark.runtime.failures import penstock_errors
from penstock.spark.runtime.versions import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITIONS: Final = (pa.types.is_date32, pa.types.is_string, pa.types.is_integer)
"""Types that a partition column may have: their values have the same text in folder names, table logs and rows."""


def write_frame(
    frame: DataFrame, table: LakeTable, marker: CommitMarker, *, partition_by: str | None = None
) -> Committed | AlreadyCommitted:
    """Add the rows of a DataFrame to a table, once for each query and batch of `marker`. If the table has that batch
    already, the DataFrame is not computed and the result is `AlreadyCommitted`.

    A missing table is created with the frame's columns, partitioned by `partition_by` if given; an existing table gets
    the columns that it lacks. Raises `InvalidRequest` for a column whose values the table's column cannot hold, and any
    error that stops a row from being read or written.
    """
    schema = _arrow_schema(frame)
    if not table.exists():
        _check_partition(schema, partition_by)
        table.create(schema, partition_by)
    batch = table.table_state(marker.query_id, []).batch
    if batch is not None and marker.batch_id <= batch:
        return AlreadyCommitted()
    table.evolve(grown_schema(table, schema))
    return table.commit(_write_files(frame, table, marker), marker)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    return canonical(arrow_schema(frame.schema))


def _check_partition(schema: pa.Schema, partition_by: str | None) -> None:
    if partition_by is not None and partition_by not in schema.names:
        raise InvalidRequest(f"partition by {partition_by!r}: the columns are {', '.join(schema.names)}")
    kind = None if partition_by is None else schema.field(partition_by).type
    if kind is not None and not any(test(kind) for test in _PARTITIONS):
        raise InvalidRequest(
            f"partition by {partition_by!r}: it is {kind}, and a table is partitioned by dates, texts or whole numbers;"
            " make such a column of it, a day of a time for example",
            column=partition_by,
        )


def grown_schema(table: LakeTable, rows_schema: pa.Schema) -> pa.Schema:
    """Return the table's schema extended by the columns and fields of `rows_schema` that it lacks. Raises
    `InvalidRequest` if a column of the table cannot hold the values of the rows."""
    types = {field.name: field.type for field in table.schema()}
    for field in rows_schema:
        table_type = types.get(field.name, field.type)
        together = merged_type(table_type, field.type) or (table_type if _is_wider(table_type, field.type) else None)
        if together is None:
            raise InvalidRequest(
                f"column {field.name!r} is {field.type}, and in table {table.name} it is {table_type}: cast it, or give"
                " it another name",
                column=field.name,
            )
        types[field.name] = together
    return pa.schema(list(types.items()))


def _is_wider(there: pa.DataType, given: pa.DataType) -> bool:
    """Return True if the type `there` holds every value of the type `given`: for whole numbers and fractions with at
    least as many bits. False for all other types."""
    if pa.types.is_integer(there) and pa.types.is_integer(given):
        return bool(there.bit_width >= given.bit_width)
    return bool(pa.types.is_float64(there) and pa.types.is_float32(given))


def _write_files(frame: DataFrame, table: LakeTable, marker: CommitMarker) -> list[DataFile]:
    folder, layout = table.folder, file_layout_of(table)
    name = f"frame-{re.sub('[^A-Za-z0-9-]+', '_', marker.query_id)[:80]}-{marker.batch_id:08d}"

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with FileWriter(folder, layout, f"{name}-{uuid.uuid4().hex[:8]}") as writer:
            for batch in batches:
                writer.write(as_rows(batch, layout.schema))
            texts = [json.dumps(asdict(file)) for file in writer.finish()]
        yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})

    with penstock_errors():
        rows: list[Any] = frame.mapInArrow(write, "file string").collect()
    return [DataFile(**json.loads(row[0])) for row in rows]


def as_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the columns, order and types of `schema`. Columns that the rows lack are null."""
    names, count = set(batch.schema.names), batch.num_rows
    arrays = [
        cast_array(batch.column(field.name), field.type) if field.name in names else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_frame(spark: SparkSession, table: LakeTable) -> DataFrame:
    """Return the rows of the table in its current version as a DataFrame. Local files are read by Spark itself, files
    in an object store by its Python workers with pyarrow.

    Raises `InvalidRequest` if the table does not exist.
    """
    if not table.exists():
        raise InvalidRequest(
            f"there is no {table.table_format} table {table.name} in {table.folder.uri}", table=table.name
        )
    schema = spark_schema(table.schema())
    files = table.live()
    if not files:
        return spark.createDataFrame([], schema)
    if not table.folder.is_local:
        return _read_by_workers(spark, table, files)
    paths = [table.folder.full(file.path) for file in files]
    reader = spark.read.schema(schema)
    if table.keeps_partition:  # the rows hold the column: Spark must not take it from names of folders
        return reader.option("recursiveFileLookup", "true").parquet(*paths).select(*schema.names)
    return reader.option("basePath", table.folder.full("")).parquet(*paths).select(*schema.names)


def _read_by_workers(spark: SparkSession, table: LakeTable, files: list[DataFile]) -> DataFrame:
    folder, schema, by = table.folder, table.schema(), table.partition_by()

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from file_batches(folder, files[number], schema, by)

    return spark.range(0, len(files), 1, len(files)).mapInArrow(read, spark_schema(schema))
