"""The active segment of a log, which is being written: its data file, its index, and the spare file for the next
segment."""

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
    """The newest segment of a log, owned by the log's one appender. Readers see the part that `segment` describes."""

    def __init__(self, disk: Disk, segment: Segment, capacity: int, header: IndexHeader) -> None:
        self._disk = disk
        self._capacity = capacity
        self._header = header
        self._file: File | None = None
        self._index: IndexWriter | None = None
        self._spare = False
        self._hash: StreamHash | None = None
        """Running hash of all bytes written; None for a segment that an earlier process began."""
        self.segment = segment

    @classmethod
    def create(cls, disk: Disk, folder: Path, base: int, size: int, limits: Limits, *, needed: int) -> Self:
        """Create a segment whose first offset is `base`, with room for `size` bytes; durable on return.

        Uses the file that `prepare_spare` made, if there is one. Where the disk has less room, the segment gets less,
        but at least `needed` bytes. Raises `DiskFull`, or `OSError` (ENOSPC), and leaves no files behind.
        """
        path = folder / segment_name(base)
        spare = folder / SPARE_NAME
        capacity = _preallocate(disk, spare, size, limits, needed=needed)
        index = IndexWriter.create(disk, index_path(path), base)
        index.close()
        disk.rename(spare, path)
        disk.sync_directory(folder)
        segment = Segment(path=path, base=base, stop=base, size=0, sealed=False)
        active = cls(disk, segment, capacity, IndexHeader(state=SegmentState.OPEN, base=base))
        active._hash = StreamHash()
        return active

    @classmethod
    def reopen(cls, disk: Disk, path: Path, header: IndexHeader | None, limits: Limits) -> tuple[Self, list[Damage]]:
        """Open the newest segment of a log for appends, and return it with the damage found.

        If it was closed in order, its `header` is trusted; otherwise all of it is scanned and repaired.
        """
        if header is not None and (size := _size_as_closed(disk, path, header)) is not None:
            return cls._of(disk, path, header, size), []
        finding = repair_newest(disk, path, limits)
        if not finding.count:
            # The process that created it may have died before its name was durable; a record proves that it was.
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
        """Return how many of these blocks, from the first on, fit into the rest of the segment."""
        room = self._capacity - self.segment.size
        for count, draft in enumerate(drafts):
            room -= len(draft.data)
            if room < 0:
                return count
        return len(drafts)

    def open_files(self) -> None:
        """Open both files and mark the index as being written. Does nothing if they are open."""
        if self._file is not None:
            return
        self._file = self._disk.open(self.segment.path, write=True)
        try:
            self._index = IndexWriter(self._disk.open(index_path(self.segment.path), write=True), self.segment.base)
            if self._header.state is not SegmentState.OPEN:
                self._index.reopen()
        except OSError:
            self.close_files()  # never write records behind an index that is marked as closed
            raise
        self._header = replace(self._header, state=SegmentState.OPEN)

    def reserve(self, records: int) -> None:
        """Reserve index entries for `records` more records. Raises ENOSPC before anything is written."""
        self._open_index.reserve(self.segment.count + records)

    def write(self, data: bytearray, ends: Longs, *, sync: bool) -> None:
        """Write and sync the records, list them in the index, and only then count them as part of the segment.

        `ends` is where each record of `data` ends, counted from the start of `data`. Without `sync`, the records are
        not durable on return.
        """
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
        assert self._file is not None, "open_files() comes first"  # noqa: S101 - a bug here, not bad input
        return self._file

    @property
    def _open_index(self) -> IndexWriter:
        assert self._index is not None, "open_files() comes first"  # noqa: S101 - a bug here, not bad input
        return self._index

    def enlarge(self, size: int) -> None:
        """Give an empty segment `size` bytes of room: it was created for smaller blocks, or a crash left it short."""
        self.open_files()
        self._open_file.preallocate(size)
        self._capacity = size

    def prepare_spare(self, limits: Limits) -> None:
        """Preallocate the file of the next segment once this one is half full.

        A full disk is thus noticed, and logged, before appends fail.
        """
        if self._spare or self.segment.size * 2 < self._capacity:
            return
        size = min(max(limits.segment_bytes_first, 2 * self._capacity), limits.segment_bytes_max)
        try:
            _preallocate(self._disk, self.segment.path.with_name(SPARE_NAME), size, limits)
        except (DiskFull, OSError) as error:
            if isinstance(error, OSError) and error.errno not in FULL_ERRORS:
                raise
            _LOG.warning("%s: the next segment cannot be prepared: %s", self.segment.path.parent, error)
        self._spare = True  # also after a failure: `create` tries again

    def seal(self, *, sync: bool) -> Segment:
        """Close the segment for good: hash it, mark the index as sealed, free unused space; return it. Durable on
        return.

        `sync`: True if the records themselves are not synced yet.
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
        """Mark the index as closed in order, so that the next opening need not scan the segment.

        The mark is not synced: if a power cut takes it back, the next opening scans the segment. `sync`: True if the
        records themselves are not synced yet; they are synced first then.
        """
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
        """Close both files. Every written record is listed in the index, so nothing is lost."""
        for file in (self._file, self._index):
            if file is not None:
                file.close()
        self._file = self._index = None


def _size_as_closed(disk: Disk, path: Path, header: IndexHeader) -> int | None:
    """Return the size of a segment's file, or None if the segment has changed since its index was closed.

    A cheap check: all bytes are present, and unused space follows them.
    """
    if header.state is not SegmentState.CLOSED or not is_index_of(disk, path, header):
        return None
    with opened(disk, path) as file:
        size = file.size()
    return size if size >= header.size else None


def _preallocate(disk: Disk, path: Path, size: int, limits: Limits, *, needed: int = 0) -> int:
    """Create a zero-filled file, or let an existing one grow, and return its size.

    The size is `size` bytes, or less where the disk has less room, but at least `needed` and at least that of a first
    segment. Raises `DiskFull` if the file would use up the reserve.
    """
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
