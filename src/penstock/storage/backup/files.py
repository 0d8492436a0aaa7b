"""Storage, files on their way into a backup and out of it: copied, synced, hashed, and every record verified.

A file gets its name once it is whole and on disk, so whatever has a name is whole.
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
"""What a file's name ends with while it is being written."""

Progress = Callable[[int], None]


def pieces(file: File, size: int) -> Iterator[bytes]:
    """The first `size` bytes, fewer where the file ends. What the disk cannot read counts as zeros."""
    for position in range(0, size, READ_BYTES):
        yield read_tolerant(file, position, min(READ_BYTES, size - position)).tobytes()


def copy_file(
    disk: Disk, source: Path, size: int, target: Path, progress: Progress = lambda _: None
) -> tuple[int, int]:
    """The first `size` bytes of a file, in one that is synced on return; how many there were, and their hash."""
    with opened(disk, source) as file:
        return write_file(disk, target, pieces(file, size), progress)


def write_file(
    disk: Disk, target: Path, data: Iterator[bytes] | list[bytes], progress: Progress = lambda _: None
) -> tuple[int, int]:
    """A new file of these bytes, synced on return; how many there are, and their hash."""
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
    """Where the files of a backup lie."""

    disk: Disk
    root: Path

    def name_part(self, part: Path, pattern: str, size: int, digest: int) -> StoredFile:
        """Give a file that is whole its name. Durable once its directory is synced."""
        found = StoredFile(name=pattern.format(hash_text(digest)), size=size, hash=hash_text(digest))
        self.disk.rename(part, self.root / found.name)
        return found

    def holds(self, file: StoredFile) -> bool:
        """Whether it is there, as far as a glance tells."""
        try:
            with opened(self.disk, self.root / file.name) as found:
                return found.size() == file.size
        except FileNotFoundError:
            return False

    def trouble(self, file: StoredFile, progress: Progress) -> str | None:
        """What is wrong with a file; None if it is as it was written."""
        try:
            with opened(self.disk, self.root / file.name) as found:
                if found.size() != file.size:
                    return f"it has {found.size()} bytes, and was written with {file.size}"
                hashing = StreamHash()
                for piece in pieces(found, file.size):
                    hashing.update(piece)
                    progress(len(piece))
        except FileNotFoundError:
            return "it is missing"
        return None if hash_text(hashing.digest()) == file.hash else "its hash is not the one it was written with"

    def read(self, file: StoredFile) -> bytes:
        with opened(self.disk, self.root / file.name) as found:
            return bytes(read_all(found, 0, file.size))


def split_index(data: bytes, base: int) -> tuple[IndexHeader | None, Longs]:
    """The header of an index, and where it says that records end."""
    header = IndexHeader.decode(data[:HEADER_BYTES])
    entries = data[HEADER_BYTES:]
    whole = len(entries) // ENTRY_BYTES * ENTRY_BYTES
    ends = decode_entries(entries[:whole], base) if whole else NONE_LISTED
    return header if header is not None and header.base == base else None, ends


def verify_records(disk: Disk, path: Path, base: int, count: int, size: int, ends: Longs) -> SegmentScan:
    """Every record of a copy that must hold `count` of them in `size` bytes, by its checksum, id, offset and index."""
    header = IndexHeader(state=SegmentState.CLOSED, base=base, count=count, size=size)
    known = ends[:count] if ends.size else np.empty(0, dtype=np.int64)
    with opened(disk, path) as file:
        return scan_segment(file, file.size(), SegmentExpectation(base=base, header=header, ends=known, count=count))


def damaged_messages(scan: SegmentScan) -> int:
    """How many messages cannot be read."""
    return sum(len(damage.offsets) for damage in scan.damages)
