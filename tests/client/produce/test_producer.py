"""Producers against a real broker: every confirmed message is stored once, whichever connection breaks."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.kit import child_environment
from tests.ports import free_ports

import penstock
import penstock.aio
from penstock.client.consume.consumer import StreamMessage
from penstock.client.produce.producer import Producer
from penstock.core.errors import InvalidRequest, NotOwner, PayloadTooLarge, PenstockError, ServiceUnavailable
from penstock.record.message import SchemaRef, partition_of
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 240))


async def stored(client: penstock.aio.AsyncClient, topic: str, count: int) -> list[StreamMessage]:
    """Return the first messages of a topic."""
    found: list[StreamMessage] = []
    async with client.consumer(topic, start="earliest") as reader:
        while len(found) < count:
            message = await reader.receive(timeout=20)
            assert message is not None
            found.append(message)
            reader.ack(message)
    return found


def test_every_field_of_a_message_survives(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("producer.fields", name="shop") as producer:
                sent = await producer.send(
                    '{"order": 1}',
                    key="customer-7",
                    type="order.created",
                    attributes={"traceparent": "00-4bf9-01"},
                    schema=SchemaRef(7, 2),
                )
                receipt = await sent
            (message,) = await stored(client, "producer.fields", 1)
            assert (message.offset, message.id) == (receipt.offset, receipt.id)
            assert (message.key, message.type, message.json()) == (b"customer-7", "order.created", {"order": 1})
            assert message.attributes == {"traceparent": "00-4bf9-01"}
            assert message.schema == SchemaRef(7, 2)
            assert (message.producer_name, message.producer_id) == ("shop", producer.producer_id)
            assert (message.request_id, message.partition, message.topic) == (1, 0, "/default/producer.fields")

    play(story())


def test_messages_of_all_kinds_keep_their_order(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("producer.order", batch_messages=7) as producer:
                for number in range(50):
                    await producer.send(str(number), type=f"t{number % 3}")
                await producer.send_many([str(number).encode() for number in range(50, 100)])
                rows = pa.record_batch({"value": [str(number).encode() for number in range(100, 150)]})
                await producer.send_arrow(rows)
                await producer.send("150")
            found = await stored(client, "producer.order", 151)
            assert [int(message.payload) for message in found] == list(range(151))
            assert [message.request_id for message in found] == list(range(1, 152))

    play(story())


def test_receipts_say_where_each_message_lies_in_a_partitioned_topic(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            facts = json.dumps({"topic": "producer.parts", "partitions": 4})
            await client.request("system.topic.create", facts)
            keys = [f"k{number % 13}".encode() if number % 5 else None for number in range(200)]
            async with client.producer("producer.parts") as producer:
                sent = await producer.send_many([str(number).encode() for number in range(200)], keys=keys)
                receipts = await sent
            by_place = {}
            for message in await stored(client, "producer.parts", 200):
                by_place[message.partition, message.offset] = message
            for number, receipt in enumerate(receipts):
                message = by_place[receipt.partition, receipt.offset]
                assert (int(message.payload), message.id) == (number, receipt.id)
                key = keys[number]
                assert key is None or receipt.partition == partition_of(key, 4)

    play(story())


def test_a_named_producer_goes_on_counting_where_it_stopped(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            for part in range(3):
                async with client.producer("producer.again", name="same") as producer:
                    await producer.send_many([f"{part}-{number}".encode() for number in range(10)])
            found = await stored(client, "producer.again", 30)
            assert [message.request_id for message in found] == list(range(1, 31))
            assert len({message.producer_id for message in found}) == 1

    play(story())


def test_the_last_to_come_under_a_name_is_the_one_that_may_write(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as one, penstock.aio.connect(keeper.url) as other:
            first = await one.producer("producer.fence", name="only")
            await (await first.send("one"))
            second = await other.producer("producer.fence", name="only")
            await (await second.send("two"))
            with pytest.raises(NotOwner):
                await _send_until_refused(first)
            await second.flush()
            found = await stored(one, "producer.fence", 2)
            assert [message.text for message in found] == ["one", "two"]

    play(story())


def test_producers_without_a_name_do_not_disturb_each_other(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            producers = [await client.producer("producer.nameless") for _ in range(3)]
            for producer in producers:
                await producer.send_many([b"x"] * 5)
            for producer in producers:
                await producer.flush()
            found = await stored(client, "producer.nameless", 15)
            assert len({message.producer_id for message in found}) == 3

    play(story())


def test_what_cannot_be_stored_fails_and_flush_says_so(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            facts = json.dumps({"topic": "producer.small", "payload_bytes_max": 100})
            await client.request("system.topic.create", facts)
            producer = await client.producer("producer.small")
            with pytest.raises(PayloadTooLarge, match="at most 100 bytes"):
                await producer.send(b"x" * 101)
            large = await producer.send_arrow(pa.record_batch({"value": [b"x" * 101]}))
            await producer.send(b"x" * 100)
            with pytest.raises(PayloadTooLarge):
                await large
            with pytest.raises(PayloadTooLarge):
                await producer.flush()
            await producer.flush()  # it was said once
            assert len(await stored(client, "producer.small", 1)) == 1

    play(story())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_messages": 0}, InvalidRequest),
        ({"batch_bytes": 1 << 30}, InvalidRequest),
        ({"access": "sometimes"}, InvalidRequest),
        ({"name": "x" * 300}, InvalidRequest),
    ],
)
def test_options_that_cannot_be_are_refused(
    keeper: RunningBroker, options: dict[str, Any], error: type[Exception]
) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            with pytest.raises(error):
                await client.producer("producer.options", **options)

    play(story())


def test_a_message_that_is_no_message_is_refused_and_others_go_on(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client, client.producer("producer.bad") as producer:
            with pytest.raises(TypeError):
                await producer.send(7)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="attribute 'a' must be text"):
                await producer.send("x", attributes={"a": 7})  # type: ignore[dict-item]
            with pytest.raises(InvalidRequest, match="key must be bytes"):
                await producer.send("x", key=7)  # type: ignore[arg-type]
            with pytest.raises(PayloadTooLarge, match="type takes at most 255 bytes"):
                await producer.send("x", type="t" * 300)
            assert (await (await producer.send("good"))).offset == 0

    play(story())


@pytest.mark.parametrize("keys", [[], [b"a"], [b"a", b"b", b"c"]])
def test_many_messages_have_as_many_keys_or_none_is_sent(keeper: RunningBroker, keys: list[bytes]) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client, client.producer(f"producer.keys{len(keys)}") as producer:
            with pytest.raises(InvalidRequest, match=f"2 values have 2 keys, not {len(keys)}"):
                await producer.send_many([b"1", b"2"], keys=keys)
            assert (await (await producer.send("next"))).offset == 0

    play(story())
    with penstock.connect(keeper.url) as client, client.producer(f"producer.keys{len(keys)}") as producer:
        with pytest.raises(InvalidRequest, match=f"2 values have 2 keys, not {len(keys)}"):
            producer.send_many([b"1", b"2"], keys=keys)
        assert producer.send("next").result(20).offset == 1


@pytest.mark.parametrize(
    ("values", "keys", "error", "words"),
    [
        ([b"good", "good", 7], None, InvalidRequest, "value 2: a payload is bytes or str, not int"),
        ([b"good", None], None, InvalidRequest, "value 1: a payload is bytes or str, not NoneType"),
        ([b"good"] * 9 + [b"x" * 101], None, PayloadTooLarge, "value 9: .* at most 100 bytes, not 101"),
        (["good"] * 5, [None, b"k", "k", 7, b"k"], InvalidRequest, "value 3: key must be bytes, not int"),
        (["good"] * 5, [None] * 4 + [b"k" * 65_536], PayloadTooLarge, "value 4: key takes at most 65535 bytes"),
    ],
)
def test_of_many_messages_the_one_that_is_no_message_is_named_and_none_is_sent(
    keeper: RunningBroker, values: list[Any], keys: list[Any] | None, error: type[PenstockError], words: str
) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = f"producer.places{uuid.uuid4().hex}"
            await client.ask("system.topic.create", {"topic": topic, "payload_bytes_max": 100})
            async with client.producer(topic, batch_messages=2) as producer:
                with pytest.raises(error, match=words) as failed:
                    await producer.send_many(values, keys=keys)
                assert f"value {failed.value.details['record']}: " in failed.value.message
                assert (await (await producer.send("next"))).offset == 0

    play(story())


def test_many_messages_may_be_any_kind_of_bytes_or_text_and_so_may_their_keys(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("producer.kinds") as producer:
                values: list[Any] = [b"a", "ä", bytearray(b"b"), memoryview(b"c")]
                await producer.send_many(values, keys=[None, "k", b"k", b""])
            found = await stored(client, "producer.kinds", 4)
            assert [message.text for message in found] == ["a", "ä", "b", "c"]
            assert [message.key for message in found] == [None, b"k", b"k", b""]

    play(story())


def test_a_closed_producer_takes_nothing_more(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            producer = await client.producer("producer.closed")
            await producer.close()
            with pytest.raises(ServiceUnavailable, match="closed"):
                await producer.send("x")

    play(story())


@pytest.mark.slow
def test_what_was_sent_before_a_restart_is_confirmed_after_it_and_stored_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    environment = child_environment(tmp_path_factory)
    data = tmp_path_factory.mktemp("data")

    async def story() -> None:
        (port,) = map(str, free_ports(1))
        first = RunningBroker("--tcp-port", port, data=data, environment=environment)
        with first:
            client = await penstock.aio.connect(first.url)
            producer = await client.producer("producer.restart", name="stubborn", timeout=200)
            for number in range(500):
                await producer.send(str(number))
            await asyncio.sleep(0.005)
            assert first.process is not None
            first.process.kill()
        more = asyncio.create_task(_send_more(producer))
        with RunningBroker("--tcp-port", port, data=data, environment=environment):
            await more
            found = await stored(client, "producer.restart", 1000)
            assert [int(message.payload) for message in found] == list(range(1000))
            await client.close()

    play(story())


async def _send_until_refused(producer: Producer) -> None:
    for _ in range(100):
        await (await producer.send("three"))
        await asyncio.sleep(0.01)


async def _send_more(producer: Producer) -> None:
    for number in range(500, 1000):
        await producer.send(str(number))
    await producer.flush()


def test_without_asyncio_it_is_the_same(keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        with client.producer("producer.blocking", type="t") as producer:
            assert producer.send("one", key="k").result(20).offset == 0
            assert [each.offset for each in producer.send_many([b"two", b"three"]).result(20)] == [1, 2]
            producer.send_arrow(pa.record_batch({"value": [b"four"], "key": ["k"]}))
            for number in range(5, 1000):
                producer.send(str(number))
        with client.consumer("producer.blocking", start="earliest") as reader:
            found = [reader.receive(20) for _ in range(999)]
    texts = [message.text for message in found if message is not None]
    assert texts == ["one", "two", "three", "four", *(str(number) for number in range(5, 1000))]


def test_no_more_is_unconfirmed_than_the_broker_would_recognise(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client, client.producer("producer.window") as producer:
            sent = await producer.send_many([b"x"] * 60_000)
            assert sum(block.count for block, _ in producer._sender.sent) <= 10_000
            assert [receipt.offset for receipt in await sent] == list(range(60_000))

    play(story())


def test_sending_without_a_pause_waits_when_too_much_is_unconfirmed(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client, client.producer("producer.pressure") as producer:
            for _ in range(300):
                await producer.send(bytes(100_000))
                assert producer._unconfirmed_bytes + producer._gathered_bytes < 10 << 20

    play(story())


def test_whoever_numbers_rows_may_send_them_again(keeper: RunningBroker) -> None:
    def rows(*numbers: int) -> pa.RecordBatch:
        return pa.record_batch({"value": [b"%d" % number for number in numbers], "request_id": list(numbers)})

    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            async with client.producer("producer.numbered", name="etl") as producer:
                assert producer.last_request_id == 0
                await (await producer.send_arrow(rows(10, 20, 1 << 40), numbered=True)).stored()
                await producer.send("and goes on")
            async with client.producer("producer.numbered", name="etl", batch_messages=2) as again:
                assert again.last_request_id == (1 << 40) + 1
                sent = await again.send_arrow(rows(10, 20, 30, 1 << 40), numbered=True)
                assert [each.duplicate for each in await sent.outcomes()] == [True, True, False, True]  # type: ignore[union-attr]
                with pytest.raises(InvalidRequest, match="numbers its messages upwards"):
                    await (await again.send_arrow(rows(7, 7), numbered=True)).stored()
                with pytest.raises(InvalidRequest):
                    await again.flush()
            found = await stored(client, "producer.numbered", 5)
            assert [message.request_id for message in found] == [10, 20, 1 << 40, (1 << 40) + 1, 30]

    play(story())
