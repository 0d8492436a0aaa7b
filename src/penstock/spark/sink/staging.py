"""Rows that were written aside, until all of a batch are there: files, a plan to publish them, and how far that came.

    STAGING/QUERY/BATCH/ID.arrow     rows of one attempt of one task; most attempts are in no plan
    STAGING/QUERY/BATCH.plan.json    what is published as this batch, in which order: once it is there, nothing else is
    STAGING/QUERY/done.json          the last batch that was published completely

A batch that is repeated after its plan was made goes on with that plan, whatever its tasks wrote this time. So it does
not matter whether a query gives the same rows in the same order again.
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
"""After so long, what such a write left behind when it was killed is swept away."""


class StagedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of one task."""

    name: str
    partition: int
    rows: int


class PublishPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a batch consists of."""

    format: int
    batch: int
    files: tuple[StagedFile, ...]


class PublishedBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    batch: int


def single_use_name() -> str:
    """A name for a write that nobody repeats."""
    return f"{ONCE}{uuid.uuid4()}"


def is_single_use(query: str) -> bool:
    return query.startswith(ONCE)


class Staging:
    """Of one query. Tasks `stage`; one process at a time does all else."""

    def __init__(self, root: Path, query: str) -> None:
        self._root = root
        self._folder = root / query
        self._disk = OsDisk()

    # tasks

    def stage(self, batch: int, partition: int, rows: Iterable[pa.RecordBatch]) -> StagedFile:
        """Durable on return. No file is made where there is no row."""
        folder = self._folder / str(batch)
        name, count, writer = f"{uuid.uuid4()}.arrow", 0, None
        for each in rows:
            if writer is None:
                self._disk.make_directory(folder)
                writer = pa.ipc.new_file(str(folder / name), each.schema)
            writer.write_batch(each)
            count += each.num_rows
        if writer is None:
            return StagedFile(name="", partition=partition, rows=0)
        writer.close()
        _sync(folder / name)
        self._disk.sync_directory(folder)
        return StagedFile(name=name, partition=partition, rows=count)

    def discard(self, batch: int, files: Iterable[StagedFile]) -> None:
        """An attempt that failed; what it wrote is in nobody's way."""
        for file in files:
            if file.name:
                (self._folder / str(batch) / file.name).unlink(missing_ok=True)

    # the driver

    def done(self) -> int:
        """The last batch that was published; -1 if there was none."""
        data = _read(self._folder / _DONE)
        return -1 if data is None else _decoded(self._folder / _DONE, data, PublishedBatch).batch

    def planned(self, batch: int) -> bool:
        """Whether it was begun to publish this batch, and not finished."""
        return self._plan(batch).exists()

    def _plan(self, batch: int) -> Path:
        return self._folder / f"{batch}.plan.json"

    def plan(self, batch: int, files: Sequence[StagedFile]) -> PublishPlan:
        """What is to be published as this batch: what was begun before, if it was; otherwise these files, in the order
        of their tasks."""
        path = self._plan(batch)
        data = _read(path)
        if data is not None:
            return _decoded(path, data, PublishPlan)
        ordered = tuple(sorted((file for file in files if file.rows), key=lambda file: file.partition))
        return PublishPlan(format=_FORMAT, batch=batch, files=ordered)

    def begin(self, plan: PublishPlan) -> None:
        """From now on this is what the batch is. Durable on return."""
        if not self.planned(plan.batch):
            self._disk.make_directory(self._folder)
            replace_file(self._disk, self._plan(plan.batch), msgspec.json.encode(plan))

    def rows(self, plan: PublishPlan) -> Iterator[pa.RecordBatch]:
        """All of them, in order, mapped and not read."""
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
        """It is published. Nobody asks for its files again."""
        replace_file(self._disk, self._folder / _DONE, msgspec.json.encode(PublishedBatch(format=_FORMAT, batch=batch)))
        reach("sink-finished")
        self.sweep()

    def sweep(self) -> None:
        """Remove what is left of batches that are published, and of killed writes that nobody repeats."""
        last = self.done()
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
        """All of it: the write is over, and is not repeated."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # others use it
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
