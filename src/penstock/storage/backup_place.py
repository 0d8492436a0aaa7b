"""Storage, the directory of a backup: which files in it are its own. No other file is ever changed or removed.

What is ours is told by its place and its name, never by the ending alone: others keep their `.db` files, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.storage.backup_manifest import CATALOG_NAME, FOLDER_NAME, MANIFEST, SEGMENT_NAME, SEGMENTS
from penstock.storage.disk import Disk

WORK: Final = "backup.work"
"""Where the catalog is put together; SQLite has files of its own beside it."""

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
    """Remove what one that was interrupted left."""
    if disk.exists(root / WORK):
        _clear_folder(disk, root / WORK, _IN_WORK, frozenset())


def clear(disk: Disk, root: Path, named: frozenset[Path]) -> None:
    """Remove the files of a backup that are not `named`: they are of the one before, or of one that was interrupted."""
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
    """One for each log."""
    return [root / SEGMENTS / name for name in disk.folders(root / SEGMENTS) if _FOLDER.fullmatch(name)]


def _is_backup(disk: Disk, root: Path) -> bool:
    """Whether there is one, whole or damaged. Others may have files of that name: a manifest is never alone."""
    if not disk.exists(root / MANIFEST):
        return False
    return any(map(_REPLACED.fullmatch, disk.names(root))) or bool(_folders(disk, root))


def _is_ours(disk: Disk, root: Path) -> bool:
    """A backup, beside which there may be other files; or nothing but what an interrupted first one left."""
    if disk.exists(root / MANIFEST):
        return _is_backup(disk, root)
    known = {SEGMENTS, WORK}
    return (
        all(name in known or _IN_ROOT.fullmatch(name) for name in disk.names(root))
        and all(_IN_WORK.fullmatch(name) for name in disk.names(root / WORK))
        and all(_FOLDER.fullmatch(name) for name in disk.names(root / SEGMENTS))
        and all(_IN_FOLDER.fullmatch(name) for folder in _folders(disk, root) for name in disk.names(folder))
    )
