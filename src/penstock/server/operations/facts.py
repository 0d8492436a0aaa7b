"""What is known of a broker at one moment, as values. Gathered on the event loop, worked on in another thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.storage.base.metrics import Distribution
from penstock.storage.log.log import Log
from penstock.storage.log.log_view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic, or several put together."""

    name: str
    published: int
    published_bytes: int
    views: tuple[View, ...]


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
    """Under the names of `penstock.broker.metrics`."""
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
