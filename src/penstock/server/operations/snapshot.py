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
from penstock.broker.subscriptions.delivery import Delivery
from penstock.broker.topics.topics import Stream
from penstock.storage.base.metrics import Distribution
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import LogView
from penstock.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic, or several put together."""

    name: str
    published: int
    published_bytes: int
    views: tuple[LogView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
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
class OutputFacts:
    """What waits to be sent."""

    queued: int = 0
    largest: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFacts:
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
class BrokerFacts:
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
    shown_topics: tuple[TopicFacts, ...]
    shown_subscriptions: tuple[SubscriptionFacts, ...]
    output: OutputFacts
    held: int = 0
    """Bytes of all connections: messages in part, reads that wait, and what waits to be sent."""
    storage: StorageFacts | None = None
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


OTHERS: Final = "_other"
"""No topic has such a name, and no subscription."""

TOPICS_MAX: Final = 200
"""Topics with lines of their own in `/metrics`: with all that is measured of each some 1,000 lines, which take a
hundredth of a second to write."""

SUBSCRIPTIONS_MAX: Final = 300
"""Subscriptions with lines of their own in `/metrics`: some 4,000 lines, and one look into the log for each."""

_Key = TypeVar("_Key", bound=Hashable)


class Chosen(Generic[_Key]):
    """At most so many of a kind."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[_Key] = set()

    def __contains__(self, key: _Key) -> bool:
        return key in self._kept

    def look(self, there: Collection[_Key], busy: Callable[[_Key], int]) -> None:
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


class Tally(Generic[_CounterKey]):
    """At most so many lines; past that, those are forgotten that were asked for longest ago."""

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._lines: dict[Hashable, Counter[str]] = {}
        self._before: dict[_CounterKey, Mapping[str, int]] = {}
        """What each had counted at the last look."""

        self._now: dict[_CounterKey, Mapping[str, int]] = {}

    def add(self, key: _CounterKey, line: Hashable, counts: Mapping[str, int]) -> None:
        """What somebody in this line has counted until now."""
        total = self._lines.setdefault(line, Counter())
        before = self._before.get(key, {})
        for name, count in counts.items():
            total[name] += _grown(before.get(name, 0), count)
        self._now[key] = counts

    def of(self, line: Hashable) -> Mapping[str, int]:
        """What a line has come to. It is kept for being asked for."""
        found = self._lines[line] = self._lines.pop(line, Counter())
        return found

    def looked(self) -> None:
        """A look is over: whoever was not added is gone."""
        self._before, self._now = self._now, {}
        while len(self._lines) > self._lines_max:
            del self._lines[next(iter(self._lines))]


def _grown(before: int, now: int) -> int:
    """Whoever has counted less than before has begun anew."""
    return now - before if now >= before else now


_SLICE_SECONDS: Final = 0.002
"""At a time: less than a group commit takes on most disks."""
_AT_ONCE: Final = 32
"""Topics, subscriptions or connections between two looks at the clock."""
_LINES_REMEMBERED: Final = 5
"""Times as many lines as are shown: whoever is deleted and created again within some time goes on counting."""
_DAMAGED: Final = "damaged"
_TOPIC_COUNTERS: Final = ("published", "published_bytes")
_SUBSCRIPTION_COUNTERS: Final = ("delivered", "acked", "failed", "redelivered", "buried", "dropped", "lost")
_SUBSCRIPTION_SUMS: Final = ("lag", "unacked", "consumers")
_Facts = TypeVar("_Facts", TopicFacts, SubscriptionFacts)


class Sessions(Protocol):
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


class Gathering:
    """Remembers which topics and subscriptions have lines of their own, and what was counted in each."""

    def __init__(
        self,
        sessions: Sessions,
        store: Store | None,
        *,
        topics_max: int = TOPICS_MAX,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._topics: Chosen[int] = Chosen(topics_max)
        self._subscriptions: Chosen[int] = Chosen(subscriptions_max)
        self._published: Tally[int] = Tally(_LINES_REMEMBERED * topics_max + 1)
        self._delivered: Tally[int] = Tally(_LINES_REMEMBERED * subscriptions_max + 1)
        self._damages: Tally[tuple[int, int]] = Tally(1)

    async def gather(self) -> BrokerFacts:
        broker = self._sessions.broker
        streams = [] if broker.durable is None else list(broker.durable.streams)
        topics = await self._topic_facts(streams)
        deliveries = [each for stream in streams for each in stream.deliveries.values() if not each.is_reader]
        subscriptions = [each for each in deliveries if not each.is_internal]
        shown = await self._subscription_facts(subscriptions, self._sessions.now_ms())
        return BrokerFacts(
            unix_ms=broker.desk.unix_ms(),
            counts=broker.metrics.counts(),
            message_bytes=broker.metrics.bytes,
            connections=len(broker.clients),
            requests_open=broker.requests_open,
            topics=len(streams),
            subscriptions=len(subscriptions),
            shown_topics=topics,
            shown_subscriptions=shown,
            dead_letters=await self._dead_letters(streams),
            output=await self._output_facts(),
            held=self._sessions.held_bytes,
            storage=None if self._store is None else await self._storage_facts(self._store, streams),
        )

    async def _topic_facts(self, streams: list[Stream]) -> tuple[TopicFacts, ...]:
        by_uid = {stream.topic.topic_uid: stream for stream in streams}
        self._topics.look(by_uid.keys(), lambda uid: by_uid[uid].messages)
        shown: list[TopicFacts] = []
        others: list[TopicFacts] = []
        async for uid, stream in _in_slices(by_uid.items()):
            one, facts = uid in self._topics, _topic(stream)
            self._published.add(uid, facts.name if one else OTHERS, _values(facts, _TOPIC_COUNTERS))
            (shown if one else others).append(facts)
        found = [_counted(each, self._published.of(each.name)) for each in shown]
        rest = self._published.of(OTHERS)
        self._published.looked()
        return (*found, _counted(_topics_together(others), rest)) if others or any(rest.values()) else tuple(found)

    async def _dead_letters(self, streams: list[Stream]) -> Mapping[str, int]:
        """Under the name of their topic where that has a line of its own."""
        left: Counter[str] = Counter()
        async for stream in _in_slices(each for each in streams if each.name.holds_dead_letters):
            shown = stream.topic.topic_uid in self._topics
            count = sum(found.count for found in Graves(stream.name, stream).left().values())
            left[str(stream.name) if shown else OTHERS] += count
        return left

    async def _subscription_facts(self, deliveries: list[Delivery], now_ms: int) -> tuple[SubscriptionFacts, ...]:
        by_uid = {each.uid: each for each in deliveries}
        self._subscriptions.look(by_uid.keys(), lambda uid: _busy(by_uid[uid]))
        shown: list[SubscriptionFacts] = []
        others: list[SubscriptionFacts] = []
        async for uid, delivery in _in_slices(by_uid.items()):
            one = uid in self._subscriptions
            facts = _subscription(delivery, now_ms, floors=one)
            self._delivered.add(uid, _line(facts) if one else OTHERS, _values(facts, _SUBSCRIPTION_COUNTERS))
            (shown if one else others).append(facts)
        found = [_counted(each, self._delivered.of(_line(each))) for each in shown]
        rest = self._delivered.of(OTHERS)
        self._delivered.looked()
        if others or any(rest.values()):
            found.append(_counted(_subscriptions_together(others), rest))
        return tuple(found)

    async def _output_facts(self) -> OutputFacts:
        queued = largest = behind = 0
        async for session in _in_slices(self._sessions.sessions()):
            size = session.stream.queued_bytes()
            queued, largest, behind = queued + size, max(largest, size), behind + session.behind
        return OutputFacts(queued=queued, largest=largest, behind=behind)

    async def _storage_facts(self, store: Store, streams: list[Stream]) -> StorageFacts:
        logs, full, failed = 0, 0, []
        async for place, log in _in_slices(_logs(streams)):
            logs += 1
            full += log.refusal is not None
            self._damages.add(place, _DAMAGED, {_DAMAGED: sum(len(damage.offsets) for damage in log.damages)})
            failed += [log.failure.message] if log.failure is not None else []
        self._damages.looked()
        return StorageFacts(
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


async def _in_slices(items: Iterable[Any]) -> Any:
    """Each of them; now and then it is somebody else's turn."""
    until = time.monotonic() + _SLICE_SECONDS
    for place, item in enumerate(items):
        yield item
        if place % _AT_ONCE == _AT_ONCE - 1 and time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + _SLICE_SECONDS


def _logs(streams: list[Stream]) -> Iterator[tuple[tuple[int, int], Log]]:
    """Each with its topic and its partition."""
    for stream in streams:
        for partition, log in enumerate(stream.logs):
            yield (stream.topic.topic_uid, partition), log


def _values(facts: TopicFacts | SubscriptionFacts, names: tuple[str, ...]) -> dict[str, int]:
    return {name: getattr(facts, name) for name in names}


def _counted(facts: _Facts, counts: Mapping[str, Any]) -> _Facts:
    return replace(facts, **counts)


def _line(facts: SubscriptionFacts) -> tuple[str, str]:
    return facts.topic, facts.name


def _busy(delivery: Delivery) -> int:
    """Whoever has much to do counts as well as whoever does much."""
    return delivery.group.delivered + sum(lane.backlog for lane in delivery.group.lanes.values())


def _topic(stream: Stream) -> TopicFacts:
    views = tuple(log.view for log in stream.logs)
    return TopicFacts(name=str(stream.name), published=stream.messages, published_bytes=stream.bytes, views=views)


def _topics_together(topics: list[TopicFacts]) -> TopicFacts:
    """What there is of them now; what was counted is the tally's."""
    counted: dict[str, Any] = dict.fromkeys(_TOPIC_COUNTERS, 0)
    return TopicFacts(name=OTHERS, views=tuple(view for each in topics for view in each.views), **counted)


def _subscription(delivery: Delivery, now_ms: int, *, floors: bool) -> SubscriptionFacts:
    group, logs = delivery.group, delivery.stream.logs
    lags = {partition: lane.backlog for partition, lane in group.lanes.items()}
    since_ms = group.unacked_since_ms()
    return SubscriptionFacts(
        topic=str(delivery.stream.name),
        name=delivery.name,
        delivered=group.delivered,
        acked=group.acked,
        failed=group.failed,
        redelivered=group.redelivered,
        buried=group.buried,
        dropped=group.dropped,
        lost=group.lost,
        lag=sum(lags.values()),
        unacked=sum(each.in_flight for each in group.consumers.values()),
        unacked_ms=0 if since_ms is None else max(0, now_ms - since_ms),
        consumers=len(group.consumers),
        floors=tuple((logs[each], group.lanes[each].floor) for each, lag in lags.items() if lag and floors),
    )


def _subscriptions_together(found: list[SubscriptionFacts]) -> SubscriptionFacts:
    """The same of subscriptions."""
    counted: dict[str, Any] = dict.fromkeys(_SUBSCRIPTION_COUNTERS, 0)
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in found) for name in _SUBSCRIPTION_SUMS}
    oldest_ms = max((each.unacked_ms for each in found), default=0)
    return SubscriptionFacts(topic=OTHERS, name=OTHERS, unacked_ms=oldest_ms, **counted, **sums)
