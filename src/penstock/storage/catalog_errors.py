"""Storage, the catalog's failures: the one place where what SQLite, SQLAlchemy or the system raise gets our names.

Nothing is opened, read or written in here.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from penstock.core.errors import DiskFull, PenstockError, ServiceUnavailable, StorageFailed

_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_OUTSIDE: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM}
)
"""The disk, the permissions or the machine are at fault, not the bytes of the file."""


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """Every failure of the file leaves under one of our names, and gets it here."""
    try:
        yield
    except StorageFailed as found:
        raise _damaged(path, found.message) from found
    # A name in a damaged file need not be UTF-8, and sqlite3 stumbles over it when it words its own error.
    except (SQLAlchemyError, sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise _named(path, error) from error


def _named(path: Path, error: Exception) -> PenstockError:
    origin = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    said = "; ".join([str(origin).partition("\n")[0], *getattr(error, "__notes__", ())])
    if code in _FULL or getattr(origin, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no room on the disk for {path} ({said}); nothing was changed", path=str(path))
    if primary in _BUSY or isinstance(error, PoolTimeout):
        return _busy(path, said)
    if primary in _OUTSIDE or isinstance(origin, OSError):
        return _failed(
            path, f"cannot be read or written ({said})", "check the disk and the permissions, then open it again"
        )
    return _damaged(path, said)


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
