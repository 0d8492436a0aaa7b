"""Segment files that are gone: what is missed, what is told, and where the log goes on."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.offsets import OffsetRange
from penstock.record.block import Draft
from penstock.storage.backup.backup import back_up
from penstock.storage.catalog.topics import LogEnd, Retention, TopicSettings
from penstock.storage.inspect.data_reader import DataReader, LogReader
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import MISSING
from penstock.storage.log.segment import base_of, index_path, segment_name
from penstock.storage.store import Store
from penstock.testing import Crash, FaultDisk, ManualClock

MakeDraft = Callable[..., Draft]
ORDERS = TopicName.parse("orders.created")
COUNT = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def reopened(root: Path, small_limits: Limits) -> Callable[[], Store]:
    return lambda: Store.open(root, create=True, limits=small_limits)


@pytest.fixture
def folder(root: Path, reopened: Callable[[], Store], draft: MakeDraft) -> Path:
    """A log of several segments, closed in order."""
    with reopened() as store:
        store.create_topic(ORDERS)
        for number in range(COUNT):
            store.append(ORDERS, draft(b"%d" % number + bytes(900)))
        assert len(store.log(ORDERS).view.segments) >= 5
        return store.log(ORDERS).path


def segments(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if base_of(path.name) is not None)


def remove(*paths: Path) -> None:
    for path in paths:
        path.unlink()
        index_path(path).unlink()


def lost(log: Log | LogReader) -> tuple[set[int], set[int]]:
    """Offsets that are read, and offsets that are named as damage, from the beginning to the end."""
    read: set[int] = set()
    named: set[int] = set()
    offset = int(log.view.first_offset)
    while offset < log.view.next_offset:
        chunk = log.read(offset)
        read |= {int(record.offset) for record in chunk}
        for damage in chunk.damages:
            assert damage.reason == MISSING
            named |= set(range(damage.offsets.start, damage.offsets.stop))
        assert chunk.next_offset > offset
        offset = int(chunk.next_offset)
    return read, named


def gone_of(folder: Path, which: str) -> set[int]:
    """Remove files, and say which offsets went with them."""
    paths = segments(folder)
    bases = [*(int(path.stem) for path in paths), COUNT]
    chosen = {"oldest": [0], "newest": [len(paths) - 1], "middle": [2], "two": [0, 3], "all": [*range(len(paths))]}
    for number in chosen[which]:
        remove(paths[number])
    return {offset for number in chosen[which] for offset in range(bases[number], bases[number + 1])}


@pytest.mark.parametrize("which", ["oldest", "newest", "middle", "two", "all"])
def test_what_is_gone_is_damage_and_no_offset_is_given_twice(
    folder: Path,
    root: Path,
    reopened: Callable[[], Store],
    draft: MakeDraft,
    which: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = gone_of(folder, which)
    for turn in range(3):
        caplog.clear()
        with caplog.at_level(logging.ERROR), reopened() as store:
            log = store.log(ORDERS)
            assert sum(len(damage.offsets) for damage in log.damages) == len(gone)
            assert all(str(damage.offsets) in caplog.text for damage in log.damages)
            assert lost(log) == (set(range(COUNT + turn)) - gone, gone)
            assert sum(len(damage.offsets) for damage in log.damages) == len(gone), "once, however often it is read"
            assert store.append(ORDERS, draft(b"new")).offset == COUNT + turn
            assert lost(log) == (set(range(COUNT + turn + 1)) - gone, gone)
            reader = DataReader(root).topic(ORDERS).partition(0)
            assert lost(reader) == (set(range(COUNT + turn + 1)) - gone, gone), "another process is told too"


def test_a_folder_that_is_gone_is_damage_too(
    folder: Path, reopened: Callable[[], Store], draft: MakeDraft, root: Path
) -> None:
    with reopened() as store:
        last = store.log(ORDERS).last_id
    shutil.rmtree(root / "topics")
    for turn in range(2):
        with reopened() as store:
            log = store.log(ORDERS)
            assert [damage.offsets for damage in log.damages] == [OffsetRange.of(0, COUNT)]
            assert (log.first_offset, log.next_offset) == (0, COUNT + turn)
            appended = store.append(ORDERS, draft(b"new"))
            assert appended.offset == COUNT + turn
            assert appended.id > last
    assert lost(DataReader(root).topic(ORDERS).partition(0)) == ({COUNT, COUNT + 1}, set(range(COUNT)))


@pytest.mark.parametrize("which", ["oldest", "newest", "middle", "all"])
def test_files_that_are_put_back_fill_the_gap(
    folder: Path, reopened: Callable[[], Store], draft: MakeDraft, which: str, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    gone_of(folder, which)
    with reopened() as store:
        store.append(ORDERS, draft(b"new"))
    newest = segments(folder)[-1]
    for path in (tmp_path / "copy").iterdir():
        if path.is_file() and path.stem != newest.stem:
            shutil.copy(path, folder / path.name)
    with reopened() as store:
        assert store.log(ORDERS).damages == []
        assert [record.offset for record in store.log(ORDERS).records()] == list(range(COUNT + 1))


def test_a_follower_goes_on_behind_the_gap(
    folder: Path, root: Path, reopened: Callable[[], Store], draft: MakeDraft
) -> None:
    gone = gone_of(folder, "newest")
    with reopened() as store:
        reader = DataReader(root).topic(ORDERS).partition(0)
        assert lost(reader) == (set(range(COUNT)) - gone, gone)
        for turn in range(30):
            store.append(ORDERS, draft(bytes(900)))
            reader.refresh()
            assert lost(reader) == (set(range(COUNT + turn + 1)) - gone, gone)


@pytest.mark.parametrize("which", ["oldest", "middle", "all"])
def test_what_was_truncated_is_not_missed_again(
    folder: Path, reopened: Callable[[], Store], draft: MakeDraft, which: str
) -> None:
    gone = gone_of(folder, which)
    with reopened() as store:
        store.append(ORDERS, draft(b"new"))
        store.truncate_before(ORDERS, max(gone))
        assert store.log(ORDERS).first_offset == max(gone) + 1, "nothing is left of the gap"
    with reopened() as store:
        assert store.log(ORDERS).damages == []
        assert store.log(ORDERS).first_offset == max(gone) + 1


@pytest.mark.parametrize(
    "policy", [Retention(age_ms=365 * 86_400_000), Retention(bytes=10**9), Retention(count=10**6)], ids=str
)
def test_retention_that_has_nothing_to_drop_leaves_the_gap(
    folder: Path, reopened: Callable[[], Store], policy: Retention
) -> None:
    gone = gone_of(folder, "two")
    with reopened() as store:
        store.alter_topic(ORDERS, TopicSettings(retention=policy))
        assert store.retain() == 0
        assert lost(store.log(ORDERS)) == (set(range(COUNT)) - gone, gone)


@pytest.mark.parametrize("policy", [Retention(age_ms=1), Retention(bytes=1), Retention(count=1)], ids=str)
def test_retention_drops_a_gap_with_what_is_around_it(
    folder: Path, reopened: Callable[[], Store], draft: MakeDraft, policy: Retention
) -> None:
    gone_of(folder, "two")
    with reopened() as store:
        store.append(ORDERS, draft(bytes(900)))
        store.alter_topic(ORDERS, TopicSettings(retention=policy))
        store.retain()
        first = store.log(ORDERS).first_offset
    with reopened() as store:
        assert store.log(ORDERS).damages == []
        assert store.log(ORDERS).first_offset == first


def test_a_log_that_retention_has_emptied_and_that_is_gone_goes_on_where_it_was(
    folder: Path, root: Path, reopened: Callable[[], Store], draft: MakeDraft
) -> None:
    with reopened() as store:
        store.truncate_before(ORDERS, COUNT)
    shutil.rmtree(folder)
    with reopened() as store:
        assert store.log(ORDERS).damages == []
        assert store.append(ORDERS, draft(b"new")).offset == COUNT


def test_a_lost_start_marker_hides_nothing_and_is_no_gap(folder: Path, reopened: Callable[[], Store]) -> None:
    with reopened() as store:
        store.truncate_before(ORDERS, 30)
        first = int(segments(folder)[0].stem)
    (folder / "start").unlink()
    with reopened() as store:
        assert store.log(ORDERS).first_offset == first
        assert store.log(ORDERS).damages == []


def test_a_topic_that_is_deleted_and_made_again_is_not_missed(
    folder: Path, reopened: Callable[[], Store], draft: MakeDraft
) -> None:
    with reopened() as store:
        store.delete_topic(ORDERS)
        store.create_topic(ORDERS)
    with reopened() as store:
        assert store.log(ORDERS).damages == []
        assert store.append(ORDERS, draft(b"x")).offset == 0


def test_a_backup_of_a_log_with_a_gap_names_it_and_keeps_what_it_had(
    folder: Path, root: Path, reopened: Callable[[], Store], draft: MakeDraft, tmp_path: Path
) -> None:
    back_up(root, tmp_path / "backup")
    gone_of(folder, "newest")
    with reopened() as store:
        store.append(ORDERS, draft(b"new"))
    done = back_up(root, tmp_path / "backup")
    assert any("lost or damaged; the backup keeps its copy" in each for each in done.findings)


@pytest.mark.parametrize("which", [slice(0, 1), slice(-1, None), slice(None)], ids=["oldest", "newest", "all"])
def test_the_power_may_fail_while_a_gap_is_marked(small_limits: Limits, draft: MakeDraft, which: slice) -> None:
    clock, path = ManualClock(), Path("/log")

    def opened(disk: FaultDisk) -> Log:
        ids = IdGenerator(clock, node=1)
        return Log.open(disk, path, ids=ids, clock=clock, limits=small_limits, recorded_end=end)

    whole = FaultDisk()
    end: LogEnd | None = None
    with opened(whole) as log:
        for _ in range(20):
            log.append(draft(bytes(900)))
        end, bases = log.end, [segment.base for segment in log.view.segments]
    gone = {
        offset for base, stop in [*zip(bases, [*bases[1:], 20], strict=True)][which] for offset in range(base, stop)
    }
    for base in bases[which]:
        whole.remove(path / segment_name(base))
        whole.remove(index_path(path / segment_name(base)))
    whole.sync_directory(path)
    calls = deepcopy(whole)
    opened(calls)
    for call in range(whole.calls, calls.calls):
        disk = deepcopy(whole)
        disk.fail_at = call
        with pytest.raises(Crash):
            opened(disk)
        for survivor in disk.survivors(random.Random(call), 5):
            log = opened(survivor)
            assert lost(log) == (set(range(20)) - gone, gone)
            assert log.append(draft(b"new")).offset == 20
