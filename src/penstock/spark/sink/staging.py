"""Staging: files of rows until all of a batch are there, a plan to publish them, and the last batch that was published.

    STAGING/QUERY/BATCH/ID.arrow     rows of one attempt of one task; most attempts are in no plan
    STAGING/QUERY/BATCH.plan.json    the files published as this batch, in order: once it is there, no others are
    STAGING/QUERY/done.json          the last batch that was published completely

A batch that is repeated after its plan was written goes on with that plan, whatever its tasks wrote this time. So it
does not matter whether a query gives the same rows in the same order again.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from penstock.core.errors import StorageFailed
from penstock.spark.runtime.failpoints import reach
from penstock.spark.sink.options import ONCE
from penstock.storage.base.disk import OsDisk, replace_file

_T = TypeVar("_T", bound=msgspec.Struct)
_FORMAT: Final = 1
_PLAN: Final = re.compile(r"([0-9]+)\.plan\.json", re.ASCII)
_DONE: Final = "done.json"
_LEFT_SECONDS: Final = 7 * 24 * 3600
"""The age in seconds at which files of a single-use write are removed: the write must have been killed."""


class StagedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The staged rows of one task."""

    name: str
    partition: int
    rows: int


class PublishPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files that a batch consists of."""

    format: int
    batch: int
    files: tuple[StagedFile, ...]


class PublishedBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    batch: int


def single_use_name() -> str:
    """Return a name for a write that is never repeated."""
    return f"{ONCE}{uuid.uuid4()}"


def is_single_use(query: str) -> bool:
    return query.startswith(ONCE)


class Staging:
    """The staging directory of one query. Tasks call `stage`; a single process does everything else."""

    def __init__(self, root: Path, query: str) -> None:
        self._root = root
        self._folder = root / query
        self._disk = OsDisk()

    # ---- in tasks

    def stage(self, batch: int, partition: int, rows: Iterable[pa.RecordBatch]) -> StagedFile:
        """Write the rows of a task to a file; it is on disk on return. Without rows no file is written, and its name is
        empty."""
        folder = self._folder / str(batch)
        name, count, writer = f"{uuid.uuid4()}.arrow", 0, None
        for row in rows:
            if writer is None:
                self._disk.make_directory(folder)
                writer = pa.ipc.new_file(str(folder / name), row.schema)
            writer.write_batch(row)
            count += row.num_rows
        if writer is None:
            return StagedFile(name="", partition=partition, rows=0)
        writer.close()
        _sync(folder / name)
        self._disk.sync_directory(folder)
        return StagedFile(name=name, partition=partition, rows=count)

    def discard(self, batch: int, files: Iterable[StagedFile]) -> None:
        """Delete the files of a failed attempt."""
        for file in files:
            if file.name:
                (self._folder / str(batch) / file.name).unlink(missing_ok=True)

    # ---- on the driver

    def last_batch(self) -> int:
        """Return the number of the last published batch; -1 if there was none. Raises `StorageFailed` if its file is
        damaged."""
        data = _read(self._folder / _DONE)
        return -1 if data is None else _decoded(self._folder / _DONE, data, PublishedBatch).batch

    def is_begun(self, batch: int) -> bool:
        """Return whether a plan for this batch is saved: its publishing was begun, and is not recorded as finished."""
        return self._plan(batch).exists()

    def _plan(self, batch: int) -> Path:
        return self._folder / f"{batch}.plan.json"

    def plan(self, batch: int, files: Sequence[StagedFile]) -> PublishPlan:
        """Return the plan of this batch: the saved one, else these files in the order of their tasks, not saved yet.

        Raises `StorageFailed` if the saved one is damaged.
        """
        path = self._plan(batch)
        data = _read(path)
        if data is not None:
            return _decoded(path, data, PublishPlan)
        ordered = tuple(sorted((file for file in files if file.rows), key=lambda file: file.partition))
        return PublishPlan(format=_FORMAT, batch=batch, files=ordered)

    def save_plan(self, plan: PublishPlan) -> None:
        """Save the plan of a batch, unless one is saved already. From then on these files are the batch. On disk on
        return."""
        if not self.is_begun(plan.batch):
            self._disk.make_directory(self._folder)
            replace_file(self._disk, self._plan(plan.batch), msgspec.json.encode(plan))

    def rows(self, plan: PublishPlan) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a plan, in order, from memory-mapped files. Raises `StorageFailed` for a file that cannot
        be read."""
        for file in plan.files:
            path = self._folder / str(plan.batch) / file.name
            try:
                source = pa.memory_map(str(path))
                reader = pa.ipc.open_file(source)
            except (OSError, pa.ArrowInvalid) as error:
                raise StorageFailed(f"{path} is part of what is to be published, and cannot be read: {error}") from None
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    def finish(self, batch: int) -> None:
        """Record on disk that the batch is published, and remove its files."""
        replace_file(self._disk, self._folder / _DONE, msgspec.json.encode(PublishedBatch(format=_FORMAT, batch=batch)))
        reach("sink-finished")
        self.sweep()

    def sweep(self) -> None:
        """Remove the files of published batches, and those of single-use writes that were killed more than a week
        ago."""
        last = self.last_batch()
        for name in self._disk.names(self._folder):
            plan = _PLAN.fullmatch(name)
            if plan and int(plan[1]) <= last:
                (self._folder / name).unlink(missing_ok=True)
            elif name.isdecimal() and int(name) <= last:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        for name in self._disk.names(self._root):
            if name.startswith(ONCE) and _age_seconds(self._root / name) > _LEFT_SECONDS:
                shutil.rmtree(self._root / name, ignore_errors=True)

    def remove(self) -> None:
        """Remove the query's directory: a single-use write is over."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # not empty: other queries use it
            self._root.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decoded(path: Path, data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise StorageFailed(f"{path} is damaged ({error}): it says what was published; restore it") from None


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
