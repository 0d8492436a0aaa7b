"""Rows as record batches: for a Spark that hands the rows of a stream on one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.spark.runtime.versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_MAX: Final = 10_000
"""As many as Spark itself puts into a batch."""


def as_batches(rows: Iterable[tuple[Any, ...]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order; no batch is empty."""
    kinds = arrow_schema(schema)
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_MAX)):
        columns = [[_value(value) for value in column] for column in zip(*chunk, strict=True)]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=kinds)


def _value(value: Any) -> Any:
    """Bytes and maps as Arrow takes them."""
    match value:
        case bytearray():
            return bytes(value)
        case dict():
            return list(value.items())
        case _:
            return value
