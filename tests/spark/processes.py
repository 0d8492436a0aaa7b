"""Processes that a test has started in a session of their own: a driver, its JVM, and what that has started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def session(leader: int) -> Iterator[tuple[int, str]]:
    """Every process of a session that has not ended, and its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def gone(leader: int) -> None:
    """Wait until nothing of a session is left. Who has killed a driver has not ended its JVM and its workers: they see
    to that by themselves, and until then go on with what they were told to do."""
    while any(session(leader)):
        time.sleep(0.02)
