"""Segment files: their names, reads of records from them, and the file that stores where a truncated log begins."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.core.ids import ID_BYTES
from penstock.core.limits import BLOCK_BYTES_CEILING, MIB
from penstock.core.offsets import OFFSET_MAX, OffsetRange
from penstock.record import layout as at
from penstock.record.block import START_OF_LOG, Block, Bytes, Predecessor, ScanStop, scan
from penstock.record.hashing import StreamHash, hash64
from penstock.record.kernels import block_kernels
from penstock.storage.base.disk import Disk, File, opened, read_all, replace_file

SEGMENT_SUFFIX: Final = ".seg"
INDEX_SUFFIX: Final = ".idx"
SPARE_NAME: Final = "spare.seg"
READ_BYTES: Final = 1 * MIB
PIECE_BYTES: Final = 512
"""The size of a disk sector: where the disk cannot read, this many bytes are given up at once."""

_NAME: Final = re.compile(r"([0-9]{20})\.seg")


def segment_name(base: int) -> str:
    return f"{base:020d}{SEGMENT_SUFFIX}"


def base_of(name: str) -> int | None:
    """Return the base offset in a segment's file name; None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= OFFSET_MAX else None


def is_segment_or_index(name: str) -> bool:
    """Return True for the name of a segment's data file or index."""
    stem, dot, suffix = name.rpartition(".")
    return f"{dot}{suffix}" in (SEGMENT_SUFFIX, INDEX_SUFFIX) and base_of(stem + SEGMENT_SUFFIX) is not None


def index_path(segment: Path) -> Path:
    return segment.with_suffix(INDEX_SUFFIX)


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets that cannot be served, and the reason. `start` and `stop` are where their bytes lie in the segment that
    begins at the offset `base`."""

    base: int
    offsets: OffsetRange
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        what = f"offset {self.offsets.start}" if len(self.offsets) == 1 else f"offsets {self.offsets}"
        return f"{what} (segment {self.base}, bytes {self.start} to {self.stop}): {self.reason}"


def read_block(
    file: File,
    position: int,
    stop: int,
    *,
    after: Predecessor = START_OF_LOG,
    bytes_max: int = READ_BYTES,
    verify: bool = True,
    envelopes: bool = True,
    rows_max: int | None = None,
) -> tuple[Block, ScanStop]:
    """Read about `bytes_max` bytes of records from `position` on, none past `stop`; more if the first record is longer.

    Positions in the block count from `position`; that of the stop counts from the start of the file. The reason is MORE
    if records may follow, and CUT only if a record does not end by `stop` or claims an impossible length.
    """
    while True:
        size = max(0, min(bytes_max, stop - position))
        data = read_tolerant(file, position, size)
        block, end = scan(data, after=after, verify=verify, envelopes=envelopes, rows_max=rows_max)
        if end.reason != at.CUT or data.size < size or position + size == stop:
            return block, ScanStop(position + end.position, end.reason)
        if len(block):
            return block, ScanStop(position + end.position, at.MORE)
        needed = record_bytes(data)
        if needed > min(BLOCK_BYTES_CEILING, stop - position):
            return block, ScanStop(position, at.CUT)
        bytes_max = max(needed, at.HEAD_BYTES + at.TYPE_AT + 255)


def read_tolerant(file: File, position: int, size: int) -> Bytes:
    """Read up to `size` bytes, fewer only where the file ends.

    Sectors that the disk cannot read count as zeros, so that only the records in them are lost.
    """
    data = np.empty(size, dtype=np.uint8)
    count = _read_if_readable(file, data, position)
    if count is not None:
        return data[:count]
    data = data[: max(0, file.size() - position)]
    start = 0
    while start < data.size:
        stop = start + PIECE_BYTES - (position + start) % PIECE_BYTES
        if _read_if_readable(file, data[start:stop], position + start) is None:
            data[start:stop] = 0
        start = stop
    return data


def _read_if_readable(file: File, buffer: Bytes, position: int) -> int | None:
    try:
        return file.read_into(buffer, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None


def last_used(file: File, start: int, stop: int) -> int:
    """Return the position behind the last byte of the range that is not zero; `start` if all are zero."""
    used = start
    for position in range(start, stop, READ_BYTES):
        data = read_tolerant(file, position, min(READ_BYTES, stop - position))
        if block_kernels.first_used(data) >= 0:
            used = position + int(np.flatnonzero(data)[-1]) + 1
    return used


def record_bytes(data: Any) -> int:
    """Return the length in bytes of the record at the start of `data`, from its own length fields.

    If `data` is too short for those, returns how many bytes are needed to know more.
    """
    if len(data) < at.HEAD_BYTES:
        return at.HEAD_BYTES
    message = at.HEAD_BYTES + int(data[at.TYPE_LENGTH_AT])
    if len(data) < message:
        return message
    return message + int.from_bytes(bytes(data[message - 4 : message])) + at.CHECKSUM_BYTES


def hash_file(disk: Disk, path: Path, size: int) -> int:
    """Return the HighwayHash-64 of the first `size` bytes of a file; unreadable sectors count as zeros."""
    hashing = StreamHash()
    with opened(disk, path) as file:
        size = min(size, file.size())
        for position in range(0, size, READ_BYTES):
            hashing.update(read_tolerant(file, position, min(READ_BYTES, size - position)))
    return hashing.digest()


LOG_START_NAME: Final = "start"
_BYTES_MAX: Final = 128
_OFFSET_BYTES: Final = 8
_SAID: Final = re.compile(rb"[0-9a-f]{%d}" % (2 * (_OFFSET_BYTES + ID_BYTES)))


class LogStart(NamedTuple):
    """The first offset of a truncated log, and the id of its newest record at the time of the truncation."""

    offset: int
    last_id: bytes


START_OF_EMPTY_LOG: Final = LogStart(0, bytes(ID_BYTES))


def read_log_start(disk: Disk, path: Path) -> LogStart:
    """Return where the log begins; offset 0 and an id of zeros if it was never truncated or the file is damaged."""
    try:
        with opened(disk, path / LOG_START_NAME) as file:
            words = bytes(read_all(file, 0, _BYTES_MAX)).split()
    except FileNotFoundError:
        return START_OF_EMPTY_LOG
    if len(words) != 2 or words[1] != _check(words[0]) or not _SAID.fullmatch(words[0]):
        return START_OF_EMPTY_LOG
    data = bytes.fromhex(words[0].decode())
    offset = int.from_bytes(data[:_OFFSET_BYTES], "big")
    return LogStart(offset, data[_OFFSET_BYTES:]) if offset <= OFFSET_MAX else START_OF_EMPTY_LOG


def write_log_start(disk: Disk, path: Path, start: LogStart) -> None:
    """Store where the log begins, durable on return."""
    text = (start.offset.to_bytes(_OFFSET_BYTES, "big") + start.last_id).hex().encode()
    replace_file(disk, path / LOG_START_NAME, text + b" " + _check(text) + b"\n")


def _check(text: bytes) -> bytes:
    return f"{hash64(text):016x}".encode()
