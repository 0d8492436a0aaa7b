"""The manifest of a backup, which lists every file with its size and hash and is written last; and the rules for its
file names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import InvalidRequest, PenstockError, StorageFailed, VersionNotSupported
from penstock.core.ids import ID_BYTES
from penstock.core.limits import GIB, PARTITIONS_MAX
from penstock.core.names import TopicName
from penstock.core.offsets import OFFSET_MAX
from penstock.record.hashing import hash64
from penstock.storage.base.disk import Disk, opened, read_all, replace_file

FORMAT: Final = 1
MANIFEST: Final = "backup.json"
SEGMENTS: Final = "segments"
_BYTES_MAX: Final = 1 * GIB
"""The largest manifest: about two million segments, some hundred TiB."""
CATALOG_NAME: Final = r"catalog-[0-9a-f]{16}\.db"
FOLDER_NAME: Final = r"[0-9]{1,20}-[0-9]{1,4}"
SEGMENT_NAME: Final = r"[0-9]{20}-[0-9a-f]{16}\.(seg|idx)"
_NAME: Final = re.compile(rf"{CATALOG_NAME}|{SEGMENTS}/{FOLDER_NAME}/{SEGMENT_NAME}")
_HASH: Final = re.compile(r"[0-9a-f]{16}")


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of the backup: its name below the backup's directory contains its hash."""

    name: str
    size: int
    hash: str

    def check(self) -> None:
        """Raise `StorageFailed` for a name that no backup writes. A manifest from elsewhere might name any file."""
        if not _NAME.fullmatch(self.name) or not _HASH.fullmatch(self.hash) or self.size < 0:
            raise StorageFailed(f"{self.name[:128]!r} is not the name of a file of a backup")


class StoredSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A segment in the backup, up to the watermark of its log."""

    base: int
    count: int
    size: int
    sealed: bool
    seal: str
    """The hash in the header of a sealed segment's index, in hexadecimal; empty for a segment that was being
    written."""
    last_id: str
    data: StoredFile
    index: StoredFile
    damaged: int = 0
    """Messages that were already damaged in the original."""

    @property
    def stop(self) -> int:
        return self.base + self.count


class StoredLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition in the backup."""

    topic: str
    topic_uid: int
    partition: int
    partitions: int
    start: int
    """The first offset that is not truncated."""
    start_id: str
    segments: tuple[StoredSegment, ...] = ()

    @property
    def first_offset(self) -> int:
        return max(self.start, self.segments[0].base) if self.segments else self.start

    @property
    def next_offset(self) -> int:
        """The offset behind the last message in the backup."""
        return max(self.start, self.segments[-1].stop) if self.segments else self.start

    @property
    def name(self) -> TopicName:
        return TopicName.parse(self.topic)

    def check(self) -> None:
        """Raise `StorageFailed`, `TopicNotSupported` or `ValueError` if the log's names, numbers or ids are
        impossible."""
        self.name.partition(self.partition, self.partitions)
        if not 0 <= self.partition < self.partitions <= PARTITIONS_MAX or not 0 <= self.start <= OFFSET_MAX:
            raise StorageFailed(f"{self.topic} has no partition {self.partition} from offset {self.start} on")
        for id_text in (self.start_id, *(segment.last_id for segment in self.segments)):
            if len(bytes.fromhex(id_text)) != ID_BYTES:
                raise StorageFailed(f"{id_text!r} is not the id of a message")


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a backup: catalog, logs, and facts about its making."""

    format: int
    penstock: str
    """The release that made it."""
    created_ms: int
    source: str
    node: int
    """The number of the data directory that was backed up. It is unique: a restored directory gets another."""
    catalog: StoredFile
    catalog_version: int
    logs: tuple[StoredLog, ...]

    def files(self) -> Iterator[StoredFile]:
        yield self.catalog
        for log in self.logs:
            for segment in log.segments:
                yield from (segment.data, segment.index)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files())

    @property
    def messages(self) -> int:
        return sum(log.next_offset - log.first_offset for log in self.logs)

    @property
    def damaged(self) -> int:
        return sum(segment.damaged for log in self.logs for segment in log.segments)


class _Version(msgspec.Struct):
    """The `format` field, which manifests of every format have."""

    format: int


class _Check(msgspec.Struct):
    hash: str


def write_manifest(disk: Disk, root: Path, manifest: Manifest) -> None:
    """Write the manifest, durable on return; until then the previous backup is valid."""
    body = msgspec.json.encode(manifest)
    check = msgspec.json.encode(_Check(hash_text(hash64(body))))
    replace_file(disk, root / MANIFEST, body + b"\n" + check + b"\n")


def read_manifest(disk: Disk, root: Path) -> Manifest:
    """Read the manifest.

    Raises `InvalidRequest` if there is no whole backup, `StorageFailed` if the manifest is damaged,
    `VersionNotSupported` if a newer Penstock made it.
    """
    path = root / MANIFEST
    try:
        with opened(disk, path) as file:
            data = bytes(read_all(file, 0, min(file.size(), _BYTES_MAX)))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidRequest(f"there is no whole backup in {root}: {MANIFEST} is missing", path=str(root)) from None
    body, _, check = data.partition(b"\n")
    try:
        whole = msgspec.json.decode(check, type=_Check).hash == hash_text(hash64(body))
        if not whole:
            raise StorageFailed("its hash is not the one it was written with")
        return _decoded(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StorageFailed(f"{path} is damaged: {error}. Restore from another backup.", path=str(path)) from None
    except StorageFailed as error:
        raise StorageFailed(f"{path} is damaged: {error.message}. Restore from another.", path=str(path)) from None


def _decoded(body: bytes) -> Manifest:
    version = msgspec.json.decode(body, type=_Version).format
    if version != FORMAT:
        raise VersionNotSupported(
            f"the backup has format {version}; this Penstock reads format {FORMAT}: use a newer Penstock",
            format=version,
        )
    manifest = msgspec.json.decode(body, type=Manifest)
    for file in manifest.files():
        file.check()
    for log in manifest.logs:
        try:
            log.check()
        except PenstockError as error:
            raise StorageFailed(error.message) from None
    return manifest


def hash_text(value: int) -> str:
    return f"{value:016x}"


WORK: Final = "backup.work"
"""The directory where the catalog is merged, so that the files which SQLite makes beside it are apart from the
backup's."""

_IN_ROOT: Final = re.compile(rf"{CATALOG_NAME}|{re.escape(MANIFEST)}(\.tmp)?")
_REPLACED: Final = re.compile(CATALOG_NAME)
_IN_WORK: Final = re.compile(r"(first|second)\.db(-wal|-shm|-journal)?|catalog\.part")
_IN_FOLDER: Final = re.compile(rf"{SEGMENT_NAME}|[0-9]{{20}}\.part")
_FOLDER: Final = re.compile(FOLDER_NAME)


def check_target(disk: Disk, root: Path, target: Path) -> None:
    """Raise `InvalidRequest` for a directory that cannot hold a backup of the data directory `root`."""
    real, other = target.resolve(), root.resolve()
    if real == other or other in real.parents or real in other.parents:
        raise InvalidRequest(f"{target} and {root} lie within each other: choose a directory apart from the data")
    if target.exists() and not target.is_dir():
        raise InvalidRequest(f"{target} is not a directory")
    around = next((parent for parent in real.parents if _is_backup(disk, parent)), None)
    if around is not None:
        raise InvalidRequest(f"{target} lies within the backup in {around}: choose a directory apart from it")
    if disk.names(target) and not _is_ours(disk, target):
        raise InvalidRequest(f"{target} holds other files: choose an empty or a new directory, or one with a backup")


def clear_work(disk: Disk, root: Path) -> None:
    """Remove the folder of work files that an interrupted backup left in the backup directory `root`."""
    if disk.exists(root / WORK):
        _clear_folder(disk, root / WORK, _IN_WORK, frozenset())


def clear(disk: Disk, root: Path, named: frozenset[Path]) -> None:
    """Remove all files of the backup directory `root` except those in `named`: they belong to the previous or to an
    interrupted backup. Files that no backup writes stay."""
    clear_work(disk, root)
    _clear_files(disk, root, _REPLACED, named)
    for folder in _folders(disk, root):
        _clear_folder(disk, folder, _IN_FOLDER, named)


def _clear_folder(disk: Disk, folder: Path, ours: re.Pattern[str], named: frozenset[Path]) -> None:
    _clear_files(disk, folder, ours, named)
    if not disk.names(folder):
        folder.rmdir()


def _clear_files(disk: Disk, folder: Path, ours: re.Pattern[str], named: frozenset[Path]) -> None:
    for name in disk.names(folder):
        if ours.fullmatch(name) and folder / name not in named:
            disk.remove(folder / name)


def _folders(disk: Disk, root: Path) -> list[Path]:
    """Return the paths of the folders that hold the logs' segments."""
    return [root / SEGMENTS / name for name in disk.folders(root / SEGMENTS) if _FOLDER.fullmatch(name)]


def _is_backup(disk: Disk, root: Path) -> bool:
    """Return True if the directory has a backup, whole or damaged.

    A file of the manifest's name alone is no backup: other programs may use that name.
    """
    if not disk.exists(root / MANIFEST):
        return False
    return any(map(_REPLACED.fullmatch, disk.names(root))) or bool(_folders(disk, root))


def _is_ours(disk: Disk, root: Path) -> bool:
    """Return True for a directory with a backup, or with nothing but the files of an interrupted first one. An empty
    directory counts as one."""
    if disk.exists(root / MANIFEST):
        return _is_backup(disk, root)
    known = {SEGMENTS, WORK}
    return (
        all(name in known or _IN_ROOT.fullmatch(name) for name in disk.names(root))
        and all(_IN_WORK.fullmatch(name) for name in disk.names(root / WORK))
        and all(_FOLDER.fullmatch(name) for name in disk.names(root / SEGMENTS))
        and all(_IN_FOLDER.fullmatch(name) for folder in _folders(disk, root) for name in disk.names(folder))
    )
