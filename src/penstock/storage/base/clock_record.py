"""Timepiece: what time it was when a data directory was last looked after, and on which clock that nobody sets.

A small file, so that a clock that jumps ahead while the broker is down is not believed at the start, as long as the
machine has not been started anew: then nobody can tell a jump from time that has passed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from penstock.record.hashing import hash64
from penstock.storage.base.disk import Disk, opened, read_all, write_all

FILE: Final = "clock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_TEXT_BYTES_MAX: Final = 256


class ClockReading(NamedTuple):
    """A time of day, and when that was on the clock that nobody sets; both in nanoseconds."""

    told_ns: int
    passed_ns: int


def this_boot() -> str:
    """Another text each time the machine is started; nothing where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def save_reading(disk: Disk, root: Path, moment: ClockReading, *, boot: str) -> None:
    """Not synced: after a power cut the machine is started anew. Where it cannot be written, nothing is known."""
    said = f"{boot} {moment.told_ns} {moment.passed_ns}"
    with suppress(OSError), opened(disk, root / FILE, write=True, create=True) as file:
        file.truncate(0)
        write_all(file, f"{said} {_check(said)}\n".encode(), 0)


def saved_reading(disk: Disk, root: Path, *, boot: str) -> ClockReading | None:
    """None where nothing was noted since the machine was started, or what was does not verify."""
    noted_boot, moment = _noted(disk, root)
    return moment if boot and noted_boot == boot else None


def last_wall_ns(disk: Disk, root: Path) -> int:
    """The time of day that was noted last, before the machine was started too; 0 if none was."""
    _, moment = _noted(disk, root)
    return 0 if moment is None else moment.told_ns


def _noted(disk: Disk, root: Path) -> tuple[str, ClockReading | None]:
    try:
        with opened(disk, root / FILE) as file:
            said, _, check = bytes(read_all(file, 0, _TEXT_BYTES_MAX)).decode().rstrip().rpartition(" ")
    except (OSError, UnicodeDecodeError):
        return "", None
    if check != _check(said):
        return "", None
    boot, told, passed = said.split(" ")
    return boot, ClockReading(int(told), int(passed))


def _check(said: str) -> str:
    return f"{hash64(said.encode()):016x}"
