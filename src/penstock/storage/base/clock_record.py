"""The clock record: a small file with the last readings of the wall clock, and of the boot clock, which nobody can set.

At the next start it shows a wall clock that jumped ahead while the broker was down, as long as the machine was not
rebooted. After a reboot a jump cannot be told from time that has passed.
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
    """A reading of the wall clock (nanoseconds since the Unix epoch) and of the boot clock at the same moment
    (nanoseconds)."""

    wall_ns: int
    boot_ns: int


def this_boot() -> str:
    """Return a text that is the same until the machine reboots and different afterwards; empty where the system has
    none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def save_reading(disk: Disk, root: Path, reading: ClockReading, *, boot: str) -> None:
    """Save a reading, without a sync: after a power cut the machine is rebooted anyway. Errors are ignored."""
    text = f"{boot} {reading.wall_ns} {reading.boot_ns}"
    with suppress(OSError), opened(disk, root / FILE, write=True, create=True) as file:
        file.truncate(0)
        write_all(file, f"{text} {_check(text)}\n".encode(), 0)


def saved_reading(disk: Disk, root: Path, *, boot: str) -> ClockReading | None:
    """Return the last saved reading if it was saved since this boot; None otherwise, or if its checksum is wrong."""
    noted_boot, reading = _noted(disk, root)
    return reading if boot and noted_boot == boot else None


def last_wall_ns(disk: Disk, root: Path) -> int:
    """Return the last saved reading of the wall clock, even from before this boot; 0 if there is none."""
    _, reading = _noted(disk, root)
    return 0 if reading is None else reading.wall_ns


def _noted(disk: Disk, root: Path) -> tuple[str, ClockReading | None]:
    try:
        with opened(disk, root / FILE) as file:
            text, _, check = bytes(read_all(file, 0, _TEXT_BYTES_MAX)).decode().rstrip().rpartition(" ")
    except (OSError, UnicodeDecodeError):
        return "", None
    if check != _check(text):
        return "", None
    boot, wall, boot_time = text.split(" ")
    return boot, ClockReading(int(wall), int(boot_time))


def _check(text: str) -> str:
    return f"{hash64(text.encode()):016x}"
