"""The speed of durable messages: publishing, reading back and end-to-end latency, compared with the disk and with other
servers in the same run.

One Python process is the client of all servers, one after another. Servers run on one core, the client on another.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import uvloop

from penstock.aio import connect
from penstock.bench import Figure
from penstock.bench.connection import PublishConnection, single_publish_rate
from penstock.bench.disk import BareFile
from penstock.bench.kernels import sample
from penstock.bench.wire import framed, pinned_to
from penstock.client.consume.consumer import Consumer
from penstock.core.clock import SystemClock, now_ms
from penstock.core.errors import InvalidRequest, Timeout
from penstock.core.limits import KIB, Limits
from penstock.core.names import TopicName
from penstock.core.offsets import Offset
from penstock.record.block import Draft
from penstock.record.kernels import kernel_cache
from penstock.storage.base.layout import CATALOG
from penstock.storage.catalog.database import CatalogFile
from penstock.storage.catalog.rows import row_of_cursor, row_of_subscription, row_of_topic
from penstock.storage.catalog.subscriptions import Cursor, StoredSubscription, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.tables import CURSORS, SUBSCRIPTIONS, TOPICS, add_rows
from penstock.storage.catalog.topics import Dispatch, Topic, TopicSettings
from penstock.storage.store import Store
from penstock.testing import RunningBroker

_OURS: Final = "Penstock"
_SIZES: Final = ((100, "100 B", 1), (1024, "1 KiB", 4))
"""Payload sizes in bytes, their names, and the number by which the number of messages is divided for each."""
SLOWER: Final = 10
"""The number by which the number of messages is divided for other servers, and for messages published one at a time.
These are slower, and the rate does not depend on the number."""
_CHUNK_MESSAGES: Final = 10_000
_IN_FLIGHT: Final = 1024
_BATCHES: Final = (1024, 256, 64)
"""The sizes that are tried for a batch: messages for which the window must have room before a connection sends. Which
one is the fastest depends on the server."""
_RATE: Final = 1000
_WAIT_SECONDS: Final = 30.0
_MEMORY_MIB: Final = 300
_START_SECONDS: Final = 30
_OPEN_TOPICS: Final = 2_000
"""The number of topics filled at a time. Each has two files open, and a process may open only some thousand files."""
_SYNC_BYTES: Final = 4 * KIB
_SYNCS_MAX: Final = 2000
"""The most syncs measured: enough for a median. A slow disk takes ten seconds for them."""
_CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_RESIDENT: Final = "VmRSS"
_PEAK: Final = "VmHWM"


class Rival(Protocol):
    """Another server that is running, and the measurements of durable publishing to it."""

    def publish_rates(self, size: int, count: int) -> Contenders: ...

    def single_publish_rates(self, count: int, in_flight: int, batches: Sequence[int]) -> Contenders:
        """Return measurements of publishing messages one at a time, by name; empty if this server is not compared in
        that."""


StartRival = Callable[[Path], AbstractContextManager[Rival]]
"""A function that starts another server, which keeps its files in the given directory, and stops it when the context
ends."""


def measure(
    folder: Path,
    *,
    messages: int = 1_000_000,
    rounds: int = 3,
    seconds: float = 10.0,
    topics: int = 10_000,
    rivals: Sequence[StartRival] = (),
) -> Iterator[Figure]:
    """Yield all figures. Each round measures latency for `seconds`. All servers keep their files in `folder`."""
    kernel_cache.load_all()
    with ExitStack() as stack:
        with pinned_to(_CORES[1:]):
            broker = stack.enter_context(_broker(folder / "data"))
            others = [stack.enter_context(start(folder)) for start in rivals]
        with pinned_to(_CORES[:1]):
            for size, label, part in _SIZES:
                yield from _publishing(broker, others, size, label, messages // part, rounds)
            yield from _one_at_a_time(broker, others, messages // SLOWER, rounds)
            yield from _catching_up(broker, messages, rounds)
            yield from _latency(broker, int(seconds * _RATE), rounds)
        yield from _memory("broker memory, after all of this", broker, _PEAK)
    yield from many_topics(folder / "topics", topics)


def _broker(data: Path) -> RunningBroker:
    return RunningBroker("--ws-port", "off", "--log-level", "error", data=data)


# ---- figures


def _compared(name: str, unit: str, ours: float, peer: str, theirs: float) -> Figure:
    return Figure(name=name, value=ours, unit=unit, reference=peer, reference_value=theirs, ratio=ours / theirs)


def _within(name: str, unit: str, ours: float, bound: str, most: float) -> Figure:
    """Return a figure for which smaller is better: the ratio is the allowed value divided by the measured one."""
    return Figure(name=name, value=ours, unit=unit, reference=bound, reference_value=most, ratio=most / ours)


Contenders = Mapping[str, Callable[[], float]]
"""Measurements that are compared, by name. Each returns a rate."""


def best_in_turns(sides: Contenders, rounds: int) -> dict[str, float]:
    """Run each measurement once per round, and return the best rate of each. They take turns so that all are slowed
    alike by other processes."""
    best = dict.fromkeys(sides, 0.0)
    for _ in range(rounds):
        for name, run in sides.items():
            best[name] = max(best[name], run())
    return best


def _beside(what: str, ours: Callable[[], float], theirs: Contenders, rounds: int) -> Iterator[Figure]:
    """Yield one figure for each rival that compares our rate with its; without rivals, one figure with our rate
    alone."""
    best = best_in_turns({_OURS: ours, **theirs}, rounds)
    if not theirs:
        yield Figure(name=what, value=best[_OURS], unit="messages/s")
    for peer in theirs:
        yield _compared(f"{what}, beside {peer}", "messages/s", best[_OURS], peer, best[peer])


# ---- publishing


def _publishing(
    broker: RunningBroker, others: Sequence[Rival], size: int, label: str, count: int, rounds: int
) -> Iterator[Figure]:
    theirs = {name: rate for rival in others for name, rate in rival.publish_rates(size, count // SLOWER).items()}
    ours = partial(publish_rate, broker.url, _topic(size), size, count)
    yield from _beside(f"durable publish, {label}", ours, theirs, rounds)


def _topic(size: int) -> str:
    return f"bench.bytes{size}"


def publish_rate(url: str, topic: str, size: int, count: int) -> float:
    """Return the messages per second that one producer publishes, from the first message sent until all are
    confirmed."""
    payloads = [b"x" * size] * count

    async def run() -> float:
        async with connect(url) as client, client.producer(topic) as producer:
            began = time.perf_counter()
            for start in range(0, count, _CHUNK_MESSAGES):
                await producer.send_many(payloads[start : start + _CHUNK_MESSAGES])
            await producer.flush()
            return count / (time.perf_counter() - began)

    return uvloop.run(run())


# ---- publishing one at a time


class PenstockConnection(PublishConnection):
    """A connection to Penstock. Each message is a frame with an id of its own; each confirmation contains the word
    `duplicate`, by which it is counted."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._tail = b""
        self._window = 1
        self._next = 0
        greeting_bytes = int.from_bytes(self.socket.recv(4, socket.MSG_WAITALL), "big")
        self.socket.recv(greeting_bytes, socket.MSG_WAITALL)

    def encode(self, payload: bytes) -> bytes:
        return self._numbered(payload, 0)

    def _numbered(self, payload: bytes, number: int) -> bytes:
        return framed(f"publish:bench.single:1.0.0:{number:08x}-0000-4000-8000-000000000000\n".encode() + payload)

    def encode_window(self, payload: bytes, window: int) -> None:
        """Encode a window of messages with different ids, twice in a row. Any part of the window is then contiguous,
        even one that goes on at the beginning."""
        super().encode_window(payload, window)
        ring = b"".join(self._numbered(payload, number) for number in range(window))
        self._frames, self._window, self._next = memoryview(ring * 2), window, 0

    def send(self, most: int) -> int:
        whole, start = self._frames, self._next * self._frame_bytes
        self._frames = whole[start:]
        sent = super().send(most)
        self._frames, self._next = whole, (self._next + sent) % self._window
        return sent

    def count_confirmations(self, data: bytes) -> int:
        seen = self._tail + data  # a word may have been cut in two
        if b'"error"' in seen:
            raise InvalidRequest(f"the broker refused a message: {seen[-400:]!r}")
        self._tail = seen[1 - len(b'"duplicate"') :]
        return seen.count(b'"duplicate"')


def _one_at_a_time(broker: RunningBroker, others: Sequence[Rival], messages: int, rounds: int) -> Iterator[Figure]:
    theirs: dict[str, Callable[[], float]] = {}
    for rival in others:
        theirs |= rival.single_publish_rates(messages, _IN_FLIGHT, _BATCHES)
    ours = partial(single_publish_rate, PenstockConnection, broker.tcp_port, messages, _IN_FLIGHT, _BATCHES)
    yield from _beside(f"publish one message at a time, {_IN_FLIGHT:,} in flight", ours, theirs, rounds)


# ---- reading


def _catching_up(broker: RunningBroker, messages: int, rounds: int) -> Iterator[Figure]:
    """Measure reading a topic from its first message, as Arrow batches and as Python objects."""
    publish_rate(broker.url, _topic(100), 100, messages)
    for what, take, wanted in (("Arrow", _take_arrow, 1_000_000), ("Python objects", _take_objects, 200_000)):
        rate = max(read_rate(broker.url, _topic(100), messages, take) for _ in range(rounds))
        yield _compared(f"catch-up read as {what}, 100 B", "messages/s", rate, "wanted", wanted)


Take = Callable[[Consumer], Awaitable[int]]
"""A function that receives the next messages, acknowledges them, and returns their number."""


async def _take_arrow(reader: Consumer) -> int:
    batch = await reader.receive_arrow(_WAIT_SECONDS)
    if batch is None:
        raise Timeout("the reader ended before all messages had come")
    reader.ack(batch)
    return int(batch.num_rows)


async def _take_objects(reader: Consumer) -> int:
    batch = await reader.receive_batch(_WAIT_SECONDS)
    if batch is None:
        raise Timeout("the reader ended before all messages had come")
    touched = [(message.payload, message.key, message.offset) for message in batch]
    reader.ack(batch)
    return len(touched)


def read_rate(url: str, topic: str, count: int, take: Take) -> float:
    """Return the messages per second that one reader receives, from the first message of the topic on."""

    async def run() -> float:
        async with connect(url) as client:
            got, began = 0, time.perf_counter()
            async with client.consumer(topic, start="earliest") as reader:
                while got < count:
                    got += await take(reader)
                return got / (time.perf_counter() - began)

    return uvloop.run(run())


# ---- latency


def _latency(broker: RunningBroker, count: int, rounds: int) -> Iterator[Figure]:
    """Measure the time from just before a message is sent until it is received, compared with syncs before and
    after."""
    medians, tails, syncs = [], [], []
    syncing = partial(_sync_ms, broker.data / "bench-sync", min(count, _SYNCS_MAX))
    for number in range(rounds):
        syncs.append(syncing())
        times = uvloop.run(_pass_times(broker.url, f"bench.latency{number}", count))
        medians.append(statistics.median(times) * 1000)
        tails.append(statistics.quantiles(times, n=100)[-1] * 1000)
        syncs.append(syncing())
    what, sync = f"end-to-end latency at {_RATE:,} messages/s", min(syncs)
    yield _within(f"{what}, p50", "ms", min(medians), "2 fdatasyncs of 4 KiB, p50", 2 * sync)
    yield _within(f"{what}, p99", "ms", min(tails), "10 fdatasyncs of 4 KiB, p50", 10 * sync)


def _sync_ms(path: Path, count: int) -> float:
    """Return the median time in milliseconds of writing and syncing 4 KiB."""
    times, data = [], b"x" * _SYNC_BYTES
    bare = BareFile(path, count * _SYNC_BYTES)
    for _ in range(count):
        began = time.perf_counter()
        bare.append(data)
        times.append(time.perf_counter() - began)
    bare.close()
    path.unlink()
    return statistics.median(times) * 1000


async def _pass_times(url: str, topic: str, count: int) -> list[float]:
    """Send `count` messages on one connection and receive them on another; return the seconds that each took."""
    left: list[float] = []
    async with (
        connect(url) as one,
        connect(url) as other,
        one.producer(topic) as producer,
        other.consumer(topic, "bench") as consumer,
        asyncio.TaskGroup() as group,
    ):
        arriving = group.create_task(_arrivals(consumer, count, left))
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(began + number / _RATE - time.perf_counter())
            left.append(time.perf_counter())
            await producer.send(number.to_bytes(8, "big").ljust(100, b"x"))
        return await arriving


async def _arrivals(consumer: Consumer, count: int, left: Sequence[float]) -> list[float]:
    times: list[float] = []
    while len(times) < count:
        message = await consumer.receive(_WAIT_SECONDS)
        if message is None:
            raise Timeout("the subscription ended before all messages had come")
        times.append(time.perf_counter() - left[int.from_bytes(message.payload[:8], "big")])
        consumer.ack(message)
    return times


# ---- memory, and many topics


def _memory(name: str, broker: RunningBroker, field: str) -> Iterator[Figure]:
    """Yield a figure with the memory of the broker's process; yield none if the system has no `/proc`."""
    status = Path(f"/proc/{broker.pid}/status")
    if status.exists():
        found = dict(line.split(":", 1) for line in status.read_text().splitlines())
        mib = int(found[field].split()[0]) / KIB
        yield _within(name, "MiB", mib, f"{_MEMORY_MIB} MiB allowed", _MEMORY_MIB)


def many_topics(data: Path, topics: int) -> Iterator[Figure]:
    """Measure the start and the memory of a broker with `topics` topics, each with one message and one subscription."""
    create_topics(data, topics)
    what = f"{topics:,} topics and {topics:,} subscriptions"
    with pinned_to(_CORES[1:]):
        began = time.perf_counter()
        with _broker(data) as broker:
            took = time.perf_counter() - began
            yield _within(f"start with {what}", "s", took, f"{_START_SECONDS} s allowed", _START_SECONDS)
            yield from _memory(f"memory with {what}", broker, _RESIDENT)


def create_topics(data: Path, count: int) -> None:
    """Create a data directory with `count` topics, each with one message and one subscription. Their rows are inserted
    in one transaction, since one for each topic would take minutes."""
    with Store.open(data, create=True) as store:
        store.catalog.set_namespace_settings("default", TopicSettings())
    topics = [_topic_row(number) for number in range(1, count + 1)]
    _insert_rows(data / CATALOG, topics)
    draft = Draft.of([sample(100)])
    for start in range(0, count, _OPEN_TOPICS):
        with Store.open(data, limits=Limits(segment_bytes_first=16 * KIB)) as store:
            chosen = topics[start : start + _OPEN_TOPICS]
            for ticket in [store.writer.submit(store.log(topic.name), draft) for topic in chosen]:
                ticket.result()


def _topic_row(number: int) -> Topic:
    return Topic(
        topic_uid=number,
        name=TopicName.parse(f"bench.topic{number}"),
        partitions=1,
        dispatch=Dispatch.RELIABLE,
        created_ms=now_ms(SystemClock()),
        settings=TopicSettings(),
    )


def _subscription_row(topic: Topic) -> StoredSubscription:
    return StoredSubscription(
        subscription_uid=topic.topic_uid,
        topic_uid=topic.topic_uid,
        name="bench",
        options=SubscriptionOptions(kind=SubscriptionKind.SHARED),
        paused=False,
        created_ms=topic.created_ms,
    )


def _insert_rows(path: Path, topics: Sequence[Topic]) -> None:
    first = Cursor(floor=Offset(0))
    file = CatalogFile.open(path, create=False)
    with file.writing() as connection:
        add_rows(connection, TOPICS, (row_of_topic(topic) for topic in topics))
        add_rows(connection, SUBSCRIPTIONS, (row_of_subscription(_subscription_row(topic)) for topic in topics))
        add_rows(connection, CURSORS, (row_of_cursor(topic.topic_uid, 0, first) for topic in topics))
    file.close()
