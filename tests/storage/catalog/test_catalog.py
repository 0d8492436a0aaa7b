"""The catalog: its promises to one caller, to many at once, and after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidRequest, StorageFailed, TopicNotSupported
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.subscriptions import Cursor, StoredSubscription, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.tables import TOPICS, row_checksum
from penstock.storage.catalog.topics import Dispatch, ProducerCheckpoint, RequestRun, Retention, Topic, TopicSettings

ORDERS = TopicName.parse("/shop/orders.created")
START_MS = 1_700_000_000_000
T = TypeVar("T")


class Hand:
    """A clock that stands still unless a test moves it."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ns(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many write at once here, on a disk that may be slow: who is told to try again is tested elsewhere."""
    monkeypatch.setattr(sqlite, "BUSY_MS", 60_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def catalog(path: Path, clock: Hand) -> Iterator[Catalog]:
    with Catalog.open(path, clock=clock) as catalog:
        yield catalog


def checkpoint(next_offset: int, **requests: int) -> ProducerCheckpoint:
    """`p7=3`: the last request of producer 7 is 3."""
    runs = {int(key[1:]): (RequestRun(request, 0, 1),) for key, request in requests.items()}
    return ProducerCheckpoint(next_offset=Offset(next_offset), runs=runs)


def all_at_once(work: Callable[[int], T], workers: int = 8) -> list[T]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, range(workers)))


# Topics


def test_a_topic_is_what_it_was_created_as_also_after_opening_again(path: Path, clock: Hand) -> None:
    wanted = TopicSettings(retention=Retention(age_ms=1000), segment_bytes_max=1 << 20)
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS, partitions=3, dispatch=Dispatch.LIVE, settings=wanted)
    assert (topic.name, topic.partitions, topic.dispatch, topic.settings) == (ORDERS, 3, Dispatch.LIVE, wanted)
    assert topic.created_ms == START_MS
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.get_topic(ORDERS) == topic
        assert catalog.list_topics() == (topic,)


def test_a_topic_that_exists_is_not_created_again(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    with pytest.raises(InvalidRequest, match=r"topic /shop/orders\.created exists already"):
        catalog.create_topic(TopicName.parse("/Shop/Orders.Created"), partitions=2)
    assert catalog.get_topic(ORDERS) == topic


def test_system_topics_are_the_brokers_own(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="the broker's own"):
        catalog.create_topic(TopicName.parse("system.topic"))
    catalog.create_topic(TopicName.parse("systems.topic"))


def test_a_refused_topic_leaves_nothing_behind(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="partitions"):
        catalog.create_topic(ORDERS, partitions=0)
    assert catalog.list_topics() == ()
    assert catalog.namespaces() == ()


def test_topics_are_listed_by_name_and_by_namespace(catalog: Catalog) -> None:
    for text in ("/b/x", "/a/z", "/a/y", "/A-dlq/y"):
        catalog.create_topic(TopicName.parse(text))
    assert [str(topic.name) for topic in catalog.list_topics()] == ["/a/y", "/a/z", "/a-dlq/y", "/b/x"]
    assert [str(topic.name) for topic in catalog.list_topics("a")] == ["/a/y", "/a/z"]
    assert catalog.list_topics("nobody") == ()
    assert catalog.namespaces() == ("a", "a-dlq", "b")


def test_a_misspelt_name_is_answered_with_the_closest_there_is(catalog: Catalog) -> None:
    catalog.create_topic(ORDERS)
    catalog.create_topic(TopicName.parse("/shop/payments"))
    with pytest.raises(TopicNotSupported, match=r"no topic /shop/order.created; did you mean /shop/orders.created\?"):
        catalog.get_topic(TopicName.parse("/shop/order.created"))
    with pytest.raises(TopicNotSupported, match=r"did you mean /shop/orders.created\?"):
        catalog.get_topic(TopicName.parse("/shops/orders.created"))
    with pytest.raises(TopicNotSupported) as refused:
        catalog.get_topic(TopicName.parse("/x/zzz"))
    assert refused.value.message == "there is no topic /x/zzz"


def test_altering_replaces_the_settings_and_nothing_else(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS, partitions=2, settings=TopicSettings(payload_bytes_max=10))
    wanted = TopicSettings(retention=Retention(bytes=5))
    altered = catalog.alter_topic(ORDERS, wanted)
    assert altered == catalog.get_topic(ORDERS)
    assert altered.settings == wanted
    assert (altered.topic_uid, altered.partitions, altered.created_ms) == (topic.topic_uid, 2, topic.created_ms)


def test_what_is_not_there_is_neither_altered_nor_deleted(catalog: Catalog) -> None:
    with pytest.raises(TopicNotSupported):
        catalog.alter_topic(ORDERS, TopicSettings())
    with pytest.raises(TopicNotSupported):
        catalog.delete_topic(ORDERS)


def test_a_topic_made_again_is_another_topic(catalog: Catalog) -> None:
    first = catalog.create_topic(ORDERS)
    assert catalog.delete_topic(ORDERS) == first
    with pytest.raises(TopicNotSupported):
        catalog.get_topic(ORDERS)
    assert catalog.create_topic(ORDERS).topic_uid > first.topic_uid


def test_settings_of_another_release_are_not_guessed_at(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    with catalog._file.writing() as connection:
        row = dict(connection.execute(TOPICS.select()).mappings().one())
        row["settings"] = '{"compaction":true}'
        connection.execute(TOPICS.update().values(row | {"seal": row_checksum("topics", row)}))
    with pytest.raises(StorageFailed, match="compaction"):
        catalog.get_topic(topic.name)


# Producers


def test_a_producer_keeps_its_number(path: Path, clock: Hand) -> None:
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS)
        number = catalog.producer_id(topic, "till 1")
        assert number > 0
        assert catalog.producer_id(topic, "till 1") == number
        assert catalog.producer_id(topic, "till 2") > number
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.producer_id(topic, "till 1") == number
        assert [producer.name for producer in catalog.producers(topic)] == ["till 1", "till 2"]


def test_the_same_name_on_two_topics_is_two_producers(catalog: Catalog) -> None:
    one, other = catalog.create_topic(ORDERS), catalog.create_topic(TopicName.parse("payments"))
    assert catalog.producer_id(one, "till") != catalog.producer_id(other, "till")


def test_names_are_compared_to_the_letter(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    names = ["till", "Till", "till ", "e\u0301", "\u00e9", "1", "01", "1.0"]
    assert len({catalog.producer_id(topic, name) for name in names}) == len(names)
    assert [producer.name for producer in catalog.producers(topic)] == names


def test_numbers_are_not_given_again_after_a_deletion_with_the_clock_set_back(catalog: Catalog, clock: Hand) -> None:
    topic = catalog.create_topic(ORDERS)
    number = catalog.producer_id(topic, "till")
    catalog.delete_topic(ORDERS)
    clock.ms -= 3_600_000
    again = catalog.create_topic(ORDERS)
    assert catalog.producers(again) == ()
    assert catalog.producer_id(again, "till") > number


def test_numbers_are_not_given_again_after_a_backup_was_restored(path: Path, tmp_path: Path, clock: Hand) -> None:
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS)
        catalog.backup_to(tmp_path / "backup.db")
        clock.ms += 1
        forgotten = catalog.producer_id(topic, "forgotten")
    clock.ms += 1
    with Catalog.open(tmp_path / "backup.db", clock=clock) as catalog:
        assert catalog.producer_id(topic, "another") > forgotten


def test_a_topic_that_was_deleted_is_noticed_although_its_name_is_back(catalog: Catalog) -> None:
    gone = catalog.create_topic(ORDERS)
    catalog.delete_topic(ORDERS)
    catalog.create_topic(ORDERS)
    calls: list[Callable[[], object]] = [
        lambda: catalog.producer_id(gone, "till"),
        lambda: catalog.producers(gone),
        lambda: catalog.save_checkpoint(gone, 0, checkpoint(1)),
        lambda: catalog.load_checkpoint(gone, 0),
    ]
    for call in calls:
        with pytest.raises(TopicNotSupported, match="has been deleted"):
            call()


# Checkpoints


def test_a_checkpoint_is_replaced_as_a_whole(path: Path, clock: Hand) -> None:
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS, partitions=2)
        assert catalog.load_checkpoint(topic, 0) is None
        catalog.save_checkpoint(topic, 0, checkpoint(5, p1=1, p2=9))
        catalog.save_checkpoint(topic, 0, checkpoint(6, p2=10))
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.load_checkpoint(topic, 0) == checkpoint(6, p2=10)
        assert catalog.load_checkpoint(topic, 1) is None


def test_a_checkpoint_does_not_go_back(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    catalog.save_checkpoint(topic, 0, checkpoint(5, p1=1))
    catalog.save_checkpoint(topic, 0, checkpoint(5, p1=2))
    with pytest.raises(InvalidRequest, match="stands at offset 5 and does not go back to 4"):
        catalog.save_checkpoint(topic, 0, checkpoint(4, p1=3))
    assert catalog.load_checkpoint(topic, 0) == checkpoint(5, p1=2)


def test_a_checkpoint_of_a_partition_that_is_not_there_is_refused(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS, partitions=2)
    with pytest.raises(TopicNotSupported, match="partitions 0 to 1, not 2"):
        catalog.save_checkpoint(topic, 2, checkpoint(1))
    with pytest.raises(TopicNotSupported, match="partitions 0 to 1, not -1"):
        catalog.load_checkpoint(topic, -1)


# Settings of a namespace


def test_a_topic_takes_from_its_namespace_what_it_does_not_say_itself(catalog: Catalog) -> None:
    catalog.set_namespace_settings("shop", TopicSettings(retention=Retention(age_ms=5), rate_max=10, redeliveries=2))
    topic = catalog.create_topic(ORDERS, settings=TopicSettings(rate_max=20))
    assert topic.settings == TopicSettings(retention=Retention(age_ms=5), rate_max=20, redeliveries=2)
    assert catalog.get_topic(ORDERS) == topic
    assert catalog.create_topic(TopicName.parse("/other/a")).settings == TopicSettings()


def test_settings_of_a_namespace_are_kept_and_replaced_as_a_whole(path: Path, clock: Hand) -> None:
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.namespace_settings("shop") == TopicSettings()
        assert catalog.namespaces() == ()
        catalog.set_namespace_settings("Shop", TopicSettings(rate_max=10))
        topic = catalog.create_topic(ORDERS)
        catalog.set_namespace_settings("shop", TopicSettings(redeliveries=2))
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.namespaces() == ("shop",)
        assert catalog.namespace_settings("SHOP") == TopicSettings(redeliveries=2)
        assert catalog.get_topic(ORDERS).settings == topic.settings == TopicSettings(rate_max=10)


def test_a_topic_that_contradicts_its_namespace_is_refused_and_leaves_nothing_behind(catalog: Catalog) -> None:
    catalog.set_namespace_settings("shop", TopicSettings(payload_bytes_max=100_000))
    with pytest.raises(InvalidRequest, match="payload_bytes_max"):
        catalog.create_topic(ORDERS, settings=TopicSettings(segment_bytes_max=8192))
    assert catalog.list_topics() == ()


def test_a_name_that_no_namespace_has_gets_no_settings(catalog: Catalog) -> None:
    for call in (
        lambda: catalog.namespace_settings("a/b"),
        lambda: catalog.set_namespace_settings("", TopicSettings()),
    ):
        with pytest.raises(TopicNotSupported, match="namespace"):
            call()


# Subscriptions

SHARED = SubscriptionOptions(kind=SubscriptionKind.SHARED)
FAILOVER = SubscriptionOptions(kind=SubscriptionKind.FAILOVER, redeliveries=1, types=("order.*",))


def starts(topic: Topic, offset: int = 0) -> dict[int, Offset]:
    return {partition: Offset(offset) for partition in range(topic.partitions)}


def test_a_subscription_is_what_it_was_created_as_also_after_opening_again(path: Path, clock: Hand) -> None:
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS, partitions=2)
        made = catalog.create_subscription(topic, "billing", FAILOVER, {0: Offset(5), 1: Offset(7)})
    assert (made.topic_uid, made.name, made.options, made.paused) == (topic.topic_uid, "billing", FAILOVER, False)
    assert made.created_ms == START_MS
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.list_subscriptions() == catalog.list_subscriptions(topic) == (made,)
        expected = {0: Cursor(floor=Offset(5)), 1: Cursor(floor=Offset(7))}
        assert catalog.load_cursors(made.subscription_uid) == expected


def test_a_subscription_that_exists_is_not_created_again(catalog: Catalog) -> None:
    topic, other = catalog.create_topic(ORDERS), catalog.create_topic(TopicName.parse("other"))
    first = catalog.create_subscription(topic, "billing", SHARED, starts(topic, 3))
    with pytest.raises(InvalidRequest, match=r"subscription billing of /shop/orders\.created exists already"):
        catalog.create_subscription(topic, "billing", FAILOVER, starts(topic))
    assert catalog.load_cursors(first.subscription_uid) == {0: Cursor(floor=Offset(3))}
    assert catalog.create_subscription(topic, "Billing", SHARED, starts(topic)).name == "Billing"
    assert catalog.create_subscription(other, "billing", SHARED, starts(other)).topic_uid == other.topic_uid


@pytest.mark.parametrize("places", [{}, {0: 0}, {0: 0, 2: 0}, {0: 0, 1: 0, 2: 0}, {0: 0, 1: -1}])
def test_a_subscription_starts_somewhere_in_every_partition(catalog: Catalog, places: dict[int, Offset]) -> None:
    topic = catalog.create_topic(ORDERS, partitions=2)
    with pytest.raises(InvalidRequest):
        catalog.create_subscription(topic, "billing", SHARED, places)
    assert catalog.list_subscriptions() == ()


def test_a_name_that_no_subscription_has_is_refused(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    with pytest.raises(InvalidRequest, match="name"):
        catalog.create_subscription(topic, "a b", SHARED, starts(topic))


def test_subscriptions_are_listed_by_name_topic_by_topic(catalog: Catalog) -> None:
    one, other = catalog.create_topic(ORDERS), catalog.create_topic(TopicName.parse("/a/a"))
    for topic, name in ((one, "z"), (other, "m"), (one, "a")):
        catalog.create_subscription(topic, name, SHARED, starts(topic))
    assert [found.name for found in catalog.list_subscriptions()] == ["a", "z", "m"]
    assert [found.name for found in catalog.list_subscriptions(one)] == ["a", "z"]


def test_altering_a_subscription_changes_what_is_given_and_nothing_else(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    made = catalog.create_subscription(topic, "billing", SHARED, starts(topic, 4))
    uid = made.subscription_uid
    assert catalog.alter_subscription(uid, paused=True) == replace(made, paused=True)
    assert catalog.alter_subscription(uid, options=FAILOVER) == replace(made, paused=True, options=FAILOVER)
    assert catalog.alter_subscription(uid, paused=False) == replace(made, options=FAILOVER)
    assert catalog.list_subscriptions() == (replace(made, options=FAILOVER),)
    assert catalog.load_cursors(uid) == {0: Cursor(floor=Offset(4))}


def test_a_subscription_that_was_deleted_is_gone_and_made_again_is_another(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    made = catalog.create_subscription(topic, "billing", SHARED, starts(topic))
    assert catalog.delete_subscription(made.subscription_uid) == made
    assert catalog.load_cursors(made.subscription_uid) == {}
    assert catalog.load_all_cursors() == {}
    for call in (catalog.delete_subscription, catalog.alter_subscription):
        with pytest.raises(InvalidRequest, match="there is no subscription"):
            call(made.subscription_uid)
    again = catalog.create_subscription(topic, "billing", SHARED, starts(topic))
    assert again.subscription_uid > made.subscription_uid


def test_a_topic_takes_its_subscriptions_with_it_and_leaves_those_of_others(catalog: Catalog) -> None:
    topic, other = catalog.create_topic(ORDERS, partitions=3), catalog.create_topic(TopicName.parse("other"))
    gone = catalog.create_subscription(topic, "billing", SHARED, starts(topic))
    kept = catalog.create_subscription(other, "billing", SHARED, starts(other))
    catalog.delete_topic(ORDERS)
    assert catalog.list_subscriptions() == (kept,)
    assert set(catalog.load_all_cursors()) == {(kept.subscription_uid, 0)}
    calls: list[Callable[[], object]] = [
        lambda: catalog.create_subscription(topic, "late", SHARED, starts(topic)),
        lambda: catalog.list_subscriptions(topic),
    ]
    for call in calls:
        with pytest.raises(TopicNotSupported, match="has been deleted"):
            call()
    catalog.save_cursors({(gone.subscription_uid, 0): Cursor(floor=Offset(1))})


# Cursors


def test_cursors_are_saved_together_and_replaced_as_a_whole(path: Path, clock: Hand) -> None:
    first = Cursor(floor=Offset(5), acked=(OffsetRange.of(7, 9),), failures={6: 2})
    second = Cursor(floor=Offset(2))  # a cursor may go back
    with Catalog.open(path, clock=clock) as catalog:
        topic = catalog.create_topic(ORDERS, partitions=2)
        uids = [catalog.create_subscription(topic, name, SHARED, starts(topic)).subscription_uid for name in ("a", "b")]
        catalog.save_cursors({(uid, partition): first for uid in uids for partition in (0, 1)})
        catalog.save_cursors({(uids[0], 1): second})
        catalog.save_cursors({})
    with Catalog.open(path, clock=clock) as catalog:
        assert catalog.load_cursors(uids[0]) == {0: first, 1: second}
        assert catalog.load_cursors(uids[1]) == {0: first, 1: first}
        assert catalog.load_all_cursors() == {
            (uids[0], 0): first,
            (uids[0], 1): second,
            (uids[1], 0): first,
            (uids[1], 1): first,
        }


def test_cursors_of_what_was_deleted_meanwhile_are_passed_over_and_the_others_saved(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    gone = catalog.create_subscription(topic, "gone", SHARED, starts(topic)).subscription_uid
    kept = catalog.create_subscription(topic, "kept", SHARED, starts(topic)).subscription_uid
    catalog.delete_subscription(gone)
    moved = Cursor(floor=Offset(9))
    catalog.save_cursors({(gone, 0): moved, (kept, 0): moved, (kept, 1): moved})
    assert catalog.load_all_cursors() == {(kept, 0): moved}


def test_cursors_are_saved_all_or_none(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS, partitions=2)
    uid = catalog.create_subscription(topic, "billing", SHARED, starts(topic)).subscription_uid
    before = catalog.load_all_cursors()
    with catalog._file.writing() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER failing BEFORE UPDATE ON cursors WHEN NEW.partition_index = 1"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    with pytest.raises(StorageFailed, match="not this one"):
        catalog.save_cursors({(uid, partition): Cursor(floor=Offset(5)) for partition in (0, 1)})
    assert catalog.load_all_cursors() == before


def test_cursors_saved_from_many_threads_are_each_as_one_of_them_saved_it(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    uids = [catalog.create_subscription(topic, f"s{n}", SHARED, starts(topic)).subscription_uid for n in range(20)]

    def save(i: int) -> None:
        for turn in range(5):
            catalog.save_cursors({(uid, 0): Cursor(floor=Offset(10 * i + turn)) for uid in uids})

    all_at_once(save)
    assert len({cursor.floor for cursor in catalog.load_all_cursors().values()}) == 1


# Producers without a name


def test_a_number_that_was_taken_is_never_given_to_anybody(catalog: Catalog, clock: Hand) -> None:
    topic = catalog.create_topic(ORDERS)
    numbers = [catalog.take_producer_id(), catalog.producer_id(topic, "till"), catalog.take_producer_id()]
    clock.ms -= 1000
    numbers += [catalog.take_producer_id(), catalog.producer_id(topic, "other")]
    assert numbers == sorted(set(numbers))
    assert [producer.name for producer in catalog.producers(topic)] == ["till", "other"]


# Backups


def test_a_backup_opens_as_the_catalog_it_was_taken_of(catalog: Catalog, tmp_path: Path, clock: Hand) -> None:
    topic = catalog.create_topic(ORDERS)
    catalog.save_checkpoint(topic, 0, checkpoint(5, p1=1))
    copy = tmp_path / "backup.db"
    catalog.backup_to(copy)
    catalog.delete_topic(ORDERS)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.glob("*.draft")) == []
    with Catalog.open(copy, clock=clock) as restored:
        assert restored.list_topics() == (topic,)
        assert restored.load_checkpoint(topic, 0) == checkpoint(5, p1=1)


def test_a_backup_overwrites_nothing(catalog: Catalog, tmp_path: Path) -> None:
    kept = tmp_path / "backup.db"
    kept.write_text("kept")
    with pytest.raises(InvalidRequest, match="overwrites nothing"):
        catalog.backup_to(kept)
    assert kept.read_text() == "kept"


# Many at once


def test_of_all_that_create_one_topic_exactly_one_succeeds(catalog: Catalog) -> None:
    def create(_: int) -> Topic | None:
        try:
            return catalog.create_topic(ORDERS)
        except InvalidRequest:
            return None

    created = [topic for topic in all_at_once(create) if topic is not None]
    assert created == [catalog.get_topic(ORDERS)]


def test_all_that_ask_for_one_producer_get_one_number(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)
    asked = all_at_once(lambda i: [catalog.producer_id(topic, f"till {(i + k) % 4}") for k in range(4)])
    numbers = {number for answers in asked for number in answers}
    assert len(numbers) == 4
    assert {producer.producer_id for producer in catalog.producers(topic)} == numbers


def test_checkpoints_from_many_threads_end_at_the_furthest(catalog: Catalog) -> None:
    topic = catalog.create_topic(ORDERS)

    def save(i: int) -> None:
        for next_offset in range(i, 40, 8):
            with suppress(InvalidRequest):  # another thread is further already
                catalog.save_checkpoint(topic, 0, checkpoint(next_offset))

    all_at_once(save)
    assert catalog.load_checkpoint(topic, 0) == checkpoint(39)


# Other processes: a script that says what was confirmed, line by line

PROCESS = """
import sys
from pathlib import Path
from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.catalog import Catalog

sqlite.BUSY_MS = 60_000
catalog = Catalog.open(Path(sys.argv[1]), clock=SystemClock())
who, count = sys.argv[2], int(sys.argv[3])
try:
    catalog.create_topic(TopicName.parse("orders"))
    print("created", flush=True)
except InvalidRequest:
    print("found", flush=True)
topic = catalog.get_topic(TopicName.parse("orders"))
for i in range(count):
    print(f"shared-{i}", catalog.producer_id(topic, f"shared-{i}"), flush=True)
    print(f"{who}-{i}", catalog.producer_id(topic, f"{who}-{i}"), flush=True)
catalog.close()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.splitlines()


def test_processes_that_make_and_fill_one_catalog_at_once_agree(path: Path) -> None:
    first, *others = [told(p) for p in [start(PROCESS, path, who, 15) for who in ("a", "b", "c")]]
    assert sorted([first[0], *(lines[0] for lines in others)]) == ["created", "found", "found"]
    said = {tuple(line.split()) for lines in (first, *others) for line in lines[1:]}
    with Catalog.open(path, clock=SystemClock()) as catalog:
        known = catalog.producers(catalog.get_topic(TopicName.parse("orders")))
    assert said == {(producer.name, str(producer.producer_id)) for producer in known}
    assert len(known) == len({producer.producer_id for producer in known}) == 15 * 4


@pytest.mark.parametrize("lines", [1, 7, 40])
def test_everything_confirmed_before_a_kill_is_there_after_it(path: Path, lines: int) -> None:
    with start(PROCESS, path, "a", 10_000) as process:
        assert process.stdout is not None
        confirmed = [process.stdout.readline() for _ in range(1 + lines)]
        process.send_signal(signal.SIGKILL)
        confirmed += process.stdout.readlines()
    with Catalog.open(path, clock=SystemClock()) as catalog:
        topic = catalog.get_topic(TopicName.parse("orders"))
        known = {producer.name: producer.producer_id for producer in catalog.producers(topic)}
        # A line the kill has cut short is no confirmation.
        for line in (line for line in confirmed[1:] if line.endswith("\n")):
            name, number = line.split()
            assert known[name] == int(number)
        assert catalog.producer_id(topic, "after") > max(known.values())


OPENINGS = """
import sys
from pathlib import Path
from penstock.core.clock import SystemClock
from penstock.storage.catalog.catalog import Catalog

for i in range(10_000):
    print(i, flush=True)
    Catalog.open(Path(sys.argv[1]) / f"{i}.db", clock=SystemClock()).close()
"""


@pytest.mark.parametrize("openings", [1, 5, 9])
def test_a_kill_while_a_catalog_is_made_leaves_a_whole_one_or_none(tmp_path: Path, openings: int) -> None:
    with start(OPENINGS, tmp_path) as process:
        assert process.stdout is not None
        for _ in range(openings):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        last = openings + len(process.stdout.readlines())
    for i in range(last):
        with Catalog.open(tmp_path / f"{i}.db", clock=SystemClock()) as catalog:
            assert catalog.list_topics() == ()


# Any story


names = st.sampled_from([TopicName.parse(text) for text in ("a", "b", "/other/a")])


class Story(RuleBasedStateMachine):
    """The catalog beside a few dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[TopicName, Topic] = {}
        self.producers: dict[tuple[int, str], int] = {}
        self.spent: set[int] = set()
        self.subscriptions: dict[tuple[int, str], StoredSubscription] = {}
        self.cursors: dict[tuple[int, int], Cursor] = {}
        self.clock = Hand()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "catalog.db"
        self.catalog = Catalog.open(self.path, clock=self.clock)

    @rule(name=names, partitions=st.integers(1, 3))
    def create(self, name: TopicName, partitions: int) -> None:
        try:
            topic = self.catalog.create_topic(name, partitions=partitions)
        except InvalidRequest:
            assert name in self.topics
        else:
            assert name not in self.topics
            self.topics[name] = topic

    @rule(name=names)
    def delete(self, name: TopicName) -> None:
        topic = self.topics.pop(name, None)
        try:
            assert self.catalog.delete_topic(name) == topic
        except TopicNotSupported:
            assert topic is None
        if topic is not None:
            for key in [key for key in self.subscriptions if key[0] == topic.topic_uid]:
                self.forget(key)

    def forget(self, key: tuple[int, str]) -> None:
        uid = self.subscriptions.pop(key).subscription_uid
        self.cursors = {place: cursor for place, cursor in self.cursors.items() if place[0] != uid}

    @rule(name=names, who=st.sampled_from("xy"))
    def subscribe(self, name: TopicName, who: str) -> None:
        if name in self.topics:
            topic = self.topics[name]
            key = (topic.topic_uid, who)
            try:
                found = self.catalog.create_subscription(topic, who, SHARED, starts(topic))
            except InvalidRequest:
                assert key in self.subscriptions
            else:
                assert key not in self.subscriptions
                self.subscriptions[key] = found
                self.cursors |= {(found.subscription_uid, p): Cursor(floor=Offset(0)) for p in starts(topic)}

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        if self.subscriptions:
            key = data.draw(st.sampled_from(sorted(self.subscriptions)))
            assert self.catalog.delete_subscription(self.subscriptions[key].subscription_uid) == self.subscriptions[key]
            self.forget(key)

    @rule(floor=st.integers(0, 99), data=st.data())
    def acknowledge(self, floor: int, data: st.DataObject) -> None:
        if self.cursors:
            places = data.draw(st.sets(st.sampled_from(sorted(self.cursors)), max_size=3))
            moved = {place: Cursor(floor=Offset(floor), failures={floor: 1}) for place in places}
            self.catalog.save_cursors({**moved, (1, 0): Cursor(floor=Offset(1))})  # and one that is nobody's
            self.cursors |= moved

    @rule(name=names, count=st.integers(1, 99))
    def alter(self, name: TopicName, count: int) -> None:
        if name in self.topics:
            self.topics[name] = self.catalog.alter_topic(name, TopicSettings(retention=Retention(count=count)))

    @rule(name=names, who=st.sampled_from("pqr"))
    def produce(self, name: TopicName, who: str) -> None:
        if name in self.topics:
            key = (self.topics[name].topic_uid, who)
            number = self.catalog.producer_id(self.topics[name], who)
            assert self.producers.setdefault(key, number) == number
            assert number not in self.spent - {self.producers[key]}
            self.spent.add(number)

    @rule(ms=st.integers(-1000, 1000))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms

    @rule()
    def open_again(self) -> None:
        self.catalog.close()
        self.catalog = Catalog.open(self.path, clock=self.clock)

    @invariant()
    def the_catalog_is_the_story_so_far(self) -> None:
        assert {topic.name: topic for topic in self.catalog.list_topics()} == self.topics
        assert {(s.topic_uid, s.name): s for s in self.catalog.list_subscriptions()} == self.subscriptions
        assert self.catalog.load_all_cursors() == self.cursors

    def teardown(self) -> None:
        self.catalog.close()
        self.directory.cleanup()


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
