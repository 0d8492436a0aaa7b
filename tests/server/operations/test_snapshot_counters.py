"""Counters never fall while the broker runs, whatever is created, deleted, or gets a line of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.server.operations.metrics import FAMILIES, MetricKind
from penstock.server.operations.snapshot import OTHER_SERIES, BrokerSnapshot, CumulativeCounters, SnapshotCollector
from penstock.storage.base.metrics import Histogram

NAMES = ("a", "b", "c", "d", "e")
COUNTED = ("delivered", "acked", "failed", "redelivered", "dead_lettered", "dropped", "lost")
Counters = dict[tuple[str, tuple[str, ...]], float]


class Name(str):
    """The name of a topic that holds messages, and no dead letters."""

    __slots__ = ()
    holds_dead_letters = False


class Few:
    """A broker of a few topics, each with a subscription, of which two of a kind have lines of their own."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.published = 0
        self._uids = 0
        durable = Thing(topics=self)
        metrics = Thing(counts=dict, bytes=0)
        broker = Thing(durable=durable, metrics=metrics, context=Thing(unix_ms=lambda: 0), clients=(), requests_open=0)
        meter = Thing(syncs=Histogram((1.0,)), sync_failures=0, groups=Histogram((1.0,)), group_bytes=0)
        hub: Any = Thing(broker=broker, now_ms=lambda: 0, sessions=list, held_bytes=0)
        store: Any = Thing(meter=meter, writer=Thing(queued_bytes=0), reserve_bytes=0, catalog=Thing(failure=None))
        self._collector = SnapshotCollector(hub, store, topics_max=2, subscriptions_max=2)

    def __iter__(self) -> Any:
        return iter(self.topics.values())

    def create(self, name: str) -> Any:
        if name not in self.topics:
            self._uids += 1
            log = Thing(
                view=Thing(next_offset=0, first_offset=0, size=0, segments=()), damages=[], failure=None, refusal=None
            )
            topic = Thing(uid=self._uids, name=Name(name), messages=0, bytes=0, logs=(log,))
            machine = Thing(cursors={}, consumers={}, unacked_since_ms=lambda: None, **dict.fromkeys(COUNTED, 0))
            runner = Thing(uid=self._uids, name="sub", topic=topic, machine=machine, is_reader=False, is_internal=False)
            topic.subscriptions = {"sub": runner}
            self.topics[name] = topic
        return self.topics[name]

    def publish(self, name: str, count: int) -> None:
        topic = self.create(name)
        topic.messages, topic.bytes = topic.messages + count, topic.bytes + 7 * count
        for each in COUNTED:
            setattr(topic.subscriptions["sub"].machine, each, topic.messages)
        self.published += count

    def damage(self, name: str) -> None:
        self.create(name).logs[0].damages.append(Thing(offsets=range(3)))

    def delete(self, name: str) -> None:
        self.topics.pop(name, None)

    def snapshot(self) -> Counters:
        return counters(asyncio.run(self._collector.collect()))


def counters(facts: BrokerSnapshot) -> Counters:
    """Return all counters of a broker with these topics, by name and labels."""
    counted = ("topic_published", "subscription_", "corruption_found")
    return {
        (family.name, labels): value
        for family, read in FAMILIES
        if family.kind is MetricKind.COUNTER and family.name.removeprefix("penstock_").startswith(counted)
        for labels, value in read(facts)
        if isinstance(value, int | float)
    }


def published(found: Counters) -> dict[str, float]:
    return {labels[0]: value for (name, labels), value in found.items() if "published_messages" in name}


@pytest.fixture
def broker() -> Few:
    few = Few()
    for name in NAMES[:4]:
        few.publish(name, 10)
    assert sum(published(few.snapshot()).values()) == 40
    return few


def among_others(broker: Few) -> list[str]:
    return [name for name in broker.topics if name not in published(broker.snapshot())]


def owner(broker: Few) -> str:
    """Return a topic that has a series of its own."""
    return next(name for name in published(broker.snapshot()) if name != OTHER_SERIES)


def test_what_was_counted_of_a_topic_that_is_deleted_stays_counted(broker: Few) -> None:
    broker.delete(among_others(broker)[0])
    assert published(broker.snapshot())[OTHER_SERIES] == 20


def test_a_topic_that_gets_a_line_of_its_own_begins_at_nothing_there(broker: Few) -> None:
    first, second = among_others(broker)
    broker.delete(owner(broker))
    broker.publish(first, 5)
    found = published(broker.snapshot())
    assert (found[first], found[OTHER_SERIES]) == (5, 20)
    broker.publish(second, 4)
    found = published(broker.snapshot())
    assert (found[first], found[OTHER_SERIES]) == (5, 24)


def test_others_stay_in_sight_when_there_are_none_any_more(broker: Few) -> None:
    for name in among_others(broker):
        broker.delete(name)
    assert published(broker.snapshot())[OTHER_SERIES] == 20


def test_a_topic_that_is_deleted_and_created_again_goes_on_counting(broker: Few) -> None:
    for name in among_others(broker):
        broker.delete(name)
    name = owner(broker)
    broker.delete(name)
    assert name not in published(broker.snapshot())
    broker.publish(name, 4)
    assert published(broker.snapshot())[name] == 14


def test_damage_of_a_topic_that_is_deleted_stays_counted(broker: Few) -> None:
    broker.damage("a")
    name = ("penstock_corruption_found_total", ())
    assert broker.snapshot()[name] == 3
    broker.delete("a")
    assert broker.snapshot()[name] == 3


def test_lines_are_bounded_and_those_that_are_asked_for_stay() -> None:
    tally: CumulativeCounters[int] = CumulativeCounters(2)
    for number in range(10):
        tally.add(number, number, {"published": 1})
        tally.add(-1, OTHER_SERIES, {"published": number + 1})
        assert tally.of(OTHER_SERIES) == {"published": number + 1}
        tally.end_collection()
    assert tally.of(9) == {"published": 1}
    assert tally.of(3) == {}


STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES)),
    st.tuples(st.just("publish"), st.sampled_from(NAMES), st.integers(1, 100)),
    st.tuples(st.just("damage"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("snapshot")),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_no_counter_falls_and_what_is_published_is_counted_once(steps: list[Any]) -> None:
    broker = Few()
    before: Counters = {}
    ever: dict[str, float] = {}
    for name, *given_ in steps:
        if name != "snapshot":
            broker.snapshot()  # what is deleted before anybody has looked is not counted
        getattr(broker, name)(*given_)
        found = broker.snapshot()
        assert all(value >= before.get(line, 0) for line, value in found.items())
        before |= found
        ever |= published(found)
        assert sum(ever.values()) == broker.published
