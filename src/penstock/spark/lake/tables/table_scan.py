"""The scan of a table's live files with pyarrow, in the table's current schema, whatever schema a file was written
in."""

from __future__ import annotations

import datetime as dt
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.cast import cast_array

if TYPE_CHECKING:
    from penstock.spark.lake.tables.folder import Folder
    from penstock.spark.lake.tables.table import Condition, DataFile, LakeTable

ROWS_MAX: Final = 64 << 10
"""Most rows of one batch that is read."""

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_POSSIBLE: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda low, high, value: low <= value <= high,
    "<": lambda low, _high, value: operator.lt(low, value),
    "<=": lambda low, _high, value: operator.le(low, value),
    ">": lambda _low, high, value: operator.gt(high, value),
    ">=": lambda _low, high, value: operator.ge(high, value),
}


def scan(table: LakeTable, columns: Sequence[str] | None, where: Sequence[Condition]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table that match all conditions, in these columns (None: all). Raises `InvalidRequest` for
    an unknown column or comparison."""
    schema, partition_by = table.schema(), table.partition_by()
    selected = list(schema.names) if columns is None else list(columns)
    _check(schema, selected, where)
    needed = list(dict.fromkeys([*selected, *(name for name, _, _ in where)]))
    read = pa.schema([schema.field(name) for name in needed])
    for file in sorted(table.live(), key=lambda each: each.path):
        if may_match(file, where, partition_by):
            for batch in file_batches(table.folder, file, read, partition_by):
                yield matching(batch, where).select(selected)


def _check(schema: pa.Schema, selected: Sequence[str], where: Sequence[Condition]) -> None:
    for name in (*selected, *(name for name, _, _ in where)):
        if name not in schema.names:
            raise InvalidRequest(f"no column {name!r}: the table has {', '.join(schema.names)}", column=name)
    for _, sign, _ in where:
        if sign not in (*_COMPARE, "in"):
            raise InvalidRequest(f"condition {sign!r}: expected one of {' '.join(_COMPARE)} in")


def file_batches(
    folder: Folder, file: DataFile, schema: pa.Schema, partition_by: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file in the columns and types of `schema`. Columns that the file lacks are null; a
    partition column that it lacks has the file's partition value."""
    with folder.open(file.path) as source, pq.ParquetFile(source, memory_map=False) as parquet:
        present = set(parquet.schema_arrow.names)
        for batch in parquet.iter_batches(batch_size=ROWS_MAX, columns=[n for n in schema.names if n in present]):
            yield _fitted(batch, schema, file.partition, partition_by)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, value: str | None, partition_by: str | None) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name in batch.schema.names:
            arrays.append(cast_array(batch.column(field.name), field.type))
        elif field.name == partition_by and value is not None:
            arrays.append(pa.repeat(pa.scalar(value).cast(field.type), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def matching(batch: pa.RecordBatch, where: Sequence[Condition]) -> pa.RecordBatch:
    for name, sign, value in where:
        column = batch.column(name)
        if sign == "in":
            mask = pc.is_in(column, pa.array(list(value)).cast(column.type))
        else:
            mask = _COMPARE[sign](column, pa.scalar(value).cast(column.type))
        batch = batch.filter(mask)
    return batch


def may_match(file: DataFile, where: Sequence[Condition], partition_by: str | None) -> bool:
    """Return False if the file's statistics or its partition value show that no row matches; otherwise True."""
    if not where:
        return True
    stats = json.loads(file.stats)
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    if partition_by is not None and file.partition is not None:
        low, high = low | {partition_by: file.partition}, high | {partition_by: file.partition}
    return all(
        sign not in _POSSIBLE or name not in low or name not in high or _possible(sign, low[name], high[name], value)
        for name, sign, value in where
    )


def _possible(sign: str, low: Any, high: Any, value: Any) -> bool:
    if isinstance(low, str):
        value = _as_text(value)
        if value is None:
            return True
    try:
        return _POSSIBLE[sign](low, high, value)
    except TypeError:
        return True


def _as_text(value: Any) -> str | None:
    """Return a date or text in the form in which partitions and statistics have it. Return None for all else: such a
    value cannot be compared with statistics, in which times are cut to milliseconds."""
    if isinstance(value, dt.datetime):
        return None
    return value.isoformat() if isinstance(value, dt.date) else value if isinstance(value, str) else None
