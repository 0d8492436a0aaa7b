"""Where rows go that do not decode: Parquet files in a directory, one or more for each task that met any.

A file's name says what is in it: topic, partition, offsets, and a digest of those. A task that runs again writes the
same files again, so nothing is in them twice unless the rows were cut otherwise; topic, partition and offset tell.
"""

from __future__ import annotations

import hashlib
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.spark.decode.assembly import BAD

BUFFER_BYTES_MAX: Final = 8 << 20
"""Of bad rows that wait for more: they are rare, and files should not be tiny."""


class BadRecords:
    """A context: what was added is written when it ends well."""

    def __init__(self, path: str) -> None:
        """A local directory, or the URL of one in an object store."""
        self._files: fs.FileSystem = fs.LocalFileSystem()
        self._root = path
        if "://" in path:
            self._files, self._root = fs.FileSystem.from_uri(path)
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, bad: pa.RecordBatch) -> None:
        if not bad.num_rows:
            return
        self._waiting.append(bad)
        self._bytes += bad.nbytes
        if self._bytes >= BUFFER_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """On return, all that was added is in files."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, BAD)
        self._files.create_dir(self._root, recursive=True)
        self._write(table, _name(table))
        self._waiting, self._bytes = [], 0

    def _write(self, table: pa.Table, name: str) -> None:
        """An object appears whole; a file does by its last step, and nobody reads what begins with a dot."""
        path = f"{self._root}/{name}"
        if not isinstance(self._files, fs.LocalFileSystem):
            pq.write_table(table, path, filesystem=self._files)
            return
        unfinished = f"{self._root}/.{name}.{uuid4().hex}"
        pq.write_table(table, unfinished, filesystem=self._files)
        self._files.move(unfinished, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()


def _name(table: pa.Table) -> str:
    rows = table.select(["topic", "partition", "offset"])
    digest = hashlib.sha256(repr(rows.to_pydict()).encode()).hexdigest()[:16]
    topic = (rows["topic"][0].as_py() or "unknown").strip("/").replace("/", ".")
    return f"{topic}-{rows['partition'][0].as_py()}-{rows['offset'][0].as_py()}-{digest}.parquet"
