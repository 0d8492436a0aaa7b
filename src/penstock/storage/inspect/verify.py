"""Verification of segments against themselves, their index and their neighbours. It only reads, whatever it finds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import numpy as np

from penstock.core.ids import format_id
from penstock.record import layout as at
from penstock.storage.base.disk import Disk, File, opened
from penstock.storage.base.layout import IDENTITY, TRASH, is_data_directory
from penstock.storage.base.work_limit import CountedFile
from penstock.storage.inspect.raw_segments import GOOD_STOPS, raw_blocks
from penstock.storage.log.index import IndexFile, IndexHeader, SegmentState
from penstock.storage.log.recovery import SegmentExpectation, SegmentScan, scan_segment
from penstock.storage.log.repair import expectation_of
from penstock.storage.log.segment import (
    Damage,
    base_of,
    hash_file,
    index_path,
    read_block,
    read_log_start,
    segment_name,
)

NOT_ENVELOPES: Final = "its messages are not Penstock envelopes: read it raw (--raw)"
_LOOKS_MAX: Final = 3
"""Attempts to read a segment while its owner closes or opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentProblem:
    """A single fault of a segment. `offset` and `position` (in bytes) are None for a fault that has none."""

    path: Path
    offset: int | None
    position: int | None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """The result of verifying one segment."""

    path: Path
    base: int | None
    """The first offset; None for a raw file and for a file without a segment's name. Such a file is not compared with
    its neighbours."""
    next_offset: int
    records: int
    size: int
    first_id: bytes
    last_id: bytes
    state: str
    torn_bytes: int = 0
    """Bytes of an unfinished write behind the last record. The log cuts them when it is next opened; they are no
    problem."""
    problems: tuple[SegmentProblem, ...] = field(default=())


def verify_segment(
    disk: Disk,
    path: Path,
    *,
    raw: bool = False,
    key: bytes | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> SegmentReport:
    """Check every record of a file, and its index if it has one; return the problems found.

    With `raw`, messages are arbitrary bytes, and `key` is the checksum key if it is not Penstock's own. `progress` is
    called with the number of bytes of each read.
    """
    if raw:
        return _verify_raw(disk, path, progress, key)
    for _ in range(_LOOKS_MAX):
        report, header = _verify(disk, path, progress)
        if not report.problems or header == _header(disk, path):
            break  # otherwise the owner has closed, sealed or opened it meanwhile
    return report


def verify_if_there(
    disk: Disk,
    path: Path,
    *,
    raw: bool = False,
    key: bytes | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> SegmentReport | None:
    """Verify a segment as `verify_segment` does; return None if the file is gone: retention may have removed it."""
    try:
        return verify_segment(disk, path, raw=raw, key=key, progress=progress)
    except FileNotFoundError:
        if disk.exists(path):
            raise
        return None


def _header(disk: Disk, path: Path) -> IndexHeader | None:
    base = base_of(path.name)
    return None if base is None else IndexFile(disk, index_path(path), base).header()


def _verify(disk: Disk, path: Path, progress: Callable[[int], None]) -> tuple[SegmentReport, IndexHeader | None]:
    header = _header(disk, path)
    with opened(disk, path) as file:
        expected = expectation_for(disk, path, file)
        scan = scan_segment(CountedFile(file, progress), file.size(), expected)
        left = leftover(file, expected, scan)
    problems = [_damage_problem(path, damage) for damage in scan.damages]
    if base_of(path.name) is not None:
        problems += _index_problems(disk, path, header, expected, scan)
    if left is not None:
        problems.append(SegmentProblem(path=path, offset=None, position=scan.torn_start, what=left))
    report = SegmentReport(
        path=path,
        base=base_of(path.name),
        next_offset=scan.base + scan.count,
        records=scan.count - sum(len(damage.offsets) for damage in scan.damages),
        size=scan.size,
        first_id=scan.first_id,
        last_id=scan.header(SegmentState.OPEN).last_id,
        state=expected.header.state.name.lower() if expected.header else "no index",
        torn_bytes=scan.torn_stop - scan.torn_start,
        problems=tuple(problems),
    )
    return report, header


def _damage_problem(path: Path, damage: Damage) -> SegmentProblem:
    count = len(damage.offsets)
    what = damage.reason if count == 1 else f"{count} records lost: {damage.reason}"
    return SegmentProblem(path=path, offset=int(damage.offsets.start), position=damage.start, what=what)


def expectation_for(disk: Disk, path: Path, file: File) -> SegmentExpectation:
    """Return what a scan of the file should find, from the segment's name and index.

    A file without a segment's name has no index; its first offset is that of its first record, or 0.
    """
    if base_of(path.name) is not None:
        return expectation_of(disk, path)
    block, _ = read_block(file, 0, file.size(), rows_max=1)
    base = int(block.columns[0, at.OFFSET]) if len(block) else 0
    return SegmentExpectation(base=base, header=None, ends=np.empty(0, dtype=np.int64))


def leftover(file: File, expected: SegmentExpectation, scan: SegmentScan) -> str | None:
    """Return what is wrong with the bytes behind the last record; None if they are unused or an unfinished write."""
    count = scan.torn_stop - scan.torn_start
    if not count or expected.was_being_written:
        return None
    if scan.count:
        return f"{count} bytes behind the last record are neither records nor unused space"
    _, stop = read_block(file, 0, file.size(), rows_max=1)
    return NOT_ENVELOPES if stop.reason == at.BAD_ENVELOPE else f"it does not begin with a record: {stop}"


def _index_problems(
    disk: Disk, path: Path, header: IndexHeader | None, expected: SegmentExpectation, scan: SegmentScan
) -> list[SegmentProblem]:
    """Return the problems of a segment's index. `header` is the header in the file; `expected` has it only if it was
    trusted."""
    if header is None:
        return [
            SegmentProblem(path=path, offset=None, position=None, what="the index is missing or damaged (rebuildable)")
        ]
    problems = list(_entry_problems(path, expected, scan))
    if header.state is not SegmentState.OPEN:
        problems += _header_problems(path, header, scan)
    if header.state is SegmentState.SEALED and hash_file(disk, path, header.size) != header.hash:
        what = "the hash of the whole segment is not the one it was sealed with"
        problems.append(SegmentProblem(path=path, offset=None, position=None, what=what))
    return problems


def _entry_problems(path: Path, expected: SegmentExpectation, scan: SegmentScan) -> Iterator[SegmentProblem]:
    known = expected.ends[: scan.count]
    if expected.count is not None:  # closed in order, so every record must be listed
        known = np.concatenate((known, np.full(scan.count - known.size, -1, dtype=np.int64)))
    wrong = np.flatnonzero(known != scan.ends[: known.size])
    if wrong.size:
        ordinal = int(wrong[0])
        what = f"{wrong.size} index entries do not say where their records end (rebuildable)"
        position = int(scan.ends[ordinal - 1]) if ordinal else 0
        yield SegmentProblem(path=path, offset=expected.base + ordinal, position=position, what=what)


def _header_problems(path: Path, header: IndexHeader, scan: SegmentScan) -> Iterator[SegmentProblem]:
    right = scan.header(header.state, header.hash)
    for name in ("count", "size", "first_id", "last_id"):
        says, actual = getattr(header, name), getattr(right, name)
        if says != actual and not (scan.damages and name.endswith("_id")):
            shown = [format_id(value) if isinstance(value, bytes) else value for value in (says, actual)]
            what = f"the index says {name} {shown[0]}, the segment has {shown[1]}"
            yield SegmentProblem(path=path, offset=None, position=None, what=what)


def verify_sequence(disk: Disk, reports: Iterable[SegmentReport]) -> list[SegmentProblem]:
    """Return the problems between the segments of each log: missing offsets, and ids that do not rise."""
    problems: list[SegmentProblem] = []
    ordered = sorted((r for r in reports if r.base is not None), key=lambda r: (r.path.parent, r.base))
    for folder, group in groupby(ordered, key=lambda report: report.path.parent):
        segments = list(group)
        problems += _before_first(disk, folder, segments[0])
        for left, right in pairwise(segments):
            problems += _between(disk, left, right)
    return problems


def _before_first(disk: Disk, folder: Path, first: SegmentReport) -> Iterator[SegmentProblem]:
    """Yield a problem if a log in a data directory does not begin at offset 0 or where it was truncated.

    Logs in other directories are not checked: they may be copies of any part of a log.
    """
    start = read_log_start(disk, folder).offset
    root = folder.absolute().parent.parent.parent
    if first.base is None or first.base <= start or not is_data_directory(disk, root):
        return
    if min(base for base in map(base_of, disk.names(folder)) if base is not None) == first.base:
        yield _missing(first, start)


def _between(disk: Disk, left: SegmentReport, right: SegmentReport) -> Iterator[SegmentProblem]:
    base = right.base or 0
    if left.next_offset > base:
        what = f"it begins with an offset that is in {left.path.name} already"
        yield SegmentProblem(path=right.path, offset=base, position=0, what=what)
    elif left.next_offset < base and not disk.exists(right.path.with_name(segment_name(left.next_offset))):
        yield _missing(right, left.next_offset)
    if left.records and right.records and left.last_id >= right.first_id:
        what = f"the first id is not greater than the last one of {left.path.name}"
        yield SegmentProblem(path=right.path, offset=right.base, position=0, what=what)


def _missing(report: SegmentReport, start: int) -> SegmentProblem:
    what = f"offsets [{start}, {report.base}) are missing: is a segment file gone?"
    return SegmentProblem(path=report.path, offset=start, position=None, what=what)


def _verify_raw(disk: Disk, path: Path, progress: Callable[[int], None], key: bytes | None) -> SegmentReport:
    report = SegmentReport(
        path=path, base=None, next_offset=0, records=0, size=0, first_id=b"", last_id=b"", state="raw"
    )
    problems: list[SegmentProblem] = []
    with opened(disk, path) as file:
        for block, stop in raw_blocks(CountedFile(file, progress), file.size(), key=key):
            if len(block):
                first = report.first_id or block.id(0)
                last = block.id(len(block) - 1)
                report = replace(report, records=report.records + len(block), first_id=first, last_id=last)
            report = replace(report, size=stop.position)
            if stop.reason not in GOOD_STOPS:
                problems.append(SegmentProblem(path=path, offset=None, position=stop.position, what=str(stop)))
    return replace(report, problems=tuple(problems))


def segment_paths(root: Path) -> Sequence[Path]:
    """Return the paths of all segments below a directory, by log and offset, without those in a data directory's trash.

    Raises `OSError` if a directory cannot be read: the files in it would otherwise count as good without a check.
    """
    found: list[Path] = []
    for folder, folders, files in os.walk(root, onerror=_raise, followlinks=True):
        if IDENTITY in files and TRASH in folders:
            folders.remove(TRASH)
        found += (Path(folder, name) for name in files if base_of(name) is not None)
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
