"""Files of messages that other tools read: Parquet, JSON lines, CSV. Every field of a message survives the round trip.

Parquet has the columns of the log unchanged; `text_formats` describes a message as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.errors import InvalidRequest
from penstock.spark.jobs.transfer.text_formats import ROWS, CsvWriter, JsonWriter, check_fields, read_csv, read_json
from penstock.spark.scan.columns import COLUMNS


class FileFormat(StrEnum):
    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"
    DIRECTORY = "directory"
    """A data directory instead of a file."""


_SUFFIXES: Final = {
    ".parquet": FileFormat.PARQUET,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".csv": FileFormat.CSV,
}


def format_of(path: Path, given: str | None) -> FileFormat:
    """Return the format named `given`, or with None the one that the ending of `path` tells; a directory is
    `DIRECTORY`. Raises `InvalidRequest` if the name or the ending is unknown."""
    if given is not None:
        if given not in tuple(FileFormat):
            raise InvalidRequest(f"format {given!r}: expected {', '.join(FileFormat)}", given=given)
        return FileFormat(given)
    if path.is_dir():
        return FileFormat.DIRECTORY
    file_format = _SUFFIXES.get(path.suffix.lower())
    if file_format is None:
        raise InvalidRequest(
            f"{path.name!r} does not tell its format: end it with {', '.join(_SUFFIXES)}, or give --format",
            given=path.name,
        )
    return file_format


class Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


def writer_of(file_format: FileFormat, path: Path) -> Writer:
    """Create a file and return the writer for it. Every batch that is written must have all columns of the log. Raises
    `KeyError` for `DIRECTORY`."""
    makers: dict[FileFormat, Callable[[Path], Writer]] = {
        FileFormat.PARQUET: _ParquetWriter,
        FileFormat.JSONL: JsonWriter,
        FileFormat.CSV: CsvWriter,
    }
    return makers[file_format](path)


def check_file(path: Path) -> None:
    if not path.is_file():
        raise InvalidRequest(f"{path} is no file", given=str(path))


def read(file_format: FileFormat, path: Path, columns: Sequence[str] = COLUMNS.names) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file in order, with those of `columns` that the file has. Raises `InvalidRequest`, which
    names the line or column, for a file that is not as it should be, and for one that does not exist."""
    check_file(path)
    readers = {FileFormat.PARQUET: _read_parquet, FileFormat.JSONL: read_json, FileFormat.CSV: read_csv}
    return readers[file_format](path, columns)


# Parquet


class _ParquetWriter:
    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, COLUMNS, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"{path} cannot be read as Parquet: {error}") from None
    names = file.schema_arrow.names
    try:
        check_fields(names)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error.message}", **error.details) from None
    if "value" not in names:
        raise InvalidRequest(f"{path}: the column value, which has the payloads, is missing", field="value")
    yield from file.iter_batches(ROWS, columns=[name for name in names if name in columns])
