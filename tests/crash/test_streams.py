"""Streams over a real broker that is killed, stopped, cut off and born again: what was promised holds."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.kit import child_environment
from tests.crash.checker import FAILOVER, SHARED, problems
from tests.crash.disks import mounted
from tests.crash.players import PLAIN, World, again, behind_a_proxy, play, read_log

from penstock import aio
from penstock.client.consume.consumer import Consumer
from penstock.core.errors import DiskFull, NotOwner, ServiceUnavailable, Timeout
from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.storage.inspect.data_reader import DataReader
from penstock.testing import RunningBroker

KILLS: Final = 12
SOAK_KILLS: Final = int(os.environ.get("SOAK_KILLS", "300"))
"""Brokers that the long tests kill."""
_GONE: Final = (ServiceUnavailable, Timeout)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


def run(work: Coroutine[Any, Any, None], seconds: float = 300.0) -> None:
    asyncio.run(asyncio.wait_for(work, seconds))


# the play


def check_play(tmp_path: Path, environment: dict[str, str], seed: str, kills: int) -> None:
    print("seed", seed)
    played = asyncio.run(play(tmp_path, environment, seed, kills, replaced_linger=True))
    print(played.report)
    found = problems(played.world.history)
    assert not found, "\n".join([f"seed {seed}", *found])
    assert "Traceback" not in played.world.broker.log
    assert played.report.confirmed > 100
    assert played.report.kills >= kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2", None])
def test_what_was_promised_holds_whatever_is_killed_or_cut(
    tmp_path: Path, environment: dict[str, str], seed: str | None
) -> None:
    check_play(tmp_path, environment, seed or str(random.randrange(10**9)), KILLS)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_what_was_promised_holds_for_hundreds_of_kills(tmp_path: Path, environment: dict[str, str]) -> None:
    for turn in range(max(1, SOAK_KILLS // 50)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        check_play(folder, environment, str(random.randrange(10**9)), min(50, SOAK_KILLS))


# producers that were replaced


@pytest.mark.slow
def test_a_producer_that_was_replaced_stays_replaced_after_a_restart(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world, world.proxy.another() as other:
            async with aio.connect(world.proxy.url) as old, aio.connect(other.url) as new:
                first = await old.producer("t", name="p")
                await (await first.send(b"one"))
                world.proxy.shut()
                late = await first.send(b"two, of the first")
                second = await new.producer("t", name="p")
                await (await second.send(b"two, of the second"))
                other.shut()
                await world.broker.restart()
                world.proxy.open()
                with pytest.raises(NotOwner):
                    await late
                other.open()
                await (await second.send(b"three"))
            await world.broker.kill()
            stored = [each.payload for each in read_log(world.broker.data, "t")]
            assert stored == [b"one", b"two, of the second", b"three"]

    run(story())


# restarts in every state


async def fill(world: World, topic: str, count: int) -> None:
    async with aio.connect(world.proxy.url) as client, client.producer(topic) as producer:
        await (await producer.send_many([b"%d" % each for each in range(count)]))


async def described(world: World, topic: str, subscription: str) -> Any:
    return await world.admin("system.subscription.describe", topic=topic, subscription=subscription)


async def taken(consumer: Consumer, count: int) -> dict[int, Any]:
    """The next messages, by their offsets."""
    found: dict[int, Any] = {}
    while len(found) < count:
        message = await consumer.receive(60.0)
        assert message is not None
        found[message.offset] = message
    return found


@pytest.mark.slow
def test_cursors_and_what_is_acked_above_them_come_back(tmp_path: Path, environment: dict[str, str]) -> None:
    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world:
            await fill(world, PLAIN, 20)
            done = {0, 1, 2, 5, 6, 9, 19}
            async with aio.connect(world.proxy.url) as client:
                consumer = await client.consumer(PLAIN, "s", type=SHARED, start="earliest")
                messages = await taken(consumer, 20)
                for offset in done:
                    consumer.ack(messages[offset])
                await consumer.flush()
                await world.broker.restart()
                facts = (await described(world, PLAIN, "s"))["partitions"][0]
                assert (facts["floor"], facts["acked_above"]) == (3, [[5, 7], [9, 10], [19, 20]])
                assert (facts["next_offset"], facts["lag"]) == (20, 13)
                assert set(await taken(consumer, 13)) == set(range(20)) - done
                with pytest.raises(TimeoutError):
                    await consumer.receive(0.3)

    run(story())


@pytest.mark.slow
def test_how_often_a_message_failed_comes_back(tmp_path: Path, environment: dict[str, str]) -> None:
    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world:
            await fill(world, PLAIN, 3)
            options: dict[str, Any] = {"redeliveries": 2, "backoff_ms": 1, "backoff_ms_max": 1}
            async with aio.connect(world.proxy.url) as client:
                consumer = await client.consumer(PLAIN, "s", type=SHARED, start="earliest", **options)
                for reason in ("first", "second"):
                    messages = await taken(consumer, 3)
                    await consumer.nack(messages[1], reason=reason)
                    assert set(await taken(consumer, 1)) == {1}
                    await world.broker.restart()
                messages = await taken(consumer, 3)
                await consumer.nack(messages[1], reason="third")
                letter = await (await client.consumer("/default-dlq/plain", start="earliest")).receive(60.0)
                assert letter is not None
                assert letter.payload == b"1"
                assert letter.attributes["x-delivery-attempt"] == "3"
                assert letter.attributes["x-failure-reason"] == "third"

    run(story())


@pytest.mark.slow
def test_a_paused_subscription_is_paused_after_a_kill_until_it_is_resumed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world, aio.connect(world.proxy.url) as client:
            consumer = await client.consumer(PLAIN, "s", type=FAILOVER, start="earliest")
            await consumer.pause()
            await world.broker.restart()
            await fill(world, PLAIN, 3)
            assert (await described(world, PLAIN, "s"))["paused"] is True
            with pytest.raises(TimeoutError):
                await consumer.receive(0.3)
            await again(consumer.resume)
            await world.broker.restart()
            assert (await described(world, PLAIN, "s"))["paused"] is False
            assert set(await taken(consumer, 3)) == {0, 1, 2}

    run(story())


@pytest.mark.slow
def test_a_seek_that_was_confirmed_holds_after_a_kill(tmp_path: Path, environment: dict[str, str]) -> None:
    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world:
            await fill(world, PLAIN, 10)
            async with aio.connect(world.proxy.url) as client:
                consumer = await client.consumer(PLAIN, "s", start="earliest")
                for message in (await taken(consumer, 10)).values():
                    consumer.ack(message)
                await consumer.flush()
                await consumer.seek(4)
                await world.broker.restart()
                assert set(await taken(consumer, 6)) == set(range(4, 10))

    run(story())


# dead letters


async def refuse_everything(world: World, name: str, seen: Counter[int]) -> None:
    """Nack whatever comes, on one connection after another, until all is buried."""
    async with await again(world.connect) as client:
        consumer = await again(
            lambda: _come(
                client.consumer(
                    PLAIN,
                    "s",
                    type=SHARED,
                    start="earliest",
                    name=name,
                    window=20,
                    redeliveries=seen[-1],
                    backoff_ms=5,
                    backoff_ms_max=5,
                )
            )
        )
        while not world.over:
            with suppress(TimeoutError, *_GONE):
                batch = await consumer.receive_batch(0.1)
                assert batch is not None
                seen.update(batch.offsets)
                await consumer.nack(batch, reason="always")


async def _come(pending: Any) -> Any:
    return await pending


@pytest.mark.slow
@pytest.mark.parametrize("redeliveries", [0, 1])
def test_what_is_always_refused_is_a_dead_letter_exactly_once(
    tmp_path: Path, environment: dict[str, str], redeliveries: int
) -> None:
    count, kills, chance = 600, 12, random.Random(redeliveries)

    async def story() -> None:
        async with behind_a_proxy(tmp_path, environment) as world:
            await fill(world, PLAIN, count)
            seen: Counter[int] = Counter({-1: redeliveries})
            players = [asyncio.create_task(refuse_everything(world, name, seen)) for name in ("a", "b")]
            while world.broker.kills < kills:
                await asyncio.sleep(chance.random() * 0.3)
                await world.broker.restart()
            until = time.monotonic() + 120
            while (await described(world, PLAIN, "s"))["lag"]:
                assert time.monotonic() < until, await described(world, PLAIN, "s")
                await asyncio.sleep(0.1)
            world.over = True
            await asyncio.gather(*players)
            await world.broker.kill()
            letters = read_letters(world.broker.data)
            assert Counter(letters) == Counter(dict.fromkeys(range(count), 1))
            del seen[-1]
            assert set(seen) == set(range(count))
            assert min(seen.values()) > redeliveries

    run(story())


def read_letters(data: Path) -> list[int]:
    """The offsets that the dead letters of the topic had there."""
    found = []
    reader = DataReader(data).topic(TopicName.parse("/default-dlq/plain"))
    for record, _ in reader.partition(0).follow(Earliest()):
        assert record is not None
        offset = int(record.message.attributes["x-original-topic-offset"])
        assert record.message.payload == b"%d" % offset
        found.append(offset)
    return found


# a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    with mounted(tmp_path / "disk", 16) as place:
        yield place


SMALL_DISK: Final = {
    "PENSTOCK_STORAGE_DISK_RESERVE_BYTES": "2097152",
    "PENSTOCK_STORAGE_PAYLOAD_BYTES_MAX": "65536",
    "PENSTOCK_STORAGE_BLOCK_BYTES_MAX": "262144",
    "PENSTOCK_STORAGE_SEGMENT_BYTES_FIRST": "262144",
    "PENSTOCK_STORAGE_SEGMENT_BYTES_MAX": "1048576",
    "PENSTOCK_LIMITS_BLOCK_BYTES_MAX": "262144",
    "PENSTOCK_LIMITS_PAYLOAD_BYTES_MAX": "65536",
}


@pytest.mark.slow
def test_a_full_disk_refuses_publishes_and_nothing_else_until_there_is_room(
    small_disk: Path, environment: dict[str, str]
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(8 * 1024 * 1024))
    with RunningBroker(data=small_disk / "data", environment=environment | SMALL_DISK) as broker:
        run(_fill_up(broker, filler))
        assert "Traceback" not in broker.log


async def _fill_up(broker: RunningBroker, filler: Path) -> None:
    async with aio.connect(broker.url) as client:
        consumer = await client.consumer(PLAIN, "s", start="earliest", window=50)
        payloads = [b"%d " % number + bytes(20_000) for number in range(5000)]
        stored = await _publish_until_full(client, payloads)
        assert stored > 50
        for _ in range(3):  # it stays so
            with pytest.raises(DiskFull):
                await client.publish(PLAIN, payloads[stored])
        half = stored // 2
        assert [each.payload for each in (await _acked(consumer, half))] == payloads[:half]
        async with client.producer(PLAIN, name="p", batch_bytes=65_536) as producer:
            sent = [await producer.send(payload) for payload in payloads[stored : stored + 40]]
            await asyncio.sleep(0.5)
            filler.unlink()  # make room
            for place, each in enumerate(sent):
                assert (await each).offset == stored + place
        assert [each.payload for each in (await _acked(consumer, stored + 40 - half))] == payloads[half : stored + 40]
        broker.kill()
    broker.start()
    async with aio.connect(broker.url) as client:
        facts = json.dumps({"topic": PLAIN, "subscription": "s"})
        assert json.loads(await client.request("system.subscription.describe", facts))["lag"] == 0


async def _publish_until_full(client: aio.AsyncClient, payloads: list[bytes]) -> int:
    for place, payload in enumerate(payloads):
        try:
            await client.publish(PLAIN, payload)
        except DiskFull:
            return place
    raise AssertionError("the disk is larger than it should be")


async def _acked(consumer: Consumer, count: int) -> list[Any]:
    """The next messages, acknowledged and confirmed."""
    found = []
    for _ in range(count):
        message = await consumer.receive(60.0)
        assert message is not None
        consumer.ack(message)
        found.append(message)
        if len(found) % 10 == 0 or len(found) == count:
            await consumer.flush()
    return found


@pytest.mark.slow
def test_a_small_message_does_not_overtake_a_large_one_that_found_no_room(
    small_disk: Path, environment: dict[str, str]
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(8 * 1024 * 1024))
    with RunningBroker(data=small_disk / "data", environment=environment | SMALL_DISK) as broker:
        run(_overtake(broker, filler))


async def _overtake(broker: RunningBroker, filler: Path) -> None:
    async with aio.connect(broker.url) as client:
        await _publish_until_full(client, [bytes(20_000)] * 5000)
        async with client.producer(PLAIN, name="p", batch_messages=1) as producer:
            sent = [await producer.send(payload) for payload in (bytes(20_000), b"small", b"smaller")]
            await asyncio.sleep(0.5)
            filler.unlink()
            offsets = [(await each).offset for each in sent]
            assert offsets == sorted(offsets)


def test_what_was_lost_with_a_connection_is_sent_before_what_is_new(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with aio.connect(keeper.url) as client, client.producer("crash.order") as producer:
            transport = client._connection._transport
            assert transport is not None
            transport.write = lambda data: None  # type: ignore[method-assign]
            first = await producer.send(b"first")
            await asyncio.sleep(0.05)
            transport.abort()
            second = producer.put(b"second")
            assert [(await first).offset, (await second).offset] == [0, 1]

    run(story())


def test_a_consumer_that_is_made_while_there_is_no_connection_is_made_once(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with aio.connect(keeper.url) as client, client.producer("crash.early") as producer:
            await (await producer.send(b"first"))
            transport = client._connection._transport
            assert transport is not None
            transport.abort()
            consumer = await client.consumer("crash.early", "s", start="earliest")
            assert set(await taken(consumer, 1)) == {0}

    run(story())


@pytest.mark.slow
def test_a_block_that_is_refused_for_now_keeps_its_place(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with aio.connect(keeper.url) as client:
            await client.request("system.topic.create", json.dumps({"topic": "crash.rated", "rate_max": 100}))
            async with client.producer("crash.rated") as producer:
                counts = (60, 60, 10, 60, 5)
                sent = [await producer.send_many([b"x"] * count) for count in counts]
                offsets = [receipt.offset for each in sent for receipt in await each]
        assert offsets == list(range(sum(counts)))

    run(story())
