"""Values through a real broker: written with a schema, checked, and read by the schema that each message names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest
from tests.client.serde import protos

import penstock
import penstock.aio
from penstock import AvroSchema, JsonSchema, Pinned, ProtobufSchema, UseLatest
from penstock.aio import AsyncClient
from penstock.client.produce.receipts import Receipt
from penstock.core.errors import InvalidRequest, MalformedMessage, SchemaRejected
from penstock.record.message import SchemaRef
from penstock.testing import RunningBroker

pytestmark = pytest.mark.slow  # a real broker, and a disk


@dataclass
class Order:
    id: int
    tags: list[str] = field(default_factory=list)


class Visit(msgspec.Struct):
    page: str
    seconds: float = 0.0


class User(pydantic.BaseModel):
    name: str
    age: int | None = None


AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AVRO_NEXT = AVRO | {
    "fields": [{"name": "id", "type": "long"}, {"name": "currency", "type": "string", "default": "EUR"}]
}
JSON = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def created(client: AsyncClient, topic: str, **settings: Any) -> None:
    await client.request("system.topic.create", json.dumps({"topic": topic} | settings))


async def values(client: AsyncClient, topic: str, count: int, **options: Any) -> list[Any]:
    async with client.consumer(topic, start="earliest", **options) as consumer:
        found = [await consumer.receive(timeout=20) for _ in range(count)]
    return [message.value for message in found if message is not None]


@pytest.mark.parametrize(
    ("topic", "kind", "value", "plain"),
    [
        ("typed.dataclass", Order, Order(1, ["new"]), {"id": 1, "tags": ["new"]}),
        ("typed.struct", Visit, Visit("/", 1.5), {"page": "/", "seconds": 1.5}),
        ("typed.model", User, User(name="a"), {"name": "a", "age": None}),
        ("typed.text", str, "grün", "grün"),
        ("typed.number", float, 1.5, 1.5),
        ("typed.bytes", bytes, b"\xff", b"\xff"),
        ("typed.json", JsonSchema(JSON), {"id": 1}, {"id": 1}),
        ("typed.avro", AvroSchema(AVRO), {"id": 1}, {"id": 1}),
        ("typed.proto", ProtobufSchema(text='syntax = "proto3"; message O { int64 id = 1; }'), {"id": 1}, {"id": 1}),
        ("typed.generated", protos.Order, protos.Order(id=1), {"id": 1, "items": []}),
    ],
)
def test_a_value_of_every_kind_goes_there_and_back(
    keeper: RunningBroker, topic: str, kind: Any, value: Any, plain: Any
) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            await created(client, topic, schema_policy="enforce", schema_payloads=True)
            async with client.producer(topic, schema=kind) as producer:
                await (await producer.send(value, key=b"k"))
            (version,) = (await client.ask("system.schema.versions", {"subject": f"{topic}-value"}))["versions"]
            assert await values(client, topic, 1, schema=kind) == [value]
            assert await values(client, topic, 1) == [plain]
            async with client.consumer(topic, start="earliest") as consumer:
                message = await consumer.receive(20)
                assert message is not None
                assert (message.schema, message.key) == (SchemaRef(version["id"], 1), b"k")

    play(story())


def test_a_time_that_is_none_is_refused_where_the_schema_is_enforced(keeper: RunningBroker) -> None:
    topic, schema = "typed.times", {"properties": {"at": {"type": "string", "format": "date-time"}}}
    with penstock.connect(keeper.url) as client:
        asked = {"subject": f"{topic}-value", "type": "JSON", "schema": json.dumps(schema)}
        made = client.ask("system.schema.register", asked)
        client.ask("system.topic.create", {"topic": topic, "schema_policy": "enforce"})
        named = SchemaRef(made["id"], made["version"])
        with (
            pytest.raises(SchemaRejected, match='at /at: the value is not a "date-time"'),
            client.producer(topic) as one,
        ):
            one.send(b'{"at": "half past tea"}', schema=named)
        with client.producer(topic) as other:
            assert other.send(b'{"at": "2026-01-31T12:00:00Z"}', schema=named).result(20).offset == 0


def test_without_asyncio_it_is_the_same(keeper: RunningBroker) -> None:
    with penstock.connect(keeper.url) as client:
        with client.producer("typed.blocking", schema=Order) as producer:
            assert producer.send(Order(0)).result(20).offset == 0
            sent = producer.send_many([Order(number) for number in range(1, 1000)], keys=[b"k"] * 999)
            assert [receipt.offset for receipt in sent.result(20)] == list(range(1, 1000))
            producer.send_arrow(pa.record_batch({"value": [{"id": 1000, "tags": ["arrow"]}], "key": ["k"]}))
            with pytest.raises(SchemaRejected, match="at /tags/0: Expected `str`"):
                producer.send(Order(1, [7]))  # type: ignore[list-item]
            with pytest.raises(InvalidRequest, match="make another"):
                producer.send(Order(1), schema=SchemaRef(1, 1))
        with client.consumer("typed.blocking", "s", start="earliest", schema=Order) as consumer:
            found = [consumer.receive(20) for _ in range(1001)]
        orders: list[Order] = [message.value for message in found if message is not None]
        assert [order.id for order in orders] == list(range(1001))
        assert orders[-1].tags == ["arrow"]


def test_each_version_is_read_by_itself_or_as_another(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = "typed.versions"
            async with client.producer(topic, schema=AvroSchema(AVRO)) as producer:
                await producer.send({"id": 1})
            async with client.producer(topic, schema=AvroSchema(AVRO_NEXT)) as producer:
                await producer.send({"id": 2, "currency": "USD"})
            async with client.producer(topic, schema=Pinned(1)) as producer:
                await producer.send({"id": 3})
            async with client.producer(topic, schema=UseLatest()) as producer:
                await producer.send({"id": 4})
            written = [{"id": 1}, {"id": 2, "currency": "USD"}, {"id": 3}, {"id": 4, "currency": "EUR"}]
            latest = [{"id": 1, "currency": "EUR"}, written[1], {"id": 3, "currency": "EUR"}, written[3]]
            assert await values(client, topic, 4) == written
            assert await values(client, topic, 4, schema=UseLatest()) == latest
            assert await values(client, topic, 4, schema=Pinned(1)) == [{"id": number} for number in range(1, 5)]
            assert await values(client, topic, 4, schema=Order) == [Order(number) for number in range(1, 5)]

    play(story())


def test_a_type_may_get_a_field_with_a_default_and_must_not_lose_one(keeper: RunningBroker) -> None:
    @dataclass
    class More:
        id: int
        tags: list[str] = field(default_factory=list)
        priority: int = 0

    @dataclass
    class Less:
        tags: list[str] = field(default_factory=list)

    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            for kind in (Order, More):
                async with client.producer("typed.growth", schema=kind) as producer:
                    await producer.send(kind(1))
            assert await values(client, "typed.growth", 2, schema=More) == [More(1), More(1)]
            assert await values(client, "typed.growth", 2, schema=Order) == [Order(1), Order(1)]
            with pytest.raises(InvalidRequest) as refused:
                await client.producer("typed.growth", schema=Less)
            assert refused.value.details["registry_code"] == 409
            assert refused.value.details["problems"]

    play(story())


def test_a_field_with_a_default_may_be_removed_under_forward_and_any_under_none(keeper: RunningBroker) -> None:
    @dataclass
    class Less:
        id: int

    @dataclass
    class Least:
        pass

    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = "typed.removal"
            subject = f"{topic}-value"
            async with client.producer(topic, schema=Order) as producer:
                await producer.send(Order(1, ["new"]))
            await client.ask("system.schema.config", {"subject": subject, "compatibility": "FORWARD"})
            async with client.producer(topic, schema=Less) as producer:
                await producer.send(Less(2))
            with pytest.raises(InvalidRequest):
                await client.producer(topic, schema=Least)
            assert await values(client, topic, 2, schema=Order) == [Order(1, ["new"]), Order(2)]
            assert await values(client, topic, 2, schema=Less) == [Less(1), Less(2)]
            await client.ask("system.schema.config", {"subject": subject, "compatibility": "NONE"})
            await client.producer(topic, schema=Least)

    play(story())


def test_what_is_not_registered_cannot_be_written_with_unless_it_may_be_registered(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            with pytest.raises(InvalidRequest) as refused:
                await client.producer("typed.strict", schema=Order, register=False)
            assert str(refused.value.details["registry_code"]).startswith("404")
            with pytest.raises(InvalidRequest):
                await client.producer("typed.strict", schema=UseLatest())
            await client.producer("typed.strict", schema=Order)
            producer = await client.producer("typed.strict", schema=Order, register=False)
            await (await producer.send(Order(1)))

    play(story())


def test_a_message_that_cannot_be_read_does_not_end_the_loop(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = "typed.poison"
            async with client.producer(topic, schema=AvroSchema(AVRO)) as producer:
                sent = await producer.send({"id": 1})
                await sent
                known = (await client.ask("system.schema.get", {"subject": f"{topic}-value", "version": 1}))["id"]
            async with client.producer(topic) as raw:
                await raw.send(b"", schema=SchemaRef(known, 1))
                await raw.send(b"\x02", schema=SchemaRef(123_456, 1))
                await raw.send(b"as it is")
                await raw.send_many([b"\x04"], schema=SchemaRef(known, 1))
            seen: list[Any] = []
            async with client.consumer(topic, "s", start="earliest") as consumer:
                async for message in consumer:
                    try:
                        seen.append(message.value)
                    except MalformedMessage as error:
                        seen.append(error)
                    consumer.ack(message)
                    if len(seen) == 5:
                        break
            first, empty, unknown, bare, last = seen
            assert (first, bare, last) == ({"id": 1}, b"as it is", {"id": 2})
            assert empty.details == {
                "topic": f"/default/{topic}",
                "partition": 0,
                "offset": 1,
                "schema_id": known,
                "path": "/id",
            }
            assert "0:2 cannot be read by schema 123456" in unknown.message

    play(story())


def test_the_registry_is_asked_once_for_each_schema(keeper: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, Any]] = []
    ask = AsyncClient.ask

    async def counting(client: AsyncClient, topic: str, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        asked.append(facts or {})
        return await ask(client, topic, facts)

    async def story() -> None:
        async with (
            penstock.aio.connect(keeper.url) as client,
            client.producer("typed.once", schema=Order, batch_messages=10) as producer,
        ):
            await producer.send_many([Order(number) for number in range(200)])
        monkeypatch.setattr(AsyncClient, "ask", counting)
        async with penstock.aio.connect(keeper.url) as client:
            for _ in range(2):
                assert len(await values(client, "typed.once", 200)) == 200
                assert len(await values(client, "typed.once", 200, schema=Order)) == 200
            assert [set(facts) for facts in asked] == [{"id", "closure"}]

    play(story())


@pytest.mark.parametrize("partitions", [1, 4])
def test_only_the_messages_that_the_broker_refuses_are_refused(keeper: RunningBroker, partitions: int) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = f"typed.refused{partitions}"
            await created(client, topic, partitions=partitions, schema_policy="enforce", schema_payloads=True)
            async with client.producer(topic, schema=JsonSchema(JSON)) as producer:
                await (await producer.send({"id": 0}))
            found = await client.ask("system.schema.get", {"subject": f"{topic}-value", "version": 1})
            schema = SchemaRef(found["id"], 1)
            raw = await client.producer(topic)
            good = [await raw.send(b'{"id": 1}', key=b"a", schema=schema) for _ in range(2)]
            bad = await raw.send(b'{"id": "x"}', key=b"b", schema=schema)
            nameless = await raw.send(b'{"id": 2}', key=b"c")
            last = await raw.send(b'{"id": 3}', schema=schema)
            offsets = [(await sent).offset for sent in (*good, last)]
            assert len({((await sent).partition, (await sent).offset) for sent in (*good, last)}) == 3
            assert offsets[1] == offsets[0] + 1
            with pytest.raises(SchemaRejected) as refused:
                await bad
            assert refused.value.details == {"path": "/id"}
            with pytest.raises(SchemaRejected):
                await nameless
            with pytest.raises(SchemaRejected, match="2 of 5 messages were refused; message 2: "):
                await raw.flush()
            await raw.flush()  # it was said once
            many = await raw.send_many([b'{"id": 4}', b"{", b'{"id": 5}'], schema=schema)
            with pytest.raises(SchemaRejected, match="1 of 3 messages were refused; message 1: "):
                await many
            stored, wrong, next_ = await many.outcomes()
            assert isinstance(wrong, SchemaRejected)
            assert isinstance(stored, Receipt)
            assert isinstance(next_, Receipt)
            everything = await raw.send_many([b"{", b"[]"], schema=schema)
            assert [type(each) for each in await everything.outcomes()] == [SchemaRejected] * 2
            with pytest.raises(SchemaRejected):
                await raw.flush()
            await (await raw.send(b'{"id": 6}', schema=schema))
            await raw.close()
            assert sorted(each["id"] for each in await values(client, topic, 7)) == [0, 1, 1, 3, 4, 5, 6]

    play(story())


def test_payloads_for_clients_of_other_registries_are_read_and_written(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            topic = "/shop/typed.framed"
            async with client.producer(topic, schema=AvroSchema(AVRO), framing="confluent") as producer:
                await producer.send({"id": 1})
            async with client.producer(topic, schema=protos.Note, subject="notes", framing="confluent") as producer:
                await producer.send(protos.Note(text="x"))
            async with client.producer(topic, schema=UseLatest()) as producer:
                await producer.send({"id": 2})
            framed, noted, bare = await values(client, topic, 3, framing="auto")
            assert (framed, noted, bare) == ({"id": 1}, {"text": "x"}, {"id": 2})
            async with client.consumer(topic, start="earliest", framing="confluent") as consumer:
                message = await consumer.receive(20)
                assert message is not None
                assert message.schema is not None
                assert message.payload == b"\0" + message.schema.id.to_bytes(4) + b"\x02"
                assert message.value == {"id": 1}

    play(story())


def test_what_is_wrong_with_a_schema_is_told_when_the_producer_is_made(keeper: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(keeper.url) as client:
            for schema in (AvroSchema("{"), JsonSchema({"type": "nothing"}), ProtobufSchema(text="message {")):
                with pytest.raises(InvalidRequest):
                    await client.producer("typed.wrong", schema=schema)
                with pytest.raises(InvalidRequest):
                    async with client.consumer("typed.wrong", schema=schema, start="earliest") as consumer:
                        await consumer.receive(20)
            with pytest.raises(InvalidRequest, match="framing"):
                await client.consumer("typed.wrong", framing="plain")

    play(story())
