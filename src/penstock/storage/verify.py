"""Checking segments against themselves, their index and their neighbours. Reads only, whatever it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.ids import format_id
from penstock.record import layout as at
from penstock.record.block import START_OF_LOG, Block, Stop
from penstock.storage.disk import Disk, File, opened, read_all
from penstock.storage.index import Header, State
from penstock.storage.recovery import Claim, Finding, survey
from penstock.storage.repair import claim_of
from penstock.storage.segment import base_of, hash_file, read_block, record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is not as it should be. `offset` and `position` are None where it has none."""

    path: Path
    offset: int | None
    position: int | None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one segment turned out to be."""

    path: Path
    base: int | None
    records: int
    size: int
    first_id: bytes
    last_id: bytes
    state: str
    torn_bytes: int = 0
    """Unfinished bytes behind the last record: cut when the log is next opened. No problem by itself."""
    problems: tuple[Problem, ...] = field(default=())


def verify_segment(
    disk: Disk, path: Path, *, raw: bool = False, progress: Callable[[int], None] = lambda _: None
) -> Report:
    """Check every record of a file, and its index where it has one. `raw`: messages are any bytes."""
    if raw:
        return _verify_raw(disk, path, progress)
    with opened(disk, path) as file:
        claim = _claim(disk, path, file)
        finding = survey(_Counted(file, progress), file.size(), claim)
    problems = [
        Problem(path=path, offset=int(damage.offsets.start), position=damage.start, what=_lost(damage.reason, damage))
        for damage in finding.damages
    ]
    problems += _index_problems(disk, path, claim, finding) if base_of(path.name) is not None else []
    torn = finding.torn_stop - finding.torn_start
    if torn and not claim.was_being_written:
        what = f"{torn} bytes behind the last record are neither records nor unused space"
        problems.append(Problem(path=path, offset=None, position=finding.torn_start, what=what))
    return Report(
        path=path,
        base=claim.base,
        records=finding.count - sum(len(damage.offsets) for damage in finding.damages),
        size=finding.size,
        first_id=finding.first_id,
        last_id=finding.header(State.OPEN).last_id,
        state=claim.header.state.name.lower() if claim.header else "no index",
        torn_bytes=torn,
        problems=tuple(problems),
    )


def _lost(reason: str, damage: Any) -> str:
    return reason if len(damage.offsets) == 1 else f"{len(damage.offsets)} records lost: {reason}"


def _claim(disk: Disk, path: Path, file: File) -> Claim:
    """What the name and the index say; a file of another name begins with whatever offset its first record has."""
    if base_of(path.name) is not None:
        return claim_of(disk, path)
    block, _ = read_block(file, 0, file.size(), rows_max=1)
    base = int(block.columns[0, at.OFFSET]) if len(block) else 0
    return Claim(base=base, header=None, ends=np.empty(0, dtype=np.int64))


def _index_problems(disk: Disk, path: Path, claim: Claim, finding: Finding) -> list[Problem]:
    header = claim.header
    if header is None:
        return [Problem(path=path, offset=None, position=None, what="the index is missing or damaged (rebuildable)")]
    found = list(_entry_problems(path, claim, finding))
    if header.state is not State.OPEN:
        found += _header_problems(path, header, finding)
    if header.state is State.SEALED and hash_file(disk, path, header.size) != header.hash:
        what = "the hash of the whole segment is not the one it was sealed with"
        found.append(Problem(path=path, offset=None, position=None, what=what))
    return found


def _entry_problems(path: Path, claim: Claim, finding: Finding) -> Iterator[Problem]:
    known = claim.ends[: finding.count]
    wrong = np.flatnonzero(known != finding.ends[: known.size])
    if wrong.size:
        ordinal = int(wrong[0])
        what = f"{wrong.size} index entries do not say where their records end (rebuildable)"
        position = int(finding.ends[ordinal - 1]) if ordinal else 0
        yield Problem(path=path, offset=claim.base + ordinal, position=position, what=what)


def _header_problems(path: Path, header: Header, finding: Finding) -> Iterator[Problem]:
    expected = finding.header(header.state, header.hash)
    for name in ("count", "size", "first_id", "last_id"):
        says, found = getattr(header, name), getattr(expected, name)
        if says != found and not (finding.damages and name.endswith("_id")):
            shown = [format_id(value) if isinstance(value, bytes) else value for value in (says, found)]
            what = f"the index says {name} {shown[0]}, the segment has {shown[1]}"
            yield Problem(path=path, offset=None, position=None, what=what)


def verify_sequence(reports: Iterable[Report]) -> list[Problem]:
    """Problems between the segments of a log: offsets that are missing, ids that do not rise."""
    problems: list[Problem] = []
    with_base = sorted((r for r in reports if r.base is not None), key=lambda r: (r.path.parent, r.base))
    for _, group in groupby(with_base, key=lambda report: report.path.parent):
        for left, right in pairwise(group):
            problems += _between(left, right)
    return problems


def _between(left: Report, right: Report) -> Iterator[Problem]:
    lost = sum(problem.offset is not None for problem in left.problems)
    stop = (left.base or 0) + left.records
    if not lost and stop != right.base:
        what = f"offsets [{stop}, {right.base}) are missing: is a segment file gone?"
        yield Problem(path=right.path, offset=stop, position=None, what=what)
    if left.records and right.records and left.last_id >= right.first_id:
        what = f"the first id is not greater than the last one of {left.path.name}"
        yield Problem(path=right.path, offset=right.base, position=0, what=what)


def _verify_raw(disk: Disk, path: Path, progress: Callable[[int], None]) -> Report:
    report = Report(path=path, base=None, records=0, size=0, first_id=b"", last_id=b"", state="raw")
    problems: list[Problem] = []
    with opened(disk, path) as file:
        for block, stop in raw_blocks(_Counted(file, progress), file.size()):
            if len(block):
                first = report.first_id or block.id(0)
                last = block.id(len(block) - 1)
                report = replace(report, records=report.records + len(block), first_id=first, last_id=last)
            report = replace(report, size=stop.position)
            if stop.reason not in (at.AT_END, at.UNUSED, at.MORE):
                problems.append(Problem(path=path, offset=None, position=stop.position, what=str(stop)))
    return replace(report, problems=tuple(problems))


def raw_blocks(file: File, size: int, *, envelopes: bool = False) -> Iterator[tuple[Block, Stop]]:
    """Blocks of any file in the record format, and what stopped each. A bad record is stepped over if its length
    leads to a good one or to the end; otherwise reading ends there."""
    position, after = 0, START_OF_LOG
    while position < size:
        block, stop = read_block(file, position, size, after=after, envelopes=envelopes)
        after = replace(block.last, next_offset=-1) if len(block) else after
        yield block, stop
        position = stop.position
        if stop.reason in (at.MORE, at.AT_END):
            continue
        position = _past(file, position, size) if stop.reason != at.UNUSED else size


def _past(file: File, position: int, size: int) -> int:
    """Where the record behind a bad one begins, if its length can be believed; else the end of the file."""
    end = position + record_bytes(read_all(file, position, at.HEAD_BYTES + 255))
    if end >= size:
        return size
    block, stop = read_block(file, end, size, envelopes=False, rows_max=1)
    return end if len(block) or stop.reason == at.UNUSED else size


class _Counted:
    """A file that tells how many bytes have been read of it."""

    def __init__(self, file: File, progress: Callable[[int], None]) -> None:
        self._file = file
        self._progress = progress

    def read_into(self, buffer: Any, position: int) -> int:
        count = self._file.read_into(buffer, position)
        self._progress(count)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def segment_paths(root: Path) -> Sequence[Path]:
    """Every segment below a directory, in order of log and offset."""
    return sorted(path for path in root.rglob("*.seg") if base_of(path.name) is not None)
