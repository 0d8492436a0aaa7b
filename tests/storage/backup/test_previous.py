"""A backup that is brought up to date loses nothing that may be the only copy, and keeps nothing that is damaged."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.storage.backup.kit import LIMITS, ORDERS, fill, flip, records, restored

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.storage.backup.backup import back_up
from penstock.storage.backup.manifest import read_manifest
from penstock.storage.backup.restore import check_backup
from penstock.storage.base.disk import OsDisk
from penstock.storage.store import Store

LOG = Path("topics/default/orders")


def made(root: Path, blocks: int = 12) -> Path:
    with Store.open(root, create=True, limits=LIMITS) as store:
        if not store.catalog.list_topics():
            store.create_topic(ORDERS)
        fill(store, blocks)
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with several segments and no owner."""
    return made(tmp_path / "data")


@pytest.fixture
def target(data: Path, tmp_path: Path) -> Path:
    """Backed up."""
    back_up(data, tmp_path / "backup")
    return tmp_path / "backup"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# another data directory


def test_the_backup_of_another_data_directory_is_not_overwritten(target: Path, tmp_path: Path) -> None:
    before = files(target)
    other = made(tmp_path / "other", 1)
    with pytest.raises(InvalidRequest, match=r"backup of another data directory.*--replace"):
        back_up(other, target)
    assert files(target) == before


def test_a_new_data_directory_in_the_same_place_is_another_one(data: Path, target: Path) -> None:
    """The disk was lost, and the service came up on an empty one."""
    shutil.rmtree(data)
    made(data, 0)
    with pytest.raises(InvalidRequest, match="another data directory"):
        back_up(data, target)


def test_the_backup_of_another_data_directory_is_replaced_if_that_is_meant(target: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", 1)
    done = back_up(other, target, replace=True)
    assert (done.findings, done.kept_bytes) == ((), 0)
    assert records(restored(target, tmp_path / "new")) == records(other)


def test_a_directory_that_was_moved_is_still_the_same(data: Path, target: Path, tmp_path: Path) -> None:
    data.rename(tmp_path / "moved")
    assert back_up(tmp_path / "moved", target).findings == ()


def test_a_restored_directory_takes_over_its_backup_without_copying_it_again(target: Path, tmp_path: Path) -> None:
    new = restored(target, tmp_path / "new")
    with pytest.raises(InvalidRequest, match="another data directory"):
        back_up(new, target)
    done = back_up(new, target, replace=True)
    assert done.kept_bytes > 0
    assert done.copied_bytes == done.manifest.catalog.size
    assert back_up(new, target).findings == ()


# what the original has lost


def test_a_log_whose_directory_is_missing_is_named_and_stays_in_the_backup(
    data: Path, target: Path, tmp_path: Path
) -> None:
    before = records(data)
    shutil.rmtree(data / LOG)
    for _ in range(2):
        (finding,) = back_up(data, target).findings
        assert finding == f"{data / LOG} is missing; the backup keeps its copy"
    assert check_backup(target).problems == ()
    assert records(restored(target, tmp_path / "new")) == before


def test_a_log_that_is_missing_and_in_no_backup_is_named(data: Path, tmp_path: Path) -> None:
    shutil.rmtree(data / LOG)
    done = back_up(data, tmp_path / "backup")
    assert done.findings == (f"{data / LOG} is missing; the backup has nothing of it",)


def test_a_log_that_lost_all_and_was_opened_again_stays_in_the_backup(data: Path, target: Path, tmp_path: Path) -> None:
    before = records(data)
    shutil.rmtree(data / LOG)
    Store.open(data, limits=LIMITS).close()
    findings = back_up(data, target).findings
    assert findings
    assert all("the backup keeps its copy" in each for each in findings)
    assert records(restored(target, tmp_path / "new")) == before


def lose(data: Path) -> None:
    """The log and the catalog's note of it, which would have it go on behind what is gone: as in earlier releases."""
    shutil.rmtree(data / LOG)
    with closing(sqlite3.connect(data / "catalog.db")) as catalog:
        catalog.execute("DELETE FROM log_ends")
        catalog.commit()


@pytest.mark.parametrize("blocks", [1, 30])
def test_a_log_that_was_lost_and_begun_anew_is_not_mixed_with_what_the_backup_has(
    tmp_path: Path, data: Path, target: Path, blocks: int
) -> None:
    before = records(data)
    lose(data)
    made(data, blocks)
    with pytest.raises(InvalidRequest, match=r"/default/orders\[0\] has other messages at offsets.*--replace"):
        back_up(data, target)
    assert records(restored(target, tmp_path / "old")) == before
    assert back_up(data, target, replace=True).findings == ()
    assert records(restored(target, tmp_path / "new")) == records(data)


def test_a_log_of_one_segment_that_was_begun_anew_and_has_grown_longer_is_told_by_its_ids(tmp_path: Path) -> None:
    data, target = made(tmp_path / "data", 1), tmp_path / "backup"
    back_up(data, target)
    lose(data)
    made(data, 2)
    with pytest.raises(InvalidRequest, match="has other messages at offsets"):
        back_up(data, target)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_that_is_lost_in_the_original_stays_in_the_backup(
    data: Path, target: Path, tmp_path: Path, which: int
) -> None:
    before = records(data)
    segment = sorted((data / LOG).glob("0*.seg"))[which]
    segment.unlink()
    segment.with_suffix(".idx").unlink()
    (finding,) = back_up(data, target).findings
    assert "are lost or damaged; the backup keeps its copy" in finding
    assert records(restored(target, tmp_path / "new")) == before


def test_a_segment_that_was_damaged_since_does_not_replace_the_whole_copy(
    data: Path, target: Path, tmp_path: Path
) -> None:
    before = records(data)
    segment = min((data / LOG).glob("*.seg"))
    flip(segment, 700)
    segment.with_suffix(".idx").unlink()
    done = back_up(data, target)
    assert done.findings
    assert done.manifest.damaged == 0
    assert records(restored(target, tmp_path / "new")) == before


def test_what_was_truncated_or_deleted_goes_from_the_backup_and_is_no_finding(data: Path, target: Path) -> None:
    with Store.open(data, limits=LIMITS) as store:
        store.truncate_before(ORDERS, 130)
    done = back_up(data, target)
    assert (done.findings, done.manifest.logs[0].first_offset) == ((), 130)
    with Store.open(data, limits=LIMITS) as store:
        store.delete_topic(ORDERS)
        store.create_topic(TopicName.parse("next"))
    done = back_up(data, target)
    assert (done.findings, [log.topic for log in done.manifest.logs]) == ((), ["/default/next"])
    assert not list(target.rglob("*.seg"))


def test_a_topic_whose_deletion_was_interrupted_is_deleted_and_not_lost(data: Path, target: Path) -> None:
    trash = data / "trash" / str(read_manifest(OsDisk(), target).logs[0].topic_uid)
    trash.mkdir(parents=True)
    (data / LOG).rename(trash / "0")
    done = back_up(data, target)
    assert (done.findings, done.manifest.logs) == ((), ())


# what is damaged in the backup


@pytest.mark.parametrize("ending", ["seg", "idx"])
def test_a_file_of_the_backup_that_is_damaged_is_replaced_by_the_next_one(
    data: Path, target: Path, tmp_path: Path, ending: str
) -> None:
    damaged = min(target.rglob(f"*.{ending}"))
    flip(damaged, 60)
    assert check_backup(target).problems
    assert back_up(data, target).kept_bytes > 0
    assert check_backup(target).problems == ()
    assert records(restored(target, tmp_path / "new")) == records(data)


def test_in_haste_files_of_the_backup_are_told_by_their_sizes(data: Path, target: Path) -> None:
    first, second, *_ = sorted(target.rglob("*.seg"))
    flip(first, 60)
    second.write_bytes(second.read_bytes()[:-1])
    back_up(data, target, quick=True)
    assert {problem.file for problem in check_backup(target).problems} == {str(first.relative_to(target))}


def test_what_the_original_has_lost_and_is_damaged_in_the_backup_is_not_taken_for_whole(
    data: Path, target: Path
) -> None:
    lost = sorted((data / LOG).glob("*.seg"))[1]
    lost.unlink()
    lost.with_suffix(".idx").unlink()
    flip(next(target.rglob(f"{lost.stem}-*.seg")), 60)
    (finding,) = back_up(data, target).findings
    assert "are missing" in finding
    assert check_backup(target).problems == ()
