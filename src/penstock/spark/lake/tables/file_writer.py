"""The writer of a table's Parquet files. All rows of a file have the same value in the partition column; no file is
much larger than the target size.

Plain Python and pyarrow, for workers and for compaction. Nothing here adds a file to a table.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.table import DataFile

FILE_BYTES_MAX: Final = 128 << 20
"""Target size of a file. A task reads about that much well, and it is near the defaults of Delta and Iceberg."""
ROW_GROUP_BYTES: Final = 32 << 20
"""Size of a row group as Arrow memory. A writer buffers that much for each file; a reader skips no smaller part."""
OPEN_FILES_MAX: Final = 16
"""Files that one task writes at the same time, one for each value of the partition column. That column is usually the
day, and a slice has messages of a day or two unless clocks were wrong."""
COMPRESSION: Final = "zstd"
"""Default codec, at its lowest level: as quick as snappy on messages of 200 bytes, and half the size."""
_PAGE_BYTES: Final = 256 << 10
_SAMPLE_ROWS: Final = 4096
"""Number of rows at the beginning of a file by which the encoding of its columns is chosen."""

_STATS_OF: Final = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp)
_DICTIONARY_COLUMNS: Final = frozenset(
    {"_topic", "_type", "_producer", "_schema_id", "_schema_version", "_partition", "_reason"}
)
"""System columns with few different values in many rows, which are therefore written with a dictionary."""
_RISING_COLUMNS: Final = frozenset({"_offset", "_timestamp", "_request_id"})
"""System columns whose values differ little from row to row, which are therefore written as differences."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset(" \"#%'*/:=?\\{}[]^<>|\x7f")
_NAME_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a table's files."""

    schema: pa.Schema
    partition_by: str | None = None
    keeps_partition: bool = False
    prefix: str = ""
    """Folder of the files inside the table's folder."""
    compression: str = COMPRESSION
    file_bytes_max: int = FILE_BYTES_MAX

    def file_schema(self) -> pa.Schema:
        """Return the schema of one file: without the partition column, unless the format keeps it in its files."""
        if self.partition_by is None or self.keeps_partition:
            return self.schema
        return self.schema.remove(self.schema.get_field_index(self.partition_by))


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    path: str
    partition: str | None
    out: Any
    writer: pq.ParquetWriter
    stack: ExitStack
    footer: list[pq.FileMetaData]
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0


class FileWriter:
    """Writes batches into files. It is a context manager: if an error leaves it, the files written so far are deleted.

    `name` is the beginning of every file's name.
    """

    def __init__(self, folder: Folder, layout: FileLayout, name: str) -> None:
        self._folder = folder
        self._layout = layout
        self._schema = layout.file_schema()
        self._name = name
        self._open: dict[str | None, _OpenFile] = {}
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            return
        for file in self._open.values():
            file.stack.__exit__(kind, error, None)
        self._folder.delete([file.path for file in self._done])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows in the table's schema, the partition column included."""
        for partition, rows in _by_partition(batch, self._layout.partition_by):
            self._append(partition, rows.select(self._schema.names))

    def finish(self) -> list[DataFile]:
        """Close all files and return every file that was written, in the order in which they were closed. The files are
        durable on return."""
        for partition in list(self._open):
            self._close(partition)
        return self._done

    def _append(self, partition: str | None, batch: pa.RecordBatch) -> None:
        file = self._open.get(partition) or self._begin(partition, batch)
        file.waiting.append(batch)
        file.waiting_bytes += batch.nbytes
        file.rows += batch.num_rows
        if file.waiting_bytes >= ROW_GROUP_BYTES:
            _flush(file, self._schema)
            if file.out.tell() >= self._layout.file_bytes_max:
                self._close(partition)

    def _begin(self, partition: str | None, first: pa.RecordBatch) -> _OpenFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        by = self._layout.partition_by
        below = "" if by is None else f"{partition_folder(by, partition)}/"
        path = f"{self._layout.prefix}{below}{self._name}-{uuid.uuid4().hex[:12]}.parquet"
        with ExitStack() as stack:
            out = stack.enter_context(self._folder.create(path))
            footer: list[pq.FileMetaData] = []
            settings = _settings(first, self._layout.compression) | {"metadata_collector": footer}
            writer = stack.enter_context(pq.ParquetWriter(out, self._schema, **settings))
            file = _OpenFile(path, partition, out, writer, stack.pop_all(), footer)
        self._open[partition] = file
        return file

    def _close(self, partition: str | None) -> None:
        file = self._open[partition]
        _flush(file, self._schema)
        file.writer.close()
        size = file.out.tell()
        file.stack.close()
        del self._open[partition]
        self._done.append(DataFile(file.path, size, file.rows, partition, statistics(file.footer[0], file.rows)))


def _flush(file: _OpenFile, schema: pa.Schema) -> None:
    if file.waiting:
        table = pa.Table.from_batches(file.waiting, schema=schema)
        file.writer.write_table(table, row_group_size=max(1, table.num_rows))
        file.waiting, file.waiting_bytes = [], 0


def _settings(first: pa.RecordBatch, compression: str) -> dict[str, Any]:
    """Return the settings of a Parquet writer, chosen by the first batch of the file.

    Only columns whose values repeat get a dictionary: for others it would take a third of the time, and make the file
    larger.
    """
    schema = first.schema
    plain = [field.name for field in schema if field.name.startswith("_") and field.name not in _DICTIONARY_COLUMNS]
    typed = [field.name for field in schema if not field.name.startswith("_") and _repeats(first.column(field.name))]
    dictionaries = [name for name in schema.names if name in _DICTIONARY_COLUMNS]
    rising = {name: "DELTA_BINARY_PACKED" for name in plain if name in _RISING_COLUMNS}
    return {
        "compression": compression,
        "compression_level": 1 if compression == "zstd" else None,
        "use_dictionary": [*dictionaries, *typed] or False,
        "column_encoding": rising or None,
        "write_statistics": [field.name for field in schema if any(test(field.type) for test in _STATS_OF)] or False,
        "store_schema": False,
        "data_page_size": _PAGE_BYTES,
    }


def _repeats(column: pa.Array) -> bool:
    """Return True if the first rows have at least two rows for each different value. Always True for structs, lists and
    maps."""
    if pa.types.is_nested(column.type):
        return True
    sample = column.slice(0, _SAMPLE_ROWS)
    return 2 * len(sample.unique()) <= len(sample)


def _by_partition(batch: pa.RecordBatch, column: str | None) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Split a batch by the value of the partition column: yield each value as text, with its rows. Without a partition
    column, yield None and the whole batch."""
    if column is None or not batch.num_rows:
        yield None, batch
        return
    values = batch.column(column)
    ends = pc.min_max(values)
    if values.null_count == 0 and ends["min"] == ends["max"]:
        yield partition_text(values[0].as_py()), batch
        return
    for value in pc.unique(values).to_pylist():
        mask = pc.is_null(values) if value is None else pc.equal(values, value)
        yield partition_text(value), batch.filter(pc.fill_null(mask, False))  # noqa: FBT003 - Arrow's own


def partition_folder(column: str, value: str | None) -> str:
    """Return the name of a partition's folder, `COLUMN=VALUE`, as Hive and Spark write it. Characters such as `/` are
    escaped, so any value gives one folder, not several nested ones.

    Raises `InvalidRequest` for a value that is too long for a name.
    """
    name = f"{_escaped(column)}={_escaped(value) if value else _NULL_FOLDER}"
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise InvalidRequest(
            f"column {column!r} has the value {value and value[:40]!r}..., which is too long for the name of a folder:"
            f" partition by a column whose values are short (names have at most {_NAME_BYTES_MAX} bytes)",
            column=column,
        )
    return name


def _escaped(text: str) -> str:
    """Replace characters that a folder name must not have by `%` and two hexadecimal digits. All of these are ASCII:
    readers take each escape for one character."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in text)


def partition_text(value: Any) -> str | None:
    """Return a partition's value as text, as table logs have it; None for None."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, dt.date | dt.datetime) else _or_none(value)


def _or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def statistics(metadata: pq.FileMetaData, rows: int) -> str:
    """Return the statistics of a file as the JSON text that Delta keeps, made from the Parquet footer. Least and
    greatest values are given for whole numbers, dates and times, if every row group has statistics."""
    stats: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns if groups else 0):
        name = metadata.schema.column(number).path
        if "." not in name:
            _add_column(stats, name, [group.column(number).statistics for group in groups])
    return json.dumps(stats)


def _add_column(stats: dict[str, Any], name: str, groups: list[Any]) -> None:
    if any(group is None or not group.has_null_count for group in groups):
        return
    stats["nullCount"][name] = sum(group.null_count for group in groups)
    bounded = [group for group in groups if group.has_min_max]
    if bounded and all(group.has_min_max or group.num_values == 0 for group in groups):
        low, high = _bounds(bounded, is_micros=_is_micros(bounded[0]))
        if isinstance(low, int | dt.date) and not isinstance(low, bool):
            stats["minValues"][name], stats["maxValues"][name] = _json_stat(low), _json_stat(high, up=True)


def _bounds(groups: list[Any], *, is_micros: bool) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column. `is_micros`: the values are times in microseconds.

    Times are computed from raw numbers: for a time value pyarrow would import pandas, if that is installed, which takes
    a second in every new worker.
    """
    if not is_micros:
        return min(group.min for group in groups), max(group.max for group in groups)
    low, high = min(group.min_raw for group in groups), max(group.max_raw for group in groups)
    return _EPOCH + dt.timedelta(microseconds=low), _EPOCH + dt.timedelta(microseconds=high)


def _is_micros(group: Any) -> bool:
    kind: dict[str, Any] = json.loads(group.logical_type.to_json())
    return (kind.get("Type"), kind.get("timeUnit")) == ("Timestamp", "microseconds")


def _json_stat(value: Any, *, up: bool = False) -> Any:
    """Return a statistic as JSON has it. Delta's times are in milliseconds: a time is rounded down, with `up` (for the
    greatest value) up."""
    if isinstance(value, dt.datetime):
        rest = value.microsecond % 1000
        cut = value - dt.timedelta(microseconds=rest)
        cut += dt.timedelta(milliseconds=1) if up and rest else dt.timedelta()
        return cut.strftime("%Y-%m-%dT%H:%M:%S.") + f"{cut.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, dt.date) else value
