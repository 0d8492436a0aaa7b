"""Producers and consumers that go on through every fault, and write down what they see; and what befalls them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.crash.chaos import Broker, Nursery, Proxy
from tests.crash.checker import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Confirmed,
    Delivered,
    History,
    Sent,
    Settled,
    Stored,
    Watched,
)

from penstock import aio
from penstock.client.aio import AsyncClient
from penstock.client.consume.consumer import Batch, Consumer, StreamMessage
from penstock.client.produce.producer import Producer
from penstock.client.wire.protocol import Event, RecordsReceived
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError, ServiceUnavailable, Timeout
from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.protocol.actions import Action
from penstock.record.block import scan
from penstock.storage.inspect.data_reader import DataReader

PLAIN, KEYED = "plain", "keyed"
"""The topics: one partition, and three."""
PARTITIONS: Final = 3
KEYS: Final = [b"key-%d" % each for each in range(12)]
PRODUCERS: Final = (("p1", PLAIN), ("p2", PLAIN), ("p3", KEYED), ("p4", KEYED))
SUBSCRIPTIONS: Final = (
    Watched("alone", PLAIN, EXCLUSIVE),
    Watched("next", PLAIN, FAILOVER),
    Watched("spread", KEYED, SHARED),
    Watched("bykey", KEYED, KEY_SHARED),
)
SMALL_SEGMENTS: Final = {
    "PENSTOCK_STORAGE_PAYLOAD_BYTES_MAX": "65536",
    "PENSTOCK_STORAGE_BLOCK_BYTES_MAX": "131072",
    "PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": "16384",
    "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": "262144",
    "PENSTOCK_LIMITS_BLOCK_BYTES_MAX": "131072",
    "PENSTOCK_LIMITS_PAYLOAD_BYTES_MAX": "65536",
}
_UNCONFIRMED_MAX: Final = 500
"""Messages that a producer has on the way before it waits for all of them."""
_ANSWER_SECONDS: Final = 120.0
_FLUSH_SECONDS: Final = 120.0
_DRAIN_SECONDS: Final = 180.0
_GONE: Final = (ServiceUnavailable, Timeout)
"""The connection was lost, or was too slow to come back: tried again."""


class World:
    """A broker behind a proxy, and what everybody has seen."""

    def __init__(self, broker: Broker, proxy: Proxy, seed: str, *, replaced_linger: bool = False) -> None:
        self.broker = broker
        self.replaced_linger = replaced_linger
        """True if a replaced producer may go on for a while without knowing it."""
        self.proxy = proxy
        self.chance = random.Random(seed)
        self.history = History(subscriptions=list(SUBSCRIPTIONS))
        self.quiet = False
        """No more faults, no more messages: everything comes to an end."""
        self.over = False
        self.closing: set[asyncio.Task[Any]] = set()

    async def connect(self) -> AsyncClient:
        return await aio.connect(self.proxy.url, timeout=20.0)

    async def admin(self, request: str, /, **fields: Any) -> Any:
        """Ask the broker, until it answers."""
        async with await again(self.connect) as client:
            return json.loads(await again(lambda: client.request(request, json.dumps(fields))))

    def vanish(self, client: AsyncClient) -> None:
        """Drop the connection silently, for good."""
        transport = client._connection._transport
        if transport is not None and transport._tcp is not None:
            self.proxy.cut_port(transport._tcp.get_extra_info("sockname")[1])
        self.close_later(client, 0.0)

    def close_later(self, client: AsyncClient, seconds: float) -> None:
        async def close() -> None:
            await asyncio.sleep(seconds)
            await client.close()

        task = asyncio.create_task(close())
        self.closing.add(task)
        task.add_done_callback(self.closing.discard)


async def again(what: Callable[[], Awaitable[Any]]) -> Any:
    """Until the broker is there to answer."""
    until = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < until:
        with suppress(*_GONE):
            return await what()
        await asyncio.sleep(0.05)
    raise AssertionError("the broker never answered")


# producers


class Writer:
    """A named producer, in one life after another."""

    def __init__(self, world: World, name: str, topic: str) -> None:
        self.world = world
        self.name = name
        self.topic = topic
        self.chance = random.Random(f"{name} {world.chance.random()}")
        self.life = 0
        self.client: AsyncClient | None = None
        self.fenced = 0
        self._task: asyncio.Task[None] | None = None
        self._old: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Register under the name, and write until the world is quiet."""
        self.life += 1
        client: AsyncClient = await again(self.world.connect)
        options = {
            "name": self.name,
            "batch_messages": self.chance.choice([5, 50, 500]),
            "batch_bytes": 65_536,
            "timeout": _FLUSH_SECONDS,
        }
        producer: Producer = await again(lambda: _made(client.producer(self.topic, **options)))
        self.client = client
        self._task = asyncio.create_task(self._live(producer, self.life))

    async def succeed(self, *, lingers: float) -> None:
        """A new one comes under the same name. The one before it is gone, or does not know yet that it is replaced."""
        before, client = self._task, self.client
        assert before is not None
        assert client is not None
        if lingers:
            self.world.close_later(client, lingers)
            self._old.add(before)
        else:
            self.world.vanish(client)
            before.cancel()
            await asyncio.wait([before])
        await self.begin()

    async def end(self) -> None:
        """Wait until everything is confirmed."""
        assert self._task is not None
        await asyncio.wait_for(self._task, _FLUSH_SECONDS)
        for task in self._old:
            await asyncio.wait_for(asyncio.wait([task]), _FLUSH_SECONDS)
        if self.client is not None:
            await self.client.close()

    async def _live(self, producer: Producer, life: int) -> None:
        waiting: deque[tuple[Sent, Any]] = deque()
        number = 0
        try:
            while not self.world.quiet and life >= self.life - 1:
                for _ in range(self.chance.choice([1, 3, 15])):
                    number += 1
                    waiting.append(await self._send(producer, life, number))
                await asyncio.sleep(self.chance.random() * 0.1)
                await self._confirm(waiting, only_done=len(waiting) < _UNCONFIRMED_MAX)
            await producer.flush()
            await self._confirm(waiting)
        except NotOwner:
            self.fenced += 1
            assert life < self.life, f"{self.name} lost its place to nobody"
        except ServiceUnavailable:
            assert life < self.life, f"{self.name} was closed by nobody"

    async def _send(self, producer: Producer, life: int, number: int) -> tuple[Sent, Any]:
        key = self.chance.choice(KEYS) if self.topic == KEYED else None
        payload = f"{self.name} {life} {number} ".encode() + bytes(int(self.chance.random() ** 4 * 3000))
        sent = Sent(time.monotonic(), self.topic, payload, self.name, life, number, key)
        self.world.history.sent.append(sent)
        return sent, await producer.send(payload, key=key)

    async def _confirm(self, waiting: deque[tuple[Sent, Any]], *, only_done: bool = False) -> None:
        while waiting and (not only_done or waiting[0][1]._parts[0].done.done()):
            sent, handle = waiting.popleft()
            receipt = await handle
            place = (receipt.partition, receipt.offset)
            self.world.history.confirmed.append(Confirmed(sent.topic, sent.payload, *place))


async def _made(pending: Any) -> Any:
    return await pending


# consumers


class Reader:
    """A named consumer of a subscription, in one life after another."""

    def __init__(self, world: World, watched: Watched, name: str) -> None:
        self.world = world
        self.watched = watched
        self.name = name
        self.chance = random.Random(f"{name} {world.chance.random()}")
        self.life = 0
        self.ignored = 0
        """Acknowledgements that the broker answered and did not heed."""
        self.evicted = 0
        self._client: AsyncClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        self.life += 1
        number = self.life
        client: AsyncClient = await again(self.world.connect)
        try:
            self._listen(client, f"{self.name}/{number}")
            consumer: Consumer = await again(lambda: _made(self._consumer(client)))
        except BaseException:
            self.world.close_later(client, 0.0)
            raise
        if number != self.life:  # there is a newer one already
            self.world.close_later(client, 0.0)
            return
        self._client = client
        self._task = asyncio.create_task(self._live(client, consumer, number))
        self._tasks.add(self._task)

    def _consumer(self, client: AsyncClient) -> Any:
        return client.consumer(
            self.watched.topic,
            self.watched.name,
            type=self.watched.kind,
            start="earliest",
            name=self.name,
            window=self.chance.choice([20, 100, 300]),
            redeliveries=1000,
            backoff_ms=20,
            backoff_ms_max=100,
        )

    def _listen(self, client: AsyncClient, life: str) -> None:
        """Write down what arrives, before anybody can lose it."""
        handle = client._connection._on_event

        def heard(event: Event) -> None:
            if isinstance(event, RecordsReceived):
                self._arrived(event, life)
            handle(event)

        client._connection._on_event = heard

    def _arrived(self, fed: RecordsReceived, life: str) -> None:
        now = time.monotonic()
        seat, partition = (fed.header.request_id or "")[:-12], int((fed.header.request_id or "")[-12:], 16)
        block, _ = scan(fed.payload)
        self.world.history.delivered.extend(
            Delivered(now, self.watched.name, life, seat, partition, row[1], row[5], row[4]) for row in block.rows()
        )

    async def succeed(self, *, lingers: float) -> None:
        before, client = self._task, self._client
        assert before is not None
        assert client is not None
        if lingers:
            self.world.close_later(client, lingers)
        else:
            self.world.vanish(client)
            before.cancel()
        await self.begin()

    async def end(self) -> None:
        """Every life has come to its end."""
        while running := [each for each in self._tasks if not each.done()]:
            await asyncio.wait_for(asyncio.wait(running), _FLUSH_SECONDS)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        if self._client is not None:
            await self._client.close()

    async def _live(self, client: AsyncClient, consumer: Consumer, number: int) -> None:
        book = _AckBook(consumer)
        try:
            while not self.world.over:
                await self._take(consumer, book, f"{self.name}/{number}")
        except NotOwner:
            self.evicted += 1
            # One that was replaced while it was cut off takes the place of its successor when it comes again.
            if number == self.life and not self.world.over:
                self.world.close_later(client, 0.0)
                await self.begin()
        finally:
            self.ignored += book.ignored

    async def _take(self, consumer: Consumer, book: _AckBook, life: str) -> None:
        try:
            batch = await consumer.receive_batch(0.2)
        except TimeoutError:
            await self._flush(consumer, book, life)
            return
        if batch is None:
            raise NotOwner("closed")
        self._note_taken(batch)
        if self.chance.random() < 0.3:
            await asyncio.sleep(self.chance.random() * 0.02)
        with suppress(*_GONE, InvalidRequest):
            await self._settle(consumer, book, batch, life)
        if self.chance.random() < 0.3:
            await self._flush(consumer, book, life)

    def _note_taken(self, batch: Batch) -> None:
        self.world.history.taken.update((self.watched.name, batch.partition, offset) for offset in batch.offsets)

    async def _settle(self, consumer: Consumer, book: _AckBook, batch: Batch, life: str) -> None:
        if not self.world.quiet and self.chance.random() < 0.05:
            self._note(batch.messages, life, done=False)
            await consumer.nack(batch, delay=self.chance.choice([None, 0.0, 0.05]))
            return
        for message in batch:
            if not self.world.quiet and self.chance.random() < 0.01:
                self._note([message], life, done=False)
                await consumer.nack(message)
            else:
                self._note([message], life, done=True)
                book.ack(message)

    def _note(self, messages: list[StreamMessage], life: str, *, done: bool) -> None:
        now = time.monotonic()
        self.world.history.settled.extend(
            Settled(now, self.watched.name, life, each.partition, each.offset, done) for each in messages
        )

    async def _flush(self, consumer: Consumer, book: _AckBook, life: str) -> None:
        durable = await book.flush()
        now = time.monotonic()
        self.world.history.acked.extend(Settled(now, self.watched.name, life, *place) for place in durable)


class _AckBook:
    """Acks that were sent and not confirmed yet."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._open: set[tuple[int, int]] = set()
        self._unheeded: set[tuple[int, int]] = set()
        self.ignored = 0
        self._call_subscription = consumer._call_subscription
        consumer._call_subscription = self._watch  # type: ignore[method-assign]

    async def _watch(self, action: Action, fields: dict[str, Any]) -> dict[str, Any]:
        """An answer may say that some were not this consumer's to speak of, without saying which."""
        answer = await self._call_subscription(action, fields)
        if action is Action.ACK and answer.get("ignored"):
            spans = [(fields["partition"], each) for start, stop in fields["ranges"] for each in range(start, stop)]
            self._unheeded.update(spans)
            self.ignored += answer["ignored"]
        return answer

    def ack(self, message: StreamMessage) -> None:
        try:
            self._consumer.ack(message)
        except PenstockError:
            self._open.clear()  # some of these were not confirmed; who knows which
            self._consumer.ack(message)
        self._open.add((message.partition, message.offset))

    async def flush(self) -> set[tuple[int, int]]:
        """Note the acks that are durable now."""
        noted, self._open = self._open, set()
        try:
            await self._consumer.flush()
        except (*_GONE, InvalidRequest, NotOwner):
            return set()
        unheeded, self._unheeded = self._unheeded, set()
        return noted - unheeded


# the play


@dataclass(slots=True)
class Report:
    """The numbers of a play."""

    kills: int = 0
    cuts: int = 0
    pauses: int = 0
    successions: int = 0
    sent: int = 0
    confirmed: int = 0
    stored: int = 0
    delivered: int = 0
    acked: int = 0
    ignored: int = 0
    fenced: int = 0
    evicted: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Play:
    world: World
    writers: list[Writer]
    readers: list[Reader]
    report: Report = field(default_factory=Report)

    async def run(self, kills: int) -> None:
        began = time.monotonic()
        await self.world.admin("system.topic.create", topic=KEYED, partitions=PARTITIONS)
        players: list[Reader | Writer] = [*self.readers, *self.writers]
        for player in players:
            await player.begin()
        while self.world.broker.kills < kills:
            await asyncio.sleep(self.world.chance.random() ** 2 * 0.4)
            await self._strike()
        await self._come_to_rest()
        self.report.seconds = time.monotonic() - began

    async def _strike(self) -> None:
        world, chance = self.world, self.world.chance
        world.proxy.patient = chance.random() < 0.8
        match chance.choices(["kill", "pause", "all", "one", "writer", "reader"], [30, 12, 8, 30, 10, 10])[0]:
            case "kill":
                early = chance.random() * 0.1 if chance.random() < 0.2 else None
                await world.broker.restart(down_seconds=chance.choice([0.0, 0.05]), die_after=early)
            case "pause":
                self.report.pauses += 1
                await world.broker.pause(chance.uniform(0.05, 0.5))
            case "all":
                world.proxy.cut_all()
            case "one":
                world.proxy.cut_one(chance)
            case "writer":
                await self._succession(chance.choice(self.writers))
            case _:
                await self._succession(chance.choice(self.readers))

    async def _succession(self, player: Writer | Reader) -> None:
        self.report.successions += 1
        lingers = self.world.chance.choice([0.0, 0.2, 2.0])
        if isinstance(player, Writer) and not self.world.replaced_linger:
            lingers = 0.0
        await player.succeed(lingers=lingers)

    async def _come_to_rest(self) -> None:
        """Wait until all is confirmed, delivered and acked; then kill the broker once more, and read its log."""
        world = self.world
        world.proxy.patient = True
        world.quiet = True
        for writer in self.writers:
            await writer.end()
        await self._drained()
        world.over = True
        for reader in self.readers:
            await reader.end()
        if world.closing:
            await asyncio.wait(world.closing)
        await world.broker.restart()
        lags = {each.name: await self._lag(each) for each in SUBSCRIPTIONS}
        assert not any(lags.values()), f"acknowledged, and not any more after a restart: {lags}"
        await world.broker.kill()
        world.history.stored = list(read_log(world.broker.data))
        self._count()

    async def _drained(self) -> None:
        until = time.monotonic() + _DRAIN_SECONDS
        for watched in SUBSCRIPTIONS:
            while lag := await self._lag(watched):
                if time.monotonic() > until:
                    facts = await self._described(watched)
                    raise AssertionError(f"{lag} of {watched.name} are never acknowledged: {json.dumps(facts)}")
                await asyncio.sleep(0.05)

    async def _lag(self, watched: Watched) -> int:
        return int((await self._described(watched))["lag"])

    async def _described(self, watched: Watched) -> Any:
        return await self.world.admin("system.subscription.describe", topic=watched.topic, subscription=watched.name)

    def _count(self) -> None:
        report, history = self.report, self.world.history
        report.kills, report.cuts = self.world.broker.kills, self.world.proxy.cuts
        report.sent, report.confirmed = len(history.sent), len(history.confirmed)
        report.stored, report.delivered = len(history.stored), len(history.delivered)
        report.acked = len(history.acked)
        report.ignored = sum(each.ignored for each in self.readers)
        report.fenced = sum(each.fenced for each in self.writers)
        report.evicted = sum(each.evicted for each in self.readers)


def read_log(data: Path, *topics: str) -> list[Stored]:
    """Return the messages in a data directory, in order."""
    found = []
    for topic in topics or (PLAIN, KEYED):
        reader = DataReader(data).topic(TopicName.parse(topic))
        for partition in range(reader.partitions):
            for record, damages in reader.partition(partition).follow(Earliest()):
                assert not damages, f"{topic} partition {partition}: {damages}"
                assert record is not None
                message = record.message
                found.append(Stored(topic, partition, int(record.offset), message.payload, message.key))
    return found


@asynccontextmanager
async def behind_a_proxy(
    folder: Path,
    environment: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    seed: str = "",
    *,
    replaced_linger: bool = False,
) -> AsyncIterator[World]:
    """A broker that can be killed, and a port that stays."""
    async with Nursery(environment) as nursery:
        broker = Broker(nursery, folder, settings)
        await broker.start()
        async with Proxy(broker) as proxy:
            yield World(broker, proxy, seed, replaced_linger=replaced_linger)


async def play(
    folder: Path, environment: Mapping[str, str], seed: str, kills: int, *, replaced_linger: bool = False
) -> Play:
    """Run all players until so many brokers were killed, and bring the play to rest."""
    async with behind_a_proxy(folder, environment, SMALL_SEGMENTS, seed, replaced_linger=replaced_linger) as world:
        writers = [Writer(world, name, topic) for name, topic in PRODUCERS]
        readers = [
            Reader(world, watched, f"{watched.name}-{place}")
            for watched in SUBSCRIPTIONS
            for place in range(1 if watched.kind == EXCLUSIVE else 2)
        ]
        played = Play(world, writers, readers)
        await played.run(kills)
        return played
