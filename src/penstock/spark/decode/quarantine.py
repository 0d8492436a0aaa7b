"""The quarantine: Parquet files in a directory for rows that do not decode, one or more for each task with bad rows.

A file's name has the topic, the partition, and the offset of its first row, and a digest of those of all rows. A
repeated task replaces its files with the same ones. Only if Spark cuts the rows differently can a row be in two files;
its topic, partition and offset show that.
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
"""Bytes of bad rows that wait for more: bad rows are rare, and files should not be tiny."""


class BadRecords:
    """A writer of bad rows, used with `with`. Rows are written when 8 MiB of them wait, and at the end unless that is
    an error."""

    def __init__(self, path: str) -> None:
        """Prepare writing to a local directory, or to the URL of one in an object store."""
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
        """Write all added rows to files."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, BAD)
        self._files.create_dir(self._root, recursive=True)
        self._write(table, _name(table))
        self._waiting, self._bytes = [], 0

    def _write(self, table: pa.Table, name: str) -> None:
        """Write a file so that readers see all of it or nothing.

        In an object store a file appears when it is complete. A local file is written under a name that begins with a
        dot, which readers skip, and renamed at the end.
        """
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
