"""The catalog reader, for processes that do not own the catalog: schemas, topics and their subjects, read only.

A broker may be writing meanwhile: every call sees the catalog as of one moment. Rows with a wrong checksum raise
`StorageFailed`. No file is left beside the catalog, because the reader may be another user, whose files the broker
could not open.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.pool import NullPool

from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable
from penstock.core.names import TopicName
from penstock.core.schemas import Schema
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.database import check_version
from penstock.storage.catalog.rows import log_ends, topic_of, topic_row
from penstock.storage.catalog.schema_rows import schema_with, version_row
from penstock.storage.catalog.sqlite import translated_errors
from penstock.storage.catalog.tables import SCHEMA_VERSIONS, SCHEMAS, TOPICS, read_rows, schema_version
from penstock.storage.catalog.topics import LogEnd, Topic

_WITH_SCHEMAS: Final = 3
"""The first catalog version with schemas."""
_WITH_ENDS: Final = 5
"""The first catalog version with ends of logs."""
_TRIES: Final = 10
"""Attempts to read while an owner opens or closes the catalog; more are hardly ever needed."""

_Found = TypeVar("_Found")


class CatalogReader:
    """A reader of the catalog at `path`.

    Any call raises `StorageFailed` if the file cannot be trusted or read, `VersionNotSupported` if a newer release has
    written it.
    """

    def __init__(self, path: Path) -> None:
        """Raise `InvalidRequest` if the file does not exist."""
        if not path.exists():
            raise InvalidRequest(f"there is no catalog {path}", path=str(path))
        self._path = path
        self.name = str(path.parent)

    def schema(self, schema_id: int) -> Schema | None:
        """Return a schema; None if the id is unknown."""

        def found(connection: Connection, version: int) -> Schema | None:
            if version < _WITH_SCHEMAS:
                return None
            stored = schema_with(connection, SCHEMAS.c.schema_id == schema_id)
            return None if stored is None else stored.schema

        return self._read(found)

    def version(self, subject: str, version: int) -> int | None:
        """Return the schema id of a subject's version, deleted or not; None if the version is unknown."""

        def found(connection: Connection, of_catalog: int) -> int | None:
            row = version_row(connection, subject, version) if of_catalog >= _WITH_SCHEMAS else None
            return None if row is None else int(row["schema_id"])

        return self._read(found)

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]:
        """Return version and schema id of a subject's versions, oldest first: not deleted ones, or all with
        `deleted`."""
        table = SCHEMA_VERSIONS
        query = select(table).where(table.c.subject == subject)
        query = query if deleted else query.where(table.c.deleted == 0)

        def found(connection: Connection, version: int) -> list[tuple[int, int]]:
            rows = read_rows(connection, query) if version >= _WITH_SCHEMAS else []
            return sorted((int(row["version"]), int(row["schema_id"])) for row in rows)

        return self._read(found)

    def subjects_of(self, topic: TopicName) -> tuple[str, ...] | None:
        """Return the subjects in a topic's settings; None if it has none set, or does not exist."""

        def found(connection: Connection, _version: int) -> tuple[str, ...] | None:
            row = topic_row(connection, topic)
            return None if row is None else topic_of(row).settings.schema_subjects

        return self._read(found)

    def topics(self) -> tuple[Topic, ...]:
        """Return all topics."""

        def found(connection: Connection, _version: int) -> tuple[Topic, ...]:
            return tuple(map(topic_of, read_rows(connection, select(TOPICS))))

        return self._read(found)

    def log_ends(self) -> dict[tuple[int, int], LogEnd]:
        """Return the ends of logs saved last, by topic uid and partition."""

        def found(connection: Connection, version: int) -> dict[tuple[int, int], LogEnd]:
            return log_ends(connection) if version >= _WITH_ENDS else {}

        return self._read(found)

    def copy_to(self, target: Path) -> int:
        """Copy the whole catalog as of one moment to `target`, replacing an earlier copy; return the catalog's
        version."""

        def copied(connection: Connection, version: int) -> int:
            sqlite.copy_open(connection, target)
            return version

        return self._read(copied)

    def _read(self, ask: Callable[[Connection, int], _Found]) -> _Found:
        """Call `ask` with a connection and the catalog's version at one moment, and return its result.

        Each call checks if a process has the catalog open. If none had, that is checked again afterwards, since an
        owner that came meanwhile may have changed the rows; the read is then repeated.
        """
        for _ in range(_TRIES):
            before = _CatalogFileState.of(self._path)
            if before.is_open:
                return self._asked(self._path, "examine", ask)
            try:
                result = self._alone(ask) if before.has_log else self._asked(self._path, "frozen", ask)
            except PenstockError:
                if _CatalogFileState.of(self._path) == before:
                    raise
                continue
            if _CatalogFileState.of(self._path) == before:
                return result
        raise ServiceUnavailable(f"{self._path} changed whenever it was read; try again", path=str(self._path))

    def _alone(self, ask: Callable[[Connection, int], _Found]) -> _Found:
        """Call `ask` for a catalog that no process has open.

        If an owner left a write-ahead log behind, a copy is read: with the original, SQLite would create files beside
        it.
        """
        with translated_errors(self._path), TemporaryDirectory(prefix="penstock-catalog-") as directory:
            copy = Path(directory) / self._path.name
            for original, name in ((self._path, copy), (sqlite.wal_path(self._path), sqlite.wal_path(copy))):
                shutil.copyfile(original, name)
            return self._asked(copy, "examine", ask)

    def _asked(self, path: Path, purpose: sqlite.Purpose, ask: Callable[[Connection, int], _Found]) -> _Found:
        engine = sqlite.engine_for(path, purpose, pool=NullPool)
        with translated_errors(self._path), sqlite.transaction(engine, writes=False) as connection:
            version = schema_version(connection)
            check_version(self._path, version)
            return ask(connection, version)


@dataclass(frozen=True, slots=True)
class _CatalogFileState:
    """The signs from which one can see that a catalog is in use or has changed: its files, their sizes and times."""

    file: tuple[int, ...]
    log_bytes: int | None
    has_index: bool

    @classmethod
    def of(cls, path: Path) -> _CatalogFileState:
        with translated_errors(path):
            status = path.stat()
            file = (status.st_ino, status.st_size, status.st_mtime_ns)
            return cls(file, sqlite.size_of(sqlite.wal_path(path)), sqlite.shm_path(path).exists())

    @property
    def is_open(self) -> bool:
        """True if a process has the catalog open, or was killed and left SQLite's two extra files: reading then creates
        none."""
        return self.log_bytes is not None and self.has_index

    @property
    def has_log(self) -> bool:
        return bool(self.log_bytes)
