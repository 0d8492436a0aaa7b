"""Acting on what `recovery` found: keep a copy of the bad bytes, cut the torn tail, put the index right.

Every step may be repeated: a crash in the middle leaves a segment that the next recovery judges the same way.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

import numpy as np

from penstock.core.ids import ID_BYTES
from penstock.core.limits import Limits
from penstock.record.hashing import StreamHash, hash64
from penstock.storage.base.disk import Disk, File, opened, read_all, replace_file, write_all
from penstock.storage.log import index as indexes
from penstock.storage.log.index import IndexFile, IndexHeader, SegmentState
from penstock.storage.log.recovery import NONE_LISTED, SegmentExpectation, SegmentScan, scan_segment
from penstock.storage.log.segment import READ_BYTES, Damage, base_of, hash_file, index_path, read_tolerant, segment_name

_LOG = logging.getLogger(__name__)
QUARANTINE: Final = "quarantine"
_PAGE_BYTES: Final = 4096
"""What the kernel reads before it writes a part of it."""


def expectation_of(disk: Disk, path: Path, *, count: int | None = None) -> SegmentExpectation:
    """What the index beside a segment says of it; `count` where the number of its records is known otherwise."""
    base = base_of(path.name) or 0
    header = trusted_header(disk, path)
    if header is not None and header.state is not SegmentState.OPEN:
        count = header.count
    ends = IndexFile(disk, index_path(path), base).all_ends() if header is not None else NONE_LISTED
    return SegmentExpectation(base=base, header=header, ends=ends, count=count)


def trusted_header(disk: Disk, path: Path) -> IndexHeader | None:
    """The header of the index beside a segment; None if it is missing, damaged, or not that of this segment: an index
    is a cache, and what it says of all records must not contradict its entries and the size of the segment."""
    index = IndexFile(disk, index_path(path), base_of(path.name) or 0)
    header = index.header()
    if header is None or header.state is SegmentState.OPEN:
        return header
    with opened(disk, path) as file:
        return header if index.allows(header, file) else None


def is_index_of(disk: Disk, path: Path, header: IndexHeader) -> bool:
    """Whether the index with that header is whole and that of the segment at `path`, as far as a glance tells: it
    lists the last record, the segment begins with the id that the index has for its first, and what follows the last
    is unused."""
    if not IndexFile(disk, index_path(path), header.base).lists_all(header):
        return False
    with opened(disk, path) as file:
        if header.count and read_tolerant(file, 0, ID_BYTES).tobytes() != header.first_id:
            return False
        return not read_tolerant(file, header.size, ID_BYTES).any()


def scan_segment_file(disk: Disk, path: Path, *, count: int | None = None) -> SegmentScan:
    """Survey a segment without touching it."""
    expected = expectation_of(disk, path, count=count)
    with opened(disk, path) as file:
        return scan_segment(file, file.size(), expected)


def repair_newest(disk: Disk, path: Path, limits: Limits) -> SegmentScan:
    """Make the newest segment fit to be appended to. Durable on return: what was found is what will be found."""
    expected = expectation_of(disk, path)
    with opened(disk, path, write=True) as file:
        scan = scan_segment(file, file.size(), expected)
        _keep_copies(disk, path, file, scan, limits)
        if scan.torn_stop > scan.torn_start:
            _cut(path, file, scan)
        if file.size() < scan.size:
            file.preallocate(scan.size)
        if scan.count > expected.listed or scan.torn_stop > scan.torn_start:
            # A record that is not listed may be in the page cache alone, and is about to be served.
            _write_again(file, expected, scan)
            file.sync()
    if not expected.is_open or not np.array_equal(expected.ends, scan.ends):
        indexes.rewrite_index(disk, index_path(path), scan.header(SegmentState.OPEN), scan.ends)
    return scan


def rebuild_sealed(disk: Disk, path: Path, limits: Limits, *, count: int | None) -> SegmentScan:
    """Make the index of a complete segment anew. The segment itself is only read."""
    expected = expectation_of(disk, path, count=count)
    with opened(disk, path) as file:
        scan = scan_segment(file, file.size(), expected)
        _keep_copies(disk, path, file, scan, limits)
    digest = hash_file(disk, path, scan.size)
    indexes.rewrite_index(disk, index_path(path), scan.header(SegmentState.SEALED, digest), scan.ends)
    _LOG.warning("%s: its index was missing or damaged and has been rebuilt: %d records", path, scan.count)
    return scan


def _cut(path: Path, file: File, scan: SegmentScan) -> None:
    size = scan.torn_stop - scan.torn_start
    _LOG.warning("%s: %d bytes of an unfinished write after offset %d cut", path, size, scan.last.next_offset - 1)
    try:
        for position in range(scan.torn_start, scan.torn_stop, READ_BYTES):
            write_all(file, bytes(min(READ_BYTES, scan.torn_stop - position)), position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        _LOG.error("%s: the unfinished write cannot be overwritten: %s; nothing more goes there", path, error)


def has_clean_end(disk: Disk, path: Path, size: int) -> bool:
    """Whether a segment can be written to behind its first `size` bytes: the page they end in is readable, and unused
    from there on."""
    with opened(disk, path) as file:
        try:
            page = read_all(file, size - size % _PAGE_BYTES, _PAGE_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
    return not any(page[size % _PAGE_BYTES :])


def _write_again(file: File, expected: SegmentExpectation, scan: SegmentScan) -> None:
    """What is found past the index of a segment that was being written, once more: if a sync of it failed, the kernel
    calls it clean and would not write it."""
    if not expected.was_being_written:
        return
    start = int(scan.ends[expected.listed - 1]) if expected.listed else 0
    for position in range(start, scan.size, READ_BYTES):
        write_all(file, read_tolerant(file, position, min(READ_BYTES, scan.size - position)), position)


def _keep_copies(disk: Disk, path: Path, file: File, scan: SegmentScan, limits: Limits) -> None:
    for damage in scan.damages:
        keep_copy(disk, path, file, damage, limits)
    if scan.torn_stop > scan.torn_start:
        _keep(disk, path, file, scan.torn_start, scan.torn_stop, "torn", limits)


def keep_copy(disk: Disk, path: Path, file: File, damage: Damage, limits: Limits) -> None:
    """Log the damage and keep its bytes beside the segment, once, however often it is met."""
    if _keep(disk, path, file, damage.start, damage.stop, "damaged", limits):
        _LOG.error("%s: %s; skipped, its bytes are kept in %s", path, damage, path.parent / QUARANTINE)


def _keep(disk: Disk, path: Path, file: File, start: int, stop: int, kind: str, limits: Limits) -> bool:
    """Whether these bytes were not kept before. At most `quarantine_bytes_max` in all: a dying disk is not filled."""
    data = read_tolerant(file, start, min(stop - start, limits.quarantine_bytes_max)).tobytes()
    folder = path.parent / QUARANTINE
    target = folder / f"{path.stem}-{start:010d}-{kind}-{hash64(data):016x}.bin"
    if disk.exists(target):
        return False
    if _kept_bytes(disk, folder) + len(data) > limits.quarantine_bytes_max:
        _LOG.error("%s: quarantine is full; bytes %d to %d (%s) are not copied", path, start, stop, kind)
        return True
    disk.make_directory(folder)
    replace_file(disk, target, data)
    return True


def _kept_bytes(disk: Disk, folder: Path) -> int:
    total = 0
    for name in disk.names(folder):
        with opened(disk, folder / name) as file:
            total += file.size()
    return total


def put_empty_segment(disk: Disk, folder: Path, base: int, *, sealed: bool) -> None:
    """A segment without records where a log begins or goes on. Durable on return; it takes no room."""
    path = folder / segment_name(base)
    state, digest = (SegmentState.SEALED, StreamHash().digest()) if sealed else (SegmentState.CLOSED, 0)
    indexes.rewrite_index(disk, index_path(path), IndexHeader(state=state, base=base, hash=digest), NONE_LISTED)
    with opened(disk, path, write=True, create=True) as file:
        file.sync()
    disk.sync_directory(folder)
