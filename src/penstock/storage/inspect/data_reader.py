"""The reader of a data directory that another process may own: topics, partitions, positions, and growing logs.

It locks nothing and writes nothing. The directories alone tell which topics exist, so it works without the catalog too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.core.ids import ticks_of_id, unix_ms_of_ticks
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position
from penstock.record import layout as at
from penstock.record.block import EMPTY_BLOCK, Predecessor
from penstock.record.message import Message, Record
from penstock.storage.base.disk import Disk, File, OsDisk, opened
from penstock.storage.base.layout import TOPICS, check_readable
from penstock.storage.inspect.raw_segments import GOOD_STOPS, RawRecord, raw_blocks, raw_records
from penstock.storage.inspect.verify import NOT_ENVELOPES, expectation_for, leftover
from penstock.storage.log import log_view
from penstock.storage.log.index import IndexFile, SegmentState
from penstock.storage.log.log_view import LogView, ReadChunk, header_is_trusted, view_of
from penstock.storage.log.recovery import SegmentScan, scan_segment
from penstock.storage.log.segment import READ_BYTES, Damage, base_of, index_path, read_block

_PARTITION: Final = re.compile(r"(.+)-part-([0-9]+)", re.ASCII)


class LogReader:
    """A partition as far as its files could be read when this reader was made; `refresh` reads further."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._view = view_of(disk, path)

    @property
    def view(self) -> LogView:
        return self._view

    def refresh(self) -> LogView:
        self._view = view_of(self._disk, self._path, known=self._view)
        return self._view

    def read(self, offset: int, *, bytes_max: int = READ_BYTES, verify: bool = True) -> ReadChunk:
        """Read as `Log.read` does, and name damage in the result. Damaged bytes are not copied to quarantine, since
        nothing here writes.

        Refreshes the view and reads again if retention has dropped the segment meanwhile.
        """
        try:
            return log_view.read(self._disk, self._view, offset, bytes_max=bytes_max, verify=verify)
        except FileNotFoundError:
            self.refresh()  # retention has dropped the segment meanwhile
            return log_view.read(self._disk, self._view, offset, bytes_max=bytes_max, verify=verify)

    def offset_of(self, position: Position) -> Offset:
        """Return the offset of a position in the current view. Raises `OffsetOutOfRange` for an offset outside the
        log."""
        return log_view.offset_of(self._disk, self._view, position)

    def follow(
        self, start: Position, stop: Position | None = None, *, wait: Callable[[], None] | None = None
    ) -> Iterator[tuple[Record | None, tuple[Damage, ...]]]:
        """Yield the records from `start` up to `stop`, or to the end of the log, each with an empty tuple.

        Where damage was stepped over, yields None with that damage first. Without `wait`, the iteration ends at the end
        of the log as it was read. With `wait`, it calls `wait` there, reads the log again and goes on.
        """
        offset = int(self.offset_of(start))
        end = self._end(stop)
        while end is None or offset < end:
            if offset >= self._view.next_offset:
                if wait is None:
                    return
                wait()
                self.refresh()
                continue
            chunk = self._next(offset)
            if chunk.damages:
                yield None, chunk.damages
            for record in chunk:
                if stop is not None and not lies_before(record, stop, end=end):
                    return
                yield record, ()
            offset = int(chunk.next_offset)

    def _end(self, stop: Position | None) -> int | None:
        """Return the offset of `stop`; None without one, and for a time or an id: its record may not be written yet."""
        match stop:
            case None | AtTime() | AtId():
                return None
            case AtOffset(offset):
                return offset
            case _:
                return int(self.offset_of(stop))

    def _next(self, offset: int) -> ReadChunk:
        """Read from `offset` on. If retention has dropped that offset meanwhile, return no records, and the dropped
        offsets as damage."""
        try:
            return self.read(offset)
        except OffsetOutOfRange:
            first = self._view.first_offset
            dropped = OffsetRange.of(offset, first)
            return ReadChunk(
                EMPTY_BLOCK, (Damage(offset, dropped, 0, 0, "dropped by retention before it was read"),), first
            )

    def facts(self) -> dict[str, int | None]:
        """Return the log's numbers by name, for people and scripts; the times are None for an empty log."""
        view = self._view
        return {
            "messages": view.messages,
            "first_offset": int(view.first_offset),
            "next_offset": int(view.next_offset),
            "bytes": view.size,
            "segments": len(view.segments),
            "oldest_ms": self._time(int(view.first_offset)),
            "newest_ms": self._time(int(view.next_offset) - 1),
        }

    def _time(self, offset: int) -> int | None:
        if not self._view.first_offset <= offset < self._view.next_offset:
            return None
        block = self.read(offset, bytes_max=1024).block
        return unix_ms_of_ticks(ticks_of_id(block.id(0))) if len(block) else None


def lies_before(record: Record, position: Position, *, end: int | None = None) -> bool:
    """Return True if a record lies before a position. `end` is the offset that `Latest` stands for; None is the end of
    all records."""
    match position:
        case AtOffset(offset):
            return record.offset < offset
        case AtTime(unix_ms):
            return record.publish_time_ms < unix_ms
        case AtId(value):
            return record.id < value
        case Earliest():
            return False
        case Latest():
            return end is None or record.offset < end


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A topic of a data directory: its name, and the directories of its partitions."""

    name: TopicName
    logs: dict[int, Path]
    """Directories of the existing partitions, by number."""
    disk: Disk

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.logs.values())

    @property
    def partitions(self) -> int:
        return max(self.logs) + 1

    def partition(self, number: int) -> LogReader:
        """Return a reader of a partition. Raises `InvalidRequest` for an unknown number, or if the directory is
        gone."""
        if not 0 <= number < self.partitions:
            raise InvalidRequest(f"{self.name} has partitions 0 to {self.partitions - 1}, not {number}")
        if number not in self.logs:
            raise InvalidRequest(f"partition {number} of {self.name} is missing: its directory is not there")
        return LogReader(self.disk, self.logs[number])


class DataReader:
    """A reader of a data directory on any disk. `name` is what errors call it; by default its path.

    The constructor raises `InvalidRequest` if it is not a data directory, `VersionNotSupported` if a newer Penstock
    made it.
    """

    def __init__(self, root: Path, *, disk: Disk | None = None, name: str | None = None) -> None:
        self._root = root
        self._disk = disk or OsDisk()
        self._name = name or str(root)
        check_readable(self._disk, root, self._name)

    @property
    def root(self) -> Path:
        return self._root

    @property
    def disk(self) -> Disk:
        return self._disk

    def topics(self) -> list[TopicReader]:
        logs_by_topic: dict[TopicName, dict[int, Path]] = {}
        folder = self._root / TOPICS
        for namespace in self._disk.folders(folder):
            for entry in self._disk.folders(folder / namespace):
                name, partition = parse_log(namespace, entry)
                if name is not None:
                    logs_by_topic.setdefault(name, {})[partition] = folder / namespace / entry
        return [
            TopicReader(name, dict(sorted(logs.items())), self._disk) for name, logs in sorted(logs_by_topic.items())
        ]

    def log(self, name: TopicName, partition: int) -> Path:
        """Return the directory of one log, without a listing of the others. Raises `TopicNotSupported` if it does not
        exist."""
        folder = self._root / TOPICS / name.namespace
        entries = set(self._disk.folders(folder))
        names = [f"{name.topic}-part-{partition}"] + ([name.topic] if partition == 0 else [])
        for entry in names:
            if entry in entries:
                return folder / entry
        raise TopicNotSupported(
            f"there is no partition {partition} of {name} in {self._name}", topic=str(name), partition=partition
        )

    def topic(self, name: TopicName) -> TopicReader:
        topics = self.topics()
        for topic in topics:
            if topic.name == name:
                return topic
        known = ", ".join(str(topic.name) for topic in topics[:10]) or "none yet"
        raise TopicNotSupported(f"there is no topic {name} in {self._name}; there are: {known}", topic=str(name))


def parse_log(namespace: str, entry: str) -> tuple[TopicName | None, int]:
    """Return the topic and partition that a directory name stands for; None as the topic if it is not the name of a
    log."""
    split = _PARTITION.fullmatch(entry)
    try:
        name = TopicName(namespace, split[1] if split else entry)
    except PenstockError:
        return None, 0
    return name, int(split[2]) if split else 0


def segment_facts(disk: Disk, path: Path) -> dict[str, str | int | None]:
    """Return the facts of a segment from its name, size and index; without a usable index, from a scan of the
    segment."""
    base = base_of(path.name)
    header = IndexFile(disk, index_path(path), base).header() if base is not None else None
    state = header.state.name.lower() if header is not None else "no index"
    with opened(disk, path) as file:
        file_bytes = file.size()
        if header is None or header.state is SegmentState.OPEN or not header_is_trusted(disk, path, header):
            scan = scan_segment(file, file_bytes, expectation_for(disk, path, file))
            header = scan.header(SegmentState.OPEN)
            if not scan.count and scan.torn_stop > scan.torn_start and state == "no index":
                state = "not a segment"
    times = [
        unix_ms_of_ticks(ticks_of_id(value)) if header.count else None for value in (header.first_id, header.last_id)
    ]
    return {
        "path": str(path),
        "base": header.base if header.count else base,
        "records": header.count,
        "bytes": header.size,
        "file_bytes": file_bytes,
        "state": state,
        "first_ms": times[0],
        "last_ms": times[1],
    }


def file_records(disk: Disk, path: Path, *, raw: bool, key: bytes | None = None) -> Iterator[Record | str]:
    """Yield the good records of a file in the record format, and a sentence for each bad one.

    With `raw`, messages are arbitrary bytes, and `key` is the checksum key if it is not Penstock's own.
    """
    with opened(disk, path) as file:
        if raw:
            for item in raw_records(file, file.size(), key=key):
                yield item if isinstance(item, str) else _shown(item)
        elif base_of(path.name) is not None:
            expected = expectation_for(disk, path, file)
            scan = scan_segment(file, file.size(), expected)
            yield from _surveyed_records(file, scan)
            if left := leftover(file, expected, scan):
                yield f"position {scan.torn_start}: {left}"
        else:
            yield from _enveloped_records(file)


def _enveloped_records(file: File) -> Iterator[Record | str]:
    for block, stop in raw_blocks(file, file.size(), envelopes=True):
        yield from block
        if stop.reason == at.BAD_ENVELOPE and not stop.position:
            yield NOT_ENVELOPES
            return
        if stop.reason not in GOOD_STOPS:
            yield f"position {stop.position}: {stop}"


def _surveyed_records(file: File, scan: SegmentScan) -> Iterator[Record | str]:
    damages = list(scan.damages)
    position, after = 0, Predecessor(0, 0, scan.base)
    while position < scan.size:
        if damages and position == damages[0].start:
            damage = damages.pop(0)
            yield str(damage)
            position, after = damage.stop, Predecessor(0, 0, damage.offsets.stop)
            continue
        block, stop = read_block(file, position, damages[0].start if damages else scan.size, after=after)
        if not len(block):
            return
        yield from block
        position, after = stop.position, Predecessor(0, 0, block.offsets.stop)


def _shown(record: RawRecord) -> Record:
    """Return a raw record as a `Record`. Its time is taken from its id; its offset is its number in the file."""
    message = Message(payload=record.message, type=record.type.decode(errors="replace"))
    time_ms = unix_ms_of_ticks(ticks_of_id(record.id))
    return Record(id=record.id, offset=Offset(record.number), publish_time_ms=time_ms, message=message)
