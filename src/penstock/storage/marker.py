"""The offset a log was truncated before, in a small file of its own. Damaged or lost, it hides nothing and deletes
nothing: the log then begins at its first segment again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.record.hashing import hash64
from penstock.storage.disk import Disk, opened, read_all, replace_file

_NAME: Final = "start"
_BYTES_MAX: Final = 64


def read_start(disk: Disk, path: Path) -> int:
    """0 if the log was never truncated, or what was said is damaged."""
    try:
        with opened(disk, path / _NAME) as file:
            words = bytes(read_all(file, 0, _BYTES_MAX)).split()
    except FileNotFoundError:
        return 0
    if len(words) == 2 and words[0].isdigit() and words[1] == _check(words[0]):
        return int(words[0])
    return 0


def write_start(disk: Disk, path: Path, offset: int) -> None:
    """Durable on return."""
    digits = str(offset).encode()
    replace_file(disk, path / _NAME, digits + b" " + _check(digits) + b"\n")


def _check(digits: bytes) -> bytes:
    return f"{hash64(digits):016x}".encode()
