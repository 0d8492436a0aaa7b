"""The segment that is being written: its two files, how far it is filled, and the spare that will follow it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from penstock.core.errors import DiskFull
from penstock.core.ids import ID_BYTES, ticks_of_id, unix_ms_of_ticks
from penstock.core.limits import Limits
from penstock.record.block import Draft, Longs
from penstock.record.hashing import StreamHash
from penstock.storage.base.disk import FULL_ERRORS, Disk, File, opened, write_all
from penstock.storage.log.index import IndexHeader, IndexWriter, SegmentState
from penstock.storage.log.log_view import Segment
from penstock.storage.log.repair import has_clean_end, is_index_of, repair_newest
from penstock.storage.log.segment import SPARE_NAME, Damage, hash_file, index_path, segment_name

_LOG = logging.getLogger(__name__)


class ActiveSegment:
    """Owned by the log's one appender. `segment` is what readers may see of it."""

    def __init__(self, disk: Disk, segment: Segment, capacity: int, header: IndexHeader) -> None:
        self._disk = disk
        self._capacity = capacity
        self._header = header
        self._file: File | None = None
        self._index: IndexWriter | None = None
        self._spare = False
        self._hash: StreamHash | None = None
        """Of everything written so far; None for a segment taken over from an earlier process."""
        self.segment = segment

    @classmethod
    def create(cls, disk: Disk, folder: Path, base: int, size: int, limits: Limits, *, needed: int) -> Self:
        """A new segment of `size` bytes, from the spare if there is one of that size; where there is less room, of as
        many as there are, `needed` at least. Durable on return.

        Raises `DiskFull`, or ENOSPC, and leaves nothing behind.
        """
        path = folder / segment_name(base)
        spare = folder / SPARE_NAME
        capacity = _preallocate(disk, spare, size, limits, needed=needed)
        index = IndexWriter.create(disk, index_path(path), base)
        index.close()
        disk.rename(spare, path)
        disk.sync_directory(folder)
        segment = Segment(path=path, base=base, stop=base, size=0, sealed=False)
        made = cls(disk, segment, capacity, IndexHeader(state=SegmentState.OPEN, base=base))
        made._hash = StreamHash()
        return made

    @classmethod
    def reopen(cls, disk: Disk, path: Path, header: IndexHeader | None, limits: Limits) -> tuple[Self, list[Damage]]:
        """The newest segment of a log as it was left: in order, or recovered."""
        if header is not None and (size := _size_as_closed(disk, path, header)) is not None:
            return cls._of(disk, path, header, size), []
        finding = repair_newest(disk, path, limits)
        if not finding.count:
            # Whoever made it may have died before its name was durable; records make sure that it was.
            disk.sync_directory(path.parent)
        capacity = finding.size
        if has_clean_end(disk, path, finding.size):
            with opened(disk, path) as file:
                capacity = file.size()
        return cls._of(disk, path, finding.header(SegmentState.OPEN), capacity), list(finding.damages)

    @classmethod
    def _of(cls, disk: Disk, path: Path, header: IndexHeader, capacity: int) -> Self:
        stop = header.base + header.count
        segment = Segment(path=path, base=header.base, stop=stop, size=header.size, sealed=False)
        return cls(disk, segment, capacity, header)

    @property
    def last_id(self) -> bytes:
        return self._header.last_id

    @property
    def first_time_ms(self) -> int:
        return unix_ms_of_ticks(ticks_of_id(self._header.first_id))

    def has_room(self, size: int) -> bool:
        return self.segment.size + size <= self._capacity

    def fitting(self, drafts: Sequence[Draft]) -> int:
        """How many of the first blocks there is room for."""
        room = self._capacity - self.segment.size
        for count, draft in enumerate(drafts):
            room -= len(draft.data)
            if room < 0:
                return count
        return len(drafts)

    def open_files(self) -> None:
        """Have the files open, and the index say that the segment is being written."""
        if self._file is not None:
            return
        self._file = self._disk.open(self.segment.path, write=True)
        try:
            self._index = IndexWriter(self._disk.open(index_path(self.segment.path), write=True), self.segment.base)
            if self._header.state is not SegmentState.OPEN:
                self._index.reopen()
        except OSError:
            self.close_files()  # awake is awake: nothing is written behind an index that says it is closed
            raise
        self._header = replace(self._header, state=SegmentState.OPEN)

    def reserve(self, records: int) -> None:
        """Room in the index for so many more records. Raises ENOSPC before anything is written."""
        self._open_index.reserve(self.segment.count + records)

    def write(self, data: bytearray, ends: Longs, *, sync: bool) -> None:
        """Write, sync, list in the index, and only then count as there."""
        start = self.segment.size
        write_all(self._open_file, data, start)
        if sync:
            self._open_file.sync()
        self._open_index.write(ends + start, self.segment.count)
        if self._hash is not None:
            self._hash.update(data)
        self._note_ids(data, ends)
        stop = self.segment.stop + int(ends.size)
        self.segment = replace(self.segment, stop=stop, size=start + len(data))

    def _note_ids(self, data: bytearray, ends: Longs) -> None:
        last = int(ends[-2]) if ends.size > 1 else 0
        first_id = self._header.first_id if self.segment.count else bytes(data[:ID_BYTES])
        self._header = replace(self._header, first_id=first_id, last_id=bytes(data[last : last + ID_BYTES]))

    @property
    def _open_file(self) -> File:
        assert self._file is not None, "open_files() comes first"  # noqa: S101 - a defect here, not bad input
        return self._file

    @property
    def _open_index(self) -> IndexWriter:
        assert self._index is not None, "open_files() comes first"  # noqa: S101 - a defect here, not bad input
        return self._index

    def enlarge(self, size: int) -> None:
        """Give an empty segment more room: it was made for less, or a crash left it short."""
        self.open_files()
        self._open_file.preallocate(size)
        self._capacity = size

    def prepare_spare(self, limits: Limits) -> None:
        """Once half full, preallocate the segment that will follow, so that a full disk is met before it hurts."""
        if self._spare or self.segment.size * 2 < self._capacity:
            return
        size = min(max(limits.segment_bytes_first, 2 * self._capacity), limits.segment_bytes_max)
        try:
            _preallocate(self._disk, self.segment.path.with_name(SPARE_NAME), size, limits)
        except (DiskFull, OSError) as error:
            if isinstance(error, OSError) and error.errno not in FULL_ERRORS:
                raise
            _LOG.warning("%s: the next segment cannot be prepared: %s", self.segment.path.parent, error)
        self._spare = True  # or tried: who needs it tries again

    def seal(self, *, sync: bool) -> Segment:
        """Complete for ever: hash it, say so in the index, give back what was not used. Durable on return.

        `sync`: the records themselves were not synced yet.
        """
        self.open_files()
        if sync:
            self._open_file.sync()
        self._mark(SegmentState.SEALED, self._digest())
        self._open_index.sync()
        self._open_index.trim(self.segment.count)
        self._open_file.truncate(self.segment.size)
        self.close_files()
        self.segment = replace(self.segment, sealed=True)
        return self.segment

    def _digest(self) -> int:
        if self._hash is not None:
            return self._hash.digest()
        return hash_file(self._disk, self.segment.path, self.segment.size)

    def close(self, *, sync: bool) -> None:
        """Say in the index that all is in order. No more than a hint, so it costs no sync: if a power cut takes it
        back, the next opening looks for itself. `sync`: the records themselves were not synced yet."""
        if self._header.state is SegmentState.OPEN:
            self.open_files()
            if sync:
                self._open_file.sync()
            self._mark(SegmentState.CLOSED, 0)

    def _mark(self, state: SegmentState, digest: int) -> None:
        count, size = self.segment.count, self.segment.size
        self._header = replace(self._header, state=state, count=count, size=size, hash=digest)
        self._open_index.mark(self._header)

    def close_files(self) -> None:
        """Let go of the files. Everything written is listed, so nothing is forgotten."""
        for held in (self._file, self._index):
            if held is not None:
                held.close()
        self._file = self._index = None


def _size_as_closed(disk: Disk, path: Path, header: IndexHeader) -> int | None:
    """The size of a segment's file, if the segment is still as it was when its index was closed, as far as a glance
    tells: all there, and followed by unused space. None if it is not."""
    if header.state is not SegmentState.CLOSED or not is_index_of(disk, path, header):
        return None
    with opened(disk, path) as file:
        size = file.size()
    return size if size >= header.size else None


def _preallocate(disk: Disk, path: Path, size: int, limits: Limits, *, needed: int = 0) -> int:
    """A zero-filled file of `size` bytes, or of as many as there is room for, and at least of `needed` and of a first
    segment's; its size. Raises `DiskFull` if that would eat into the reserve."""
    with opened(disk, path, write=True, create=True) as file:
        least = max(needed, min(size, limits.segment_bytes_first))
        free = disk.free_bytes(path.parent)
        size = min(size, max(least, file.size() + free - limits.disk_reserve_bytes))
        if file.size() >= size:
            return file.size()
        if file.size() + free - size < limits.disk_reserve_bytes:
            file.close()
            disk.remove(path)
            raise DiskFull(
                f"{path.parent}: a segment of {size} bytes would leave less than the reserve of"
                f" {limits.disk_reserve_bytes} bytes ({free} are free); make room and try again",
                free_bytes=free,
                needed_bytes=size,
            )
        try:
            file.preallocate(size)
        except OSError:
            file.close()
            disk.remove(path)
            raise
        return size
