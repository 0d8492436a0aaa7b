"""Storage, the catalog's file: the one place that knows the catalog is SQLite.

Opening, examining, migrating, transactions and backups. What the rows mean does not come in here.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

from sqlalchemy import Connection, Engine, Pool, create_engine, event, select
from sqlalchemy.pool import NullPool, QueuePool

from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed, VersionNotSupported
from penstock.storage import catalog_schema as schema
from penstock.storage.catalog_errors import answering

BUSY_MS: Final = 5_000
"""How long a call waits for other writers: many commits long, and shorter than a client's patience."""

Purpose = Literal["examine", "make", "use"]
"""Examining writes nothing, not even the write-ahead log into the file. A file in the making has no such log: it is
whole as soon as it is committed, also if there is no room left to carry a log over."""

_PRAGMAS: Final[dict[Purpose, tuple[str, ...]]] = {
    "examine": (),
    "make": ("PRAGMA synchronous = FULL",),
    "use": ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON"),
}

_WRITES: Final = "penstock_writes"


class CatalogFile:
    """One open catalog: transactions over it, from any thread, and in competition with other processes."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self._engine = engine
        # SQLite lets writers poll; within one process they can stand in a queue.
        self._turn = threading.Lock()
        self._failure: StorageFailed | None = None
        self._closed = False

    @classmethod
    def open(cls, path: Path, *, create: bool) -> Self:
        """Make the file if it is not there, examine it before anything may write to it, bring it up to this version.

        Raises `StorageFailed` for a file that cannot be trusted, which is left as it is, or that is missing where
        none may be made; `VersionNotSupported` for one that a newer release has written.
        """
        with answering(path):
            _check_there(path, create=create)
            version = _examine(path)
            engine = _engine(path, "use", pool=QueuePool, pool_timeout=BUSY_MS / 1000)
            try:
                _migrate(engine, since=version)
                engine.connect().close()  # a directory that cannot be written to is found out now
            except BaseException:
                engine.dispose()
                raise
        return cls(path, engine)

    def close(self) -> None:
        """Let go of the file, once the writers in line are done. Later calls raise `ServiceUnavailable`."""
        with self._turn:
            self._closed = True
            self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One moment of the catalog: what others commit meanwhile is not seen."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Alone with the catalog. Durable on return; undone as a whole if anything is raised.

        After the first `StorageFailed` nothing is written any more until the file has been opened, and thereby
        examined, again.
        """
        with self._in_turn():
            if self._failure is not None:
                raise StorageFailed(f"not written, for an earlier failure: {self._failure.message}")
            with self._transaction(writes=True) as connection:
                self._hold(connection)
                yield connection

    def backup_to(self, path: Path) -> None:
        """A whole, compact copy as of now, under its name only once it is on disk; writers need not stop.

        Raises `InvalidRequest` if there is such a file: a backup is never overwritten.
        """
        self._check_open()
        with answering(self.path):
            try:
                with _published(path) as draft, closing(_connect(self.path, "examine")) as source:
                    source.execute("VACUUM INTO ?", (str(draft.absolute()),))
            except FileExistsError:
                raise InvalidRequest(f"{path} exists, and a backup overwrites nothing", path=str(path)) from None
            except Exception as error:
                error.add_note(f"while it was copied to {path}")
                raise

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=BUSY_MS / 1000):
            raise ServiceUnavailable(f"{self.path} was busy for {BUSY_MS} ms with other writers; try again")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        self._check_open()
        try:
            with answering(self.path), _begun(self._engine, writes=writes) as connection:
                yield connection
        except StorageFailed as failure:
            self._failure = failure
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceUnavailable(f"{self.path} is closed")

    def _hold(self, connection: Connection) -> None:
        """Lock the row that every writer locks (SQLite has locked the file already and ignores it)."""
        query = select(schema.META).where(schema.META.c.name == schema.SCHEMA_VERSION).with_for_update()
        row = schema.read_row(connection, query)
        if row is None or row["value"] != str(schema.newest_version()):
            raise VersionNotSupported(
                f"{self.path} is no longer of version {schema.newest_version()}: another release of Penstock has"
                " opened it meanwhile; stop that one or this one"
            )


def _check_there(path: Path, *, create: bool) -> None:
    """Make a catalog where there was none. Raises `StorageFailed` where there must have been one."""
    has_log = _size(path.with_name(f"{path.name}-wal"))  # asked first: it is never there before the file is
    size = _size(path)
    if size == 0:
        raise StorageFailed("the file is empty")
    if size is None and has_log:
        raise StorageFailed("the file is missing, but its write-ahead log is there")
    if size is None and not create:
        raise StorageFailed("the file is missing")
    if size is None:
        _create(path)


def _create(path: Path) -> None:
    """Made aside and named when whole: a file under the catalog's name that is empty or half made is never ours."""
    with suppress(FileExistsError), _published(path) as draft:
        _migrate(_engine(draft, "make", pool=NullPool), since=0)


@contextmanager
def _published(path: Path) -> Iterator[Path]:
    """An empty file for its owner alone; it is synced and gets its name if the body succeeds.

    Raises `FileExistsError`, and leaves the other file alone, if the name is taken by then.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".draft", dir=path.parent)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        _sync(draft)
        path.hardlink_to(draft)
        _sync(path.parent)
    finally:
        draft.unlink()
        draft.with_name(f"{draft.name}-journal").unlink(missing_ok=True)  # SQLite leaves it where a rollback fails


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _examine(path: Path) -> int:
    """The version of a catalog in which everything is as it was written. Nothing can be written while looking.

    `integrity_check`, not `quick_check`: the latter does not see that an index has lost a row, and a topic not found
    in the index would be made a second time.
    """
    with _begun(_engine(path, "examine", pool=NullPool), writes=False) as connection:
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if found != "ok":
            raise StorageFailed(str(found))
        version = schema.schema_version(connection)
        _check_known(path, version)
        if schema.meta_value(connection, schema.SCHEMA_SEAL) != _definitions(connection):
            raise StorageFailed("its table definitions are not as they were written")
        schema.check_seals(connection)
        return version


def _check_known(path: Path, version: int) -> None:
    if version == 0:
        raise StorageFailed("it holds no catalog")
    if version > schema.newest_version():
        raise VersionNotSupported(
            f"{path} is a catalog of version {version}, and this release of Penstock reads versions up to"
            f" {schema.newest_version()}: run the newer release, or restore the backup made before the upgrade",
            found=version,
            newest=schema.newest_version(),
        )


def _definitions(connection: Connection) -> str:
    """A seal over the tables as SQLite has them written down: that text decides how every row is read."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    return schema.digest([tuple(row) for row in connection.exec_driver_sql(query)])


def _migrate(engine: Engine, *, since: int) -> None:
    """One committed step after the other: after a failure the catalog stands at the last version that succeeded."""
    for migration in schema.MIGRATIONS:
        if migration.version > since:
            _step(engine, migration)


def _step(engine: Engine, migration: schema.Migration) -> None:
    with _begun(engine, writes=True) as connection:
        before = schema.schema_version(connection)
        if before >= migration.version:
            return  # another process was faster
        try:
            migration.apply(connection)
        except Exception as error:
            error.add_note(f"on the way to version {migration.version}; the catalog stays at version {before}")
            raise
        _write_meta(connection, schema.SCHEMA_VERSION, str(migration.version))
        _write_meta(connection, schema.SCHEMA_SEAL, _definitions(connection))


def _write_meta(connection: Connection, name: str, value: str) -> None:
    schema.write_row(connection, schema.META, {"name": name, "value": value})


@contextmanager
def _begun(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    with engine.connect() as connection:
        connection.execution_options(**{_WRITES: writes})
        with connection.begin():
            yield connection


def _engine(path: Path, purpose: Purpose, *, pool: type[Pool], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=lambda: _connect(path, purpose), poolclass=pool, **options)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    # A writer that reads first and asks for the lock later is refused, not queued: ask at once.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect(path: Path, purpose: Purpose) -> sqlite3.Connection:
    """For no purpose does SQLite make a file: one that has vanished is an error.

    `isolation_level=None`: `_begin` decides when a transaction begins, so that DDL is in it too.
    """
    address = f"{path.absolute().as_uri()}?mode={'ro' if purpose == 'examine' else 'rw'}"
    connection = sqlite3.connect(
        address, uri=True, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in _PRAGMAS[purpose]:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection
