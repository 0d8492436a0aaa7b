"""Files of a backup: copied, synced and hashed, with every record verified.

A file gets its name once it is whole and on disk, so every named file is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.record.block import Longs
from penstock.record.hashing import StreamHash
from penstock.storage.backup.manifest import StoredFile, hash_text
from penstock.storage.base.disk import Disk, File, opened, read_all, write_all
from penstock.storage.log.index import ENTRY_BYTES, HEADER_BYTES, IndexHeader, SegmentState, decode_entries
from penstock.storage.log.recovery import NONE_LISTED, SegmentExpectation, SegmentScan, scan_segment
from penstock.storage.log.segment import READ_BYTES, read_tolerant

PART: Final = ".part"
"""The suffix of a file that is being written."""

Progress = Callable[[int], None]


def pieces(file: File, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes in pieces; fewer bytes if the file is shorter. Unreadable sectors are read as
    zeros."""
    for position in range(0, size, READ_BYTES):
        yield read_tolerant(file, position, min(READ_BYTES, size - position)).tobytes()


def copy_file(
    disk: Disk, source: Path, size: int, target: Path, progress: Progress = lambda _: None
) -> tuple[int, int]:
    """Copy the first `size` bytes of a file to `target`, synced on return; return the number of bytes and their hash.

    `progress` is called with the size of each piece written.
    """
    with opened(disk, source) as file:
        return write_file(disk, target, pieces(file, size), progress)


def write_file(
    disk: Disk, target: Path, data: Iterator[bytes] | list[bytes], progress: Progress = lambda _: None
) -> tuple[int, int]:
    """Write a new file, synced on return; return the number of bytes and their hash."""
    hashing, position = StreamHash(), 0
    with opened(disk, target, write=True, create=True) as file:
        file.truncate(0)
        for piece in data:
            write_all(file, piece, position)
            hashing.update(piece)
            position += len(piece)
            progress(len(piece))
        file.sync()
    return position, hashing.digest()


@dataclass(frozen=True, slots=True)
class BackupFiles:
    """The directory of a backup's files."""

    disk: Disk
    root: Path

    def name_part(self, part: Path, pattern: str, size: int, digest: int) -> StoredFile:
        """Rename the finished file `part` to `pattern` with its hash filled in, and return its entry for the manifest.

        The new name is durable once its directory is synced, which the caller does.
        """
        file = StoredFile(name=pattern.format(hash_text(digest)), size=size, hash=hash_text(digest))
        self.disk.rename(part, self.root / file.name)
        return file

    def holds(self, file: StoredFile) -> bool:
        """Return True if the file exists with the right size."""
        try:
            with opened(self.disk, self.root / file.name) as opened_file:
                return opened_file.size() == file.size
        except FileNotFoundError:
            return False

    def trouble(self, file: StoredFile, progress: Progress) -> str | None:
        """Return a sentence about what is wrong with a file: it is missing, or its size or hash differs; None if it is
        as it was written."""
        try:
            with opened(self.disk, self.root / file.name) as opened_file:
                if opened_file.size() != file.size:
                    return f"it has {opened_file.size()} bytes, and was written with {file.size}"
                hashing = StreamHash()
                for piece in pieces(opened_file, file.size):
                    hashing.update(piece)
                    progress(len(piece))
        except FileNotFoundError:
            return "it is missing"
        return None if hash_text(hashing.digest()) == file.hash else "its hash is not the one it was written with"

    def read(self, file: StoredFile) -> bytes:
        with opened(self.disk, self.root / file.name) as opened_file:
            return bytes(read_all(opened_file, 0, file.size))


def split_index(data: bytes, base: int) -> tuple[IndexHeader | None, Longs]:
    """Return the header of an index and the ends of its records.

    The header is None if it is damaged or of another segment than the one that begins at offset `base`; the end of a
    record whose entry is damaged is -1.
    """
    header = IndexHeader.decode(data[:HEADER_BYTES])
    entries = data[HEADER_BYTES:]
    whole = len(entries) // ENTRY_BYTES * ENTRY_BYTES
    ends = decode_entries(entries[:whole], base) if whole else NONE_LISTED
    return header if header is not None and header.base == base else None, ends


def verify_records(disk: Disk, path: Path, base: int, count: int, size: int, ends: Longs) -> SegmentScan:
    """Scan a copied segment that must hold `count` records in `size` bytes, and return the scan with the damage found.

    Checks checksum, id and offset of every record, and that records end where `ends` says.
    """
    header = IndexHeader(state=SegmentState.CLOSED, base=base, count=count, size=size)
    known = ends[:count] if ends.size else np.empty(0, dtype=np.int64)
    with opened(disk, path) as file:
        return scan_segment(file, file.size(), SegmentExpectation(base=base, header=header, ends=known, count=count))


def damaged_messages(scan: SegmentScan) -> int:
    """Return how many messages of a scanned segment are damaged."""
    return sum(len(damage.offsets) for damage in scan.damages)
