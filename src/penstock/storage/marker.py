"""Where a log begins after it was truncated, and the last id it had given by then, in a small file of its own.

The id is there because the record that carried it may be gone. Damaged or lost, the marker hides nothing and deletes
nothing: the log then begins at its first segment again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from penstock.core.ids import ID_BYTES
from penstock.core.offsets import OFFSET_MAX
from penstock.record.hashing import hash64
from penstock.storage.disk import Disk, opened, read_all, replace_file

MARKER: Final = "start"
_BYTES_MAX: Final = 128
_OFFSET_BYTES: Final = 8
_SAID: Final = re.compile(rb"[0-9a-f]{%d}" % (2 * (_OFFSET_BYTES + ID_BYTES)))


class Start(NamedTuple):
    offset: int
    last_id: bytes


BEGINNING: Final = Start(0, bytes(ID_BYTES))


def read_start(disk: Disk, path: Path) -> Start:
    """The beginning if the log was never truncated, or what was said is damaged."""
    try:
        with opened(disk, path / MARKER) as file:
            words = bytes(read_all(file, 0, _BYTES_MAX)).split()
    except FileNotFoundError:
        return BEGINNING
    if len(words) != 2 or words[1] != _check(words[0]) or not _SAID.fullmatch(words[0]):
        return BEGINNING
    said = bytes.fromhex(words[0].decode())
    offset = int.from_bytes(said[:_OFFSET_BYTES], "big")
    return Start(offset, said[_OFFSET_BYTES:]) if offset <= OFFSET_MAX else BEGINNING


def write_start(disk: Disk, path: Path, start: Start) -> None:
    """Durable on return."""
    said = (start.offset.to_bytes(_OFFSET_BYTES, "big") + start.last_id).hex().encode()
    replace_file(disk, path / MARKER, said + b" " + _check(said) + b"\n")


def _check(said: bytes) -> bytes:
    return f"{hash64(said):016x}".encode()
