"""File systems of a given size, for as long as a test takes."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_HINT: Final = (
    "this test mounts a file system, which takes root; anybody else can be that in a namespace of their own, with"
    " `unshare --user --map-root-user --mount .venv/bin/pytest tests/crash/test_full_disk.py`"
)


@contextmanager
def mounted(place: Path, mebibytes: int) -> Iterator[Path]:
    """An empty file system in memory. The test fails where none can be had, and says what that takes."""
    place.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.fail(f"{done.stderr.strip()}: {_HINT}", pytrace=False)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill_to_the_last_byte(path: Path) -> None:
    """Write a file until the disk takes no more."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
