"""Repair: acts on a scan of `recovery`. Copies bad bytes to quarantine, cuts the torn tail, rewrites the index.

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
"""The unit that the kernel reads before it writes a part of it."""


def expectation_of(disk: Disk, path: Path, *, count: int | None = None) -> SegmentExpectation:
    """Return what a scan of a segment should find, according to the index beside it.

    `count` is the number of records if known otherwise, for instance from the next segment; a trusted index that counts
    all records has precedence.
    """
    base = base_of(path.name) or 0
    header = trusted_header(disk, path)
    if header is not None and header.state is not SegmentState.OPEN:
        count = header.count
    ends = IndexFile(disk, index_path(path), base).all_ends() if header is not None else NONE_LISTED
    return SegmentExpectation(base=base, header=header, ends=ends, count=count)


def trusted_header(disk: Disk, path: Path) -> IndexHeader | None:
    """Return the header of the index beside a segment; None if there is none, or if it contradicts other evidence.

    An index is only a cache: the header of a closed or sealed segment must agree with the index's entries and the
    segment's size.
    """
    index = IndexFile(disk, index_path(path), base_of(path.name) or 0)
    header = index.header()
    if header is None or header.state is SegmentState.OPEN:
        return header
    with opened(disk, path) as file:
        return header if index.allows(header, file) else None


def is_index_of(disk: Disk, path: Path, header: IndexHeader) -> bool:
    """Return True if the index with that header is whole and belongs to the segment at `path`.

    A cheap check: it lists the last record, the segment begins with the index's first id, and unused space follows the
    last record.
    """
    if not IndexFile(disk, index_path(path), header.base).lists_all(header):
        return False
    with opened(disk, path) as file:
        if header.count and read_tolerant(file, 0, ID_BYTES).tobytes() != header.first_id:
            return False
        return not read_tolerant(file, header.size, ID_BYTES).any()


def scan_segment_file(disk: Disk, path: Path, *, count: int | None = None) -> SegmentScan:
    """Scan a segment and return the records, damage and torn tail found. Changes nothing; `count` as in
    `expectation_of`."""
    expected = expectation_of(disk, path, count=count)
    with opened(disk, path) as file:
        return scan_segment(file, file.size(), expected)


def repair_newest(disk: Disk, path: Path, limits: Limits) -> SegmentScan:
    """Make the newest segment fit for appends, and return its scan. Durable on return: another recovery finds the same.

    Damage and the torn tail are copied to quarantine, the tail is cut, and the index rewritten if it is wrong.
    """
    expected = expectation_of(disk, path)
    with opened(disk, path, write=True) as file:
        scan = scan_segment(file, file.size(), expected)
        _quarantine_all(disk, path, file, scan, limits)
        if scan.torn_stop > scan.torn_start:
            _cut(path, file, scan)
        if file.size() < scan.size:
            file.preallocate(scan.size)
        if scan.count > expected.listed or scan.torn_stop > scan.torn_start:
            # An unlisted record may be only in the page cache, and is about to be served.
            _write_again(file, expected, scan)
            file.sync()
    if not expected.is_open or not np.array_equal(expected.ends, scan.ends):
        indexes.rewrite_index(disk, index_path(path), scan.header(SegmentState.OPEN), scan.ends)
    return scan


def rebuild_sealed(disk: Disk, path: Path, limits: Limits, *, count: int | None) -> SegmentScan:
    """Rebuild the index of a complete segment, durably, and return the segment's scan. The segment itself is only
    read."""
    expected = expectation_of(disk, path, count=count)
    with opened(disk, path) as file:
        scan = scan_segment(file, file.size(), expected)
        _quarantine_all(disk, path, file, scan, limits)
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
    """Return True if appends can follow the first `size` bytes: the page there is readable, and zero behind them."""
    with opened(disk, path) as file:
        try:
            page = read_all(file, size - size % _PAGE_BYTES, _PAGE_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
    return not any(page[size % _PAGE_BYTES :])


def _write_again(file: File, expected: SegmentExpectation, scan: SegmentScan) -> None:
    """Rewrite records that the index of a segment being written does not list.

    If a sync of them failed, the kernel considers the pages clean and would not write them.
    """
    if not expected.was_being_written:
        return
    start = int(scan.ends[expected.listed - 1]) if expected.listed else 0
    for position in range(start, scan.size, READ_BYTES):
        write_all(file, read_tolerant(file, position, min(READ_BYTES, scan.size - position)), position)


def _quarantine_all(disk: Disk, path: Path, file: File, scan: SegmentScan, limits: Limits) -> None:
    for damage in scan.damages:
        quarantine_damage(disk, path, file, damage, limits)
    if scan.torn_stop > scan.torn_start:
        _quarantine(disk, path, file, scan.torn_start, scan.torn_stop, "torn", limits)


def quarantine_damage(disk: Disk, path: Path, file: File, damage: Damage, limits: Limits) -> None:
    """Copy damaged bytes to quarantine and log the damage. Does nothing if the same bytes are there already."""
    if _quarantine(disk, path, file, damage.start, damage.stop, "damaged", limits):
        _LOG.error("%s: %s; skipped, its bytes are kept in %s", path, damage, path.parent / QUARANTINE)


def _quarantine(disk: Disk, path: Path, file: File, start: int, stop: int, kind: str, limits: Limits) -> bool:
    """Copy bytes to quarantine; return False if they are there already.

    Returns True without a copy if quarantine would hold more than `quarantine_bytes_max`: a dying disk must not be
    filled.
    """
    data = read_tolerant(file, start, min(stop - start, limits.quarantine_bytes_max)).tobytes()
    folder = path.parent / QUARANTINE
    target = folder / f"{path.stem}-{start:010d}-{kind}-{hash64(data):016x}.bin"
    if disk.exists(target):
        return False
    if _quarantine_bytes(disk, folder) + len(data) > limits.quarantine_bytes_max:
        _LOG.error("%s: quarantine is full; bytes %d to %d (%s) are not copied", path, start, stop, kind)
        return True
    disk.make_directory(folder)
    replace_file(disk, target, data)
    return True


def _quarantine_bytes(disk: Disk, folder: Path) -> int:
    total = 0
    for name in disk.names(folder):
        with opened(disk, folder / name) as file:
            total += file.size()
    return total


def put_empty_segment(disk: Disk, folder: Path, base: int, *, sealed: bool) -> None:
    """Create a segment without records, which marks where a log begins or goes on. Durable on return; takes no space.

    A gap within a log shows in the files: the segments on its two sides do not meet. Where the first or the newest
    files are gone, there is no segment on one side, and the empty one takes its place. Files that are put back fill the
    gap.
    """
    path = folder / segment_name(base)
    state, digest = (SegmentState.SEALED, StreamHash().digest()) if sealed else (SegmentState.CLOSED, 0)
    indexes.rewrite_index(disk, index_path(path), IndexHeader(state=state, base=base, hash=digest), NONE_LISTED)
    with opened(disk, path, write=True, create=True) as file:
        file.sync()
    disk.sync_directory(folder)
