"""A data directory as a whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
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
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.log import Durability
from penstock.storage.producers import derive
from penstock.storage.store import Store
from penstock.storage.topics import ProducerCheckpoint, ProducerMark, Retention, TopicSettings
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


def test_the_last_request_of_every_producer_is_derived_from_the_log(root: Path) -> None:
    def sent(producer: int, request: int) -> Draft:
        return Draft.of([Message(payload=b"", producer_id=producer, request_id=request)])

    with Store.open(root, create=True) as store:
        topic = store.create_topic(ORDERS)
        for producer, request in ((1, 1), (2, 1), (0, 9), (1, 2), (1, 3), (2, 2)):
            store.append(ORDERS, sent(producer, request))
        log = store.log(ORDERS)
        found = derive(log)
        assert dict(found.last) == {
            1: ProducerMark(request_id=3, offset=4),
            2: ProducerMark(request_id=2, offset=5),
        }
        store.catalog.save_checkpoint(topic, 0, found)
        store.append(ORDERS, sent(2, 3))
    with Store.open(root) as store:
        checkpoint = store.catalog.load_checkpoint(store.catalog.get_topic(ORDERS), 0)
        again = derive(store.log(ORDERS), checkpoint)
        assert again.next_offset == 7
        assert again == derive(store.log(ORDERS))
        wrong = ProducerCheckpoint(next_offset=checkpoint.next_offset, last={}) if checkpoint else None
        assert derive(store.log(ORDERS), wrong).last[2].request_id == 3
