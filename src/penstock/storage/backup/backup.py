"""The backup of a data directory, also while its owner writes to it, and without the owner's help.

The order of the steps makes it consistent; `catalog_copy` says why. The catalog is copied, then every log's watermark
is taken, then the catalog is copied again; then the segments are copied up to their watermarks. Records before a log's
watermark are on disk and acknowledged, and never change: appends come behind it. Retention may remove the oldest
segments meanwhile, after it has updated the log's start; the start is read last, and the backup begins there. A topic
that was deleted meanwhile is left out.

Segments that are in the backup already, and whole, are not copied again. The manifest is written last: until then the
previous backup is valid, and an interruption leaves it as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as changed
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock.core.clock import Clock, SystemClock, now_ms
from penstock.core.errors import DiskFull, InvalidRequest, NotOwner
from penstock.core.limits import MIB
from penstock.record.block import Longs
from penstock.storage.backup.catalog_copy import copy_catalog, reconcile, topics_of
from penstock.storage.backup.files import (
    PART,
    BackupFiles,
    Progress,
    copy_file,
    damaged_messages,
    verify_records,
    write_file,
)
from penstock.storage.backup.manifest import (
    FORMAT,
    SEGMENTS,
    WORK,
    Manifest,
    StoredLog,
    StoredSegment,
    check_target,
    clear,
    clear_work,
    hash_text,
    write_manifest,
)
from penstock.storage.backup.previous import PreviousBackup, different_messages, previous_manifest, usable_backup
from penstock.storage.base.disk import Disk, OsDisk, directory_locked, is_owned, opened, storage_error
from penstock.storage.base.layout import CATALOG, LOCK, TRASH, check_root, log_path, read_identity
from penstock.storage.catalog.reader import CatalogReader
from penstock.storage.catalog.tables import newest_version
from penstock.storage.catalog.topics import Dispatch, Topic
from penstock.storage.log.index import IndexFile, IndexHeader, SegmentState, encode_entries
from penstock.storage.log.log_view import LogView, Segment, view_of
from penstock.storage.log.recovery import NONE_LISTED, SegmentScan
from penstock.storage.log.repair import scan_segment_file
from penstock.storage.log.segment import START_OF_EMPTY_LOG, LogStart, index_path, read_log_start, read_tolerant

_SPARE_BYTES: Final = 16 * MIB
"""Bytes that must be free on the backup's disk beside the copied segments: for two copies of the catalog, and the
manifest."""
_FINDINGS_MAX: Final = 1_000
"""The most sentences kept about damage in the original. Further damage shows only in the manifest's number of damaged
messages."""

_CHANGING_SECONDS: Final = 0.02
_CHANGING_LOOKS: Final = 250
"""Checks for a topic that is just being created or deleted: five seconds in all. A log that still lacks its files then
counts as missing."""

Stage = Callable[[str, int], Progress]
"""A callback for the start of a stage, with its name and size in bytes; it returns the progress callback of the
stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The result of a backup."""

    manifest: Manifest
    copied_bytes: int
    kept_bytes: int
    """Bytes of segments that the backup already had."""
    findings: tuple[str, ...]
    """Sentences about damage in the original, which is copied as it is, and about messages that the original has lost.
    The backup keeps its copies of lost messages."""


@dataclass(frozen=True, slots=True)
class _LogSource:
    """A log to be copied: where it lies, and its acknowledged part."""

    topic: Topic
    partition: int
    path: Path
    view: LogView

    @property
    def folder(self) -> str:
        return f"{SEGMENTS}/{self.topic.topic_uid}-{self.partition}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Segments with at least one record."""
        return tuple(segment for segment in self.view.segments if segment.count)

    def stored(self, start: LogStart, segments: tuple[StoredSegment, ...]) -> StoredLog:
        return StoredLog(
            topic=str(self.topic.name),
            topic_uid=self.topic.topic_uid,
            partition=self.partition,
            partitions=self.topic.partitions,
            start=start.offset,
            start_id=start.last_id.hex(),
            segments=segments,
        )


def back_up(
    root: Path,
    target: Path,
    *,
    replace: bool = False,
    quick: bool = False,
    release: str = "",
    clock: Clock | None = None,
    disk: Disk | None = None,
    stage: Stage | None = None,
) -> Backup:
    """Bring the backup in `target` up to the state of the data directory `root`; durable on return.

    `target` may be new or empty: the backup is created then. In an existing backup, whole segments are kept, and so are
    segments that `root` has lost. With `replace`, `target` may hold the backup of another data directory, and segments
    that `root` does not have are dropped. With `quick`, the files of the existing backup are checked by their size
    alone; otherwise each is read and its hash compared. `release`, the release that makes the backup, is noted in it.
    `stage` is called at the start of each stage.

    Raises `InvalidRequest` for impossible directories, or if `target` has the backup of another directory and `replace`
    is off; `NotOwner` while another backup is being made there; `DiskFull` before or while files are copied. After an
    error the previous backup is still valid.
    """
    disk = disk or OsDisk()
    root, target = root.absolute(), target.absolute()
    check_root(root)
    node = read_identity(disk, root).node
    try:
        check_target(disk, root, target)
        disk.make_directory(target)
        with directory_locked(target, alone=True):
            work = _BackupRun(root, node, BackupFiles(disk, target), clock or SystemClock(), stage or _unseen, release)
            return work.run(replace=replace, quick=quick)
    except NotOwner:
        raise NotOwner(
            f"another backup into {target} is under way, or it is being read: wait until it has ended"
        ) from None
    except OSError as error:
        raise storage_error(error, f"{error.filename or target} cannot be backed up") from error


def _unseen(_what: str, _size: int) -> Progress:
    return lambda _count: None


@dataclass(slots=True)
class _BackupRun:
    """The state of one backup run."""

    root: Path
    node: int
    backup_files: BackupFiles
    clock: Clock
    stage: Stage
    release: str
    copied_bytes: int = 0
    kept_bytes: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)
    """Topic uid and sentence of each finding."""
    gone: set[int] = field(default_factory=set)
    """Topics that were deleted while the backup ran: their findings are dropped, since missing files are no damage
    there."""
    before: PreviousBackup = field(default_factory=PreviousBackup)
    owned: bool = True
    """True if a process held the data directory's lock when the logs were examined."""

    @property
    def disk(self) -> Disk:
        return self.backup_files.disk

    def run(self, *, replace: bool, quick: bool) -> Backup:
        self.before = self._before(replace=replace, quick=quick)
        work = self.backup_files.root / WORK
        clear_work(self.disk, self.backup_files.root)
        self.disk.make_directory(work)
        first, second = work / "first.db", work / "second.db"
        copy_catalog(self.root / CATALOG, first)
        topics = topics_of(first)
        self.owned = is_owned(self.root / LOCK)
        sources = [source for topic in topics.values() for source in self._sources(topic)]
        copy_catalog(self.root / CATALOG, second)
        keep = topics.keys() & topics_of(second).keys()
        logs = self._copy_logs([source for source in sources if source.topic.topic_uid in keep])
        self.gone = self._await_changes(logs)
        reconcile(second, first, keep - self.gone)
        there = [(source, log) for source, log in logs.items() if source.topic.topic_uid not in self.gone]
        return self._finish(second, tuple(log or self._missing(source) for source, log in there))

    def _before(self, *, replace: bool, quick: bool) -> PreviousBackup:
        manifest = previous_manifest(self.backup_files, self.node, replace=replace)
        if manifest is None:
            return PreviousBackup()
        progress = self.stage("checking", 0 if quick else manifest.size - manifest.catalog.size)
        return usable_backup(self.backup_files, manifest, progress, replace=replace, quick=quick)

    def _sources(self, topic: Topic) -> Iterator[_LogSource]:
        for partition in range(0 if topic.dispatch is Dispatch.LIVE else topic.partitions):
            path = log_path(self.root, topic.name, partition, topic.partitions)
            yield _LogSource(topic, partition, path, self._committed(path))

    def _committed(self, path: Path) -> LogView:
        """Return the acknowledged part of a log.

        While a broker owns the directory, that is what the index lists. Without an owner the index may list less than
        was acknowledged, because of a power cut; so the records of an unclosed newest segment are scanned then.
        """
        view = view_of(self.disk, path)
        if not view.segments or view.segments[-1].sealed or self.owned:
            return view
        newest = view.segments[-1]
        header = IndexFile(self.disk, index_path(newest.path), newest.base).header()
        if header is not None and header.state is not SegmentState.OPEN:
            return view
        scan = scan_segment_file(self.disk, newest.path)
        stop = max(newest.stop, newest.base + scan.count)
        return changed(
            view, segments=(*view.segments[:-1], changed(newest, stop=stop, size=max(newest.size, scan.size)))
        )

    # logs

    def _copy_logs(self, sources: list[_LogSource]) -> dict[_LogSource, StoredLog | None]:
        """Copy the logs; the value is None for a log whose directory is gone, or whose topic was deleted meanwhile."""
        wanted = sum(s.size for source in sources for s in source.segments if not self._is_kept(source, s))
        self._check_room(wanted)
        progress = self.stage("copying", wanted)
        return {source: self._copied(source, progress) for source in sources}

    def _check_room(self, wanted: int) -> None:
        free = self.disk.free_bytes(self.backup_files.root)
        if free < wanted + _SPARE_BYTES:
            raise DiskFull(
                f"{self.backup_files.root}: {wanted} bytes are to be copied, and {free} are free, of which"
                f" {_SPARE_BYTES} stay so; make room and try again",
                free_bytes=free,
            )

    def _copied(self, source: _LogSource, progress: Progress) -> StoredLog | None:
        try:
            return self._copy_log(source, progress)
        except InvalidRequest:
            if self._gone([source]):
                return None  # deleted meanwhile, and another topic of that name was created
            raise

    def _copy_log(self, source: _LogSource, progress: Progress) -> StoredLog | None:
        self.disk.make_directory(self.backup_files.root / source.folder)
        copied = [self._segment(source, segment, progress) for segment in source.segments]
        self.disk.sync_directory(self.backup_files.root / source.folder)
        if not self.disk.exists(source.path):
            return None
        start = read_log_start(self.disk, source.path)  # last: retention updates the start before it removes segments
        log = source.stored(
            start, tuple(segment_ for segment_ in copied if segment_ is not None and segment_.stop > start.offset)
        )
        whole = self.before.whole(log)
        for lost in self.before.lost(log):
            what = f"{_place(log)}: offsets [{lost.base}, {lost.stop}) are lost or damaged; the backup keeps its copy"
            self._find(log.topic_uid, what)
        self._look_for_gaps(whole)
        return whole

    def _missing(self, source: _LogSource) -> StoredLog:
        """Return the entry of a log that could not be copied although its topic exists.

        Without a directory, that is its entry in the previous backup, with a finding; an empty log if there is none, or
        if the directory exists by now.
        """
        nothing = source.stored(START_OF_EMPTY_LOG, ())
        if self.disk.exists(source.path):
            return nothing
        known = self.before.logs.get((source.topic.topic_uid, source.partition)) if self.before.keeps else None
        has = "keeps its copy" if known is not None and known.segments else "has nothing of it"
        self._find(source.topic.topic_uid, f"{source.path} is missing; the backup {has}")
        return known or nothing

    def _look_for_gaps(self, log: StoredLog) -> None:
        edges = [(log.start, log.start), *((segment.base, segment.stop) for segment in log.segments)]
        for (_, stop), (base, _) in pairwise(edges):
            if stop < base:
                self._find(log.topic_uid, f"{_place(log)}: offsets [{stop}, {base}) are missing")

    def _find(self, topic_uid: int, what: str) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append((topic_uid, what))

    def _await_changes(self, logs: Mapping[_LogSource, StoredLog | None]) -> set[int]:
        """Return the uids of the topics that were deleted meanwhile.

        A missing log may belong to a topic that is being created or deleted: a broker needs a moment between the
        catalog and the files. So this waits up to five seconds until each missing log exists or its topic is deleted.
        """
        missing = [source for source, log in logs.items() if log is None]
        for _ in range(_CHANGING_LOOKS if self.owned else 1):
            gone = self._gone(logs)
            if not any(
                lacking.topic.topic_uid not in gone and not self.disk.exists(lacking.path) for lacking in missing
            ):
                break
            time.sleep(_CHANGING_SECONDS)
        return gone

    def _gone(self, sources: Iterable[_LogSource]) -> set[int]:
        """Return the uids of the topics that were deleted meanwhile.

        Uids are compared, not paths: the files at a path may be those of a new topic of the same name.
        """
        uids = {source.topic.topic_uid for source in sources}
        # In this order: a topic leaves the trash once the catalog has forgotten it.
        leaving = {uid for uid in uids if self.disk.exists(self.root / TRASH / str(uid))}
        there = {topic.topic_uid for topic in CatalogReader(self.root / CATALOG).topics()}
        return leaving | uids - there

    # segments

    def _kept(self, source: _LogSource, segment: Segment) -> StoredSegment | None:
        """Return the previous backup's copy of a segment if the segment is unchanged since; None if it must be
        copied."""
        known = self._known(source, segment)
        if known is None or (known.count, known.size) != (segment.count, segment.size):
            return None
        header = _header(self.disk, segment)
        if (known.seal, known.last_id) != (_seal(header), self._last_id(segment, header)):
            return None
        return known

    def _known(self, source: _LogSource, segment: Segment) -> StoredSegment | None:
        return self.before.segment(source.topic.topic_uid, source.partition, segment.base)

    def _is_kept(self, source: _LogSource, segment: Segment) -> bool:
        try:
            return self._kept(source, segment) is not None
        except FileNotFoundError:
            return False

    def _last_id(self, segment: Segment, header: IndexHeader | None) -> str:
        return self._id(segment, segment.count - 1) if header is None else header.last_id.hex()

    def _id(self, segment: Segment, ordinal: int) -> str:
        """Return the id of a record in hexadecimal; empty if its position is unknown."""
        position = IndexFile(self.disk, index_path(segment.path), segment.base).start(ordinal)
        if position < 0:
            return ""
        with opened(self.disk, segment.path) as file:
            return read_tolerant(file, position, 16).tobytes().hex()

    def _segment(self, source: _LogSource, segment: Segment, progress: Progress) -> StoredSegment | None:
        """Return the stored segment, copied now unless the backup has it already; None if retention has removed the
        segment."""
        try:
            known = self._kept(source, segment)
            stored = known or self._copy(source, segment, progress)
            self._check_continues(source, segment, stored)
        except FileNotFoundError:
            return None
        if known is not None:
            self.kept_bytes += known.data.size + known.index.size
        return stored

    def _check_continues(self, source: _LogSource, segment: Segment, stored: StoredSegment) -> None:
        """Raise `InvalidRequest` if the segment has another message where the previous backup's copy of it ends.

        Does nothing if there is no such copy, or if either of the two is damaged.
        """
        known = self._known(source, segment)
        if known is None or known is stored or not self.before.keeps or known.damaged or stored.damaged:
            return
        if known.count <= stored.count and self._id(segment, known.count - 1) not in ("", known.last_id):
            raise different_messages(str(source.topic.name), source.partition)

    def _copy(self, source: _LogSource, segment: Segment, progress: Progress) -> StoredSegment:
        folder = self.backup_files.root / source.folder
        part = folder / f"{segment.base:020d}{PART}"
        header = _header(self.disk, segment)
        size, digest = copy_file(self.disk, segment.path, segment.size, part, progress)
        scan = verify_records(self.disk, part, segment.base, segment.count, segment.size, _ends(self.disk, segment))
        self._note(source, segment, scan, header, digest)
        made = header or scan.header(SegmentState.CLOSED)
        pattern = f"{source.folder}/{segment.base:020d}-{{}}"
        data = self.backup_files.name_part(part, f"{pattern}.seg", size, digest)
        size, digest = write_file(self.disk, part, [made.encode(), encode_entries(scan.ends, segment.base)])
        index = self.backup_files.name_part(part, f"{pattern}.idx", size, digest)
        self.copied_bytes += data.size + index.size
        return StoredSegment(
            base=segment.base,
            count=scan.count,
            size=segment.size,
            sealed=header is not None,
            seal=_seal(header),
            last_id=made.last_id.hex(),
            data=data,
            index=index,
            damaged=damaged_messages(scan),
        )

    def _note(
        self, source: _LogSource, segment: Segment, scan: SegmentScan, header: IndexHeader | None, digest: int
    ) -> None:
        uid = source.topic.topic_uid
        for damage in scan.damages:
            self._find(uid, f"{segment.path}: {damage}")
        if header is not None and header.hash != digest and not scan.damages:
            self._find(uid, f"{segment.path}: the hash of the whole segment is not the one it was sealed with")

    # finish

    def _finish(self, catalog: Path, logs: tuple[StoredLog, ...]) -> Backup:
        part = catalog.with_name(f"catalog{PART}")
        size, digest = copy_file(self.disk, catalog, catalog.stat().st_size, part)
        manifest = Manifest(
            format=FORMAT,
            penstock=self.release,
            created_ms=now_ms(self.clock),
            source=str(self.root),
            node=self.node,
            catalog=self.backup_files.name_part(part, "catalog-{}.db", size, digest),
            catalog_version=newest_version(),
            logs=logs,
        )
        self.disk.sync_directory(self.backup_files.root)
        write_manifest(self.disk, self.backup_files.root, manifest)
        with suppress(OSError):  # the backup is whole; leftovers go with the next one
            clear(
                self.disk,
                self.backup_files.root,
                frozenset(self.backup_files.root / file.name for file in manifest.files()),
            )
        return Backup(
            manifest=manifest,
            copied_bytes=self.copied_bytes + size,
            kept_bytes=self.kept_bytes,
            findings=tuple(what for uid, what in self.findings if uid not in self.gone),
        )


def _place(log: StoredLog) -> str:
    return f"{log.topic}[{log.partition}]"


def _header(disk: Disk, segment: Segment) -> IndexHeader | None:
    """Return the header of a sealed segment's index if it counts exactly the records to be copied; None otherwise."""
    header = IndexFile(disk, index_path(segment.path), segment.base).header()
    if header is None or header.state is not SegmentState.SEALED:
        return None
    return header if (header.count, header.size) == (segment.count, segment.size) else None


def _seal(header: IndexHeader | None) -> str:
    return "" if header is None else hash_text(header.hash)


def _ends(disk: Disk, segment: Segment) -> Longs:
    """Return where each record ends, as the index lists it; an empty array without an index."""
    index = IndexFile(disk, index_path(segment.path), segment.base)
    return index.ends(0, segment.count) if index.header() is not None else NONE_LISTED
