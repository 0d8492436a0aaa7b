"""Storage, the catalog's commits: their number, kept a second time outside of the database.

SQLite takes a write-ahead log that is gone, or whose last transaction does not verify, for the end of what there was: a
database without confirmed transactions is a perfectly good one. Every transaction counts one up in the database; once
it is durable the number is written here. A database that is behind it has lost some. The number is synced only now and
then: after a power cut it may be too low, and never too high, so nothing is missed that was not confirmed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.record.hashing import hash64

_ROUND: Final = 2**31
"""The counter has 31 bits and begins anew; no catalog is half of that behind."""
_TEXT_BYTES_MAX: Final = 64


def mark_of(path: Path) -> Path:
    """The file beside a catalog that holds the number."""
    return path.with_name(f"{path.name}-commits")


def noted_commits(path: Path) -> int | None:
    """The number that was last written beside the catalog at `path`; None where there is none that verifies."""
    try:
        words = mark_of(path).read_bytes()[:_TEXT_BYTES_MAX].split()
    except FileNotFoundError:
        return None
    if len(words) != 2 or words[1] != _check(words[0]):
        return None
    return int(words[0])


def next_commit(number: int) -> int:
    return (number + 1) % _ROUND


def commits_missing(found: int, noted: int | None) -> int:
    """How many transactions a catalog lacks that was at `noted` once."""
    behind = 0 if noted is None else (noted - found) % _ROUND
    return behind if behind < _ROUND // 2 else 0


class CommitMark:
    """Writes the number of each transaction that is durable. What fails here fails nobody: the number stays too low."""

    def __init__(self, path: Path) -> None:
        self._path = mark_of(path)
        self._descriptor = -1
        self._synced = True

    def write(self, number: int) -> None:
        said = b"%d" % number
        with suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, b"%s %s\n" % (said, _check(said)), 0)
            self._synced = False

    def sync(self) -> None:
        """Have what was written last outlive a power cut."""
        with suppress(OSError):
            if self._descriptor >= 0 and not self._synced:
                os.fsync(self._descriptor)
                self._synced = True

    def close(self) -> None:
        self.sync()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _check(said: bytes) -> bytes:
    return b"%016x" % hash64(said)
