"""The layout of a data directory, and the file that identifies it. It needs no catalog, since readers have none.

DIR/store.json            format version and the id generator's number
DIR/lock                  held by the process that writes
DIR/clock                 the time of the last maintenance round
DIR/catalog.db            topics, settings, producers, subscriptions and their cursors
DIR/topics/NAMESPACE/TOPIC[-part-N]/   one log each
DIR/trash/                topics being deleted
DIR/reserve               room that is given up to the catalog where the disk is full
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from penstock.core.errors import InvalidRequest, StorageFailed, VersionNotSupported
from penstock.core.names import TopicName
from penstock.storage.base.disk import Disk, opened, read_all

FORMAT: Final = 1
IDENTITY: Final = "store.json"
LOCK: Final = "lock"
CATALOG: Final = "catalog.db"
TOPICS: Final = "topics"
TRASH: Final = "trash"
RESERVE: Final = "reserve"

_IDENTITY_BYTES_MAX: Final = 4096


class StoreIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a data directory's `store.json`."""

    format: int
    node: int


def is_data_directory(disk: Disk, root: Path) -> bool:
    return disk.exists(root / IDENTITY)


def log_path(root: Path, name: TopicName, partition: int, partitions: int) -> Path:
    return root / TOPICS / name.namespace / name.partition(partition, partitions)


def check_root(root: Path, *, create: bool = False) -> None:
    """Raise `InvalidRequest` if `root` is not a data directory and cannot become one."""
    if root.exists() and not root.is_dir():
        raise InvalidRequest(f"{root} is not a directory")
    if (root / IDENTITY).exists():
        return
    if not create:
        raise InvalidRequest(f"{root} is not a Penstock data directory: create one with `penstock log create`")
    if root.exists() and any(root.iterdir()) and not (root / LOCK).exists():
        raise InvalidRequest(f"{root} holds other files: choose an empty or a new directory")


def check_readable(disk: Disk, root: Path, name: str) -> None:
    """Check that the directory `root` has logs to read; `name` is what the error calls it.

    Raises `InvalidRequest` if there are none below `root`, `VersionNotSupported` if a newer Penstock wrote them. A tree
    of topics that was copied without `store.json`, or with a damaged one, is readable too.
    """
    if not disk.exists(root / IDENTITY):
        if not disk.folders(root / TOPICS):
            raise InvalidRequest(f"{name} is not a Penstock data directory: create one with `penstock log create`")
        return
    with contextlib.suppress(StorageFailed):
        read_identity(disk, root)


def read_identity(disk: Disk, root: Path) -> StoreIdentity:
    """Read the identity. Raises `StorageFailed` if it is damaged, `VersionNotSupported` if a newer Penstock wrote
    it."""
    path = root / IDENTITY
    with opened(disk, path) as file:
        data = bytes(read_all(file, 0, _IDENTITY_BYTES_MAX))
    try:
        identity = msgspec.json.decode(data, type=StoreIdentity)
    except msgspec.MsgspecError as error:
        raise StorageFailed(f"{path} is damaged ({error}); nothing was changed. Restore it from a backup.") from None
    if identity.format != FORMAT:
        raise VersionNotSupported(
            f"{root} has format {identity.format}; this Penstock reads format {FORMAT}: use a newer Penstock",
            format=identity.format,
        )
    return identity
