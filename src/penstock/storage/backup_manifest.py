"""Storage, what a backup says of itself: every file with its size and its hash. Written last, whole or not at all.

DEST/backup.json                              this: one line, and a second with the hash of the first
DEST/catalog-HASH.db                          the catalog
DEST/segments/TOPIC-PARTITION/BASE-HASH.seg   a segment up to the watermark
DEST/segments/TOPIC-PARTITION/BASE-HASH.idx   its index

A file has its hash in its name, and is never changed once it has it: the files of the backup before stay until the new
one is whole.
"""

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
from penstock.storage.disk import Disk, opened, read_all, replace_file

FORMAT: Final = 1
MANIFEST: Final = "backup.json"
SEGMENTS: Final = "segments"
_BYTES_MAX: Final = 1 * GIB
"""About two million segments: some hundred TiB."""
CATALOG_NAME: Final = r"catalog-[0-9a-f]{16}\.db"
FOLDER_NAME: Final = r"[0-9]{1,20}-[0-9]{1,4}"
SEGMENT_NAME: Final = r"[0-9]{20}-[0-9a-f]{16}\.(seg|idx)"
_NAME: Final = re.compile(rf"{CATALOG_NAME}|{SEGMENTS}/{FOLDER_NAME}/{SEGMENT_NAME}")
_HASH: Final = re.compile(r"[0-9a-f]{16}")


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: its name below the backup's directory, which holds its hash."""

    name: str
    size: int
    hash: str

    def check(self) -> None:
        """Raise `StorageFailed` for a name that is none of ours: it may come from anywhere."""
        if not _NAME.fullmatch(self.name) or not _HASH.fullmatch(self.hash) or self.size < 0:
            raise StorageFailed(f"{self.name[:128]!r} is not the name of a file of a backup")


class StoredSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One segment up to the watermark."""

    base: int
    count: int
    size: int
    sealed: bool
    seal: str
    """The hash it was sealed with; empty for one that was being written."""
    last_id: str
    data: StoredFile
    index: StoredFile
    damaged: int = 0
    """Messages that were damaged in the original already."""

    @property
    def stop(self) -> int:
        return self.base + self.count


class StoredLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One partition."""

    topic: str
    topic_uid: int
    partition: int
    partitions: int
    start: int
    """Where it begins: what lies before was truncated."""
    start_id: str
    segments: tuple[StoredSegment, ...] = ()

    @property
    def first_offset(self) -> int:
        return max(self.start, self.segments[0].base) if self.segments else self.start

    @property
    def next_offset(self) -> int:
        """The watermark: messages before it are in the backup."""
        return max(self.start, self.segments[-1].stop) if self.segments else self.start

    @property
    def name(self) -> TopicName:
        return TopicName.parse(self.topic)

    def check(self) -> None:
        """Raise what is wrong with it."""
        self.name.partition(self.partition, self.partitions)
        if not 0 <= self.partition < self.partitions <= PARTITIONS_MAX or not 0 <= self.start <= OFFSET_MAX:
            raise StorageFailed(f"{self.topic} has no partition {self.partition} from offset {self.start} on")
        for each in (self.start_id, *(segment.last_id for segment in self.segments)):
            if len(bytes.fromhex(each)) != ID_BYTES:
                raise StorageFailed(f"{each!r} is not the id of a message")


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One whole backup."""

    format: int
    penstock: str
    """The release that made it."""
    created_ms: int
    source: str
    node: int
    """Of the data directory: no other has the same, wherever it lies and whatever is restored from it."""
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
    """The one field that every format has."""

    format: int


class _Check(msgspec.Struct):
    hash: str


def write_manifest(disk: Disk, root: Path, manifest: Manifest) -> None:
    """Durable on return; until then the backup is the one before."""
    body = msgspec.json.encode(manifest)
    check = msgspec.json.encode(_Check(hash_text(hash64(body))))
    replace_file(disk, root / MANIFEST, body + b"\n" + check + b"\n")


def read_manifest(disk: Disk, root: Path) -> Manifest:
    """Raises `InvalidRequest` if there is no whole backup, `StorageFailed` if what it says of itself is damaged,
    `VersionNotSupported` if a newer Penstock made it."""
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
