"""A snapshot of a running broker as values: gathered on its event loop a little at a time, and bounded."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.broker.admin.dead_letters import Graves
from penstock.broker.broker import Broker
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.topics.topics import TopicState
from penstock.storage.base.metrics import Distribution
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import LogView
from penstock.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """One topic, or several put together."""

    name: str
    published: int
    published_bytes: int
    views: tuple[LogView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSnapshot:
    """One subscription, or several put together."""

    topic: str
    name: str
    delivered: int
    acked: int
    failed: int
    redelivered: int
    buried: int
    dropped: int
    lost: int
    lag: int
    unacked: int
    unacked_ms: int
    """How long the delivery has waited that has waited longest for its acknowledgement."""
    consumers: int
    floors: tuple[tuple[Log, int], ...] = ()
    """Where the oldest message lies that is not settled, in each partition that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSnapshot:
    """What waits to be sent."""

    queued: int = 0
    largest: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSnapshot:
    syncs: Distribution
    sync_failures: int
    groups: Distribution
    group_bytes: int
    queued: int
    logs: int
    failed: tuple[str, ...]
    """Why each log that takes no appends any more does not."""
    full: int
    """Logs whose last append found no room."""
    catalog_failed: bool
    damaged: int
    """Messages found damaged."""
    reserve: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """All of it."""

    unix_ms: int
    counts: Mapping[str, int]
    """Under the names of `penstock.broker.base.metrics`."""
    message_bytes: int
    connections: int
    requests_open: int
    topics: int
    subscriptions: int
    """Without the broker's own."""
    shown_topics: tuple[TopicSnapshot, ...]
    shown_subscriptions: tuple[SubscriptionSnapshot, ...]
    output: OutputSnapshot
    held: int = 0
    """Bytes of all connections: messages in part, reads that wait, and what waits to be sent."""
    storage: StorageSnapshot | None = None
    """None for a broker that keeps nothing."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Those that were neither sent back nor dropped, by the topic that they lie in."""
    http: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Answers by method, route and status."""
    http_streams: int = 0
    """Of events, that are open."""
    http_streams_queued: int = 0
    """Bytes that these have not taken yet."""
    lags: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """In seconds, by topic and subscription."""
    free: int = 0
    """Bytes on the disk that the logs lie on."""
    checks: Mapping[str, bool] = field(default_factory=dict)
    process: Mapping[str, float] = field(default_factory=dict)


OTHER_SERIES: Final = "_other"
"""No topic has such a name, and no subscription."""

TOPICS_MAX: Final = 200
"""Topics with lines of their own in `/metrics`: with all that is measured of each some 1,000 lines, which take a
hundredth of a second to write."""

SUBSCRIPTIONS_MAX: Final = 300
"""Subscriptions with lines of their own in `/metrics`: some 4,000 lines, and one look into the log for each."""

_Key = TypeVar("_Key", bound=Hashable)


class ShownSeries(Generic[_Key]):
    """At most so many of a kind."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[_Key] = set()

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def choose(self, there: Collection[_Key], busy: Callable[[_Key], int]) -> None:
        """These are there now; forget those that are not, and give free lines away."""
        self._kept.intersection_update(there)
        free = self._most - len(self._kept)
        if free <= 0:
            return
        waiting = [each for each in there if each not in self._kept]
        if len(waiting) > free:  # whoever is idle can wait for a line until it is not
            waiting = heapq.nlargest(free, (each for each in waiting if busy(each) > 0), key=busy)
        self._kept.update(waiting)


_CounterKey = TypeVar("_CounterKey", bound=Hashable)


class CumulativeCounters(Generic[_CounterKey]):
    """At most so many lines; past that, those are forgotten that were asked for longest ago."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._series: dict[Hashable, Counter[str]] = {}
        self._before: dict[_CounterKey, Mapping[str, int]] = {}
        """What each had counted at the last look."""

        self._now: dict[_CounterKey, Mapping[str, int]] = {}

    def add(self, key: _CounterKey, series: Hashable, counts: Mapping[str, int]) -> None:
        """What somebody in this line has counted until now."""
        total = self._series.setdefault(series, Counter())
        before = self._before.get(key, {})
        for name, count in counts.items():
            total[name] += _increase(before.get(name, 0), count)
        self._now[key] = counts

    def of(self, series: Hashable) -> Mapping[str, int]:
        """What a line has come to. It is kept for being asked for."""
        found = self._series[series] = self._series.pop(series, Counter())
        return found

    def end_collection(self) -> None:
        """A look is over: whoever was not added is gone."""
        self._before, self._now = self._now, {}
        while len(self._series) > self._series_max:
            del self._series[next(iter(self._series))]


def _increase(before: int, now: int) -> int:
    """Whoever has counted less than before has begun anew."""
    return now - before if now >= before else now


_SLICE_SECONDS: Final = 0.002
"""At a time: less than a group commit takes on most disks."""
_ITEMS_PER_CLOCK_CHECK: Final = 32
"""Topics, subscriptions or connections between two looks at the clock."""
_SERIES_REMEMBERED: Final = 5
"""Times as many lines as are shown: whoever is deleted and created again within some time goes on counting."""
_DAMAGED: Final = "damaged"
_TOPIC_COUNTERS: Final = ("published", "published_bytes")
_SUBSCRIPTION_COUNTERS: Final = ("delivered", "acked", "failed", "redelivered", "buried", "dropped", "lost")
_SUBSCRIPTION_SUMS: Final = ("lag", "unacked", "consumers")
_Snapshot = TypeVar("_Snapshot", TopicSnapshot, SubscriptionSnapshot)


class SessionSource(Protocol):
    """What is asked of the hub."""

    @property
    def broker(self) -> Broker: ...

    @property
    def now_ms(self) -> Callable[[], int]:
        """A clock that only goes forward."""
        ...

    @property
    def held_bytes(self) -> int:
        """Of all connections: messages in part, reads that wait, and what waits to be sent."""
        ...

    def sessions(self) -> list[Any]:
        """Those that are connected: each has a `stream` with `queued_bytes`, and is `behind` or not."""
        ...


class SnapshotCollector:
    """Remembers which topics and subscriptions have lines of their own, and what was counted in each."""

    def __init__(
        self,
        sessions: SessionSource,
        store: Store | None,
        *,
        topics_max: int = TOPICS_MAX,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._topics: ShownSeries[int] = ShownSeries(topics_max)
        self._subscriptions: ShownSeries[int] = ShownSeries(subscriptions_max)
        self._published: CumulativeCounters[int] = CumulativeCounters(_SERIES_REMEMBERED * topics_max + 1)
        self._delivered: CumulativeCounters[int] = CumulativeCounters(_SERIES_REMEMBERED * subscriptions_max + 1)
        self._damages: CumulativeCounters[tuple[int, int]] = CumulativeCounters(1)

    async def collect(self) -> BrokerSnapshot:
        broker = self._sessions.broker
        topics = [] if broker.durable is None else list(broker.durable.topics)
        topic_snapshots = await self._topics_of(topics)
        runners = [each for topic in topics for each in topic.subscriptions.values() if not each.is_reader]
        subscriptions = [each for each in runners if not each.is_internal]
        shown = await self._subscriptions_of(subscriptions, self._sessions.now_ms())
        return BrokerSnapshot(
            unix_ms=broker.context.unix_ms(),
            counts=broker.metrics.counts(),
            message_bytes=broker.metrics.bytes,
            connections=len(broker.clients),
            requests_open=broker.requests_open,
            topics=len(topics),
            subscriptions=len(subscriptions),
            shown_topics=topic_snapshots,
            shown_subscriptions=shown,
            dead_letters=await self._dead_letters(topics),
            output=await self._output_snapshot(),
            held=self._sessions.held_bytes,
            storage=None if self._store is None else await self._storage_snapshot(self._store, topics),
        )

    async def _topics_of(self, topics: list[TopicState]) -> tuple[TopicSnapshot, ...]:
        by_uid = {topic.uid: topic for topic in topics}
        self._topics.choose(by_uid.keys(), lambda uid: by_uid[uid].messages)
        shown: list[TopicSnapshot] = []
        others: list[TopicSnapshot] = []
        async for uid, topic in _yielding(by_uid.items()):
            one, snapshot = uid in self._topics, _snapshot_of_topic(topic)
            self._published.add(uid, snapshot.name if one else OTHER_SERIES, _values(snapshot, _TOPIC_COUNTERS))
            (shown if one else others).append(snapshot)
        found = [_counted(each, self._published.of(each.name)) for each in shown]
        rest = self._published.of(OTHER_SERIES)
        self._published.end_collection()
        return (*found, _counted(_aggregate_topics(others), rest)) if others or any(rest.values()) else tuple(found)

    async def _dead_letters(self, topics: list[TopicState]) -> Mapping[str, int]:
        """Under the name of their topic where that has a line of its own."""
        left: Counter[str] = Counter()
        async for topic in _yielding(each for each in topics if each.name.holds_dead_letters):
            shown = topic.uid in self._topics
            count = sum(found.count for found in Graves(topic.name, topic).left().values())
            left[str(topic.name) if shown else OTHER_SERIES] += count
        return left

    async def _subscriptions_of(
        self, runners: list[SubscriptionRunner], now_ms: int
    ) -> tuple[SubscriptionSnapshot, ...]:
        by_uid = {each.uid: each for each in runners}
        self._subscriptions.choose(by_uid.keys(), lambda uid: _busy(by_uid[uid]))
        shown: list[SubscriptionSnapshot] = []
        others: list[SubscriptionSnapshot] = []
        async for uid, runner in _yielding(by_uid.items()):
            one = uid in self._subscriptions
            snapshot = _snapshot_of_subscription(runner, now_ms, floors=one)
            self._delivered.add(
                uid, _label(snapshot) if one else OTHER_SERIES, _values(snapshot, _SUBSCRIPTION_COUNTERS)
            )
            (shown if one else others).append(snapshot)
        found = [_counted(each, self._delivered.of(_label(each))) for each in shown]
        rest = self._delivered.of(OTHER_SERIES)
        self._delivered.end_collection()
        if others or any(rest.values()):
            found.append(_counted(_aggregate_subscriptions(others), rest))
        return tuple(found)

    async def _output_snapshot(self) -> OutputSnapshot:
        queued = largest = behind = 0
        async for session in _yielding(self._sessions.sessions()):
            size = session.transport.queued_bytes()
            queued, largest, behind = queued + size, max(largest, size), behind + session.behind
        return OutputSnapshot(queued=queued, largest=largest, behind=behind)

    async def _storage_snapshot(self, store: Store, topics: list[TopicState]) -> StorageSnapshot:
        logs, full, failed = 0, 0, []
        async for place, log in _yielding(_logs(topics)):
            logs += 1
            full += log.refusal is not None
            self._damages.add(place, _DAMAGED, {_DAMAGED: sum(len(damage.offsets) for damage in log.damages)})
            failed += [log.failure.message] if log.failure is not None else []
        self._damages.end_collection()
        return StorageSnapshot(
            syncs=store.meter.syncs.snapshot(),
            sync_failures=store.meter.sync_failures,
            groups=store.meter.groups.snapshot(),
            group_bytes=store.meter.group_bytes,
            queued=store.writer.queued_bytes,
            logs=logs,
            failed=tuple(failed),
            full=full,
            catalog_failed=store.catalog.failure is not None,
            damaged=self._damages.of(_DAMAGED)[_DAMAGED],
            reserve=store.reserve_bytes,
        )


async def _yielding(items: Iterable[Any]) -> Any:
    """Each of them; now and then it is somebody else's turn."""
    until = time.monotonic() + _SLICE_SECONDS
    for place, item in enumerate(items):
        yield item
        if place % _ITEMS_PER_CLOCK_CHECK == _ITEMS_PER_CLOCK_CHECK - 1 and time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + _SLICE_SECONDS


def _logs(topics: list[TopicState]) -> Iterator[tuple[tuple[int, int], Log]]:
    """Each with its topic and its partition."""
    for topic in topics:
        for partition, log in enumerate(topic.logs):
            yield (topic.uid, partition), log


def _values(snapshot: TopicSnapshot | SubscriptionSnapshot, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(snapshot, name) for name in names}


def _counted(snapshot: _Snapshot, counts: Mapping[str, Any]) -> _Snapshot:
    return replace(snapshot, **counts)


def _label(snapshot: SubscriptionSnapshot) -> tuple[str, str]:
    return snapshot.topic, snapshot.name


def _busy(runner: SubscriptionRunner) -> int:
    """Whoever has much to do counts as well as whoever does much."""
    return runner.machine.delivered + sum(cursor.backlog for cursor in runner.machine.cursors.values())


def _snapshot_of_topic(topic: TopicState) -> TopicSnapshot:
    views = tuple(log.view for log in topic.logs)
    return TopicSnapshot(name=str(topic.name), published=topic.messages, published_bytes=topic.bytes, views=views)


def _aggregate_topics(topics: list[TopicSnapshot]) -> TopicSnapshot:
    """What there is of them now; what was counted is the tally's."""
    counted: dict[str, Any] = dict.fromkeys(_TOPIC_COUNTERS, 0)
    return TopicSnapshot(name=OTHER_SERIES, views=tuple(view for each in topics for view in each.views), **counted)


def _snapshot_of_subscription(runner: SubscriptionRunner, now_ms: int, *, floors: bool) -> SubscriptionSnapshot:
    machine, logs = runner.machine, runner.topic.logs
    lags = {partition: cursor.backlog for partition, cursor in machine.cursors.items()}
    since_ms = machine.unacked_since_ms()
    return SubscriptionSnapshot(
        topic=str(runner.topic.name),
        name=runner.name,
        delivered=machine.delivered,
        acked=machine.acked,
        failed=machine.failed,
        redelivered=machine.redelivered,
        buried=machine.dead_lettered,
        dropped=machine.dropped,
        lost=machine.lost,
        lag=sum(lags.values()),
        unacked=sum(each.in_flight for each in machine.consumers.values()),
        unacked_ms=0 if since_ms is None else max(0, now_ms - since_ms),
        consumers=len(machine.consumers),
        floors=tuple((logs[each], machine.cursors[each].floor) for each, lag in lags.items() if lag and floors),
    )


def _aggregate_subscriptions(found: list[SubscriptionSnapshot]) -> SubscriptionSnapshot:
    """The same of subscriptions."""
    counted: dict[str, Any] = dict.fromkeys(_SUBSCRIPTION_COUNTERS, 0)
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in found) for name in _SUBSCRIPTION_SUMS}
    oldest_ms = max((each.unacked_ms for each in found), default=0)
    return SubscriptionSnapshot(topic=OTHER_SERIES, name=OTHER_SERIES, unacked_ms=oldest_ms, **counted, **sums)
