"""Following topics: what a stream reads next, fairly, once, and not from another log than the one it knew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.source_kit import LIMITS, location

from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.spark.scan.slice_reader import DataLoss, batches
from penstock.spark.scan.slices import plan_slices
from penstock.spark.source.follower import TopicFollower
from penstock.spark.source.offsets import Offsets, StreamPosition
from penstock.spark.source.options import ReadOptions
from penstock.storage.store import Store
from penstock.testing import ManualClock

ORDERS = TopicName.parse("orders")
CARTS = TopicName.parse("carts")
KEY = ("/default/orders", 0)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "data", create=True, limits=LIMITS, clock=ManualClock()) as store:
        store.create_topic(ORDERS)
        store.create_topic(CARTS, partitions=3)
        yield store


def fill(store: Store, topic: TopicName, count: int, partition: int = 0, size: int = 100) -> None:
    for _ in range(count):
        store.append(topic, Draft.of([Message(payload=b"x" * size)]), partition=partition)


def anew(store: Store, topic: TopicName, count: int) -> None:
    store.delete_topic(topic)
    store.create_topic(topic)
    fill(store, topic, count)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def follower(store: Store, clock: Clock | None = None, **given: str) -> TopicFollower:
    asked = {"path": str(store.root), "startingOffsets": "earliest", **given}
    if "subscribePattern" not in asked:
        asked.setdefault("subscribe", "orders,carts")
    if "startingTimestamp" in asked:
        del asked["startingOffsets"]
    return TopicFollower(ReadOptions.of(asked, streaming=True), clock=clock or Clock())


def places(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {key: mark.offset for key, mark in offsets.positions.items()}


def orders(offsets: Offsets) -> int:
    return offsets.positions[KEY].offset


# ---- where it begins


def test_a_new_query_begins_where_it_was_told_to(store: Store) -> None:
    fill(store, ORDERS, 5)
    fill(store, CARTS, 3, partition=2)
    begin = follower(store, startingOffsets="earliest").initial()
    assert set(places(begin).values()) == {0}
    assert len(begin.positions) == 4
    latest = follower(store, startingOffsets="latest").initial()
    assert (orders(latest), latest.positions["/default/carts", 2].offset) == (5, 3)
    said = json.dumps({"orders": {"0": 2}, "carts": {"2": -1, "1": -2}})
    chosen = follower(store, startingOffsets=said).initial()
    assert places(chosen) == {KEY: 2, ("/default/carts", 0): 0, ("/default/carts", 1): 0, ("/default/carts", 2): 3}


def test_a_new_query_begins_at_a_time(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with Store.open(tmp_path / "data", create=True, clock=clock) as store:
        store.create_topic(ORDERS)
        for _ in range(5):
            fill(store, ORDERS, 1)
            clock.advance_ms(10)
        begin = follower(store, subscribe="orders", startingTimestamp="1000020")
        assert orders(begin.initial()) == 2
        assert orders(follower(store, subscribe="orders", startingTimestamp="2000000").initial()) == 5


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ('{"orders": {"0": 6}}', r"startingOffsets has 6 for /default/orders partition 0: the log holds \[0, 5\)"),
        ('{"orders": {"1": 0}}', "startingOffsets names partition 1 of /default/orders, which is not among"),
        ('{"other": {"0": 0}}', "startingOffsets names partition 0 of /default/other"),
    ],
)
def test_a_place_that_is_not_there_is_refused(store: Store, said: str, what: str) -> None:
    fill(store, ORDERS, 5)
    with pytest.raises(InvalidRequest, match=what):
        follower(store, startingOffsets=said).initial()


def test_a_topic_that_is_not_there_is_refused_with_those_that_are(store: Store) -> None:
    with pytest.raises(TopicNotSupported, match="names /default/order, which is not there; there are: /default/carts"):
        follower(store, subscribe="order").initial()


def test_a_pattern_may_match_nothing_yet(store: Store) -> None:
    assert follower(store, subscribePattern="/shop/.*").initial() == Offsets({})


# ---- how far it reads


def test_all_that_is_there_is_read_and_then_nothing(store: Store) -> None:
    fill(store, ORDERS, 5)
    reader = follower(store)
    start = reader.initial()
    end = reader.latest(start)
    assert reader.ranges(start, end) == {KEY: (0, 5)}
    assert json.dumps(reader.latest(end).as_json()) == json.dumps(end.as_json())
    fill(store, ORDERS, 1)
    assert reader.ranges(end, reader.latest(end)) == {KEY: (5, 6)}


def test_a_bound_on_offsets_is_shared_fairly_and_small_partitions_are_served(store: Store) -> None:
    fill(store, ORDERS, 100)
    fill(store, CARTS, 3, partition=0)
    fill(store, CARTS, 100, partition=2)
    reader = follower(store)
    start = reader.initial()
    ranges = reader.ranges(start, reader.latest(start, rows_max=43))
    assert {key: stop - start for key, (start, stop) in ranges.items()} == {
        KEY: 20,
        ("/default/carts", 0): 3,
        ("/default/carts", 2): 20,
    }


def test_a_bound_below_the_number_of_partitions_serves_them_in_turn(store: Store) -> None:
    for partition in range(3):
        fill(store, CARTS, 4, partition=partition)
    reader = follower(store, subscribe="carts")
    at, served = reader.initial(), []
    for _ in range(3):
        end = reader.latest(at, rows_max=1)
        served += [key[1] for key in reader.ranges(at, end)]
        at = end
    assert sorted(served) == [0, 1, 2]


def test_a_bound_on_bytes_is_kept_to_nearly(store: Store) -> None:
    fill(store, ORDERS, 100, size=919)  # a record of 1000 bytes
    fill(store, CARTS, 100, partition=1, size=419)
    reader = follower(store)
    start = reader.initial()
    ranges = reader.ranges(start, reader.latest(start, bytes_max=60_000))
    counts = {key: stop - start for key, (start, stop) in ranges.items()}
    assert 28 <= counts[KEY] <= 32
    assert 56 <= counts["/default/carts", 1] <= 64


def test_a_message_larger_than_the_bound_is_read_all_the_same(store: Store) -> None:
    fill(store, ORDERS, 3, size=2000)
    reader = follower(store)
    start = reader.initial()
    assert reader.ranges(start, reader.latest(start, bytes_max=10)) == {KEY: (0, 1)}


def test_both_bounds_hold(store: Store) -> None:
    fill(store, ORDERS, 100, size=919)
    reader = follower(store)
    start = reader.initial()
    assert orders(reader.latest(start, rows_max=5, bytes_max=60_000)) == 5
    assert orders(reader.latest(start, rows_max=60, bytes_max=5_000)) <= 6


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_storyfollow_on_one_another_and_leave_nothing_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("story") / "data"
    with Store.open(root, create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        store.create_topic(CARTS, partitions=3)
        clock, story = Clock(), []
        read: dict[tuple[str, int], int] = {}
        reader = follower(store, clock)
        at = reader.initial()
        for _ in range(data.draw(st.integers(1, 6))):
            for _ in range(data.draw(st.integers(0, 3))):
                partition = data.draw(st.integers(0, 3))
                topic = ORDERS if partition == 3 else CARTS
                fill(store, topic, data.draw(st.integers(1, 30)), partition % 3, data.draw(st.sampled_from((1, 900))))
            if data.draw(st.booleans()):
                reader = follower(store, clock)  # a restart
            end = reader.latest(
                at,
                rows_max=data.draw(st.none() | st.integers(1, 50)),
                bytes_max=data.draw(st.none() | st.integers(1, 20_000)),
            )
            story.append((at, end, reader.ranges(at, end)))
            for key, (start, stop) in story[-1][2].items():
                assert start == read.get(key, 0)
                read[key] = stop
            at = end
        rest = reader.latest(at)
        read |= {key: stop for key, (_, stop) in reader.ranges(at, rest).items()}
        for before, after, ranges in story:
            assert follower(store).ranges(before, after) == ranges  # the same when it is asked again, by whomever
    assert read == {key: stop for key, stop in places(rest).items() if stop}


def test_with_available_now_nothing_newer_is_read(store: Store) -> None:
    fill(store, ORDERS, 5)
    clock = Clock()
    reader = follower(store, clock, subscribePattern=".*")
    start = reader.initial()
    reader.freeze()
    fill(store, ORDERS, 5)
    store.create_topic(TopicName.parse("later"))
    fill(store, TopicName.parse("later"), 2)
    clock.now = 5.0
    half = reader.latest(start, rows_max=3)
    end = reader.latest(half)
    assert (orders(half), orders(end)) == (3, 5)
    assert ("/default/later", 0) not in end.positions
    assert reader.latest(end) == end
    assert orders(reader.newest()) == 10


# ---- the first batch, again


@pytest.mark.parametrize(
    ("said", "later", "batch"),
    [
        ("latest", "latest", (20, 30)),
        ("latest", "earliest", (20, 30)),
        ('{"orders": {"0": 7}}', "earliest", (7, 30)),
        ('{"orders": {"0": 7}}', '{"orders": {"0": 25}}', (7, 30)),
        ("earliest", "latest", (0, 30)),
        ("earliest", "earliest", (0, 30)),
    ],
)
def test_the_first_batch_is_the_same_after_a_crash_whatever_the_query_would_begin_with_by_then(
    store: Store, said: str, later: str, batch: tuple[int, int]
) -> None:
    fill(store, ORDERS, 20)
    reader = follower(store, startingOffsets=said)
    start = reader.initial()
    fill(store, ORDERS, 10)
    end = reader.latest(start)
    assert reader.ranges(start, end) == {KEY: batch}
    fill(store, ORDERS, 5)
    fill(store, CARTS, 2, partition=1)
    again = follower(store, startingOffsets=later)  # Spark kept the end of the batch, and asks for its start once more
    assert again.ranges(again.initial(), Offsets.of_json(end.as_json())) == {KEY: batch}
    following = again.latest(end)
    assert again.ranges(end, following) == {KEY: (30, 35), ("/default/carts", 1): (0, 2)}


def test_the_first_batch_is_the_same_after_a_crash_where_it_began_at_a_time(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with Store.open(tmp_path / "data", create=True, clock=clock) as store:
        store.create_topic(ORDERS)
        fill(store, ORDERS, 5)
        reader = follower(store, subscribe="orders", startingTimestamp="1000010")
        start = reader.initial()
        clock.advance_ms(5)
        fill(store, ORDERS, 5)  # before the time asked for, and not yet there when the query began
        end = reader.latest(start)
        clock.advance_ms(5)
        fill(store, ORDERS, 5)
        again = follower(store, subscribe="orders", startingTimestamp="1000010")
        assert orders(again.initial()) == 10
        assert again.ranges(again.initial(), end) == reader.ranges(start, end) == {KEY: (5, 10)}


def test_a_first_batch_of_which_retention_took_a_part_still_begins_where_it_did(store: Store) -> None:
    fill(store, ORDERS, 60, size=900)
    reader = follower(store)
    end = reader.latest(reader.initial())
    store.truncate_before(ORDERS, 40)
    again = follower(store)
    assert orders(again.initial()) == 40
    assert again.ranges(again.initial(), end) == {KEY: (0, 60)}  # whoever reads it says what is lost


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_first_batch_is_the_same_for_whatever_start_it_is_asked_with(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    words = st.sampled_from(("earliest", "latest"))
    with Store.open(tmp_path_factory.mktemp("first") / "data", create=True, limits=LIMITS) as store:
        store.create_topic(ORDERS)
        store.create_topic(CARTS, partitions=3)
        fill(store, ORDERS, data.draw(st.integers(0, 9)))
        fill(store, CARTS, data.draw(st.integers(0, 9)), partition=1)
        begun = follower(store, startingOffsets=data.draw(words))
        start = begun.initial()
        fill(store, ORDERS, data.draw(st.integers(0, 9)))
        fill(store, CARTS, data.draw(st.integers(0, 9)), partition=2)
        end = begun.latest(start, rows_max=data.draw(st.none() | st.integers(1, 9)))
        fill(store, CARTS, data.draw(st.integers(0, 9)), partition=data.draw(st.integers(0, 2)))
        again = follower(store, startingOffsets=data.draw(words))
        assert again.ranges(again.initial(), end) == begun.ranges(start, end)


# ---- what comes later


def test_new_topics_that_match_are_read_from_their_beginning(store: Store) -> None:
    clock = Clock()
    reader = follower(store, clock, subscribePattern="car.*|new", startingOffsets="latest")
    start = reader.initial()
    store.create_topic(TopicName.parse("new"), partitions=2)
    clock.now = 2.0
    assert reader.latest(start) == start  # it is empty: no batch for that
    fill(store, TopicName.parse("new"), 4, partition=1)
    end = reader.latest(start)
    assert reader.ranges(start, end) == {("/default/new", 1): (0, 4)}


def test_a_new_topic_whose_beginning_is_gone_is_no_loss(store: Store) -> None:
    clock = Clock()
    reader = follower(store, clock, subscribePattern="new")
    start = reader.initial()
    new = TopicName.parse("new")
    store.create_topic(new)
    fill(store, new, 50, size=900)
    store.truncate_before(new, 30)
    clock.now = 2.0
    end = reader.latest(start)
    assert end.positions["/default/new", 0].since == 30
    assert reader.ranges(start, end) == {("/default/new", 0): (30, 50)}
    assert follower(store, subscribePattern="new").ranges(start, end) == {("/default/new", 0): (30, 50)}


# ---- what is lost


def test_offsets_that_expired_before_they_were_read_fail_with_their_numbers(store: Store) -> None:
    fill(store, ORDERS, 60, size=900)
    reader = follower(store)
    at = reader.latest(reader.initial(), rows_max=10)
    store.truncate_before(ORDERS, 40)
    with pytest.raises(DataLoss, match=r"/default/orders partition 0: 30 offsets, \[10, 40\), are lost"):
        reader.latest(at)
    with pytest.raises(DataLoss, match=r"\[3, 40\)"):
        follower(store, startingOffsets='{"orders": {"0": 3}}').initial()


def test_offsets_that_expired_are_counted_where_that_is_allowed(store: Store) -> None:
    fill(store, ORDERS, 60, size=900)
    reader = follower(store, failOnDataLoss="false")
    at = reader.latest(reader.initial(), rows_max=10)
    store.truncate_before(ORDERS, 40)
    end = reader.latest(at)
    ranges = reader.ranges(at, end)
    assert ranges == {KEY: (10, 60)}
    losses: list[Any] = []
    (part,) = plan_slices(location(store.root), ranges)
    rows = [*batches(part, ["offset"], fail_on_data_loss=False, on_loss=losses.append)]
    assert [offset for batch in rows for offset in batch.column(0).to_pylist()] == [*range(40, 60)]
    assert [(loss.start, loss.stop) for loss in losses] == [(10, 40)]


@pytest.mark.parametrize("again", [3, 10, 25])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_was_deleted_and_made_again_is_noticed(store: Store, again: int, restarted: bool) -> None:
    fill(store, ORDERS, 10)
    reader = follower(store)
    at = reader.latest(reader.initial())
    anew(store, ORDERS, again)
    reader = follower(store) if restarted else reader
    if again == 10:
        assert reader.latest(at) == at  # nothing to read yet, so nothing is read wrongly
        fill(store, ORDERS, 1)
    with pytest.raises(DataLoss, match=r"was read up to offset 10, and cannot be read on: .* made anew"):
        reader.latest(at)


@pytest.mark.parametrize("again", [3, 25])
def test_a_topic_that_was_made_again_is_read_from_its_beginning_where_that_is_allowed(store: Store, again: int) -> None:
    fill(store, ORDERS, 10)
    reader = follower(store, failOnDataLoss="false")
    at = reader.latest(reader.initial())
    anew(store, ORDERS, again)
    end = reader.latest(at, rows_max=2)
    assert end.positions[KEY].life == 1
    assert reader.ranges(at, end) == {KEY: (0, 2)}
    assert follower(store, failOnDataLoss="false").ranges(at, end) == {KEY: (0, 2)}
    last = reader.latest(end)
    assert reader.ranges(end, last) == {KEY: (2, again)}
    assert reader.latest(last) == last


def test_a_topic_that_was_deleted_is_noticed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    fill(store, ORDERS, 10)
    at = follower(store).latest(follower(store).initial())
    store.delete_topic(ORDERS)
    with pytest.raises(DataLoss, match="its directory is not there any more: was the topic deleted"):
        follower(store).latest(at)
    reader = follower(store, failOnDataLoss="false")
    assert reader.latest(at) == at
    assert reader.latest(at) == at
    assert caplog.text.count("was the topic deleted?") == 1


def test_a_topic_that_is_not_named_any_more_stays_where_it_is(store: Store) -> None:
    """A narrower subscription is no loss; a wider one goes on where the first was."""
    fill(store, ORDERS, 5)
    fill(store, CARTS, 5, partition=1)
    first = follower(store).latest(Offsets(), rows_max=6)
    assert 0 < places(first)["/default/carts", 1] < 5
    fill(store, ORDERS, 5)
    narrow = follower(store, subscribe="orders")
    then = narrow.latest(first)
    assert places(then) == places(first) | {KEY: 10}
    assert set(narrow.ranges(first, then)) == {KEY}
    again = follower(store)
    last = again.latest(then)
    assert again.ranges(then, last) == {("/default/carts", 1): (places(first)["/default/carts", 1], 5)}
    store.delete_topic(CARTS)
    assert follower(store, subscribe="orders").latest(last) == last
    with pytest.raises(DataLoss, match="was the topic deleted"):
        follower(store, subscribePattern=".*").latest(last)


def test_a_batch_with_a_topic_that_is_not_named_any_more_is_read_again_as_it_was(store: Store) -> None:
    fill(store, ORDERS, 5)
    fill(store, CARTS, 5, partition=1)
    end = follower(store).latest(Offsets())
    whole = follower(store).ranges(Offsets(), end)
    assert follower(store, subscribe="orders").ranges(Offsets(), end) == whole
    assert ("/default/carts", 1) in whole
    anew(store, CARTS, 5)
    with pytest.raises(DataLoss, match="made anew"):
        follower(store, subscribe="orders").ranges(Offsets(), end)


def test_a_batch_that_is_read_again_from_another_log_is_noticed(store: Store) -> None:
    fill(store, ORDERS, 10)
    start = follower(store).initial()
    end = follower(store).latest(start)
    anew(store, ORDERS, 20)
    with pytest.raises(DataLoss, match="before this batch was read again"):
        follower(store).ranges(start, end)
    assert follower(store, failOnDataLoss="false").ranges(start, end) == {}


def test_a_mark_has_the_id_of_the_record_before_it(store: Store) -> None:
    fill(store, ORDERS, 3)
    mark = follower(store).latest(follower(store).initial()).positions[KEY]
    record = store.log(ORDERS, 0).read(2).block.record(0)
    assert mark == StreamPosition(3, record.id.hex())


def test_conditions_on_partitions_and_offsets_leave_out_what_need_not_be_read(store: Store) -> None:
    fill(store, ORDERS, 30)
    fill(store, CARTS, 30, partition=1)
    reader = follower(store, where="partition = 0 and offset between 10 and 19")
    start = reader.initial()
    assert reader.ranges(start, reader.latest(start)) == {KEY: (10, 20)}
