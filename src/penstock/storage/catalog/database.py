"""The catalog's file: created, verified, migrated and opened for transactions. A second file counts its commits too."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Connection, Engine, select
from sqlalchemy.pool import NullPool, QueuePool

from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed, VersionNotSupported
from penstock.record.hashing import hash64
from penstock.storage.base.reserve import DiskReserve
from penstock.storage.catalog import sqlite
from penstock.storage.catalog import tables as schema
from penstock.storage.catalog.sqlite import commits_beyond_damage, translated_errors

_ROUND: Final = 2**31
"""The range of the counter, which has 31 bits and wraps. A difference of more than half of it means that the catalog is
ahead, not behind."""
_TEXT_BYTES_MAX: Final = 64


def commit_counter_path(path: Path) -> Path:
    """Return the path of the file beside a catalog that holds the commit counter."""
    return path.with_name(f"{path.name}-commits")


def saved_commit_counter(path: Path) -> int | None:
    """Return the counter saved beside the catalog at `path`; None if there is no file, or if its checksum is wrong."""
    try:
        words = commit_counter_path(path).read_bytes()[:_TEXT_BYTES_MAX].split()
    except FileNotFoundError:
        return None
    if len(words) != 2 or words[1] != _check(words[0]):
        return None
    return int(words[0])


def next_commit_number(number: int) -> int:
    """Return the number of the next commit; the counter wraps."""
    return (number + 1) % _ROUND


def missing_commits(found: int, noted: int | None) -> int:
    """Return how many transactions a catalog lacks: `found` is its own counter, `noted` the counter saved beside it.

    Returns 0 if nothing was saved, or if the catalog is ahead of what was saved.
    """
    behind = 0 if noted is None else (noted - found) % _ROUND
    return behind if behind < _ROUND // 2 else 0


class CommitCounterFile:
    """A file with the number of the catalog's last transaction. Errors of the disk are ignored: the number stays too
    low then, which hides a loss and never reports a false one."""

    def __init__(self, path: Path) -> None:
        self._path = commit_counter_path(path)
        self._descriptor = -1
        self._synced = True

    def write(self, number: int) -> None:
        text = b"%d" % number
        with suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, b"%s %s\n" % (text, _check(text)), 0)
            self._synced = False

    def sync(self) -> None:
        """Make the last written number survive a power cut. Does nothing if it does already."""
        with suppress(OSError):
            if self._descriptor >= 0 and not self._synced:
                os.fsync(self._descriptor)
                self._synced = True

    def close(self) -> None:
        self.sync()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _check(text: bytes) -> bytes:
    return b"%016x" % hash64(text)


_LOG: Final = logging.getLogger(__name__)


class CatalogFile:
    """An open catalog: transactions from any thread, in competition with other processes."""

    def __init__(self, path: Path, engine: Engine, reserve: DiskReserve | None = None) -> None:
        self.path = path
        self._engine = engine
        self._reserve = reserve
        # SQLite lets writers poll; within one process a lock queues them.
        self._turn = threading.Lock()
        self._failure: StorageFailed | None = None
        self._commit_counter = CommitCounterFile(path)
        self._closed = False

    @classmethod
    def open(cls, path: Path, *, create: bool, reserve: DiskReserve | None = None) -> Self:
        """Open the catalog's file: create it if it is missing, verify all of it, then migrate it to this release's
        version.

        `reserve` frees room for writes when the disk is full. Raises `StorageFailed` for a file that cannot be trusted,
        which is left as it is, or for a missing one if `create` is off; `VersionNotSupported` for one that a newer
        release has written.
        """
        with translated_errors(path):
            _check_there(path, create=create)
            version = verify_catalog(path)
            engine = sqlite.engine_for(path, "use", pool=QueuePool, pool_timeout=sqlite.BUSY_MS / 1000)
            try:
                _migrate(engine, since=version)
                engine.connect().close()  # fail now if the directory cannot be written to
            except BaseException:
                engine.dispose()
                raise
        return cls(path, engine, reserve)

    @property
    def failure(self) -> StorageFailed | None:
        """The reason why nothing is written any more; None while writes go on."""
        return self._failure

    def close(self) -> None:
        """Close the file once the queued writers are done. Later calls raise `ServiceUnavailable`."""
        with self._turn:
            self._closed = True
            self._engine.dispose()
            self._commit_counter.close()

    def sync_commit_counter(self) -> None:
        """Make the number of the last transaction survive a power cut. Does not delay writers; does nothing after
        `close`."""
        if not self._closed:
            self._commit_counter.sync()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Begin a transaction that sees the catalog as of one moment, for a `with` block."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a writing transaction for a `with` block; there is only one at a time.

        Durable when the block ends; rolled back if the block raises. Waits for other writers, and raises
        `ServiceUnavailable` after `sqlite.BUSY_MS`. After the first `StorageFailed` nothing is written until the file
        has been opened, and thereby verified, again.
        """
        with self._in_turn():
            if self._failure is not None:
                raise StorageFailed(f"not written, for an earlier failure: {self._failure.message}")
            if self._reserve is not None:
                self._reserve.adjust()
            with self._transaction(writes=True) as connection:
                self._hold(connection)
                number = next_commit_number(sqlite.commit_counter(connection))
                sqlite.set_commit_counter(connection, number)
                yield connection
            self._commit_counter.write(number)

    def backup_to(self, path: Path) -> None:
        """Write a whole, compact copy to `path`, durable on return; writers need not stop.

        The file gets its name only when it is complete. Raises `InvalidRequest` if `path` exists: a backup is never
        overwritten.
        """
        self._check_open()
        with translated_errors(self.path):
            try:
                with sqlite.publishing(path) as draft:
                    sqlite.copy(self.path, draft)
            except FileExistsError:
                raise InvalidRequest(f"{path} exists, and a backup overwrites nothing", path=str(path)) from None
            except Exception as error:
                error.add_note(f"while it was copied to {path}")
                raise

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=sqlite.BUSY_MS / 1000):
            raise ServiceUnavailable(f"{self.path} was busy for {sqlite.BUSY_MS} ms with other writers; try again")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        self._check_open()
        try:
            with translated_errors(self.path), sqlite.transaction(self._engine, writes=writes) as connection:
                yield connection
        except StorageFailed as failure:
            self._fail(failure)
            raise

    def _fail(self, failure: StorageFailed) -> None:
        if self._failure is None:
            _LOG.error("%s. Until the broker starts again no ack, topic, schema or key is kept", failure.message)
        self._failure = failure

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceUnavailable(f"{self.path} is closed")

    def _hold(self, connection: Connection) -> None:
        """Lock the row that every writer locks, for databases with row locks; SQLite has locked the whole file already.

        Raises `VersionNotSupported` if another release has migrated the catalog meanwhile.
        """
        query = select(schema.META).where(schema.META.c.name == schema.SCHEMA_VERSION).with_for_update()
        row = schema.read_row(connection, query)
        if row is None or row["value"] != str(schema.newest_version()):
            raise VersionNotSupported(
                f"{self.path} is no longer of version {schema.newest_version()}: another release of Penstock has"
                " opened it meanwhile; stop that one or this one"
            )


def _check_there(path: Path, *, create: bool) -> None:
    """Create the catalog if there is none. Raises `StorageFailed` if one was lost: `create` is off, or traces of it are
    there.

    An empty file is refused as well.
    """
    log_bytes = sqlite.size_of(sqlite.wal_path(path))  # read first: the log never exists before the file does
    size = sqlite.size_of(path)
    if size == 0:
        raise StorageFailed("the file is empty")
    if size is None and log_bytes:
        raise StorageFailed("the file is missing, but its write-ahead log is there")
    if size is None and (not create or saved_commit_counter(path)):
        raise StorageFailed("the file is missing")
    if size is None:
        _create(path)


def _create(path: Path) -> None:
    """Create the file under a temporary name and rename it when whole, so that no empty or half-made catalog
    appears."""
    with suppress(FileExistsError), sqlite.publishing(path) as draft:
        _migrate(sqlite.engine_for(draft, "make", pool=NullPool), since=0)


def verify_catalog(path: Path) -> int:
    """Verify a catalog without writing to it, and return its version.

    Raises `StorageFailed` if a page, a row, the table definitions or the write-ahead log are damaged, or if confirmed
    transactions are missing.
    """
    noted = saved_commit_counter(path)  # read first: others may be writing
    with sqlite.transaction(sqlite.engine_for(path, "examine", pool=NullPool), writes=False) as connection:
        problem = sqlite.integrity_problem(connection)
        if problem is not None:
            raise StorageFailed(problem)
        _check_log(path, connection)
        _check_commits(path, connection, noted)
        version = schema.schema_version(connection)
        check_version(path, version)
        if schema.meta_value(connection, schema.DEFINITIONS_CHECKSUM) != _definitions_checksum(connection):
            raise StorageFailed("its table definitions are not as they were written")
        schema.check_row_checksums(connection)
        return version


def _check_log(path: Path, connection: Connection) -> None:
    log = sqlite.stable_bytes(sqlite.wal_path(path))
    if log is None:
        return  # others are writing to it, and have examined it when they opened it
    if commits_beyond_damage(log, page_bytes=sqlite.page_bytes(connection)) > 1:
        raise StorageFailed("transactions in its write-ahead log lie behind a frame that does not verify")


def _check_commits(path: Path, connection: Connection, noted: int | None) -> None:
    missing = missing_commits(sqlite.commit_counter(connection), noted)
    if missing:
        log, mark = sqlite.wal_path(path).name, commit_counter_path(path).name
        raise StorageFailed(
            f"its last {missing} confirmed transactions are missing, so {log} is gone or damaged, or {path.name} is an"
            f" older one: put the right file back; or remove {mark} to go on without what they said of topics,"
            " subscriptions, producers, schemas and keys"
        )


def check_version(path: Path, version: int) -> None:
    """Raise `StorageFailed` for version 0, which means no catalog, and `VersionNotSupported` for one of a newer
    release."""
    if version == 0:
        raise StorageFailed("it holds no catalog")
    if version > schema.newest_version():
        raise VersionNotSupported(
            f"{path} is a catalog of version {version}, and this release of Penstock reads versions up to"
            f" {schema.newest_version()}: run the newer release, or restore the backup made before the upgrade",
            found=version,
            newest=schema.newest_version(),
        )


def _definitions_checksum(connection: Connection) -> str:
    return schema.digest(sqlite.definitions(connection))


def _migrate(engine: Engine, *, since: int) -> None:
    """Apply the migrations, one transaction each: after a failure the catalog stays at the last version that
    succeeded."""
    for migration in schema.MIGRATIONS:
        if migration.version > since:
            _step(engine, migration)


def _step(engine: Engine, migration: schema.Migration) -> None:
    with sqlite.transaction(engine, writes=True) as connection:
        before = schema.schema_version(connection)
        if before >= migration.version:
            return  # another process was faster
        try:
            migration.apply(connection)
        except Exception as error:
            error.add_note(f"on the way to version {migration.version}; the catalog stays at version {before}")
            raise
        _write_meta(connection, schema.SCHEMA_VERSION, str(migration.version))
        _write_meta(connection, schema.DEFINITIONS_CHECKSUM, _definitions_checksum(connection))


def _write_meta(connection: Connection, name: str, value: str) -> None:
    schema.write_row(connection, schema.META, {"name": name, "value": value})
