"""Processes that a test has started in a session of their own: a driver, its JVM, and their children."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def session(leader: int) -> Iterator[tuple[int, str]]:
    """Return every running process of a session, and its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def gone(leader: int) -> None:
    """Wait until no process of a session is left. Killing a driver does not end its JVM and its workers: they end by
    themselves, and work on until then."""
    while any(session(leader)):
        time.sleep(0.02)
