"""What an archive keeps beside its tables: which batches there were, who may use it, and what a batch has decided.

DIR/archive.json   what is archived to where: another archive does not go on with it by mistake
DIR/lock           held by the process that archives
DIR/query/         as Spark keeps a streaming query: `metadata` names it, for ever; its batches are in a `QueryLog`
DIR/plans/7.json   the files of batch 7, written when they are: a batch that is repeated commits the same ones
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
    """A directory on the driver's machine. Use it as a context: nobody else uses it meanwhile."""

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
        """Where the query is named, and its batches are logged."""
        return self.root / "query"

    @property
    def log(self) -> QueryLog:
        """The batches that were begun, and those that have ended."""
        return QueryLog(self.query)

    def query_id(self) -> str:
        """The query that this checkpoint belongs to."""
        path = self.query / "metadata"
        with contextlib.suppress(FileNotFoundError):
            return _id_of(path)
        self.query.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"id": str(uuid.uuid4())}))
        return _id_of(path)

    def known_query(self) -> str | None:
        """The query it belongs to; None if it is new, or does not say so any more."""
        try:
            return _id_of(self.query / "metadata")
        except (FileNotFoundError, StorageFailed):
            return None

    def start_new_query(self) -> None:
        """Begin anew; what was there is kept under another name, the last few times."""
        if self.query.exists():
            self.query.rename(self.root / f"replaced-{time.time_ns() // 1_000_000:015d}")
        for old in sorted(self.root.glob("replaced-*"))[:-_REPLACED_MAX]:
            shutil.rmtree(old, ignore_errors=True)
        for number in self.plans():
            self._plan_path(number).unlink(missing_ok=True)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises `InvalidRequest` if it was made for something else."""
        path = self.root / "archive.json"
        wanted = {"format": FORMAT, **settings}
        if not path.exists():
            write_atomically(path, json.dumps(wanted))
            return
        there = json.loads(path.read_text())
        for name, value in wanted.items():
            if there.get(name) != value:
                raise InvalidRequest(
                    f"the checkpoint {self.root} was made with {name}={there.get(name)!r}, and this is {value!r}: give"
                    " this archive another --name",
                    name=name,
                )

    # plans

    def plan(self, batch_id: int) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._plan_path(batch_id).read_text())
        except FileNotFoundError:
            return None
        return found

    def save(self, batch_id: int, plan: Mapping[str, Any]) -> None:
        """Durable on return. Those of the batches before are not needed any more."""
        (self.root / "plans").mkdir(exist_ok=True)
        write_atomically(self._plan_path(batch_id), json.dumps(plan))
        for number in self.plans():
            if number < batch_id:
                self._plan_path(number).unlink(missing_ok=True)

    def plans(self) -> list[int]:
        found = (_PLAN.fullmatch(name) for name in self._names(self.root / "plans"))
        return sorted(int(each[1]) for each in found if each is not None)

    def _plan_path(self, batch_id: int) -> Path:
        return self.root / "plans" / f"{batch_id}.json"

    def _names(self, path: Path) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            yield from (each.name for each in path.iterdir())


def _id_of(path: Path) -> str:
    try:
        return str(uuid.UUID(json.loads(path.read_text())["id"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageFailed(
            f"{path} does not say which query it belongs to ({error}): restore it from a backup, or go on with"
            " --take-over, which begins where the tables end"
        ) from None
