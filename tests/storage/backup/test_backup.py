"""A backup is the log up to a watermark, whatever its owner does meanwhile and whatever interrupts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.schema.registry_kit import Trial
from tests.storage.backup.kit import LIMITS, ORDERS, fill, flip, messages, records, restored

from penstock.core.clock import SystemClock
from penstock.core.dead_letter_attributes import redrive_producer_name
from penstock.core.errors import DiskFull, InvalidRequest, NotOwner, PenstockError, StorageFailed, VersionNotSupported
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.backup.backup import Backup, back_up
from penstock.storage.backup.manifest import MANIFEST, read_manifest, write_manifest
from penstock.storage.backup.restore import check_backup, restore
from penstock.storage.base.disk import OsDisk, OsFile, directory_locked
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.subscriptions import Cursor, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.topics import ProducerCheckpoint, RequestRun
from penstock.storage.log.index import HEADER_BYTES
from penstock.storage.store import Store

OPTIONS = SubscriptionOptions(kind=SubscriptionKind.SHARED)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as opened:
        opened.create_topic(ORDERS, partitions=2)
        yield opened


# what a backup is


def test_a_restored_log_has_the_same_ids_offsets_and_bytes(store: Store, tmp_path: Path) -> None:
    fill(store)
    fill(store, 1, partition=1)
    done = back_up(store.root, tmp_path / "backup")
    assert (done.manifest.messages, done.findings, done.kept_bytes) == (260, (), 0)
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == records(store.root)


def test_a_restored_log_goes_on_behind_its_watermark(store: Store, tmp_path: Path) -> None:
    fill(store)
    back_up(store.root, tmp_path / "backup")
    last = store.log(ORDERS).last_id
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        appended = again.append(ORDERS, messages(1))
    assert int(appended.offset) == 240
    assert appended.id > last


def test_a_restored_log_needs_no_recovery(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(store)
    back_up(store.root, tmp_path / "backup")
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert again.log(ORDERS).damages == []
    assert caplog.messages == []


def test_what_was_truncated_before_the_backup_stays_away(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.truncate_before(ORDERS, 130)
    back_up(store.root, tmp_path / "backup")
    new = restored(tmp_path / "backup", tmp_path / "new")
    with Store.open(new, limits=LIMITS) as again:
        assert (again.log(ORDERS).first_offset, again.log(ORDERS).next_offset) == (130, 240)
    assert records(new) == records(store.root)


def test_a_log_of_which_nothing_is_left_goes_on_where_it_was(store: Store, tmp_path: Path) -> None:
    fill(store, 3)
    store.truncate_before(ORDERS, 60)
    back_up(store.root, tmp_path / "backup")
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert (again.log(ORDERS).first_offset, again.log(ORDERS).next_offset) == (60, 60)


def test_subscriptions_producers_and_settings_are_in_the_backup(store: Store, tmp_path: Path) -> None:
    fill(store, 3)
    topic = store.catalog.get_topic(ORDERS)
    sub = store.catalog.create_subscription(topic, "billing", OPTIONS, {0: Offset(5), 1: Offset(0)})
    cursor = Cursor(floor=Offset(7), acked=(OffsetRange.of(9, 12),), failures={8: 2})
    store.catalog.save_cursors({(sub.subscription_uid, 0): cursor})
    number = store.catalog.producer_id(topic, "till-1")
    checkpoint = ProducerCheckpoint(next_offset=Offset(60), runs={number: (RequestRun(1, 0, 60),)})
    store.catalog.save_checkpoint(topic, 0, checkpoint)
    back_up(store.root, tmp_path / "backup")
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert again.catalog.list_subscriptions() == (sub,)
        assert again.catalog.load_cursors(sub.subscription_uid)[0] == cursor
        assert again.catalog.producer_id(again.catalog.get_topic(ORDERS), "till-1") == number
        assert again.catalog.load_checkpoint(topic, 0) == checkpoint


def test_producers_that_number_messages_by_offsets_begin_anew_in_a_restored_directory(
    store: Store, tmp_path: Path
) -> None:
    """The same offset may be given to another message then, which must not be taken for one that is stored."""
    topic, letters = store.catalog.get_topic(ORDERS), store.create_topic(ORDERS.dead_letters)
    producers = (
        (letters, "dead-letters billing 7 0"),
        (topic, redrive_producer_name(letters.name, 0, 1, letters.created_ms)),
        (topic, "till-1"),
    )
    before = [store.catalog.claim_producer(*each, "session", resumes=False) for each in producers]
    back_up(store.root, tmp_path / "backup")
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert [each.name for each in again.catalog.producers(topic)] == ["till-1"]
        after = [again.catalog.claim_producer(*each, "session", resumes=False) for each in producers]
    assert set(after[:2]).isdisjoint(before)
    assert after[2] == before[2]


def test_a_restored_broker_gives_other_ids_than_the_original_which_may_still_run(store: Store, tmp_path: Path) -> None:
    back_up(store.root, tmp_path / "backup")
    new = restored(tmp_path / "backup", tmp_path / "new")
    assert (new / "store.json").read_bytes() != (store.root / "store.json").read_bytes()


def test_a_directory_that_nobody_owns_can_be_backed_up(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        fill(store)
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    back_up(tmp_path / "data", tmp_path / "backup")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == records(tmp_path / "data")


def test_after_a_power_cut_what_the_index_does_not_list_yet_is_in_the_backup(tmp_path: Path) -> None:
    """Records are synced before they are acknowledged; their entries in the index are not."""
    with Store.open(tmp_path / "data", create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        store.append(ORDERS, messages(20))
        (index,) = store.root.rglob("*.idx")
        unclosed = index.read_bytes()
    index.write_bytes(unclosed[: HEADER_BYTES + 5 * 8] + bytes(len(unclosed) - HEADER_BYTES - 5 * 8))
    back_up(tmp_path / "data", tmp_path / "backup")
    assert len(records(restored(tmp_path / "backup", tmp_path / "new"))["/default/orders[0]"]) == 20


# again into the same place


def test_a_second_backup_copies_only_what_is_new(store: Store, tmp_path: Path) -> None:
    fill(store)
    first = back_up(store.root, tmp_path / "backup")
    idle = back_up(store.root, tmp_path / "backup")
    assert idle.copied_bytes == idle.manifest.catalog.size
    assert idle.kept_bytes == first.copied_bytes - first.manifest.catalog.size
    fill(store, 6)
    third = back_up(store.root, tmp_path / "backup")
    sealed = [each for each in first.manifest.logs[0].segments if each.sealed]
    assert len(sealed) > 1
    assert third.manifest.logs[0].segments[: len(sealed)] == tuple(sealed)
    assert third.kept_bytes == sum(each.data.size + each.index.size for each in sealed)
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == records(store.root)


def test_what_a_backup_does_not_need_any_more_is_removed_from_it(store: Store, tmp_path: Path) -> None:
    fill(store)
    back_up(store.root, tmp_path / "backup")
    store.truncate_before(ORDERS, 200)
    done = back_up(store.root, tmp_path / "backup")
    there = {str(path.relative_to(tmp_path / "backup")) for path in (tmp_path / "backup").rglob("*") if path.is_file()}
    assert there == {file.name for file in done.manifest.files()} | {MANIFEST}


def test_a_segment_that_went_missing_from_the_backup_is_copied_again(store: Store, tmp_path: Path) -> None:
    fill(store)
    back_up(store.root, tmp_path / "backup")
    next((tmp_path / "backup").rglob("*.seg")).unlink()
    back_up(store.root, tmp_path / "backup")
    assert check_backup(tmp_path / "backup").problems == ()


# while others work


class Interfering(OsDisk):
    """Does something the first time that a name is looked at; `missed`: right after it was found not to be there."""

    def __init__(self, what: Callable[[], object], *, names: str = "", opened: str = "", missed: str = "") -> None:
        self._what: Callable[[], object] | None = what
        self._names = names
        self._opened = opened
        self._missed = missed

    def exists(self, path: Path) -> bool:
        found = super().exists(path)
        if not found and self._missed and path.name == self._missed:
            self._interfere()
        return found

    def _interfere(self) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()

    def names(self, path: Path) -> list[str]:
        if self._names and path.name == self._names:
            self._interfere()
        return super().names(path)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OsFile:
        if self._opened and path.name == self._opened:
            self._interfere()
        return super().open(path, write=write, create=create)


def test_what_is_published_after_the_watermark_was_taken_is_not_in_the_backup(store: Store, tmp_path: Path) -> None:
    fill(store, 4)
    before = records(store.root)
    disk = Interfering(lambda: fill(store, 10), opened=f"{0:020d}.part")
    back_up(store.root, tmp_path / "backup", disk=disk)
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == before


def test_segments_that_retention_takes_meanwhile_are_left_out_and_the_log_begins_behind_them(
    store: Store, tmp_path: Path
) -> None:
    fill(store)
    second = sorted((store.root / "topics/default/orders-part-0").glob("*.seg"))[1].name
    disk = Interfering(lambda: store.truncate_before(ORDERS, 130), opened=second.replace(".seg", ".part"))
    done = back_up(store.root, tmp_path / "backup", disk=disk)
    assert (done.manifest.logs[0].first_offset, done.findings) == (130, ())
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == records(store.root)


def test_a_topic_that_is_deleted_meanwhile_is_left_out(store: Store, tmp_path: Path) -> None:
    gone = TopicName.parse("gone")
    store.create_topic(gone)
    fill(store)
    fill(store, topic=gone)
    disk = Interfering(lambda: store.delete_topic(gone), opened=f"{0:020d}.part")
    back_up(store.root, tmp_path / "backup", disk=disk)
    assert set(records(restored(tmp_path / "backup", tmp_path / "new"))) == {"/default/orders[0]", "/default/orders[1]"}


def test_a_topic_that_is_made_anew_meanwhile_does_not_lend_its_files_to_the_old_one(
    store: Store, tmp_path: Path
) -> None:
    gone = TopicName.parse("gone")
    store.create_topic(gone)
    fill(store, topic=gone)

    def again() -> None:
        store.delete_topic(gone)
        store.create_topic(gone)
        fill(store, 12, topic=gone)

    back_up(store.root, tmp_path / "backup", disk=Interfering(again, opened=f"{0:020d}.part"))
    new = restored(tmp_path / "backup", tmp_path / "new")
    with Store.open(new, limits=LIMITS) as opened:
        assert [str(topic.name) for topic in opened.catalog.list_topics()] == ["/default/orders"]


def test_a_topic_whose_log_is_still_being_made_is_no_damage(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.catalog.create_topic(TopicName.parse("late"))  # the first half of making it
    folder = store.root / "topics/default/late"
    done = back_up(store.root, tmp_path / "backup", disk=Interfering(folder.mkdir, missed="late"))
    assert done.findings == ()
    assert "/default/late" in {log.topic for log in done.manifest.logs}
    assert records(restored(tmp_path / "backup", tmp_path / "new"))["/default/late[0]"] == []


def test_a_topic_that_is_deleted_before_its_log_was_there_is_no_damage(store: Store, tmp_path: Path) -> None:
    fill(store)
    late = TopicName.parse("late")
    store.catalog.create_topic(late)
    disk = Interfering(lambda: store.catalog.delete_topic(late), missed="late")
    done = back_up(store.root, tmp_path / "backup", disk=disk)
    assert done.findings == ()
    assert {log.topic for log in done.manifest.logs} == {"/default/orders"}


def test_what_is_found_of_a_topic_that_is_deleted_meanwhile_is_no_damage(store: Store, tmp_path: Path) -> None:
    gone = TopicName.parse("gone")
    store.create_topic(gone)
    fill(store, topic=gone)
    path = min((store.root / "topics/default/gone").glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    assert back_up(store.root, tmp_path / "other").findings != ()
    second = sorted((store.root / "topics/default/gone").glob("*.seg"))[1].name.replace(".seg", ".part")
    disk = Interfering(lambda: store.delete_topic(gone), opened=second)
    assert back_up(store.root, tmp_path / "backup", disk=disk).findings == ()


def test_a_topic_that_is_made_anew_while_it_is_backed_up_again_does_not_end_the_backup(
    store: Store, tmp_path: Path
) -> None:
    gone = TopicName.parse("gone")
    store.create_topic(gone)
    fill(store, 8, topic=gone)
    back_up(store.root, tmp_path / "backup")
    fill(store, 8, topic=gone)

    def again() -> None:
        store.delete_topic(gone)
        store.create_topic(gone)
        fill(store, 40, topic=gone)

    done = back_up(store.root, tmp_path / "backup", disk=Interfering(again, opened=f"{0:020d}.part"))
    assert done.findings == ()


def test_a_cursor_is_as_of_before_the_watermarks_so_that_nothing_is_skipped(store: Store, tmp_path: Path) -> None:
    """An ack given while logs are examined may be due to messages behind a watermark."""
    fill(store, 3)
    topic = store.catalog.get_topic(ORDERS)
    sub = store.catalog.create_subscription(topic, "billing", OPTIONS, {0: Offset(5), 1: Offset(0)})

    def acknowledge() -> None:
        store.catalog.save_cursors({(sub.subscription_uid, 0): Cursor(floor=Offset(50))})

    back_up(store.root, tmp_path / "backup", disk=Interfering(acknowledge, names="orders-part-0"))
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert again.catalog.load_cursors(sub.subscription_uid)[0].floor == 5


def test_schemas_are_as_of_after_the_watermarks_so_that_every_message_has_its_own(store: Store, tmp_path: Path) -> None:
    known = {}

    def register() -> None:
        known["schema"] = Trial(store.catalog).register("orders-value", "a b").schema_id
        known["producer"] = store.catalog.producer_id(store.catalog.get_topic(ORDERS), "till-1")

    back_up(store.root, tmp_path / "backup", disk=Interfering(register, names="orders-part-1"))
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert Trial(again.catalog).registry.schema(known["schema"]).schema.text == "a b"
        assert again.catalog.producer_id(again.catalog.get_topic(ORDERS), "till-1") == known["producer"]


def test_topics_and_subscriptions_younger_than_the_backup_are_left_to_the_next_one(
    store: Store, tmp_path: Path
) -> None:
    topic = store.catalog.get_topic(ORDERS)
    young = TopicName.parse("young")

    def make() -> None:
        store.create_topic(young)
        fill(store, 1, topic=young)
        store.catalog.create_subscription(topic, "young", OPTIONS, {0: Offset(0), 1: Offset(0)})

    back_up(store.root, tmp_path / "backup", disk=Interfering(make, names="orders-part-0"))
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert [str(each.name) for each in again.catalog.list_topics()] == ["/default/orders"]
        assert again.catalog.list_subscriptions() == ()
    back_up(store.root, tmp_path / "backup")
    assert len(records(restored(tmp_path / "backup", tmp_path / "next"))) == 3


# interrupted


class Failing(OsDisk):
    """Goes away after so many calls that change something."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "the disk has gone")

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OsFile:
        if write:
            self._count()
        return super().open(path, write=write, create=create)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


@pytest.mark.slow
def test_a_backup_that_is_interrupted_anywhere_is_the_one_before(store: Store, tmp_path: Path) -> None:
    fill(store, 6)
    before = back_up(store.root, tmp_path / "backup").manifest
    fill(store, 6)
    calls = 0
    while _fails(store.root, tmp_path / "backup", calls):
        found = check_backup(tmp_path / "backup")
        assert found.problems == ()
        assert found.manifest.messages in (before.messages, before.messages + 120)
        calls += 1
    assert calls > 10
    assert check_backup(tmp_path / "backup").manifest.messages == before.messages + 120


@pytest.mark.slow
def test_a_first_backup_that_is_interrupted_anywhere_is_none(store: Store, tmp_path: Path) -> None:
    fill(store, 3)
    calls = 0
    while _fails(store.root, tmp_path / f"backup{calls}", calls):
        target = tmp_path / f"backup{calls}"
        if not (target / MANIFEST).exists():
            with pytest.raises(InvalidRequest, match=r"no whole backup|not a directory"):
                restore(target, tmp_path / f"new{calls}")
        back_up(store.root, target)
        assert check_backup(target).problems == ()
        calls += 3
    assert calls > 10


def _fails(root: Path, target: Path, calls: int) -> bool:
    try:
        back_up(root, target, disk=Failing(calls))
    except StorageFailed:
        return True
    return False


def test_a_restore_that_fails_anywhere_leaves_nothing(store: Store, tmp_path: Path) -> None:
    fill(store, 3)
    back_up(store.root, tmp_path / "backup")
    calls = 0
    while True:
        target = tmp_path / f"new{calls}"
        try:
            restore(tmp_path / "backup", target, disk=_Undone(calls))
        except StorageFailed:
            assert not target.exists() or list(target.iterdir()) == []
            calls += 1
        else:
            break
    assert calls > 10
    assert records(target) == records(store.root)


class _Undone(Failing):
    """A failing disk on which files written before the failure can still be removed."""

    def remove(self, path: Path) -> None:
        OsDisk.remove(self, path)


# damage


def test_a_flipped_byte_in_any_file_of_a_backup_is_found_and_named(store: Store, tmp_path: Path) -> None:
    fill(store, 6)
    manifest = back_up(store.root, tmp_path / "backup").manifest
    for file in manifest.files():
        path = tmp_path / "backup" / file.name
        kept = path.read_bytes()
        flip(path, file.size // 2)
        assert file.name in {problem.file for problem in check_backup(tmp_path / "backup").problems}
        with pytest.raises(StorageFailed, match=file.name):
            restore(tmp_path / "backup", tmp_path / "new")
        assert list((tmp_path / "new").iterdir()) == []
        path.write_bytes(kept)
    assert check_backup(tmp_path / "backup").problems == ()


def test_a_flipped_byte_in_a_record_is_named_with_its_offset(store: Store, tmp_path: Path) -> None:
    fill(store, 1)
    (segment,) = back_up(store.root, tmp_path / "backup").manifest.logs[0].segments
    flip(tmp_path / "backup" / segment.data.name, segment.data.size // 2)
    found = check_backup(tmp_path / "backup").problems
    assert [problem.where for problem in found] == ["/default/orders[0]"] * 2
    assert "offset 9 " in found[1].what or "offset 10 " in found[1].what


@pytest.mark.parametrize("position", [0, 40, -3, -12])
def test_a_flipped_byte_in_the_manifest_is_found(store: Store, tmp_path: Path, position: int) -> None:
    back_up(store.root, tmp_path / "backup")
    flip(tmp_path / "backup" / MANIFEST, position)
    with pytest.raises((StorageFailed, VersionNotSupported), match="damaged"):
        check_backup(tmp_path / "backup")
    back_up(store.root, tmp_path / "backup")
    assert check_backup(tmp_path / "backup").problems == ()


def test_damage_in_the_original_is_copied_as_it_is_and_named(store: Store, tmp_path: Path) -> None:
    fill(store)
    first = min((store.root / "topics/default/orders-part-0").glob("*.seg"))
    flip(first, 700)
    done = back_up(store.root, tmp_path / "backup")
    assert done.manifest.damaged == 1
    assert len(done.findings) == 1
    assert str(first) in done.findings[0]
    assert check_backup(tmp_path / "backup").problems == ()
    assert records(restored(tmp_path / "backup", tmp_path / "new")) == records(store.root)
    assert back_up(store.root, tmp_path / "backup").manifest.damaged == 1


def test_a_segment_that_is_lost_in_the_original_is_named(store: Store, tmp_path: Path) -> None:
    fill(store)
    sorted((store.root / "topics/default/orders-part-0").glob("*.seg"))[1].unlink()
    (finding,) = back_up(store.root, tmp_path / "backup").findings
    assert "are missing" in finding


def test_an_index_that_is_lost_in_the_original_is_whole_in_the_restored_log(store: Store, tmp_path: Path) -> None:
    fill(store)
    sorted((store.root / "topics/default/orders-part-0").glob("*.idx"))[1].unlink()
    back_up(store.root, tmp_path / "backup")
    with Store.open(restored(tmp_path / "backup", tmp_path / "new"), limits=LIMITS) as again:
        assert again.log(ORDERS).damages == []
    assert len(records(tmp_path / "new")["/default/orders[0]"]) == 240


# refused


def test_directories_that_cannot_be_are_refused_and_nothing_is_changed(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    for root, target, words in (
        (store.root, store.root / "backup", "within each other"),
        (store.root, store.root, "within each other"),
        (store.root, other, "holds other files"),
        (store.root, other / "letter.txt", "not a directory"),
        (other, tmp_path / "backup", "not a Penstock data directory"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            back_up(root, target)
    assert not (tmp_path / "backup").exists()
    assert [path.name for path in other.iterdir()] == ["letter.txt"]


def test_a_restore_goes_into_an_empty_place_only(store: Store, tmp_path: Path) -> None:
    back_up(store.root, tmp_path / "backup")
    with pytest.raises(InvalidRequest, match="not empty"):
        restore(tmp_path / "backup", store.root)
    with pytest.raises(InvalidRequest, match="within the backup"):
        restore(tmp_path / "backup", tmp_path / "backup" / "new")
    with pytest.raises(InvalidRequest, match="no whole backup"):
        restore(store.root, tmp_path / "new")
    with pytest.raises(InvalidRequest, match="not a directory"):
        restore(tmp_path / "nowhere", tmp_path / "new")


def test_two_backups_into_one_place_do_not_meet(store: Store, tmp_path: Path) -> None:
    back_up(store.root, tmp_path / "backup")
    with directory_locked(tmp_path / "backup", alone=True):
        for call in (
            lambda: back_up(store.root, tmp_path / "backup"),
            lambda: check_backup(tmp_path / "backup"),
            lambda: restore(tmp_path / "backup", tmp_path / "new"),
        ):
            with pytest.raises(NotOwner, match="under way"):
                call()


def test_a_disk_without_room_is_refused_before_anything_is_copied(store: Store, tmp_path: Path) -> None:
    class Small(OsDisk):
        def free_bytes(self, path: Path) -> int:
            return 1000

    fill(store, 3)
    with pytest.raises(DiskFull, match="1000 are free"):
        back_up(store.root, tmp_path / "backup", disk=Small())
    assert list((tmp_path / "backup").rglob("*.seg")) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "../../etc/passwd"), ("name", "segments/1-0/../../x.seg"), ("name", "/etc/passwd"), ("hash", "..")],
)
def test_a_manifest_that_names_files_elsewhere_is_refused(store: Store, tmp_path: Path, field: str, value: str) -> None:
    from msgspec.structs import replace

    done: Backup = back_up(store.root, tmp_path / "backup")
    changed: Any = replace(done.manifest, catalog=replace(done.manifest.catalog, **{field: value}))
    write_manifest(OsDisk(), tmp_path / "backup", changed)
    with pytest.raises(StorageFailed, match="not the name of a file"):
        restore(tmp_path / "backup", tmp_path / "new")


def test_a_backup_of_a_newer_release_is_neither_read_nor_overwritten(store: Store, tmp_path: Path) -> None:
    from msgspec.structs import replace

    done = back_up(store.root, tmp_path / "backup")
    write_manifest(OsDisk(), tmp_path / "backup", replace(done.manifest, format=2))
    for call in (
        lambda: read_manifest(OsDisk(), tmp_path / "backup"),
        lambda: back_up(store.root, tmp_path / "backup"),
    ):
        with pytest.raises(VersionNotSupported, match="format 2"):
            call()


def test_the_copy_of_a_catalog_is_one_file_and_examined(store: Store, tmp_path: Path) -> None:
    done = back_up(store.root, tmp_path / "backup")
    beside = sorted(path.name for path in (tmp_path / "backup").glob("catalog*"))
    assert beside == [done.manifest.catalog.name]
    with Catalog.open(tmp_path / "backup" / done.manifest.catalog.name, clock=SystemClock(), create=False) as catalog:
        assert len(catalog.list_topics()) == 1


def test_every_error_is_ours(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PenstockError):
        back_up(tmp_path / "nowhere", tmp_path / "backup")
