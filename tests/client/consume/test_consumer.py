"""Consumers against a real broker: each message is delivered, and acknowledged ones are not delivered again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.client.consume.consumer import StreamMessage
from penstock.core.errors import InvalidRequest, NotOwner, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 240))


async def filled(client: penstock.aio.AsyncClient, topic: str, count: int, **options: Any) -> None:
    async with client.producer(topic) as producer:
        await producer.send_many([str(number).encode() for number in range(count)], **options)


async def taken(consumer: Any, count: int) -> list[StreamMessage]:
    return [await consumer.receive(timeout=20) for _ in range(count)]


def numbers(messages: list[StreamMessage]) -> list[int]:
    return [int(message.payload) for message in messages]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def test_what_is_acknowledged_is_not_seen_again_and_the_rest_is(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.acks", 10)
            async with client.consumer("consumer.acks", "s", start="earliest") as consumer:
                messages = await taken(consumer, 10)
                for message in messages[:7:2]:
                    consumer.ack(message)
                await consumer.flush()
            async with client.consumer("consumer.acks", "s") as consumer:
                again = await taken(consumer, 6)
                assert numbers(again) == [1, 3, 5, 7, 8, 9]
                consumer.ack_cumulative(again[-2])
                await consumer.flush()
            async with client.consumer("consumer.acks", "s") as consumer:
                assert numbers(await taken(consumer, 1)) == [9]
                with pytest.raises(TimeoutError):
                    await consumer.receive(timeout=0.2)

    play(story())


def test_what_is_refused_comes_again_and_at_last_is_a_dead_letter(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("consumer.nacks") as producer:
                await producer.send("bad", key="k", type="t", attributes={"traceparent": "00-4bf9-01"})
            options: dict[str, Any] = {"redeliveries": 2, "backoff_ms": 1, "backoff_ms_max": 5}
            async with client.consumer("consumer.nacks", "s", start="earliest", **options) as consumer:
                for _ in range(3):
                    (message,) = await taken(consumer, 1)
                    await consumer.nack(message, reason="cannot be read")
            async with client.consumer("/default-dlq/consumer.nacks", start="earliest") as reader:
                (letter,) = await taken(reader, 1)
                assert (letter.text, letter.key, letter.type) == ("bad", b"k", "t")
                assert letter.attributes == {
                    "traceparent": "00-4bf9-01",
                    "x-original-topic": "/default/consumer.nacks",
                    "x-original-subscription": "s",
                    "x-original-topic-offset": "0",
                    "x-original-producer-id": str(message.producer_id),
                    "x-delivery-attempt": "3",
                    "x-failure-reason": "cannot be read",
                }

    play(story())


def test_batches_and_arrow_can_be_acknowledged_as_they_are(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.batches", 3000)
            seen: list[int] = []
            async with client.consumer("consumer.batches", "s", start="earliest", window=500) as consumer:
                while len(seen) < 1500:
                    batch = await consumer.receive_batch(20)
                    assert batch is not None
                    seen += [int(message.payload) for message in batch]
                    consumer.ack(batch)
                while len(seen) < 3000:
                    rows = await consumer.receive_arrow(20, columns=["value"])
                    assert rows is not None
                    seen += [int(value) for value in rows.column("value").to_pylist()]
                    consumer.ack(rows)
                await consumer.flush()
                assert rows is not None
                with pytest.raises(InvalidRequest, match="does not say which messages"):
                    consumer.ack(rows.replace_schema_metadata(None))
            assert seen == list(range(3000))

    play(story())


def test_a_second_exclusive_consumer_is_refused_and_the_same_name_takes_over(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as one, penstock.aio.connect(keeper.url) as other:
            await filled(one, "consumer.exclusive", 3)
            first = await one.consumer("consumer.exclusive", "s", start="earliest", name="me")
            await taken(first, 1)
            with pytest.raises(NotOwner, match="consumer 'me' has it"):
                await other.consumer("consumer.exclusive", "s", name="you")
            second = await other.consumer("consumer.exclusive", "s", name="me")
            assert numbers(await taken(second, 3)) == [0, 1, 2]
            with pytest.raises(NotOwner, match="took its place"):
                await taken(first, 3)

    play(story())


def test_the_next_in_line_is_promoted_when_the_active_one_goes(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as one, penstock.aio.connect(keeper.url) as other:
            await filled(one, "consumer.failover", 3)
            first = await one.consumer("consumer.failover", "s", type="failover", start="earliest")
            second = await other.consumer("consumer.failover", "s", type="failover")
            assert (first.active, second.active) == (True, False)
            assert numbers(await taken(first, 3)) == [0, 1, 2]
            await first.close()
            assert numbers(await taken(second, 3)) == [0, 1, 2]
            assert second.active

    play(story())


def test_shared_consumers_see_every_message_once_between_them(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as one, penstock.aio.connect(keeper.url) as other:
            consumers = [
                await each.consumer("consumer.shared", "s", type="shared", start="earliest", window=20)
                for each in (one, other)
            ]
            await filled(one, "consumer.shared", 400)
            seen: list[list[int]] = [[], []]

            async def consume(place: int) -> None:
                while True:
                    message = await consumers[place].receive()
                    assert message is not None
                    seen[place].append(int(message.payload))
                    consumers[place].ack(message)

            tasks = [asyncio.create_task(consume(place)) for place in range(2)]
            await until(lambda: len(seen[0]) + len(seen[1]) >= 400)
            for task in tasks:
                task.cancel()
            assert sorted(seen[0] + seen[1]) == list(range(400))
            assert all(len(each) > 20 for each in seen)

    play(story())


def test_the_same_key_goes_to_the_same_consumer_in_order(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as one, penstock.aio.connect(keeper.url) as other:
            consumers = [
                await each.consumer("consumer.keys", "s", type="key_shared", start="earliest") for each in (one, other)
            ]
            keys = [f"k{number % 20}".encode() for number in range(200)]
            await filled(one, "consumer.keys", 200, keys=keys)
            seen: list[dict[bytes, list[int]]] = [{}, {}]

            async def consume(place: int) -> None:
                while True:
                    message = await consumers[place].receive()
                    assert message is not None
                    seen[place].setdefault(message.key or b"", []).append(int(message.payload))
                    consumers[place].ack(message)

            tasks = [asyncio.create_task(consume(place)) for place in range(2)]
            await until(lambda: sum(len(each) for found in seen for each in found.values()) >= 200)
            for task in tasks:
                task.cancel()
            assert not seen[0].keys() & seen[1].keys()
            assert all(found == sorted(found) for each in seen for found in each.values())
            assert seen[0]
            assert seen[1]

    play(story())


def test_a_filter_shows_what_matches_and_settles_the_rest(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("consumer.filter") as producer:
                for number in range(30):
                    await producer.send(
                        str(number), type="even.t" if number % 2 == 0 else "odd.t", key=f"k{number % 3}"
                    )
            options: dict[str, Any] = {"filter_types": ["even.*"], "filter_keys": ["k0"], "start": "earliest"}
            async with client.consumer("consumer.filter", "s", **options) as consumer:
                messages = await taken(consumer, 5)
                assert numbers(messages) == [0, 6, 12, 18, 24]
                for message in messages:
                    consumer.ack(message)
                await consumer.flush()
                facts = await client.request(
                    "system.subscription.describe", '{"topic":"consumer.filter","subscription":"s"}'
                )
                assert b'"lag":0' in facts
                assert b'"floor":30' in facts

    play(story())


@pytest.mark.parametrize(("position", "first"), [("earliest", 0), (7, 7), ("latest", 20)])
def test_a_subscription_goes_on_where_it_is_sought(keeper: RunningBroker, position: int | str, first: int) -> None:
    topic = f"consumer.seek.p{position}".replace("-", "")

    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, topic, 20)
            async with client.consumer(topic, "s", start=3) as consumer:
                assert numbers(await taken(consumer, 2)) == [3, 4]
                await consumer.seek(position)
                async with client.producer(topic) as producer:
                    await producer.send("20")
                assert numbers(await taken(consumer, 1)) == [first]
                with pytest.raises(OffsetOutOfRange):
                    await consumer.seek(1000)

    play(story())


def test_a_paused_subscription_delivers_nothing_until_it_is_resumed(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client, client.consumer("consumer.pause", "s") as consumer:
            await consumer.pause()
            await filled(client, "consumer.pause", 3)
            with pytest.raises(TimeoutError):
                await consumer.receive(timeout=0.2)
            await consumer.resume()
            assert numbers(await taken(consumer, 3)) == [0, 1, 2]

    play(story())


def test_the_window_bounds_what_is_in_flight(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.window", 50)
            async with client.consumer("consumer.window", "s", start="earliest", window=5) as consumer:
                messages = await taken(consumer, 5)
                with pytest.raises(TimeoutError):
                    await consumer.receive(timeout=0.2)
                consumer.ack(messages[0])
                assert numbers(await taken(consumer, 1)) == [5]

    play(story())


async def failed(client: penstock.aio.AsyncClient, topic: str, count: int) -> None:
    """Wait until so many messages have passed their ack deadline."""
    async with asyncio.timeout(20):
        asked = {"topic": topic, "subscription": "s"}
        while (await client.ask("system.subscription.describe", asked))["partitions"][0]["waiting"] < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["ack", "ack_cumulative"])
def test_an_ack_that_comes_too_late_is_told_of_once(keeper: RunningBroker, how: str) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = f"consumer.late.{how.replace('_', '')}"
            await filled(client, topic, 1)
            options: dict[str, Any] = {"ack_timeout_ms": 500, "backoff_ms": 50_000, "backoff_ms_max": 50_000}
            async with client.consumer(topic, "s", start="earliest", **options) as consumer:
                (message,) = await taken(consumer, 1)
                await failed(client, topic, 1)
                getattr(consumer, how)(message)
                with pytest.raises(NotOwner, match="too late") as late:
                    await consumer.flush()
                assert late.value.details == {"late": 1}
                await consumer.flush()

    play(story())


def test_a_cumulative_ack_does_not_take_back_a_refusal_and_says_so(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.refused", 5)
            async with client.consumer("consumer.refused", "s", start="earliest") as consumer:
                messages = await taken(consumer, 5)
                consumer.ack(messages[0])
                for message in messages[1:3]:
                    await consumer.nack(message, delay=50)
                consumer.ack_cumulative(messages[4])
                with pytest.raises(NotOwner, match="2 acknowledgements came too late"):
                    await consumer.flush()
            asked = {"topic": "consumer.refused", "subscription": "s"}
            assert (await client.ask("system.subscription.describe", asked))["lag"] == 2

    play(story())


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the deadlines of waiting messages thirty times within an ack timeout, however busy the machine is."""
    monkeypatch.setattr("penstock.client.consume.consumer._CONFIRM_SECONDS", _WAITS_MS / 1000 / 30)


_WAITS_MS = 3_000


@pytest.mark.usefixtures("often")
def test_what_waits_in_the_consumer_does_not_time_out(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.extend", 5)
            options: dict[str, Any] = {"ack_timeout_ms": _WAITS_MS, "redeliveries": 0}
            async with client.consumer("consumer.extend", "s", start="earliest", **options) as consumer:
                await asyncio.sleep(_WAITS_MS / 1000 * 1.2)
                for message in await taken(consumer, 5):
                    consumer.ack(message)
                await consumer.flush()

    play(story())


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("consumer.bad", {"subscription": "not a name"}, InvalidRequest),
        ("consumer.bad", {"subscription": "s", "type": "sometimes"}, InvalidRequest),
        ("consumer.bad", {"subscription": "s", "window": 0}, InvalidRequest),
        ("consumer.bad", {"subscription": "s", "redeliveries": -1}, InvalidRequest),
        ("consumer.bad", {"subscription": "s", "unheard_of": 1}, InvalidRequest),
        ("consumer.bad", {"start": "yesterday"}, InvalidRequest),
        ("consumer.bad", {"start": 99}, OffsetOutOfRange),
        ("no topic", {}, TopicNotSupported),
    ],
)
def test_options_that_cannot_be_are_refused(
    keeper: RunningBroker, topic: str, options: dict[str, Any], error: type[PenstockError]
) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            with pytest.raises(error):
                await client.consumer(topic, **options)

    play(story())


def test_without_asyncio_it_is_the_same(keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        with client.producer("consumer.blocking") as producer:
            producer.send_many([str(number).encode() for number in range(100)])
        with client.consumer("consumer.blocking", "s", start="earliest", type="shared") as consumer:
            assert consumer.subscription == "s"
            seen = []
            for message in consumer:
                seen.append(int(message.payload))
                if seen[-1] == 50 and seen.count(50) == 1:
                    consumer.nack(message, delay=0.01, reason="once more")
                else:
                    consumer.ack(message)
                if len(seen) == 101:
                    break
            consumer.flush()
            assert sorted(seen) == sorted([*range(100), 50])
            consumer.seek("earliest")
            batch = consumer.receive_batch(20)
            assert batch is not None
            assert batch.offsets[0] == 0
            rows = batch.to_arrow(["offset"])
            assert rows.column("offset")[0].as_py() == 0


def test_a_reader_goes_on_where_it_was_when_its_connection_breaks(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.reader", 10)
            async with client.consumer("consumer.reader", start="earliest") as reader:
                assert numbers(await taken(reader, 4)) == [0, 1, 2, 3]
                transport = client._connection._transport
                assert transport is not None
                transport.abort()
                assert numbers(await taken(reader, 6)) == [4, 5, 6, 7, 8, 9]

    play(story())


def test_what_fails_again_after_a_seek_is_another_dead_letter(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.twice", 1)
            async with client.consumer("consumer.twice", "s", start="earliest", redeliveries=0) as consumer:
                for _ in range(2):
                    await consumer.nack((await taken(consumer, 1))[0])
                    await consumer.seek("earliest")
            async with client.consumer("/default-dlq/consumer.twice", start="earliest") as reader:
                assert numbers(await taken(reader, 2)) == [0, 0]

    play(story())


def test_what_was_acknowledged_before_a_seek_is_not_said_again_after_it(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.replay", 10)
            async with client.consumer("consumer.replay", "s", start="earliest") as consumer:
                for message in await taken(consumer, 10):
                    consumer.ack(message)
                await consumer.seek("earliest")
                await consumer.flush()
                assert numbers(await taken(consumer, 10)) == list(range(10))
            facts = await client.request(
                "system.subscription.describe", '{"topic":"consumer.replay","subscription":"s"}'
            )
            assert b'"floor":0' in facts

    play(story())


def test_the_rest_of_a_batch_can_be_had_at_once(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.rest", 10)
            async with client.consumer("consumer.rest", start="earliest") as reader:
                await taken(reader, 3)
                rest = await reader.receive_batch(20)
                assert rest is not None
                assert rest.offsets == list(range(3, 10))

    play(story())


@pytest.mark.usefixtures("often")
def test_what_the_blocking_consumer_has_fetched_does_not_time_out(keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        with client.producer("consumer.slow") as producer:
            producer.send_many([str(number).encode() for number in range(8)])
        options: dict[str, Any] = {"ack_timeout_ms": _WAITS_MS, "redeliveries": 0}
        with client.consumer("consumer.slow", "s", start="earliest", **options) as consumer:
            for number in range(8):
                message = consumer.receive(20)
                assert message is not None
                assert int(message.payload) == number
                time.sleep(_WAITS_MS / 1000 / 6)  # the last ones wait longer than that
                consumer.ack(message)
            consumer.flush()


def test_a_consumer_that_came_back_may_come_back_again(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await filled(client, "consumer.again", 3)
            async with client.consumer("consumer.again", "s", start="earliest") as consumer:
                for _ in range(3):
                    assert numbers(await taken(consumer, 3)) == [0, 1, 2]
                    transport = client._connection._transport
                    assert transport is not None
                    transport.abort()

    play(story())
