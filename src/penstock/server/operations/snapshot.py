"""A snapshot of a running broker: its figures as plain values. It is collected on the event loop in short slices, and
its size is bounded."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.broker.admin.dead_letters import DeadLetterTopic
from penstock.broker.broker import Broker
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.topics.topics import TopicState
from penstock.storage.base.metrics import Distribution
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import LogView
from penstock.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """The figures of one topic, or the sum over several topics."""

    name: str
    published: int
    published_bytes: int
    views: tuple[LogView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSnapshot:
    """The figures of one subscription, or the sum over several."""

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
    """The age in milliseconds of the oldest delivery that is not acknowledged; 0 if there is none."""
    consumers: int
    floors: tuple[tuple[Log, int], ...] = ()
    """The offset of the oldest message that is not acknowledged, for the log of each partition that has such a message.
    Empty for a sum over several subscriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSnapshot:
    """The output of all connections that waits to be sent: its bytes, the bytes of the connection with the most, and
    the number of connections that are behind."""

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
    """The reason of each log that takes no appends any more."""
    full: int
    """The number of logs whose last append was refused for lack of room."""
    catalog_failed: bool
    damaged: int
    """The number of messages that were found damaged since the broker started."""
    reserve: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """The figures of the whole broker at one time."""

    unix_ms: int
    counts: Mapping[str, int]
    """The broker's counters by name; the names are in `penstock.broker.base.metrics`."""
    message_bytes: int
    connections: int
    requests_open: int
    topics: int
    subscriptions: int
    """The number of subscriptions, without those that the broker itself uses."""
    shown_topics: tuple[TopicSnapshot, ...]
    shown_subscriptions: tuple[SubscriptionSnapshot, ...]
    output: OutputSnapshot
    held: int = 0
    """The bytes held for all connections: incomplete messages, reads that wait for their turn, and unsent output."""
    storage: StorageSnapshot | None = None
    """The storage; None for a broker without durable topics."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """The numbers of dead letters that were neither redriven nor dropped, by their topic."""
    http: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """The numbers of HTTP responses, by method, route and status."""
    http_streams: int = 0
    """The number of open event streams."""
    http_streams_queued: int = 0
    """The bytes that the readers of these streams have not taken yet."""
    lags: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The age in seconds of the oldest message that is not acknowledged, by topic and subscription."""
    free: int = 0
    """Free bytes on the disk of the logs."""
    checks: Mapping[str, bool] = field(default_factory=dict)
    process: Mapping[str, float] = field(default_factory=dict)


OTHER_SERIES: Final = "_other"
"""The label of the series with the sum over all topics or subscriptions without series of their own. No topic or
subscription can have this name."""

TOPICS_MAX: Final = 200
"""The most topics with series of their own in `/metrics`: about 1,000 lines, which take a hundredth of a second to
write."""

SUBSCRIPTIONS_MAX: Final = 300
"""The most subscriptions with series of their own in `/metrics`: some 4,000 lines. Each of them also takes one lookup
in the log."""

_Key = TypeVar("_Key", bound=Hashable)


class ShownSeries(Generic[_Key]):
    """The topics or subscriptions that have series of their own in the metrics, at most `most`. One that has its series
    keeps it as long as it exists."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[_Key] = set()

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def choose(self, there: Collection[_Key], busy: Callable[[_Key], int]) -> None:
        """Choose what has a series, among all that exist (`there`). Those that no longer exist lose theirs. Free series
        go to the busiest of those without one; `busy` returns how busy one is."""
        self._kept.intersection_update(there)
        free = self._most - len(self._kept)
        if free <= 0:
            return
        waiting = [key for key in there if key not in self._kept]
        if len(waiting) > free:  # an idle one can wait for its series
            waiting = heapq.nlargest(free, (key for key in waiting if busy(key) > 0), key=busy)
        self._kept.update(waiting)


_CounterKey = TypeVar("_CounterKey", bound=Hashable)


class CumulativeCounters(Generic[_CounterKey]):
    """Counters, by series, that keep their value when the topic or subscription that they count is deleted. At most
    `series_max` series are kept: the one that was read longest ago goes first."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._series: dict[Hashable, Counter[str]] = {}
        self._before: dict[_CounterKey, Mapping[str, int]] = {}
        """The counts of each key at the last collection."""

        self._now: dict[_CounterKey, Mapping[str, int]] = {}

    def add(self, key: _CounterKey, series: Hashable, counts: Mapping[str, int]) -> None:
        """Add to the counters of `series` by how much the counts of `key` have grown since the last collection.
        `counts` has its current counts by name."""
        total = self._series.setdefault(series, Counter())
        before = self._before.get(key, {})
        for name, count in counts.items():
            total[name] += _increase(before.get(name, 0), count)
        self._now[key] = counts

    def of(self, series: Hashable) -> Mapping[str, int]:
        """Return the counters of a series, zero if it is new, and mark it as read just now."""
        counters = self._series[series] = self._series.pop(series, Counter())
        return counters

    def end_collection(self) -> None:
        """Finish a collection. Keys that were not added since the last one are forgotten: they no longer exist."""
        self._before, self._now = self._now, {}
        while len(self._series) > self._series_max:
            del self._series[next(iter(self._series))]


def _increase(before: int, now: int) -> int:
    """Return by how much a counter has grown. If it is lower than before, it has started again from 0."""
    return now - before if now >= before else now


_SLICE_SECONDS: Final = 0.002
"""The time slice of the collection in seconds, shorter than a group commit takes on most disks."""
_ITEMS_PER_CLOCK_CHECK: Final = 32
"""The number of items between two looks at the clock."""
_SERIES_REMEMBERED: Final = 5
"""The number of series whose counters are remembered, for each one that is shown: a topic that is deleted and created
again then continues its counters."""
_DAMAGED: Final = "damaged"
_TOPIC_COUNTERS: Final = ("published", "published_bytes")
_SUBSCRIPTION_COUNTERS: Final = ("delivered", "acked", "failed", "redelivered", "buried", "dropped", "lost")
_SUBSCRIPTION_SUMS: Final = ("lag", "unacked", "consumers")
_Snapshot = TypeVar("_Snapshot", TopicSnapshot, SubscriptionSnapshot)


class SessionSource(Protocol):
    """The hub as the collector of snapshots needs it."""

    @property
    def broker(self) -> Broker: ...

    @property
    def now_ms(self) -> Callable[[], int]:
        """A clock that only goes forward."""
        ...

    @property
    def held_bytes(self) -> int:
        """The bytes held for all connections: incomplete messages, reads that wait for their turn, and unsent
        output."""
        ...

    def sessions(self) -> list[Any]:
        """Return the connected sessions. Of each, `transport.queued_bytes()` and `behind` are used."""
        ...


class SnapshotCollector:
    """Collects snapshots of the broker. Between two collections it remembers which topics and subscriptions have series
    of their own, and their counters."""

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
        runners = [runner for topic in topics for runner in topic.subscriptions.values() if not runner.is_reader]
        subscriptions = [runner for runner in runners if not runner.is_internal]
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
        snapshots = [_counted(topic_snapshot, self._published.of(topic_snapshot.name)) for topic_snapshot in shown]
        rest = self._published.of(OTHER_SERIES)
        self._published.end_collection()
        return (
            (*snapshots, _counted(_aggregate_topics(others), rest))
            if others or any(rest.values())
            else tuple(snapshots)
        )

    async def _dead_letters(self, topics: list[TopicState]) -> Mapping[str, int]:
        """Return the number of dead letters by topic; those of topics without series of their own are counted under
        `_other`."""
        left: Counter[str] = Counter()
        async for topic in _yielding(each for each in topics if each.name.holds_dead_letters):
            shown = topic.uid in self._topics
            count = sum(found.count for found in DeadLetterTopic(topic.name, topic).left().values())
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
        snapshots = [_counted(each, self._delivered.of(_label(each))) for each in shown]
        rest = self._delivered.of(OTHER_SERIES)
        self._delivered.end_collection()
        if others or any(rest.values()):
            snapshots.append(_counted(_aggregate_subscriptions(others), rest))
        return tuple(snapshots)

    async def _output_snapshot(self) -> OutputSnapshot:
        queued = largest = behind = 0
        async for session in _yielding(self._sessions.sessions()):
            size = session.transport.queued_bytes()
            queued, largest, behind = queued + size, max(largest, size), behind + session.behind
        return OutputSnapshot(queued=queued, largest=largest, behind=behind)

    async def _storage_snapshot(self, store: Store, topics: list[TopicState]) -> StorageSnapshot:
        logs, full, failed = 0, 0, []
        async for partition, log in _yielding(_logs(topics)):
            logs += 1
            full += log.refusal is not None
            self._damages.add(partition, _DAMAGED, {_DAMAGED: sum(len(damage.offsets) for damage in log.damages)})
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
    """Yield the items, and let the event loop run other tasks every few milliseconds."""
    until = time.monotonic() + _SLICE_SECONDS
    for number, item in enumerate(items):
        yield item
        if number % _ITEMS_PER_CLOCK_CHECK == _ITEMS_PER_CLOCK_CHECK - 1 and time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + _SLICE_SECONDS


def _logs(topics: list[TopicState]) -> Iterator[tuple[tuple[int, int], Log]]:
    """Yield each log, with the id of its topic and the number of its partition."""
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
    """Return a measure of how busy a subscription is: its deliveries so far plus its backlog."""
    return runner.machine.delivered + sum(cursor.backlog for cursor in runner.machine.cursors.values())


def _snapshot_of_topic(topic: TopicState) -> TopicSnapshot:
    views = tuple(log.view for log in topic.logs)
    return TopicSnapshot(name=str(topic.name), published=topic.messages, published_bytes=topic.bytes, views=views)


def _aggregate_topics(topics: list[TopicSnapshot]) -> TopicSnapshot:
    """Return the sum over topics as they are now, with counters of 0: the counters of the sum are kept by
    `CumulativeCounters`."""
    counted: dict[str, Any] = dict.fromkeys(_TOPIC_COUNTERS, 0)
    return TopicSnapshot(name=OTHER_SERIES, views=tuple(view for topic in topics for view in topic.views), **counted)


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


def _aggregate_subscriptions(subscriptions: list[SubscriptionSnapshot]) -> SubscriptionSnapshot:
    """Return the sum over subscriptions as they are now, with counters of 0, as for topics."""
    counted: dict[str, Any] = dict.fromkeys(_SUBSCRIPTION_COUNTERS, 0)
    sums: dict[str, Any] = {
        name: sum(getattr(subscription, name) for subscription in subscriptions) for name in _SUBSCRIPTION_SUMS
    }
    oldest_ms = max((subscription.unacked_ms for subscription in subscriptions), default=0)
    return SubscriptionSnapshot(topic=OTHER_SERIES, name=OTHER_SERIES, unacked_ms=oldest_ms, **counted, **sums)
