"""The previous backup, which is brought up to date: its whole segments, and those that the original has lost.

A backup mirrors what its data directory means to keep. Deleted and expired messages go; messages that are missing
although nobody deleted them stay, since theirs may be the only copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from penstock.core.errors import InvalidRequest, StorageFailed
from penstock.storage.backup.files import BackupFiles, Progress
from penstock.storage.backup.manifest import Manifest, StoredLog, StoredSegment, read_manifest


@dataclass(frozen=True, slots=True)
class PreviousBackup:
    """The content of the backup as the previous run left it."""

    logs: Mapping[tuple[int, int], StoredLog] = field(default_factory=dict)
    """Logs by topic uid and partition, with their whole segments only."""
    keeps: bool = True
    """True if segments that the original has lost stay in the backup; False with `--replace`."""
    _segments: dict[tuple[int, int, int], StoredSegment] = field(default_factory=dict)

    @classmethod
    def of(cls, logs: list[StoredLog], *, keeps: bool) -> PreviousBackup:
        segments = {(log.topic_uid, log.partition, segment.base): segment for log in logs for segment in log.segments}
        return cls({(log.topic_uid, log.partition): log for log in logs}, keeps, segments)

    def segment(self, topic_uid: int, partition: int, base: int) -> StoredSegment | None:
        return self._segments.get((topic_uid, partition, base))

    def lost(self, log: StoredLog) -> list[StoredSegment]:
        """Return the segments of the previous backup that the newly copied `log` lacks, or has shorter or with more
        damage.

        Segments that retention has dropped from the log are not among them.
        """
        before = self.logs.get((log.topic_uid, log.partition))
        if before is None or not self.keeps:
            return []
        present = {segment.base: segment for segment in log.segments}
        return [
            segment
            for segment in before.segments
            if segment.stop > log.start and _is_lost(segment, present.get(segment.base))
        ]

    def whole(self, log: StoredLog) -> StoredLog:
        """Return the newly copied log with its lost segments put back from the previous backup.

        Raises `InvalidRequest` if the two do not fit together: the log has other messages at the same offsets.
        """
        lost = {segment.base: segment for segment in self.lost(log)}
        if not lost:
            return log
        present = {segment.base: segment for segment in log.segments}
        segments = [segment for _, segment in sorted((present | lost).items())]
        follows = all(a.stop <= b.base and a.last_id < b.last_id for a, b in pairwise(segments))
        if not follows or any(
            base in present and present[base].last_id > segment.last_id for base, segment in lost.items()
        ):
            raise different_messages(log.topic, log.partition)
        return msgspec.structs.replace(log, segments=tuple(segments))


def different_messages(topic: str, partition: int) -> InvalidRequest:
    return InvalidRequest(
        f"{topic}[{partition}] has other messages at offsets that are in the backup already: it was lost, and begun"
        " anew. The backup is the one before: back up into another directory, or say --replace to give up what this one"
        " holds",
        topic=topic,
        partition=partition,
    )


def _is_lost(before: StoredSegment, present: StoredSegment | None) -> bool:
    if present is None or present.stop < before.stop:
        return True
    return present.stop == before.stop and present.damaged > before.damaged


def previous_manifest(backup_files: BackupFiles, node: int, *, replace: bool) -> Manifest | None:
    """Return the manifest of the existing backup; None if there is none, or if it is damaged.

    Without the manifest all is copied again, which costs time but no data. Raises `InvalidRequest` if it is of another
    data directory than `node` and `replace` is off.
    """
    try:
        manifest = read_manifest(backup_files.disk, backup_files.root)
    except (InvalidRequest, StorageFailed):
        return None
    if manifest.node != node and not replace:
        raise InvalidRequest(
            f"{backup_files.root} has the backup of another data directory, which was {manifest.source} then; nothing"
            " was changed. Back up into another directory, or say --replace to give up what this one holds",
            source=manifest.source,
        )
    return manifest


def usable_backup(
    backup_files: BackupFiles, manifest: Manifest, progress: Progress, *, replace: bool, quick: bool
) -> PreviousBackup:
    """Return those segments of the existing backup whose files are whole.

    Each file is read and its hash compared; with `quick` only its size. With `replace`, segments that the original
    lacks are not kept.
    """

    def is_whole(segment: StoredSegment) -> bool:
        files = (segment.data, segment.index)
        return all(
            backup_files.holds(file) if quick else backup_files.trouble(file, progress) is None for file in files
        )

    logs = [msgspec.structs.replace(log, segments=tuple(filter(is_whole, log.segments))) for log in manifest.logs]
    return PreviousBackup.of(logs, keeps=not replace)
