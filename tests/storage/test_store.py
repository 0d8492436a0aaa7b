"""A data directory as a whole."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from penstock.core.errors import (
    InvalidRequest,
    NotOwner,
    OffsetOutOfRange,
    PayloadTooLarge,
    ServiceUnavailable,
    StorageFailed,
    TopicNotSupported,
    VersionNotSupported,
)
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.positions import AtTime
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import is_owned
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.subscriptions import Cursor, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.topics import Dispatch, RequestRun, Retention, TopicSettings
from penstock.storage.log.append_result import Durability
from penstock.storage.log.group_commit import PendingAppend
from penstock.storage.producer_windows import derive_checkpoint
from penstock.storage.store import Store
from penstock.testing import ManualClock

MakeDraft = Callable[..., Draft]
ORDERS = TopicName.parse("orders.created")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_messages_come_back_after_reopening(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, partitions=3)
        for partition in range(3):
            store.append(ORDERS, draft(b"%d" % partition), partition=partition)
    with Store.open(root) as store:
        for partition in range(3):
            (record,) = store.log(ORDERS, partition).records()
            assert record.message.payload == b"%d" % partition


def test_ids_rise_over_all_logs_and_restarts_with_the_clock_set_back(root: Path, draft: MakeDraft) -> None:
    clock, ids = ManualClock(), []
    topics = [TopicName.parse(name) for name in ("a", "b")]
    with Store.open(root, create=True, clock=clock) as store:
        for topic in topics:
            store.create_topic(topic)
    for turn in range(20):
        with Store.open(root, clock=clock) as store:
            ids.append(store.append(topics[turn % 2], draft(b"x")).id)
        clock.advance_ms(-60_000)
    assert ids == sorted(set(ids))


def test_a_second_process_is_refused_and_told_who_owns_it(root: Path) -> None:
    script = (
        "import sys; from penstock.storage.store import Store; s = Store.open(sys.argv[1], create=True);"
        " print('ready', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        with pytest.raises(NotOwner, match=f"pid {owner.pid}"):
            Store.open(root)
        owner.kill()
    Store.open(root).close()


def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for the result of a maintenance round."""
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_second_owner_is_refused_though_the_lock_file_was_removed(root: Path) -> None:
    with Store.open(root, create=True):
        (root / "lock").unlink()
        with pytest.raises(NotOwner, match="belongs to a running process"):
            Store.open(root)
    Store.open(root).close()


def test_a_lock_file_that_was_removed_is_put_back(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(root, create=True):
        for harm in ((root / "lock").unlink, partial((root / "lock").rename, root / "away")):
            harm()
            wait_until(lambda: is_owned(root / "lock"))  # others see who has it
            wait_until(lambda: (root / "lock").read_text() == f"{os.getpid()}\n")
    assert caplog.text.count("the lock file was removed while its owner runs") == 2


def test_an_owner_that_finds_another_takes_no_more_messages(
    root: Path, draft: MakeDraft, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))
        (root / "lock").unlink()
        with (root / "lock").open("w") as other:  # an earlier release, which does not lock the directory
            fcntl.flock(other, fcntl.LOCK_EX)
            wait_until(lambda: store.log(ORDERS).failure is not None)
        with pytest.raises(StorageFailed, match=r"another process writes to .*stop both, then start one"):
            store.append(ORDERS, draft(b"b"))
        assert [record.message.payload for record in store.log(ORDERS).records()] == [b"a"]
        assert "takes no more messages" in caplog.text


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(InvalidRequest, match="holds other files"):
        Store.open(tmp_path, create=True)
    with pytest.raises(InvalidRequest, match="not a Penstock data directory"):
        Store.open(tmp_path)
    with pytest.raises(InvalidRequest, match="not a directory"):
        Store.open(tmp_path / "thesis.txt", create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_missing_directory_is_not_created_unasked(root: Path) -> None:
    with pytest.raises(InvalidRequest, match="penstock log create"):
        Store.open(root)
    assert not root.exists()


def test_a_newer_format_is_refused(root: Path) -> None:
    Store.open(root, create=True).close()
    (root / "store.json").write_text('{"format": 2, "node": 1}')
    with pytest.raises(VersionNotSupported, match="format 2"):
        Store.open(root)


@pytest.mark.parametrize("content", ["", "{", '{"format": 1}', '{"format": 1, "node": 1, "x": 2}', "\x00" * 40])
def test_a_damaged_identity_is_refused_and_nothing_changed(root: Path, content: str) -> None:
    Store.open(root, create=True).close()
    (root / "store.json").write_text(content)
    with pytest.raises(StorageFailed, match="nothing was changed"):
        Store.open(root)
    assert (root / "store.json").read_text() == content


def test_a_damaged_or_lost_catalog_is_refused_and_the_segments_stay(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))
    segments = {path: path.read_bytes() for path in root.rglob("*.seg")}
    catalog = (root / "catalog.db").read_bytes()
    for damaged in (b"not a database at all" * 100, b"", None):
        if damaged is None:
            (root / "catalog.db").unlink()
        else:
            (root / "catalog.db").write_bytes(damaged)
        with pytest.raises((StorageFailed, InvalidRequest)):
            Store.open(root)
        assert {path: path.read_bytes() for path in root.rglob("*.seg")} == segments
    (root / "catalog.db").write_bytes(catalog)
    with Store.open(root) as store:
        assert store.log(ORDERS).next_offset == 1


def test_everything_is_readable_by_its_owner_alone(root: Path, draft: MakeDraft) -> None:
    old = os.umask(0)
    try:
        with Store.open(root, create=True) as store:
            store.create_topic(ORDERS)
            store.append(ORDERS, draft(b"a"))
    finally:
        os.umask(old)
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_topic_that_is_not_there_and_a_partition_that_is_not_there_are_named(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, partitions=2)
        with pytest.raises(TopicNotSupported, match=r"orders\.created"):
            store.append(TopicName.parse("orders.creatd"), draft(b"a"))
        with pytest.raises(InvalidRequest, match="partitions 0 to 1, not 2"):
            store.append(ORDERS, draft(b"a"), partition=2)
        with pytest.raises(InvalidRequest, match="exists"):
            store.create_topic(ORDERS)


def test_a_deleted_topic_is_gone_and_its_name_is_free(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        first = store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))
        store.delete_topic(ORDERS)
        assert list(root.rglob("*.seg")) == []
        again = store.create_topic(ORDERS)
        assert again.topic_uid != first.topic_uid
        assert store.log(ORDERS).next_offset == 0


def test_a_deletion_that_was_interrupted_is_finished(
    root: Path, draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(root, create=True)
    store.create_topic(ORDERS, partitions=2)
    store.append(ORDERS, draft(b"a"), partition=1)

    def crash(_: TopicName) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store.catalog, "delete_topic", crash)
    with pytest.raises(KeyboardInterrupt):
        store.delete_topic(ORDERS)
    store.close()
    with Store.open(root) as store:
        assert store.catalog.list_topics() == ()
        assert list(root.rglob("*.seg")) == []
        store.create_topic(ORDERS)


def test_settings_of_a_topic_bound_its_messages_and_segments(root: Path, draft: MakeDraft) -> None:
    settings = TopicSettings(payload_bytes_max=100, segment_bytes_max=4096, retention=Retention(count=10))
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, settings=settings)
        with pytest.raises(PayloadTooLarge, match="at most 100 bytes, not 101"):
            store.append(ORDERS, draft(bytes(101)))
        for _ in range(100):
            store.append(ORDERS, draft(bytes(100)))
        log = store.log(ORDERS)
        assert max(segment.size for segment in log.view.segments) <= 4096
        assert store.retain() > 0
        assert log.next_offset - log.first_offset >= 10
        store.truncate_before(ORDERS, 95)
        assert log.first_offset == 95
        with pytest.raises(OffsetOutOfRange):
            store.truncate_before(ORDERS, 101)


def test_settings_that_do_not_go_together_are_refused_before_anything_is_made(root: Path) -> None:
    with Store.open(root, create=True) as store:
        with pytest.raises(InvalidRequest, match="payload_bytes_max"):
            store.create_topic(ORDERS, settings=TopicSettings(payload_bytes_max=32 << 20))
        assert store.catalog.list_topics() == ()


def test_os_durability_says_so(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    Store.open(root, create=True, durability=Durability.OS).close()
    assert "a power cut loses messages" in caplog.text


def test_bad_limits_are_refused_before_the_directory_is_made(root: Path) -> None:
    with pytest.raises(InvalidRequest, match="segment_bytes_max"):
        Store.open(root, create=True, limits=Limits(segment_bytes_max=0))
    assert not root.exists()


def test_a_closed_store_takes_nothing_more(root: Path, draft: MakeDraft) -> None:
    store = Store.open(root, create=True)
    store.create_topic(ORDERS)
    store.close()
    store.close()
    with pytest.raises(ServiceUnavailable):
        store.append(ORDERS, draft(b"a"))


def test_the_last_requests_of_every_producer_are_known_after_a_restart(root: Path) -> None:
    def sent(producer: int, request: int) -> Draft:
        return Draft.of([Message(payload=b"", producer_id=producer, request_id=request)])

    with Store.open(root, create=True) as store:
        topic = store.create_topic(ORDERS)
        for producer, request in ((1, 1), (2, 1), (0, 9), (1, 2), (1, 3), (2, 2)):
            store.append(ORDERS, sent(producer, request))
        found = derive_checkpoint(store.log(ORDERS))
        assert dict(found.runs) == {
            1: (RequestRun(1, 0, 1), RequestRun(2, 3, 2)),
            2: (RequestRun(1, 1, 1), RequestRun(2, 5, 1)),
        }
        store.catalog.save_checkpoint(topic, 0, found)
        store.append(ORDERS, sent(2, 3))
    with Store.open(root) as store:
        checkpoint = store.catalog.load_checkpoint(store.catalog.get_topic(ORDERS), 0)
        assert checkpoint == found
        again = derive_checkpoint(store.log(ORDERS), checkpoint)
        assert again.next_offset == 7
        assert again.runs[2] == (RequestRun(1, 1, 1), RequestRun(2, 5, 2))
        assert again == derive_checkpoint(store.log(ORDERS))


# Live topics


def test_a_live_topic_has_no_log_and_survives_a_restart(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, partitions=2, dispatch=Dispatch.LIVE)
    with Store.open(root) as store:
        assert store.catalog.get_topic(ORDERS).dispatch is Dispatch.LIVE
        with pytest.raises(InvalidRequest, match=r"/default/orders\.created is live: it keeps no messages"):
            store.append(ORDERS, draft(b"a"))
        assert store.retain() == 0
        store.truncate_before(ORDERS, 5)
        altered = store.alter_topic(ORDERS, TopicSettings(rate_max=5))
        assert altered.settings.rate_max == 5
        assert not (root / "topics").exists()
        store.delete_topic(ORDERS)
        assert store.catalog.list_topics() == ()
        store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))


# Altering


def test_altered_settings_bound_the_next_append_and_are_there_after_a_restart(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, partitions=2)
        for partition in (0, 1):
            store.append(ORDERS, draft(bytes(5000)), partition=partition)
        settings = TopicSettings(payload_bytes_max=100, segment_bytes_max=4096)
        assert store.alter_topic(ORDERS, settings) == store.catalog.get_topic(ORDERS)
        for partition in (0, 1):
            with pytest.raises(PayloadTooLarge, match="at most 100 bytes, not 101"):
                store.append(ORDERS, draft(bytes(101)), partition=partition)
    with Store.open(root) as store:
        log = store.log(ORDERS)
        assert (log.limits.payload_bytes_max, log.limits.segment_bytes_max) == (100, 4096)
        store.alter_topic(ORDERS, TopicSettings())
        store.append(ORDERS, draft(bytes(5000)))


def test_segments_made_after_altering_are_as_large_as_is_allowed_by_then(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))
        store.alter_topic(ORDERS, TopicSettings(segment_bytes_max=4096))
        log = store.log(ORDERS)
        store.writer.run(log.roll)
        for _ in range(100):
            store.append(ORDERS, draft(bytes(100)))
        assert len(log.view.segments) > 3
        assert max(segment.size for segment in log.view.segments) <= 4096


def test_settings_that_cannot_be_leave_a_topic_as_it_was(root: Path) -> None:
    with Store.open(root, create=True) as store:
        topic = store.create_topic(ORDERS)
        with pytest.raises(InvalidRequest, match="payload_bytes_max"):
            store.alter_topic(ORDERS, TopicSettings(payload_bytes_max=32 << 20))
        with pytest.raises(TopicNotSupported):
            store.alter_topic(TopicName.parse("nowhere"), TopicSettings())
        assert store.catalog.list_topics() == (topic,)


def test_a_topic_that_its_namespace_makes_impossible_is_refused_before_anything_is_made(root: Path) -> None:
    with Store.open(root, create=True) as store:
        store.catalog.set_namespace_settings("default", TopicSettings(payload_bytes_max=32 << 20))
        with pytest.raises(InvalidRequest, match="payload_bytes_max"):
            store.create_topic(ORDERS)
        assert store.catalog.list_topics() == ()
        store.catalog.set_namespace_settings("default", TopicSettings(payload_bytes_max=50))
        assert store.create_topic(ORDERS).settings.payload_bytes_max == 50
        assert store.log(ORDERS).limits.payload_bytes_max == 50


def test_the_last_of_many_alterations_is_what_the_logs_go_by(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 60_000)  # on a slow disk, each waits long for all the others
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)

        def alter(number: int) -> None:
            for turn in range(10):
                store.alter_topic(ORDERS, TopicSettings(payload_bytes_max=1 + 10 * number + turn))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(alter, range(4)))
        assert store.log(ORDERS).limits.payload_bytes_max == store.catalog.get_topic(ORDERS).settings.payload_bytes_max


# Retention

TINY = TopicSettings(segment_bytes_max=4096, retention=Retention(count=10))


def fill(store: Store, name: TopicName, draft: MakeDraft, count: int = 100) -> None:
    for ticket in [store.writer.submit(store.log(name), draft(bytes(200))) for _ in range(count)]:
        ticket.result(60)


def test_retention_goes_on_with_the_others_where_one_log_fails(
    root: Path, draft: MakeDraft, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [TopicName.parse(name) for name in ("a", "b", "c")]
    with Store.open(root, create=True) as store:
        for name in names:
            store.create_topic(name, settings=TINY)
            fill(store, name, draft)
        bad = store.log(names[1])

        def broken(_: object) -> object:
            raise OSError(5, "broken")

        monkeypatch.setattr(bad, "_segment_ages", broken)
        assert store.retain() > 0
        assert [store.log(name).first_offset > 0 for name in names] == [True, False, True]
        assert "/default/b, partition 0: retention failed" in caplog.text


def test_retention_goes_by_the_settings_of_now(root: Path, draft: MakeDraft) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, settings=TINY)
        fill(store, ORDERS, draft)
        store.alter_topic(ORDERS, TopicSettings(segment_bytes_max=4096))
        assert store.retain() == 0
        store.alter_topic(ORDERS, TINY)
        assert store.retain() > 0


def test_retention_waits_for_the_subscriptions_it_is_told_of(root: Path, draft: MakeDraft) -> None:
    settings = TopicSettings(segment_bytes_max=4096, retention=Retention(count=1, keep_for=("archive", "audit")))
    exclusive = SubscriptionOptions(kind=SubscriptionKind.EXCLUSIVE)
    with Store.open(root, create=True) as store:
        topic = store.create_topic(ORDERS, partitions=2, settings=settings)
        for partition in range(2):
            for _ in range(100):
                store.append(ORDERS, draft(bytes(100)), partition=partition)
        logs = [store.log(ORDERS, partition) for partition in range(2)]

        def firsts() -> list[int]:
            store.retain()
            return [int(log.first_offset) for log in logs]

        starts = {0: Offset(0), 1: Offset(0)}
        assert firsts() == [0, 0]
        archive = store.catalog.create_subscription(topic, "archive", exclusive, starts).subscription_uid
        assert firsts() == [0, 0], "the other is yet to come"
        audit = store.catalog.create_subscription(topic, "audit", exclusive, {0: Offset(90), 1: Offset(90)})
        store.catalog.save_cursors({(archive, 0): Cursor(floor=Offset(60), acked=(OffsetRange.of(70, 100),))})
        found = firsts()
        assert 0 < found[0] <= 60
        assert logs[0].view.segments[0].stop > 60, "no segment is kept for nothing"
        assert found[1] == 0
        store.catalog.save_cursors({(archive, partition): Cursor(floor=Offset(100)) for partition in range(2)})
        assert all(60 < first <= 90 for first in firsts())
        store.catalog.delete_subscription(audit.subscription_uid)
        before = firsts()
        for partition in range(2):
            for _ in range(100):
                store.append(ORDERS, draft(bytes(100)), partition=partition)
        assert firsts() == before, "one that is gone is yet to come again"
        store.alter_topic(ORDERS, TopicSettings(segment_bytes_max=4096, retention=Retention(count=1)))
        assert min(firsts()) > 100
    with Store.open(root) as store:
        assert store.catalog.get_topic(ORDERS).settings.retention == Retention(count=1)


def test_a_closed_store_retains_nothing(root: Path) -> None:
    store = Store.open(root, create=True)
    store.create_topic(ORDERS, settings=TINY)
    store.close()
    with pytest.raises(ServiceUnavailable):
        store.retain()


def test_who_reads_while_segments_go_gets_good_records_or_is_told_that_they_are_gone(
    root: Path, draft: MakeDraft
) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS, settings=TINY)
        fill(store, ORDERS, draft, 20)
        log, done = store.log(ORDERS), threading.Event()

        def read() -> int:
            told = 0
            while not done.is_set():
                offset = int(log.first_offset)
                try:
                    chunk = log.read(offset, bytes_max=500)
                    assert chunk.damages == ()
                    assert [record.offset for record in chunk][:1] in ([], [offset])
                    log.offset_of(AtTime(2**40))
                    assert log.offset_of(AtTime(0)) >= offset
                except OffsetOutOfRange:
                    told += 1
            return told

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            try:
                for _ in range(15):
                    fill(store, ORDERS, draft, 40)
                    store.retain()
            finally:
                done.set()
            for reader in readers:
                reader.result(60)
        assert log.damages == []
        assert log.first_offset > 400


# Many at once


def test_topics_made_while_others_are_written_to_do_not_turn_ids_back(root: Path, draft: MakeDraft) -> None:
    clock = ManualClock()  # stands still: every id comes from the one before it
    with Store.open(root, create=True, clock=clock) as store:
        store.create_topic(ORDERS)
        done = threading.Event()

        def write() -> list[bytes]:
            ids = []
            while not done.is_set():
                ids.append(store.append(ORDERS, draft(b"a")).id)
            return ids

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            for number in range(30):
                store.create_topic(TopicName.parse(f"t{number}"))
            done.set()
            ids = writer.result(60)
        assert ids == sorted(set(ids))


def test_ids_rise_in_every_log_and_are_given_once_when_many_logs_are_written_at_once(
    root: Path, draft: MakeDraft
) -> None:
    with Store.open(root, create=True, clock=ManualClock()) as store:
        store.create_topic(ORDERS, partitions=8)
        tickets = [
            store.writer.submit(store.log(ORDERS, number % 8), draft(b"%d" % number, b"more")) for number in range(2000)
        ]
        for ticket in tickets:
            ticket.result(60)
        found = [[record.id for record in store.log(ORDERS, partition).records()] for partition in range(8)]
        payloads = [record.message.payload for record in store.log(ORDERS, 3).records()][::2]
    assert all(ids == sorted(ids) for ids in found)
    assert len({id_ for ids in found for id_ in ids}) == 4000
    assert payloads == [b"%d" % number for number in range(3, 2000, 8)]


def test_a_deletion_can_be_tried_again(root: Path, draft: MakeDraft, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(root, create=True) as store:
        store.create_topic(ORDERS)
        store.append(ORDERS, draft(b"a"))
        with monkeypatch.context() as busy:
            busy.setattr(store.catalog, "delete_topic", refuse)
            with pytest.raises(ServiceUnavailable):
                store.delete_topic(ORDERS)
        store.delete_topic(ORDERS)
        assert store.catalog.list_topics() == ()
        assert list(root.rglob("*.seg")) == []


def refuse(_: TopicName) -> None:
    raise ServiceUnavailable("busy")


def test_outcomes_go_where_the_opener_wants_them_and_errands_still_run(root: Path, draft: MakeDraft) -> None:
    delivered: list[PendingAppend] = []

    def deliver(tickets: Sequence[PendingAppend]) -> None:
        assert threading.current_thread().name == "penstock-writer"
        delivered.extend(tickets)

    with Store.open(root, create=True, deliver=deliver) as store:
        store.create_topic(ORDERS, settings=TINY)
        tickets = [store.writer.submit(store.log(ORDERS), draft(b"%d" % number)) for number in range(5)]
        assert store.writer.run(lambda: "done") == "done"
        assert delivered == tickets
        assert [ticket.result(0).offset for ticket in tickets] == list(range(5))
        assert store.retain() == 0
        assert store.alter_topic(ORDERS, TopicSettings()).settings == TopicSettings()
