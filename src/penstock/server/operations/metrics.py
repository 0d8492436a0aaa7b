"""The metrics of Prometheus: each family with its name, its help and where its values come from, and the text
format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from penstock import __version__
from penstock.server.operations.snapshot import BrokerSnapshot, StorageSnapshot, SubscriptionSnapshot, TopicSnapshot
from penstock.storage.base.metrics import Distribution

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricKind(StrEnum):
    COUNTER = "counter"
    """A count that only grows, from 0 at the start of the broker."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A family of metrics in the sense of Prometheus: its name, help text and the names of its labels."""

    name: str
    kind: MetricKind
    about: str
    labels: tuple[str, ...] = ()


Value = float | Distribution
Sample = tuple[tuple[str, ...], Value]
"""A sample of a family: the values of its labels, in the order of their names, and the measured value."""


def render(measured: Iterable[tuple[MetricFamily, Iterable[Sample]]]) -> bytes:
    """Return all families in the text format of Prometheus, each with its help, even if it has no samples."""
    return "".join(line for family, samples in measured for line in _lines(family, samples)).encode()


def _lines(family: MetricFamily, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.about)}\n# TYPE {family.name} {family.kind.value}\n"
    for values, value in samples:
        labels = _labels(family.labels, values) if values or family.labels else ""
        if isinstance(value, Distribution):
            yield from _buckets(family.name, labels, value)
        else:
            yield f"{family.name}{_braced(labels)} {number(value)}\n"


@lru_cache(maxsize=1024)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return the labels as text. Cached, since the labels of a topic are the same in each family."""
    return ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in zip(names, values, strict=True))


def _buckets(name: str, labels: str, distribution: Distribution) -> Iterator[str]:
    comma = "," if labels else ""
    for bound, count in zip((*map(number, distribution.bounds), "+Inf"), distribution.counts, strict=True):
        yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}\n'
    yield f"{name}_sum{_braced(labels)} {number(distribution.total)}\n"
    yield f"{name}_count{_braced(labels)} {distribution.count}\n"


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a number as text: a whole number without a decimal point, any other without loss of precision."""
    if isinstance(value, int):
        return str(int(value))
    return str(int(value)) if value == int(value) else repr(float(value))


_PREFIX: Final = "penstock_"
ReadSamples = Callable[[BrokerSnapshot], Iterable[Sample]]


def _family(name: str, about: str, *labels: str, kind: MetricKind | None = None) -> MetricFamily:
    kind = kind or (MetricKind.COUNTER if name.endswith("_total") else MetricKind.GAUGE)
    return MetricFamily(name if name.startswith("process_") else _PREFIX + name, kind, about, labels)


def _one(read: Callable[[BrokerSnapshot], float]) -> ReadSamples:
    return lambda snapshot: [((), read(snapshot))]


def _count(name: str) -> ReadSamples:
    return lambda snapshot: [((), snapshot.counts[name])]


def _stored(read: Callable[[StorageSnapshot], Sample]) -> ReadSamples:
    return lambda snapshot: [] if snapshot.storage is None else [read(snapshot.storage)]


def _topics(read: Callable[[TopicSnapshot], float]) -> ReadSamples:
    return lambda snapshot: [((topic.name,), read(topic)) for topic in snapshot.shown_topics]


def _subscriptions(read: Callable[[SubscriptionSnapshot], float]) -> ReadSamples:
    return lambda snapshot: [
        ((subscription.topic, subscription.name), read(subscription)) for subscription in snapshot.shown_subscriptions
    ]


def _lags(snapshot: BrokerSnapshot) -> Iterator[Sample]:
    for subscription in snapshot.shown_subscriptions:
        yield (subscription.topic, subscription.name), snapshot.lags.get((subscription.topic, subscription.name), 0.0)


def _process(name: str) -> ReadSamples:
    return lambda snapshot: [((), snapshot.process[name])] if name in snapshot.process else []


_TOPIC: Final = ("topic",)
_SUB: Final = ("topic", "subscription")

FAMILIES: Final[tuple[tuple[MetricFamily, ReadSamples], ...]] = (
    (_family("build_info", "The release; always 1.", "version"), lambda _: [((__version__,), 1)]),
    (
        _family("check_ok", "Whether a condition of being ready is met: 1 or 0.", "check"),
        lambda snapshot: [((name,), int(ok)) for name, ok in snapshot.checks.items()],
    ),
    # the wire
    (_family("wire_messages_total", "Messages that came in, of any action."), _count("router.message")),
    (_family("wire_message_bytes_total", "Their payloads."), _one(lambda snapshot: snapshot.message_bytes)),
    (_family("wire_errors_total", "Messages answered with an error."), _count("router.message.error")),
    (_family("publish_errors_total", "Published messages that were refused."), _count("router.publish.error")),
    (_family("publish_dropped_total", "Live messages that nobody listened for."), _count("router.publish.dropped")),
    (_family("live_delivered_messages_total", "Messages sent to live subscribers."), _count("live.delivered")),
    (_family("requests_total", "Requests that came in."), _count("router.request")),
    (_family("requests_timed_out_total", "Requests without an answer in time."), _count("router.request.timeout")),
    (_family("requests_open", "Requests that wait for their answer."), _one(lambda snapshot: snapshot.requests_open)),
    # connections
    (_family("connections", "Connections over TCP and WebSocket."), _one(lambda snapshot: snapshot.connections)),
    (_family("connections_opened_total", "Connections that came."), _count("connection.connected")),
    (_family("connections_closed_total", "Connections that ended."), _count("connection.disconnected")),
    (_family("connections_rejected_total", "Connections that were one too many."), _count("connection.rejected")),
    (_family("connections_failed_total", "Connections that broke."), _count("connection.failed")),
    (_family("floods_ended_total", "Connections that were ended for a flood."), _count("flood.ended")),
    (
        _family(
            "held_bytes",
            "What connections hold: messages that came in part, reads that wait, and what waits to be sent.",
        ),
        _one(lambda snapshot: snapshot.held),
    ),
    (_family("output_queued_bytes", "Waits to be sent, to all."), _one(lambda snapshot: snapshot.output.queued)),
    (_family("output_queued_largest_bytes", "Waits for the slowest."), _one(lambda snapshot: snapshot.output.largest)),
    (_family("output_behind_connections", "Connections behind."), _one(lambda snapshot: snapshot.output.behind)),
    # events over HTTP
    (_family("http_events_published_total", "Messages posted over HTTP."), _count("http.events.published")),
    (
        _family("http_events_refused_total", "Messages posted over HTTP that were refused."),
        _count("http.events.refused"),
    ),
    (_family("http_events_sent_total", "Events sent to streams."), _count("http.events.sent")),
    (_family("http_streams", "Streams of events that are open."), _one(lambda snapshot: snapshot.http_streams)),
    (
        _family("http_streams_queued_bytes", "Waits to be taken by these; what several read is counted once."),
        _one(lambda snapshot: snapshot.http_streams_queued),
    ),
    (_family("http_streams_opened_total", "Streams of events that began."), _count("http.streams.opened")),
    (_family("http_streams_closed_total", "Streams of events that ended."), _count("http.streams.closed")),
    # topics
    (_family("topics", "Topics that are there."), _one(lambda snapshot: snapshot.topics)),
    (_family("topic_published_messages_total", "Messages stored.", *_TOPIC), _topics(lambda topic: topic.published)),
    (_family("topic_published_bytes_total", "Their bytes.", *_TOPIC), _topics(lambda topic: topic.published_bytes)),
    (
        _family("topic_messages", "Messages in the log.", *_TOPIC),
        _topics(lambda topic: sum(view.messages for view in topic.views)),
    ),
    (
        _family("topic_segment_bytes", "Bytes of records in segments.", *_TOPIC),
        _topics(lambda topic: sum(view.size for view in topic.views)),
    ),
    (
        _family("topic_segments", "Segment files.", *_TOPIC),
        _topics(lambda topic: sum(len(view.segments) for view in topic.views)),
    ),
    (
        _family("dead_letters_left_messages", "Dead letters neither sent back nor dropped.", *_TOPIC),
        lambda snapshot: [((topic,), count) for topic, count in snapshot.dead_letters.items()],
    ),
    # subscriptions
    (_family("subscriptions", "Durable subscriptions."), _one(lambda snapshot: snapshot.subscriptions)),
    (
        _family("subscription_delivered_messages_total", "Messages delivered, each time it was.", *_SUB),
        _subscriptions(lambda sub: sub.delivered),
    ),
    (
        _family("subscription_acked_messages_total", "Messages acknowledged.", *_SUB),
        _subscriptions(lambda sub: sub.acked),
    ),
    (
        _family("subscription_failed_messages_total", "Deliveries refused, or not acknowledged in time.", *_SUB),
        _subscriptions(lambda sub: sub.failed),
    ),
    (
        _family("subscription_redelivered_messages_total", "Messages given back to be delivered again.", *_SUB),
        _subscriptions(lambda sub: sub.redelivered),
    ),
    (
        _family("subscription_dead_letters_total", "Messages put among the dead letters.", *_SUB),
        _subscriptions(lambda sub: sub.buried),
    ),
    (
        _family("subscription_dropped_messages_total", "Messages dropped after their last delivery.", *_SUB),
        _subscriptions(lambda sub: sub.dropped),
    ),
    (
        _family("subscription_lost_messages_total", "Messages that were gone before they were settled.", *_SUB),
        _subscriptions(lambda sub: sub.lost),
    ),
    (
        _family("subscription_lag_messages", "Messages that are not settled yet.", *_SUB),
        _subscriptions(lambda sub: sub.lag),
    ),
    (_family("subscription_lag_seconds", "Age of the oldest of these.", *_SUB), _lags),
    (
        _family("subscription_unacked_messages", "Messages delivered and not acknowledged yet.", *_SUB),
        _subscriptions(lambda sub: sub.unacked),
    ),
    (
        _family("subscription_oldest_unacked_seconds", "Since when the first of these waits.", *_SUB),
        _subscriptions(lambda sub: sub.unacked_ms / 1000),
    ),
    (
        _family("subscription_consumers", "Consumers that are connected.", *_SUB),
        _subscriptions(lambda sub: sub.consumers),
    ),
    # storage
    (
        _family("sync_seconds", "How long a sync of the log took.", kind=MetricKind.HISTOGRAM),
        _stored(lambda storage: ((), storage.syncs)),
    ),
    (
        _family("sync_failures_total", "Syncs that failed: each ends the appending to a log."),
        _stored(lambda storage: ((), storage.sync_failures)),
    ),
    (
        _family("group_messages", "Messages made durable together.", kind=MetricKind.HISTOGRAM),
        _stored(lambda storage: ((), storage.groups)),
    ),
    (_family("group_bytes_total", "Bytes given to the writer."), _stored(lambda storage: ((), storage.group_bytes))),
    (_family("writer_queued_bytes", "Bytes waiting for the writer."), _stored(lambda storage: ((), storage.queued))),
    (_family("logs", "Logs: one a partition."), _stored(lambda storage: ((), storage.logs))),
    (
        _family("logs_failed", "Logs that take no appends until the broker starts again."),
        _stored(lambda storage: ((), len(storage.failed))),
    ),
    (
        _family("logs_full", "Logs whose last append found no room on the disk."),
        _stored(lambda storage: ((), storage.full)),
    ),
    (
        _family("catalog_failed", "Whether the catalog takes no changes until the broker starts again: 1 or 0."),
        _stored(lambda storage: ((), int(storage.catalog_failed))),
    ),
    (
        _family("corruption_found_total", "Messages found damaged or missing, at the start and by reads since."),
        _stored(lambda storage: ((), storage.damaged)),
    ),
    (_family("segments_removed_total", "Segments that retention removed."), _count("retention.segments")),
    (
        _family("disk_free_bytes", "Free on the disk that the logs lie on."),
        lambda snapshot: [] if snapshot.storage is None else [((), snapshot.free)],
    ),
    (
        _family("disk_reserve_bytes", "With less than that free, appends are refused."),
        _stored(lambda storage: ((), storage.reserve)),
    ),
    # schemas
    (_family("schema_rejected_messages_total", "Messages that a schema refused."), _count("schema.refused")),
    (_family("schema_warned_messages_total", "Messages taken although not allowed."), _count("schema.warned")),
    # HTTP
    (
        _family("http_requests_total", "Answers over HTTP.", "method", "route", "code"),
        lambda snapshot: [(labels, count) for labels, count in sorted(snapshot.http.items())],
    ),
    # the process
    (_family("process_cpu_seconds_total", "Processor time used."), _process("cpu_seconds")),
    (_family("process_resident_memory_bytes", "Memory in use."), _process("resident_bytes")),
    (_family("process_start_time_seconds", "When it started, in Unix time."), _process("start_seconds")),
    (_family("process_open_fds", "Open files and sockets."), _process("open_files")),
    (_family("process_max_fds", "How many there may be."), _process("open_files_max")),
)


def measured(snapshot: BrokerSnapshot) -> Iterator[tuple[MetricFamily, Iterable[Sample]]]:
    """Yield every family with its samples from the snapshot."""
    for family, read in FAMILIES:
        yield family, read(snapshot)
