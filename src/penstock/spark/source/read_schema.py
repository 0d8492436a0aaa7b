"""The columns of a query: chosen by its options, or by the schema that the user gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.runtime.versions import arrow_schema, spark_type
from penstock.spark.scan.columns import COLUMNS, NULLABLE, SLICE_COLUMNS, schema_of
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.offset_counts import COUNT_COLUMNS, HOUR_COLUMNS, CountTask
from penstock.spark.scan.read_tasks import RecordTask, SliceListTask
from penstock.spark.scan.slices import Slice, open_data
from penstock.spark.source.option_values import Rows
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.topic_selection import TopicSelection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ReadTask(Protocol):
    """The work that a Spark task does on a slice. It is made on the driver, pickled, and run in the workers."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        ...

    def run(self, part: Slice, filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]: ...


def read_task_for(options: ReadOptions, schema: StructType | None = None) -> ReadTask:
    """Return the task that reads the slices of a read with these options.

    `schema` has the columns that the user wants; None takes those that the options choose. Raises `InvalidRequest` for
    a column that does not exist, or that has another type in `schema`.
    """
    if options.rows is Rows.SLICES:
        return SliceListTask(_checked(schema, SLICE_COLUMNS))
    if options.rows.counted:
        hourly = options.rows is Rows.HOURS
        chosen = _checked(schema, HOUR_COLUMNS if hourly else COUNT_COLUMNS)
        return CountTask(chosen, hourly, options.fail_on_data_loss)
    if options.decode is not None:
        from penstock.spark.source.decoding import decode_task

        return decode_task(options, lambda: _topics(options), schema)
    chosen = schema_of(options.columns) if schema is None else _checked(schema, COLUMNS)
    return RecordTask(chosen, options.verify, options.fail_on_data_loss)


def _topics(options: ReadOptions) -> list[TopicName]:
    """Return the topics of a read: those named, or those that exist and match the pattern."""
    if options.pattern is None:
        return list(options.topics)
    found = TopicSelection(pattern=options.pattern).find_logs(open_data(options.location))
    return list(dict.fromkeys(TopicName.parse(topic) for topic, _ in found))


def _checked(schema: StructType | None, there: pa.Schema) -> pa.Schema:
    """Check the wanted columns `schema` against the existing columns `there`, and return them as an Arrow schema.

    Without `schema` all existing columns are returned. Raises `InvalidRequest` for a column that does not exist, has
    another type, or may be null and is declared as NOT NULL.
    """
    if schema is None:
        return there
    asked = arrow_schema(schema)
    for wanted, spark in zip(asked, schema.fields, strict=True):
        if wanted.name not in there.names:
            raise InvalidRequest(
                f"the schema has a column {wanted.name!r}, which is not there: choose from {', '.join(there.names)}",
                column=wanted.name,
            )
        kind = there.field(wanted.name).type
        if wanted.type != kind:
            raise InvalidRequest(
                f"the schema has {wanted.name} as {spark.dataType.simpleString()}, and it is"
                f" {spark_type(kind).simpleString()}",
                column=wanted.name,
            )
        if wanted.name in NULLABLE and not wanted.nullable:
            raise InvalidRequest(
                f"the schema has {wanted.name} as NOT NULL, and a message may be without: leave that out",
                column=wanted.name,
            )
    return asked
