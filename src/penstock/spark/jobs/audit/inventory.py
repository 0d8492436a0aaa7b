"""The inventory of a data directory: its logs with their ranges, and how to cut them into tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit.tally import TimeSpans
from penstock.spark.scan.slices import Slice, plan_slices
from penstock.storage.base.disk import Disk, opened
from penstock.storage.inspect.data_reader import DataReader, LogReader, TopicReader
from penstock.storage.log.repair import QUARANTINE

SLICE_BYTES: Final = 16 << 20
"""Target size of a slice in bytes. A task gets several slices and reads them one after another; small slices make tasks
of about equal size."""

_WIDTHS_MS: Final = tuple(
    count * unit
    for unit, counts in (
        (1, (1, 10, 100)),
        (1000, (1, 5, 15)),
        (60_000, (1, 5, 15)),
        (3_600_000, (1, 3, 6, 12)),
        (86_400_000, (1, 7, 28, 91, 364)),
    )
    for count in counts
)
_SPANS_MAX: Final = 120
"""Most bars of a plot: more could not be told apart on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSnapshot:
    """Offsets, size and times of the log of one partition when the job begins. Sizes are in bytes, times in Unix
    ms."""

    topic: str
    partition: int
    start: int
    """Offset of the first message that the log still has."""
    next_offset: int
    size: int
    segments: int
    oldest_ms: int | None
    newest_ms: int | None
    quarantined_files: int = 0
    quarantined_bytes: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Inventory:
    """The logs that exist, and in `absent` the partitions (topic and number) that have no log."""

    logs: tuple[LogSnapshot, ...]
    absent: tuple[tuple[str, int], ...] = ()


def take_inventory(
    data: DataReader,
    topics: Sequence[TopicName],
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Inventory:
    """Return the logs of these topics, or of all. Raises `TopicNotSupported` for a topic that does not exist,
    `InvalidRequest` if there are no topics."""
    chosen = [data.topic(name) for name in dict.fromkeys(topics)] if topics else data.topics()
    if not chosen:
        raise InvalidRequest("there are no topics yet: nothing to look at")
    partitions = [(topic, number) for topic in chosen for number in topic.logs]
    logs = []
    for done, (topic, number) in enumerate(partitions):
        progress(done, len(partitions))
        logs.append(_log(topic, number))
    absent = [(str(topic.name), number) for topic in chosen for number in range(topic.partitions)]
    present = {log.key for log in logs}
    return Inventory(tuple(logs), tuple(key for key in absent if key not in present))


def _log(topic: TopicReader, number: int) -> LogSnapshot:
    reader = topic.partition(number)
    view = reader.view
    oldest, newest = _times(reader)
    files, size = _quarantined(topic.disk, topic, number)
    return LogSnapshot(
        topic=str(topic.name),
        partition=number,
        start=view.start,
        next_offset=int(view.next_offset),
        size=view.size,
        segments=len(view.segments),
        oldest_ms=oldest,
        newest_ms=newest,
        quarantined_files=files,
        quarantined_bytes=size,
    )


def _times(reader: LogReader) -> tuple[int | None, int | None]:
    details = reader.facts()
    return details["oldest_ms"], details["newest_ms"]


def _quarantined(disk: Disk, topic: TopicReader, number: int) -> tuple[int, int]:
    """Return the number and total bytes of a partition's quarantine files, which are copies of damaged or torn bytes.
    Return 0 and 0 if they cannot be read: a broker does not serve them by HTTP."""
    folder, total = topic.logs[number] / QUARANTINE, 0
    try:
        names = disk.names(folder)
        for name in names:
            with opened(disk, folder / name) as file:
                total += file.size()
    except (OSError, PenstockError):
        return 0, 0
    return len(names), total


def slices(location: Location, data: DataReader, logs: Sequence[LogSnapshot]) -> list[Slice]:
    """Return slices of all logs, in the order of topics, partitions and offsets."""
    ranges = {log.key: (log.start, log.next_offset) for log in logs}
    return plan_slices(location, ranges, slice_bytes=SLICE_BYTES, data=data)


def time_spans(logs: Sequence[LogSnapshot]) -> TimeSpans:
    """Return time spans of equal width that cover all messages of the logs. The width is the smallest round one with
    which there are at most `_SPANS_MAX` spans."""
    times = [time for log in logs for time in (log.oldest_ms, log.newest_ms) if time is not None]
    if not times:
        return TimeSpans(0, _WIDTHS_MS[0], 1)
    first, last = min(times), max(times)
    for width in _widths():
        since = first - first % width
        count = (last - since) // width + 1
        if count <= _SPANS_MAX:
            return TimeSpans(since, width, count)
    raise AssertionError("widths never end")


def _widths() -> Iterator[int]:
    yield from _WIDTHS_MS
    width = _WIDTHS_MS[-1]
    while True:
        width *= 2
        yield width
