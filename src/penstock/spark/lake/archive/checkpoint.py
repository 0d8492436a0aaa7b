"""The checkpoint of an archive: its batches, its lock, and the files that each batch commits.

DIR/archive.json   what is archived to where: another archive does not continue it by mistake
DIR/lock           held by the process that archives
DIR/query/         as Spark keeps a streaming query: `metadata` has its permanent id, `QueryLog` writes its batches
DIR/plans/7.json   the files of batch 7, saved once they are written: a repeated batch commits the same files
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from penstock.core.errors import InvalidRequest, NotOwner, StorageFailed
from penstock.spark.lake.archive.query_log import QueryLog
from penstock.spark.lake.tables.folder import write_atomically

FORMAT: Final = 1

_REPLACED_MAX: Final = 5
_PLAN: Final = re.compile(r"([0-9]+)\.json")


class Checkpoint:
    """The checkpoint in a directory on the driver's machine.

    As a context manager it holds the lock of the directory, so that no other process uses it. Entering raises
    `NotOwner` if another process holds the lock.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise NotOwner(
                f"another archive is running with the checkpoint {self.root} (process {holder or 'unknown'}): stop it"
                " first, or give this one another --name",
                checkpoint=str(self.root),
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._lock = handle
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def query(self) -> Path:
        """Directory with the query's id and the log of its batches."""
        return self.root / "query"

    @property
    def log(self) -> QueryLog:
        """The log of the batches that began and ended."""
        return QueryLog(self.query)

    def query_id(self) -> str:
        """Return the id of the query that this checkpoint belongs to. A new checkpoint gets an id, durable on return.
        Raises `StorageFailed` if the saved id cannot be read."""
        path = self.query / "metadata"
        with contextlib.suppress(FileNotFoundError):
            return _id_of(path)
        self.query.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"id": str(uuid.uuid4())}))
        return _id_of(path)

    def known_query(self) -> str | None:
        """Return the query's id; None if the checkpoint is new or its metadata cannot be read."""
        try:
            return _id_of(self.query / "metadata")
        except (FileNotFoundError, StorageFailed):
            return None

    def start_new_query(self) -> None:
        """Forget the current query: the next call of `query_id` makes a new one.

        The query's directory is renamed to `replaced-...`, of which the last five are kept. Its plans are deleted.
        """
        if self.query.exists():
            self.query.rename(self.root / f"replaced-{time.time_ns() // 1_000_000:015d}")
        for old in sorted(self.root.glob("replaced-*"))[:-_REPLACED_MAX]:
            shutil.rmtree(old, ignore_errors=True)
        for number in self.plans():
            self._plan_path(number).unlink(missing_ok=True)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Save these settings, if the checkpoint is new; otherwise compare them with the saved ones. Raises
        `InvalidRequest` if they differ: then the checkpoint belongs to another archive."""
        path = self.root / "archive.json"
        expected = {"format": FORMAT, **settings}
        if not path.exists():
            write_atomically(path, json.dumps(expected))
            return
        saved = json.loads(path.read_text())
        for name, value in expected.items():
            if saved.get(name) != value:
                raise InvalidRequest(
                    f"the checkpoint {self.root} was made with {name}={saved.get(name)!r}, and this is {value!r}: give"
                    " this archive another --name",
                    name=name,
                )

    # plans

    def plan(self, batch_id: int) -> dict[str, Any] | None:
        try:
            plan: dict[str, Any] = json.loads(self._plan_path(batch_id).read_text())
        except FileNotFoundError:
            return None
        return plan

    def save(self, batch_id: int, plan: Mapping[str, Any]) -> None:
        """Save the plan of a batch (its files and offsets), durable on return, and delete the plans of earlier
        batches."""
        (self.root / "plans").mkdir(exist_ok=True)
        write_atomically(self._plan_path(batch_id), json.dumps(plan))
        for number in self.plans():
            if number < batch_id:
                self._plan_path(number).unlink(missing_ok=True)

    def plans(self) -> list[int]:
        matches = (_PLAN.fullmatch(name) for name in self._names(self.root / "plans"))
        return sorted(int(match[1]) for match in matches if match is not None)

    def _plan_path(self, batch_id: int) -> Path:
        return self.root / "plans" / f"{batch_id}.json"

    def _names(self, path: Path) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            yield from (entry.name for entry in path.iterdir())


def _id_of(path: Path) -> str:
    try:
        return str(uuid.UUID(json.loads(path.read_text())["id"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageFailed(
            f"{path} does not say which query it belongs to ({error}): restore it from a backup, or go on with"
            " --take-over, which begins where the tables end"
        ) from None
