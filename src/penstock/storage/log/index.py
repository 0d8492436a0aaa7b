"""The position index beside a segment: where every record ends, in eight bytes each.

The index is a cache of the segment, with one more use: it is written after the records are durable, so a listed record
has been acknowledged. This tells an unfinished tail from damage, and lets a reader step over a damaged record exactly.
Each entry has a tag of its own, so a torn or flipped entry is noticed by itself.

File: a header of 128 bytes, then the entries, big-endian. Entry i is `end of record i` (32 bits) and its tag (32 bits).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.core.ids import ID_BYTES
from penstock.core.limits import SEGMENT_BYTES_CEILING
from penstock.core.offsets import OFFSET_MAX
from penstock.record import layout as at
from penstock.record.block import Bytes, Longs
from penstock.record.hashing import hash64
from penstock.storage.base.disk import Disk, File, opened, replace_file, write_all
from penstock.storage.log.segment import last_used, read_tolerant

FORMAT: Final = 1
MAGIC: Final = b"PNSTKIDX"
HEADER_BYTES: Final = 128
ENTRY_BYTES: Final = 8
_HEADER: Final = struct.Struct(">8sIIQQQ16s16sQ")
_CHECKSUM: Final = struct.Struct(">Q")
_PADDING: Final = HEADER_BYTES - _CHECKSUM.size - _HEADER.size
_RESERVE_BYTES_MIN: Final = 4096
_RESERVE_BYTES_MAX: Final = 1 << 20
_END_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_OFFSET_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_TAG_SALT: Final = np.uint64(0x165667B19E3779F9)
_DECODED_AT_ONCE: Final = 4096
"""Entries decoded at a time: the intermediate arrays stay in the processor's cache."""
_ENTRIES_MAX: Final = SEGMENT_BYTES_CEILING // at.MESSAGE_RECORD_BYTES_MIN
"""The most records that a segment can hold. Entries beyond them are not read, however long the file is."""
NO_ID: Final = bytes(ID_BYTES)


class SegmentState(IntEnum):
    """The state of a segment, as the header of its index has it."""

    OPEN = 0
    """Being written: the records that the index lists are acknowledged; those behind them may be unfinished."""
    CLOSED = 1
    """Closed in order: the header counts all records."""
    SEALED = 2
    """Complete for good, with the hash of the whole segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHeader:
    state: SegmentState
    base: int
    count: int = 0
    size: int = 0
    first_id: bytes = NO_ID
    last_id: bytes = NO_ID
    hash: int = 0

    def encode(self) -> bytes:
        fields = (self.state, self.base, self.count, self.size, self.first_id, self.last_id, self.hash)
        body = _HEADER.pack(MAGIC, FORMAT, *fields) + bytes(_PADDING)
        return body + _CHECKSUM.pack(hash64(body))

    @property
    def is_possible(self) -> bool:
        """True if a segment can have these numbers. A checksum alone does not prove that Penstock wrote the header."""
        if self.size > SEGMENT_BYTES_CEILING or self.base + self.count > OFFSET_MAX:
            return False
        return self.count * at.MESSAGE_RECORD_BYTES_MIN <= self.size and (self.count > 0) == (self.size > 0)

    @classmethod
    def decode(cls, data: bytes | bytearray) -> IndexHeader | None:
        """Parse a header. Returns None if it is incomplete, damaged, or describes an impossible segment."""
        if len(data) < HEADER_BYTES or _CHECKSUM.unpack_from(data, HEADER_BYTES - 8)[0] != hash64(data[:-8]):
            return None
        magic, version, state, base, count, size, first_id, last_id, digest = _HEADER.unpack_from(data)
        if magic != MAGIC or version != FORMAT or state not in SegmentState.__members__.values():
            return None
        header = cls(
            state=SegmentState(state),
            base=base,
            count=count,
            size=size,
            first_id=first_id,
            last_id=last_id,
            hash=digest,
        )
        return header if header.is_possible else None


def encode_entries(ends: Longs, first_offset: int) -> bytes:
    """Encode index entries. Record i has the offset `first_offset + i` and ends `ends[i]` bytes from the start of the
    segment."""
    positions = ends.astype(np.uint64)
    entries: Any = (positions << np.uint64(32)) | _tags(positions, first_offset)
    return bytes(entries.astype(">u8").tobytes())


def unchecked_ends(data: Any) -> Longs:
    """Return where records end, from index entries whose tags are not checked: a tenth of the work of
    `decode_entries`."""
    ends: Longs = (np.frombuffer(data, dtype=">u8") >> np.uint64(32)).astype(np.int64)
    return ends


def decode_entries(data: Any, first_offset: int) -> Longs:
    """Return where each record ends, in bytes from the start of the segment; -1 for every entry whose tag is wrong.

    `first_offset` is the offset of the first entry's record.
    """
    words = np.frombuffer(data, dtype=">u8").astype(np.uint64)
    positions = words >> np.uint64(32)
    sound = (words & np.uint64(0xFFFFFFFF)) == _tags(positions, first_offset)
    return np.where(sound, positions.astype(np.int64), np.int64(-1))


def _tags(positions: Any, first_offset: int) -> Any:
    offsets = np.arange(first_offset, first_offset + positions.size, dtype=np.uint64)
    mixed = (positions * _END_FACTOR) ^ (offsets * _OFFSET_FACTOR) ^ _TAG_SALT
    return (mixed ^ (mixed >> np.uint64(29))) * _END_FACTOR >> np.uint64(32)


class IndexFile:
    """A reader of an index. An entry that is missing, damaged or unreadable gives -1 as the end of its record."""

    def __init__(self, disk: Disk, path: Path, base: int) -> None:
        self._disk = disk
        self._path = path
        self._base = base

    def header(self) -> IndexHeader | None:
        """Read the header. Returns None if it is missing, damaged, or of another segment."""
        header = IndexHeader.decode(bytes(self._read(0, HEADER_BYTES)))
        return header if header is not None and header.base == self._base else None

    def ends(self, start: int, stop: int) -> Longs:
        """Return the ends of records `start` to `stop`, counted from the segment's first; -1 where unknown."""
        known = np.full(max(0, stop - start), -1, dtype=np.int64)
        data = self._read(HEADER_BYTES + start * ENTRY_BYTES, known.size * ENTRY_BYTES)
        whole = len(data) // ENTRY_BYTES
        for first in range(0, whole, _DECODED_AT_ONCE):
            last = min(whole, first + _DECODED_AT_ONCE)
            known[first:last] = decode_entries(
                data[first * ENTRY_BYTES : last * ENTRY_BYTES], self._base + start + first
            )
        return known

    def entries(self, start: int, stop: int) -> Bytes:
        """Return the raw entries of records `start` to `stop`, unchecked; fewer where the file ends."""
        data = self._read(HEADER_BYTES + start * ENTRY_BYTES, max(0, stop - start) * ENTRY_BYTES)
        return data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]

    def start(self, ordinal: int) -> int:
        """Return where a record begins, in bytes from the start of the segment; -1 if unknown. `ordinal` 0 is the first
        record."""
        return 0 if ordinal == 0 else int(self.ends(ordinal - 1, ordinal)[0])

    def lists_all(self, header: IndexHeader) -> bool:
        """Return True if the last record that the header counts is listed and ends at the header's size."""
        return self.start(header.count) == header.size

    def allows(self, header: IndexHeader, file: File) -> bool:
        """Return True if neither the entries nor the segment, `file`, contradict a header.

        An undamaged last entry decides alone: it must agree with the header's size. If it is lost, the records without
        entries must fit between the last known end and the header's size, and the bytes there must not all be zero.
        """
        last = self.start(header.count)
        if last >= 0:
            return last == header.size
        listed = self.all_ends()
        unlisted, start = header.count - listed.size, int(listed[-1]) if listed.size else 0
        if header.size > file.size() or not 0 < unlisted * at.MESSAGE_RECORD_BYTES_MIN <= header.size - start:
            return False
        return last_used(file, start, header.size) > start

    def all_ends(self) -> Longs:
        """Return the ends of all entries up to the last sound one."""
        known = self.ends(0, min(max(0, self._size() - HEADER_BYTES) // ENTRY_BYTES, _ENTRIES_MAX))
        sound = np.flatnonzero(known >= 0)
        return known[: int(sound[-1]) + 1] if sound.size else known[:0]

    def count_from(self, ordinal: int, *, step: int = 8192) -> int:
        """Return the number of listed records, for an index that grows. `ordinal` of them are known to be listed, and
        are not read again."""
        while True:
            sound = np.flatnonzero(self.ends(ordinal, ordinal + step) >= 0)
            if not sound.size:
                return ordinal
            ordinal += int(sound[-1]) + 1

    def _size(self) -> int:
        try:
            with opened(self._disk, self._path) as file:
                return file.size()
        except FileNotFoundError:
            return 0

    def _read(self, position: int, size: int) -> Bytes:
        try:
            with opened(self._disk, self._path) as file:
                return read_tolerant(file, position, size)
        except FileNotFoundError:
            return np.empty(0, dtype=np.uint8)


class IndexWriter:
    """A writer of an index, which lists records once they are durable.

    Space for entries is reserved before the records are written, so that a full disk cannot keep durable records from
    being listed.
    """

    def __init__(self, file: File, base: int) -> None:
        self._file = file
        self._base = base
        self._reserved = file.size()

    @classmethod
    def create(cls, disk: Disk, path: Path, base: int) -> IndexWriter:
        file = disk.open(path, write=True, create=True)
        try:
            file.truncate(0)
            writer = cls(file, base)
            writer.reserve(1)
            write_all(file, IndexHeader(state=SegmentState.OPEN, base=base).encode(), 0)
            file.sync()
        except BaseException:
            file.close()
            raise
        return writer

    def reopen(self) -> None:
        """Mark the segment as being written again; durable on return."""
        self.mark(IndexHeader(state=SegmentState.OPEN, base=self._base))
        self.sync()

    def reserve(self, count: int) -> None:
        needed = HEADER_BYTES + count * ENTRY_BYTES
        if needed > self._reserved:
            step = min(max(self._reserved, _RESERVE_BYTES_MIN), _RESERVE_BYTES_MAX)
            self._file.preallocate(max(needed, self._reserved + step))
            self._reserved = self._file.size()

    def write(self, ends: Longs, ordinal: int) -> None:
        write_all(self._file, encode_entries(ends, self._base + ordinal), HEADER_BYTES + ordinal * ENTRY_BYTES)

    def mark(self, header: IndexHeader) -> None:
        write_all(self._file, header.encode(), 0)

    def sync(self) -> None:
        """Make the header and every entry durable."""
        self._file.sync()

    def trim(self, count: int) -> None:
        """Keep `count` entries, and free the space behind them."""
        self._file.truncate(HEADER_BYTES + count * ENTRY_BYTES)

    def close(self) -> None:
        self._file.close()


def rewrite_index(disk: Disk, path: Path, header: IndexHeader, ends: Longs) -> None:
    """Replace the index beside a segment by a new one with this header and the ends of all records; durable on
    return."""
    replace_file(disk, path, header.encode() + encode_entries(ends, header.base))
