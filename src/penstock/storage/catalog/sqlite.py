"""The SQLite database of the catalog: how it is opened, queried and verified, and the translation of its errors."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Engine, Pool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.core.errors import DiskFull, PenstockError, ServiceUnavailable, StorageFailed

_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_OUTSIDE: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM}
)
"""Errors caused by the disk, the permissions or the machine, not by the bytes of the file."""


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk in a `with` block into errors of this project."""
    try:
        yield
    except StorageFailed as failure:
        raise _damaged(path, failure.message) from failure
    # A name in a damaged file need not be UTF-8, and sqlite3 stumbles over it when it words its own error.
    except (SQLAlchemyError, sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise _named(path, error) from error


def _named(path: Path, error: Exception) -> PenstockError:
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    text = "; ".join([str(origin).partition("\n")[0], *getattr(error, "__notes__", ())])
    if code in _FULL or getattr(origin, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no room on the disk for {path} ({text}); nothing was changed", path=str(path))
    if primary in _BUSY or isinstance(error, PoolTimeout):
        return _busy(path, text)
    if primary in _OUTSIDE or isinstance(origin, OSError):
        return _failed(
            path, f"cannot be read or written ({text})", "check the disk and the permissions, then open it again"
        )
    return _damaged(path, text)


def _busy(path: Path, said: str) -> ServiceUnavailable:
    return ServiceUnavailable(f"{path} was busy for too long ({said}); try again", path=str(path))


def _damaged(path: Path, said: str) -> StorageFailed:
    advice = f"move {path.name}-wal, -shm and -commits away and restore {path.name} from a backup"
    return _failed(path, f"is damaged ({said})", advice)


def _failed(path: Path, what: str, advice: str) -> StorageFailed:
    return StorageFailed(
        f"{path} {what}; nothing was changed, and segments can still be read with `penstock segment dump` and"
        f" `penstock segment verify`: {advice}",
        path=str(path),
    )


BUSY_MS: Final = 5_000
"""The longest wait for other writers: many commits long, and shorter than a client's patience."""

STABLE_READS_MAX: Final = 10
"""Attempts to read a file the same twice while others write to it."""

Purpose = Literal["examine", "frozen", "make", "use"]
"""The way a database is opened.

"use" is for reading and writing, with a write-ahead log. "examine" writes nothing into the file, not even its
write-ahead log; but where that log and its index are missing, SQLite creates them. "frozen" is for a file that nobody
writes to: it needs neither of them, and no lock. "make" is for a new file without a write-ahead log: it is whole as
soon as it is committed, even if there is no room to fold a log in.
"""

_PRAGMAS: Final[dict[Purpose, tuple[str, ...]]] = {
    "examine": (),
    "frozen": (),
    "make": ("PRAGMA synchronous = FULL",),
    "use": ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON"),
}

_MODES: Final[dict[Purpose, str]] = {
    "examine": "mode=ro",
    "frozen": "mode=ro&immutable=1",
    "make": "mode=rw",
    "use": "mode=rw",
}

_WRITES: Final = "penstock_writes"

ReadTransaction = AbstractContextManager[Connection]


def engine_for(path: Path, purpose: Purpose, *, pool: type[Pool], **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=lambda: _connect(path, purpose), poolclass=pool, **options)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Begin a transaction for a `with` block. All its reads see one moment; with `writes` it excludes other writers."""
    with engine.connect() as connection:
        connection.execution_options(**{_WRITES: writes})
        with connection.begin():
            yield connection


def _begin(connection: Connection) -> None:
    # SQLite refuses a writer that reads first and locks later, and queues one that locks at once.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect(path: Path, purpose: Purpose) -> sqlite3.Connection:
    """Connect without ever creating a file, so that a vanished database is an error.

    `isolation_level=None`: `_begin` decides when a transaction begins, so that DDL is in it too.
    """
    address = f"{path.absolute().as_uri()}?{_MODES[purpose]}"
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


def copy(path: Path, target: Path) -> None:
    """Write a compact copy into an empty file; writers need not stop."""
    with closing(_connect(path, "examine")) as source:
        source.execute("VACUUM INTO ?", (str(target.absolute()),))


def copy_open(connection: Connection, target: Path) -> None:
    """Copy all that a transaction sees to a single file; writers need not stop.

    Durable once that file is synced. An existing file is replaced.
    """
    target.unlink(missing_ok=True)
    source = connection.connection.driver_connection
    with closing(sqlite3.connect(target, isolation_level=None)) as copied:
        source.backup(copied)  # type: ignore[union-attr]  # connected during the transaction
        _make_single_file(copied)


def make_single_file(path: Path) -> None:
    """Fold the write-ahead log in and turn it off, so that later readers find no log and create none."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as connection:
        _make_single_file(connection)


def _make_single_file(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = DELETE")


def integrity_problem(connection: Connection) -> str | None:
    """Return the first fault that SQLite finds in its own pages; None if there is none.

    `integrity_check`, not `quick_check`: the latter does not see that an index has lost a row, and a topic missing from
    the index would be created a second time.
    """
    result = str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar())
    return None if result == "ok" else result


def definitions(connection: Connection) -> list[tuple[object, ...]]:
    """Return the definitions of the tables as SQLite stores them. They decide how every row is read, so they are
    checked too."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    return [tuple(row) for row in connection.exec_driver_sql(query)]


def commit_counter(connection: Connection) -> int:
    """Return the number of transactions counted in the header of the database."""
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def set_commit_counter(connection: Connection, number: int) -> None:
    """Set the counter, as a part of the transaction."""
    connection.exec_driver_sql(f"PRAGMA user_version = {number:d}")


def page_bytes(connection: Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def wal_path(path: Path) -> Path:
    """Return the path of the write-ahead log beside a database."""
    return path.with_name(f"{path.name}-wal")


def shm_path(path: Path) -> Path:
    """Return the path of the write-ahead log's index, which the processes that have the database open share."""
    return path.with_name(f"{path.name}-shm")


@contextmanager
def publishing(path: Path) -> Iterator[Path]:
    """Yield an empty file, readable by its owner alone, for the body of the `with` block to fill.

    If the body succeeds, the file is synced and renamed to `path`. Raises `FileExistsError`, and leaves the existing
    file alone, if `path` exists by then.
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


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def stable_bytes(path: Path) -> bytes | None:
    """Return a file's bytes once two reads in a row are the same; empty if there is no file.

    Returns None if others go on writing to it through all attempts.
    """
    before = _bytes_of(path)
    for _ in range(STABLE_READS_MAX):
        after = _bytes_of(path)
        if after == before:
            return after
        before = after
    return None


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


_HEADER: Final = struct.Struct(">8I")  # magic, version, page size, sequence, two salts, two sums
_FRAME: Final = struct.Struct(">6I")  # page, pages after a commit (else 0), two salts, two sums
_MAGIC: Final = 0x377F0682  # the last bit says in which byte order the sums were made
_WORD: Final = 0xFFFF_FFFF

_Pair = tuple[int, int]


class _Frame(NamedTuple):
    salts: _Pair
    commits: bool
    verifies: bool


def commits_beyond_damage(log: bytes, *, page_bytes: int) -> int:
    """Return how many transactions in a write-ahead log end at or after its first frame with a wrong checksum.

    One is normal after a crash: every commit is synced before the next begins, so a torn write damages at most one.
    More mean damage.
    """
    if len(log) < _HEADER.size + _FRAME.size + page_bytes:
        return 0
    frames = list(_frames(log, page_bytes))
    header = _HEADER.unpack_from(log)
    # Frames with other salts are older than the log's last restart: they are in the file by now.
    salts = (header[4], header[5]) if _verifies(log) else frames[0].salts
    beyond = dropwhile(lambda frame: frame.verifies, frames)
    return sum(frame.commits for frame in beyond if frame.salts == salts)


def _frames(log: bytes, page_bytes: int) -> Iterator[_Frame]:
    """Yield the frames of a write-ahead log. Checksums build on each other, so no frame verifies after one that does
    not."""
    order = ">" if log[3:4] == b"\x83" else "<"
    sums = _sums(log[:24], order)
    intact = _verifies(log)
    for start in range(_HEADER.size, len(log) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        _, pages, salt_1, salt_2, *stored = _FRAME.unpack_from(log, start)
        intact = intact and log[start + 8 : start + 16] == log[16:24]
        if intact:  # the costly part, and of no use once the chain is broken
            sums = _sums(log[start : start + 8], order, sums)
            sums = _sums(log[start + _FRAME.size : start + _FRAME.size + page_bytes], order, sums)
            intact = sums == tuple(stored)
        yield _Frame(salts=(salt_1, salt_2), commits=pages != 0, verifies=intact)


def _verifies(log: bytes) -> bool:
    """Return True if magic and checksum of the header of a write-ahead log are right."""
    magic, *_, sum_1, sum_2 = _HEADER.unpack_from(log)
    return magic & ~1 == _MAGIC and _sums(log[:24], ">" if magic & 1 else "<") == (sum_1, sum_2)


def _sums(data: bytes, order: str, sums: _Pair = (0, 0)) -> _Pair:
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
