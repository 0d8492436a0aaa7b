"""Missing logs: logs that end before the offset up to which the catalog has them. Only reads, also while an owner
writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.storage.base.disk import Disk
from penstock.storage.base.layout import CATALOG, is_data_directory, log_path
from penstock.storage.catalog.reader import CatalogReader
from penstock.storage.catalog.topics import LogEnd
from penstock.storage.inspect.verify import SegmentProblem, SegmentReport
from penstock.storage.log.segment import read_log_start


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLog:
    """A log, and its end as the catalog has it."""

    root: Path
    path: Path
    topic_uid: int
    end: LogEnd


def recorded_logs(disk: Disk, root: Path) -> list[RecordedLog]:
    """Return the logs of a data directory, each with the end that the catalog has for it; an empty list without a
    catalog.

    Call it before segments are read: logs go on growing, and would seem too short otherwise. Raises `StorageFailed` if
    the catalog cannot be read.
    """
    if not is_data_directory(disk, root) or not disk.exists(root / CATALOG):
        return []
    reader = CatalogReader(root / CATALOG)
    ends, topics = reader.log_ends(), {topic.topic_uid: topic for topic in reader.topics()}
    return [
        RecordedLog(
            root=root,
            path=log_path(root, topics[uid].name, partition, topics[uid].partitions),
            topic_uid=uid,
            end=end,
        )
        for (uid, partition), end in ends.items()
        if uid in topics
    ]


def missing_offsets(
    disk: Disk, recorded: Sequence[RecordedLog], reports: Iterable[SegmentReport]
) -> list[SegmentProblem]:
    """Return a problem for each log whose segments in `reports` end before the end that the catalog has. Topics deleted
    meanwhile are left out."""
    stops: dict[Path, int] = {}
    for report in reports:
        folder = report.path.absolute().parent
        stops[folder] = max(stops.get(folder, 0), report.next_offset)
    short = [(log, problem) for log in recorded for problem in _lacking(disk, log, stops.get(log.path.absolute()))]
    existing = {root: _topics(root) for root in {log.root for log, _ in short}}
    return [problem for log, problem in short if log.topic_uid in existing[log.root]]


def _lacking(disk: Disk, log: RecordedLog, stop: int | None) -> Iterator[SegmentProblem]:
    start = max(read_log_start(disk, log.path).offset, log.end.first_offset)
    if stop is None and not disk.exists(log.path):
        yield _problem(log, start, "its folder is gone")
    elif max(start, stop or 0) < log.end.next_offset:
        yield _problem(log, max(start, stop or 0), "is a segment file gone?")


def _problem(log: RecordedLog, start: int, why: str) -> SegmentProblem:
    what = f"offsets [{start}, {log.end.next_offset}) were stored once and are missing: {why}"
    return SegmentProblem(path=log.path, offset=start, position=None, what=what)


def _topics(root: Path) -> set[int]:
    return {topic.topic_uid for topic in CatalogReader(root / CATALOG).topics()}
