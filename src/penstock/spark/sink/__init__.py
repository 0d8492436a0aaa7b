"""The sink: publishes rows of a DataFrame as messages. Each is stored once, even if a task, a batch or a query is
repeated.

Through a broker the tasks publish by themselves. Into a data directory without a broker they write staged files, which
the driver then appends to the logs. Only `writers` and `frames` use Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.core.errors import InvalidRequest
from penstock.spark.sink.columns import check_kinds
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.staging import single_use_name

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter


def batch_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceArrowWriter:
    """Return the writer of `df.write`. Raises `InvalidRequest` for wrong options or columns, and for the mode
    `overwrite`."""
    from penstock.spark.sink.writers import BatchWriter

    chosen = _checked(options, schema, overwrite, 'mode("overwrite")', 'mode("append")')
    return BatchWriter(chosen, chosen.run or single_use_name())


def stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Return the writer of `df.writeStream`. Raises `InvalidRequest` for wrong options or columns, and for the output
    mode `complete`."""
    from penstock.spark.sink.writers import StreamWriter

    chosen = _checked(options, schema, overwrite, 'outputMode("complete")', 'outputMode("append")')
    return StreamWriter(chosen, schema)


def _checked(options: Mapping[str, str], schema: Any, overwrite: bool, given: str, instead: str) -> SinkOptions:
    if overwrite:
        raise InvalidRequest(f"{given} would empty a topic, and a log only grows: use {instead}")
    chosen = SinkOptions.parse(options)
    check_kinds({field.name: field.dataType.simpleString() for field in schema.fields}, chosen)
    return chosen
