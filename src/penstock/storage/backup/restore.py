"""The check of a backup, and its restore into an empty directory.

Every file is hashed and every record verified, on the restored copy. The file that identifies a data directory is
written last, so that an interrupted restore is never taken for one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import DiskFull, InvalidRequest, NotOwner, PenstockError, StorageFailed
from penstock.core.limits import MIB
from penstock.storage.backup.backup import Stage
from penstock.storage.backup.files import (
    BackupFiles,
    Progress,
    copy_file,
    damaged_messages,
    split_index,
    verify_records,
)
from penstock.storage.backup.manifest import Manifest, StoredFile, StoredLog, StoredSegment, hash_text, read_manifest
from penstock.storage.base.disk import Disk, OsDisk, directory_locked, replace_file, storage_error
from penstock.storage.base.layout import CATALOG, FORMAT, IDENTITY, StoreIdentity, log_path
from penstock.storage.catalog.database import verify_catalog
from penstock.storage.log.segment import LogStart, index_path, segment_name, write_log_start

_SPARE_BYTES: Final = 64 * MIB
"""Bytes that must stay free: the reserve that a broker wants to find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupProblem:
    """A fault in one file of a backup."""

    file: str
    where: str
    """The topic and partition of the file, or the catalog."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupCheck:
    """The result of a check of a backup."""

    manifest: Manifest
    problems: tuple[BackupProblem, ...]


def check_backup(source: Path, *, disk: Disk | None = None, stage: Stage | None = None) -> BackupCheck:
    """Hash every file and verify every record, changing nothing.

    Raises `InvalidRequest` if there is no backup, `StorageFailed` if its manifest is damaged, `NotOwner` while a backup
    is being made there.
    """
    backup_files = BackupFiles(disk or OsDisk(), source.absolute())
    with _reading(backup_files.root):
        manifest = read_manifest(backup_files.disk, backup_files.root)
        progress = (stage or _unseen)("verifying", manifest.size)
        return BackupCheck(manifest=manifest, problems=tuple(_problems(backup_files, manifest, progress)))


def restore(source: Path, target: Path, *, disk: Disk | None = None, stage: Stage | None = None) -> Manifest:
    """Create the data directory `target` from a backup; it is whole and durable on return.

    Messages keep their ids, offsets and bytes; messages published later get ids that the original, which may still be
    running, never gives. Raises `InvalidRequest` if `target` is not empty, `StorageFailed` if anything does not verify;
    nothing is left then.
    """
    backup_files, target = BackupFiles(disk or OsDisk(), source.absolute()), target.absolute()
    with _reading(backup_files.root):
        manifest = read_manifest(backup_files.disk, backup_files.root)
        _check_target(backup_files, target, manifest)
        work = _RestoreRun(backup_files, target, (stage or _unseen)("restoring", manifest.size))
        try:
            work.run(manifest)
        except BaseException:
            work.undo()
            raise
    return manifest


def _unseen(_what: str, _size: int) -> Progress:
    return lambda _count: None


@contextmanager
def _reading(root: Path) -> Iterator[None]:
    if not root.is_dir():
        raise InvalidRequest(f"{root} is not a directory with a backup")
    if (root / IDENTITY).exists():  # a data directory, which its owner has locked
        raise InvalidRequest(f"there is no whole backup in {root}: it is a data directory")
    try:
        with directory_locked(root, alone=False):
            yield
    except NotOwner:
        raise NotOwner(f"a backup into {root} is under way: wait until it has ended") from None
    except OSError as error:
        raise storage_error(error, str(error.filename or root)) from error


# checking


def _problems(backup_files: BackupFiles, manifest: Manifest, progress: Progress) -> Iterator[BackupProblem]:
    what = backup_files.trouble(manifest.catalog, progress) or _catalog_trouble(
        backup_files.root / manifest.catalog.name
    )
    if what is not None:
        yield BackupProblem(file=manifest.catalog.name, where="the catalog", what=what)
    for log in manifest.logs:
        for segment in log.segments:
            yield from _segment_problems(backup_files, log, segment, progress)


def _catalog_trouble(path: Path) -> str | None:
    try:
        verify_catalog(path)
    except PenstockError as error:
        return error.message
    return None


def _segment_problems(
    backup_files: BackupFiles, log: StoredLog, segment: StoredSegment, progress: Progress
) -> Iterator[BackupProblem]:
    where = f"{log.topic}[{log.partition}]"
    wrong = [(file, backup_files.trouble(file, progress)) for file in (segment.data, segment.index)]
    for file, what in wrong:
        if what is not None:
            yield BackupProblem(file=file.name, where=where, what=what)
    if not backup_files.disk.exists(backup_files.root / segment.data.name):
        return
    ends = split_index(backup_files.read(segment.index) if wrong[1][1] is None else b"", segment.base)[1]
    path = backup_files.root / segment.data.name
    scan = verify_records(backup_files.disk, path, segment.base, segment.count, segment.size, ends)
    if damaged_messages(scan) != segment.damaged or scan.count != segment.count:
        for damage in scan.damages:
            yield BackupProblem(file=segment.data.name, where=where, what=str(damage))


# restoring


def _check_target(backup_files: BackupFiles, target: Path, manifest: Manifest) -> None:
    if target.exists() and not target.is_dir():
        raise InvalidRequest(f"{target} is not a directory")
    if target.exists() and any(target.iterdir()):
        raise InvalidRequest(
            f"{target} is not empty: restore into an empty or a new directory (an interrupted restore leaves files"
            " without a store.json: remove them)"
        )
    if backup_files.root.resolve() in (target.resolve(), *target.resolve().parents):
        raise InvalidRequest(f"{target} lies within the backup: choose a directory apart from it")
    existing = next(parent for parent in (target, *target.parents) if parent.exists())
    free = backup_files.disk.free_bytes(existing)
    if free < manifest.size + _SPARE_BYTES:
        raise DiskFull(
            f"{existing}: {manifest.size} bytes are to be restored, and {free} are free, of which {_SPARE_BYTES} stay"
            " so; make room and try again",
            free_bytes=free,
        )


@dataclass(frozen=True, slots=True)
class _RestoreRun:
    backup_files: BackupFiles
    target: Path
    progress: Progress

    @property
    def disk(self) -> Disk:
        return self.backup_files.disk

    def run(self, manifest: Manifest) -> None:
        self.disk.make_directory(self.target)
        self.target.chmod(0o700)
        for log in manifest.logs:
            self._log(log)
        self._copy(manifest.catalog, self.target / CATALOG)
        verify_catalog(self.target / CATALOG)
        self.disk.sync_directory(self.target)
        identity = StoreIdentity(format=FORMAT, node=secrets.randbits(62))
        replace_file(self.disk, self.target / IDENTITY, msgspec.json.encode(identity))

    def _log(self, log: StoredLog) -> None:
        folder = log_path(self.target, log.name, log.partition, log.partitions)
        self.disk.make_directory(folder)
        if log.start or any(bytes.fromhex(log.start_id)):
            write_log_start(self.disk, folder, LogStart(log.start, bytes.fromhex(log.start_id)))
        for segment in log.segments:
            self._segment(log, segment, folder / segment_name(segment.base))
        self.disk.sync_directory(folder)

    def _segment(self, log: StoredLog, segment: StoredSegment, path: Path) -> None:
        self._copy(segment.data, path)
        self._copy(segment.index, index_path(path))
        _, ends = split_index(self.backup_files.read(segment.index), segment.base)
        scan = verify_records(self.disk, path, segment.base, segment.count, segment.size, ends)
        if damaged_messages(scan) != segment.damaged or scan.count != segment.count:
            raise StorageFailed(
                f"{segment.data.name} ({log.topic}[{log.partition}]) does not verify:"
                f" {scan.damages[0] if scan.damages else f'{scan.count} records, not {segment.count}'};"
                " nothing was restored",
                file=segment.data.name,
            )

    def _copy(self, file: StoredFile, path: Path) -> None:
        try:
            size, digest = copy_file(self.disk, self.backup_files.root / file.name, file.size, path, self.progress)
        except FileNotFoundError:
            raise StorageFailed(
                f"{file.name} is missing from the backup; nothing was restored", file=file.name
            ) from None
        if (size, hash_text(digest)) != (file.size, file.hash):
            raise StorageFailed(
                f"{file.name} is not as it was written into the backup; nothing was restored: `penstock backup verify`"
                " says what is wrong",
                file=file.name,
            )

    def undo(self) -> None:
        """Remove all files and directories that the restore has created."""
        for entry in os.scandir(self.target) if self.target.is_dir() else ():
            if entry.is_dir(follow_symlinks=False):
                self.disk.remove_tree(Path(entry.path))
            else:
                self.disk.remove(Path(entry.path))
