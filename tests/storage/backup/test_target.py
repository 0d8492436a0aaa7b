"""A backup's directory: files that are not the backup's own stay untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.storage.backup.kit import LIMITS, ORDERS, fill, records, restored

from penstock.core.errors import InvalidRequest
from penstock.storage.backup.backup import back_up
from penstock.storage.backup.manifest import MANIFEST
from penstock.storage.backup.restore import check_backup
from penstock.storage.store import Store

OTHERS = (
    "customers.db",
    "catalog-mine.db",
    "notes.part",
    "work/first.db",
    "backup.work/mine.db",
    "archive/00000000000000000000-0123456789abcdef.seg",
    "segments/notes.seg",
    "segments/1-0/notes.idx",
    "segments/mine/00000000000000000000-0123456789abcdef.seg",
    "segments/1-0/old/00000000000000000000-0123456789abcdef.seg",
)
"""Names that resemble the files of a backup."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as opened:
        opened.create_topic(ORDERS)
        fill(opened, 6)
        yield opened


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_others_beside_a_backup_stays(store: Store, tmp_path: Path, name: str) -> None:
    target = tmp_path / "backup"
    back_up(store.root, target)
    other = put(target / name)
    store.truncate_before(ORDERS, 100)
    back_up(store.root, target)
    assert other.read_text() == "mine"
    assert check_backup(target).problems == ()


@pytest.mark.parametrize("name", [*OTHERS, MANIFEST])
def test_a_directory_with_files_of_others_alone_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    other = put(tmp_path / "backup" / name)
    with pytest.raises(InvalidRequest, match="holds other files"):
        back_up(store.root, tmp_path / "backup")
    assert [path for path in (tmp_path / "backup").rglob("*") if path.is_file()] == [other]


def test_a_directory_within_a_backup_is_refused(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "mnt"
    back_up(store.root, target)
    for within in (target / "monday", target / "segments" / "1-0", target / "a" / "b"):
        with pytest.raises(InvalidRequest, match="lies within the backup in"):
            back_up(store.root, within)
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["segments"]


def test_a_file_that_is_called_like_a_manifest_above_is_in_nobodys_way(store: Store, tmp_path: Path) -> None:
    put(tmp_path / MANIFEST)
    back_up(store.root, tmp_path / "backup")
    assert check_backup(tmp_path / "backup").problems == ()


def test_a_backup_that_was_made_within_another_outlives_the_next_of_that(store: Store, tmp_path: Path) -> None:
    outer, inner = tmp_path / "mnt", tmp_path / "mnt" / "monday"
    back_up(store.root, outer)
    back_up(store.root, tmp_path / "monday")
    (tmp_path / "monday").rename(inner)
    fill(store, 6)
    back_up(store.root, outer)
    assert check_backup(inner).problems == ()


def test_what_an_interrupted_first_backup_left_is_taken_up_again(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    back_up(store.root, target)
    (target / MANIFEST).rename(target / f"{MANIFEST}.tmp")
    for name in ("backup.work/first.db-wal", "backup.work/catalog.part", "segments/1-0/00000000000000000000.part"):
        put(target / name)
    back_up(store.root, target)
    assert not list(target.rglob("*.part"))
    assert not (target / "backup.work").exists()
    assert records(restored(target, tmp_path / "new")) == records(store.root)
