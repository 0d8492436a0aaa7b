"""Schemas of producers and consumers, without a broker: calls to the registry, encoding and decoding."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st
from tests.client.registry import FakeRegistry, Purchase, run, writer
from tests.client.serde.protos import Item, Note, Order

from penstock.client.consume.messages import Batch, BatchOrigin, StreamMessage
from penstock.client.produce.receipts import BlockReceipts, Receipt
from penstock.client.serde import registry_client as schemas_module
from penstock.client.serde.decoder import ValueDecoder
from penstock.client.serde.framing import framed_id, prefix, read_indexes, write_indexes
from penstock.client.serde.registry_client import RegistryClient
from penstock.client.serde.schemas import (
    AvroSchema,
    JsonSchema,
    Pinned,
    ProtobufSchema,
    Reference,
    Serde,
    Source,
    UseLatest,
)
from penstock.core.errors import (
    InvalidRequest,
    MalformedMessage,
    PenstockError,
    SchemaRejected,
    ServiceUnavailable,
    TopicNotSupported,
)
from penstock.core.ids import IdGenerator
from penstock.record.block import Draft, scan, stamp
from penstock.record.message import Message, SchemaRef, partition_of
from penstock.testing import ManualClock

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
JSON = {
    "type": "object",
    "title": "Order",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; } message Gone { string why = 1; }'


def messages(*given: tuple[bytes, int | None]) -> Batch:
    """Build messages as a consumer has them, from payloads and the ids of their schemas."""
    drafts = [
        Message(payload=payload, schema=None if schema is None else SchemaRef(schema, 1)) for payload, schema in given
    ]
    data = bytearray(Draft.of(drafts).data)
    stamp(data, len(drafts), IdGenerator(ManualClock(), node=1).take(len(drafts)), 10)
    block, _ = scan(np.frombuffer(bytes(data), dtype=np.uint8))
    return Batch(block, BatchOrigin("/default/orders", 3, "s"))


def read(
    source: Source | None, registry: FakeRegistry, *given: tuple[bytes, int | None], framing: str | None = None
) -> list[Any]:
    """Read the values, or the errors in their place."""

    async def work() -> list[StreamMessage]:
        schemas = registry.client()
        reader: ValueDecoder = await Serde(source=source, framing=framing).decoder(schemas, "orders")
        batch = messages(*given)
        batch.origin.decoder = await reader.batch_decoder(batch)
        return batch.messages

    return [value_of(message) for message in run(work())]


def value_of(message: StreamMessage) -> Any:
    try:
        return message.value
    except PenstockError as error:
        return error


# what is asked of the registry


def test_a_schema_is_registered_under_the_subject_of_the_topic() -> None:
    registry = FakeRegistry()
    made = writer(AvroSchema(AVRO), registry)
    assert registry.asked == [
        ("system.schema.register", {"subject": "orders-value", "type": "AVRO", "schema": json.dumps(AVRO)})
    ]
    assert made.schema == SchemaRef(1, 1)
    writer(AvroSchema(AVRO), registry, topic="/shop/orders")
    writer(AvroSchema(AVRO), registry, subject="mine")
    assert set(registry.subjects) == {"orders-value", "shop/orders-value", "mine"}


def test_what_is_not_to_be_registered_is_looked_up() -> None:
    registry = FakeRegistry()
    with pytest.raises(InvalidRequest, match="not found"):
        writer(AvroSchema(AVRO), registry, register=False)
    writer(AvroSchema(AVRO), registry)
    assert writer(AvroSchema(AVRO), registry, register=False).schema == SchemaRef(1, 1)


def test_the_latest_and_a_given_version_are_written_with() -> None:
    registry = FakeRegistry()
    for kind in ("long", "string", "boolean"):
        writer(AvroSchema({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}), registry)
    latest, second = writer(UseLatest(), registry), writer(Pinned(2), registry)
    assert (latest.schema, latest.encode({"a": True})) == (SchemaRef(3, 3), b"\x01")
    assert (second.schema, second.encode({"a": "x"})) == (SchemaRef(2, 2), b"\x02x")


def test_a_schema_that_was_registered_once_is_not_asked_about_again() -> None:
    registry = FakeRegistry()
    schemas = registry.client()

    async def work() -> None:
        for _ in range(3):
            await Serde(source=Purchase).encoder(schemas, "orders")

    run(work())
    assert len(registry.asked) == 1


def test_an_id_is_asked_for_once_however_many_want_to_know() -> None:
    registry = FakeRegistry()
    writer(AvroSchema(AVRO), registry)
    registry.asked.clear()
    schemas = registry.client()

    async def work() -> None:
        found = await asyncio.gather(*(schemas.definition(1) for _ in range(10)))
        assert len(set(found)) == 1
        assert await schemas.definition(1) == schemas.known(1)

    run(work())
    assert registry.asked == [("system.schema.get", {"id": 1, "closure": True})]


def test_who_stops_waiting_for_an_id_leaves_the_others_their_answer() -> None:
    async def work() -> None:
        asked, answer = 0, asyncio.Event()

        async def ask(_topic: str, _facts: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal asked
            asked += 1
            await answer.wait()
            return {"type": "STRING", "schema": ""}

        schemas = RegistryClient(ask)
        impatient = asyncio.create_task(schemas.definition(1))
        patient = asyncio.create_task(schemas.definition(1))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.sleep(0)
        answer.set()
        await patient
        assert (asked, impatient.cancelled()) == (1, True)

    run(work())


def test_an_id_that_nobody_knows_is_asked_for_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = FakeRegistry()
    schemas = registry.client()

    async def refused() -> None:
        with pytest.raises(InvalidRequest, match="Schema 9 not found"):
            await schemas.definition(9)

    async def work() -> None:
        await refused()
        await refused()
        assert len(registry.asked) == 1
        monkeypatch.setattr(schemas_module, "_UNKNOWN_SECONDS", 0.0)
        await refused()
        assert len(registry.asked) == 2

    run(work())


def test_a_registry_that_cannot_be_reached_is_asked_again_at_once() -> None:
    asked = 0

    async def ask(_topic: str, _facts: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ServiceUnavailable("not now")
        return {"type": "STRING", "schema": ""}

    async def work() -> None:
        schemas = RegistryClient(ask)
        with pytest.raises(ServiceUnavailable):
            await schemas.definition(1)
        await schemas.definition(1)

    run(work())


def test_no_more_schemas_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas_module, "_KEPT_MAX", 3)
    registry = FakeRegistry()
    for number in range(5):
        writer(AvroSchema({"type": "fixed", "name": f"F{number}", "size": 1}), registry)
    schemas = registry.client()

    async def work() -> None:
        for schema_id in range(1, 6):
            await schemas.definition(schema_id)

    run(work())
    assert [schema_id for schema_id in range(1, 6) if schemas.known(schema_id)] == [3, 4, 5]


def test_schemas_that_refer_to_others_have_them_all() -> None:
    registry = FakeRegistry()
    writer(AvroSchema({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}), registry, subject="a")
    middle = AvroSchema(
        {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]},
        [Reference(name="A", subject="a", version=1)],
    )
    writer(middle, registry, subject="b")
    outer = AvroSchema(
        {"type": "record", "name": "C", "fields": [{"name": "b", "type": "B"}]},
        [Reference(name="B", subject="b", version=1)],
    )
    made = writer(outer, registry)
    value = {"b": {"a": {"x": 1}}}
    assert read(None, registry, (made.encode(value), made.schema.id)) == [value]
    assert read(outer, registry, (made.encode(value), None)) == [value]


def test_files_that_a_generated_class_imports_are_registered_with_it() -> None:
    registry = FakeRegistry()
    made = writer(Order, registry)
    assert list(registry.subjects) == ["shop/money.proto", "orders-value"]
    references = registry.schemas[made.schema.id - 1]["references"]
    assert references == [{"name": "shop/money.proto", "subject": "shop/money.proto", "version": 1}]
    (value,) = read(None, registry, (made.encode(Order(id=1, price={"units": 2})), made.schema.id))
    assert value == {"id": 1, "items": [], "price": {"units": 2, "currency": ""}}


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"framing": "avro"}, InvalidRequest, "framing"),
        ({"framing": "confluent"}, InvalidRequest, "belong to a schema"),
        ({"subject": "s"}, InvalidRequest, "belong to a schema"),
        ({"source": "string"}, InvalidRequest, "which language"),
        ({"source": AVRO}, InvalidRequest, "which language"),
        ({"source": [AVRO]}, InvalidRequest, "which language"),
        ({"source": Purchase(1)}, InvalidRequest, "no type"),
        ({"source": object()}, InvalidRequest, "no type"),
        ({"source": Purchase, "framing": "auto"}, InvalidRequest, "framing"),
        ({"source": ProtobufSchema(text=PROTO, message="Gone")}, InvalidRequest, "first message"),
        ({"source": Note}, InvalidRequest, "first message"),
        ({"source": ProtobufSchema(text=PROTO, message="Nobody")}, InvalidRequest, "no message"),
    ],
)
def test_what_cannot_be_written_with_is_refused(options: Any, error: type[Exception], reason: str) -> None:
    registry = FakeRegistry()
    with pytest.raises(error, match=reason):
        run(Serde(**options).encoder(registry.client(), "orders"))
    assert registry.asked == []


def test_a_topic_that_is_none_has_no_subject() -> None:
    with pytest.raises(TopicNotSupported):
        writer(AvroSchema(AVRO), topic="1")


def test_a_protobuf_schema_is_a_class_or_a_text() -> None:
    for message_class, text in ((None, None), (Order, PROTO), (Purchase, None)):
        with pytest.raises(InvalidRequest):
            ProtobufSchema(message_class, text)


# what is written


def test_a_value_that_does_not_fit_says_which_schema_and_where() -> None:
    with pytest.raises(SchemaRejected) as caught:
        writer(Purchase).encode(Purchase("x"))  # type: ignore[arg-type]
    assert caught.value.message == (
        "the value does not fit version 1 of orders-value at /id: Expected `int`, got `str`"
    )
    details = {"path": "/id", "subject": "orders-value", "schema_id": 1, "schema_version": 1}
    assert caught.value.details == details
    with pytest.raises(SchemaRejected) as caught:
        writer(Purchase).encode_all([Purchase(1), Purchase(2), Purchase("x")])  # type: ignore[arg-type]
    assert caught.value.details == details | {"record": 2}


@pytest.mark.parametrize(
    ("source", "value", "payload"),
    [
        (Purchase, Purchase(7), b'{"id":7,"currency":"EUR"}'),
        (AvroSchema(AVRO), {"id": 7}, b"\x0e"),
        (AvroSchema(json.dumps(AVRO)), {"id": 7}, b"\x0e"),
        (ProtobufSchema(text=PROTO), {"id": 7}, b"\x08\x07"),
        (ProtobufSchema(Order), Order(id=7), b"\x08\x07"),
        (Order, Order(id=7), b"\x08\x07"),
        (str, "grün", "grün".encode()),
        (bytes, b"\xff", b"\xff"),
        (int, 7, b"7"),
        (float, 7.5, b"7.5"),
    ],
)
def test_values_are_written_and_read_back(source: Any, value: Any, payload: bytes) -> None:
    registry = FakeRegistry()
    made = writer(source, registry)
    assert made.encode(value) == payload
    assert read(source, registry, (payload, made.schema.id)) == [value]


@pytest.mark.parametrize(
    ("value", "path"),
    [({"id": "x"}, "/id"), ({"id": 1, "tags": ["a", 2]}, "/tags/1"), ({}, ""), ([], ""), ({"id": object()}, "")],
)
def test_dicts_are_held_to_their_json_schema(value: Any, path: str) -> None:
    made = writer(JsonSchema(JSON))
    assert made.encode({"id": 1, "tags": ["a"]}) == b'{"id":1,"tags":["a"]}'
    with pytest.raises(SchemaRejected) as caught:
        made.encode(value)
    assert caught.value.details["path"] == path


def test_what_a_schema_needs_and_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "penstock.client.serde.avro", raising=False)
    with pytest.raises(InvalidRequest, match=r"needs the package 'fastavro': pip install 'penstock\[schema\]'"):
        writer(AvroSchema(AVRO))
    registry = FakeRegistry()
    writer(Purchase, registry)
    registry.schemas[0] = {"type": "AVRO", "schema": json.dumps(AVRO), "references": []}
    (unreadable,) = read(None, registry, (b"\x02", 1))
    assert "needs the package 'fastavro'" in str(unreadable)


@pytest.mark.parametrize(("source", "value"), [(str, 7), (bytes, "x"), (str, b"x")])
def test_plain_kinds_take_nothing_else(source: Any, value: Any) -> None:
    with pytest.raises(SchemaRejected, match="is no"):
        writer(source).encode(value)


def test_rows_of_a_record_batch_are_encoded_and_stamped() -> None:
    batch = pa.record_batch({"value": [{"id": 1}, {"id": 2}], "key": [b"a", None]})
    encoded = writer(AvroSchema(AVRO)).encode_arrow(batch)
    assert encoded.to_pydict() == {
        "value": [b"\x02", b"\x04"],
        "key": [b"a", None],
        "schema_id": [1, 1],
        "schema_version": [1, 1],
    }
    Draft.from_arrow(encoded)


# what is read


def test_every_message_is_read_by_the_schema_it_names() -> None:
    registry = FakeRegistry()
    avro, proto = writer(AvroSchema(AVRO), registry), writer(ProtobufSchema(text=PROTO), registry)
    typed, text, number = writer(Purchase, registry), writer(str, registry), writer(int, registry)
    given = [
        (avro.encode({"id": 1}), avro.schema.id),
        (proto.encode({"id": 2}), proto.schema.id),
        (typed.encode(Purchase(3)), typed.schema.id),
        (text.encode("four"), text.schema.id),
        (number.encode(5), number.schema.id),
        (b"six", None),
    ]
    assert read(None, registry, *given) == [{"id": 1}, {"id": 2}, {"id": 3, "currency": "EUR"}, "four", 5, b"six"]


def test_a_type_reads_whatever_it_was_written_as() -> None:
    registry = FakeRegistry()
    avro, proto = writer(AvroSchema(AVRO), registry), writer(ProtobufSchema(text=PROTO), registry)
    given = [
        (avro.encode({"id": 1}), avro.schema.id),
        (proto.encode({"id": 2}), proto.schema.id),
        (b'{"id": 3, "more": true}', None),
    ]
    assert read(Purchase, registry, *given) == [Purchase(1), Purchase(2), Purchase(3)]


def test_versions_are_read_into_the_one_that_is_asked_for() -> None:
    registry = FakeRegistry()
    currency = {"name": "currency", "type": "string", "default": "EUR"}
    first = writer(AvroSchema(AVRO), registry)
    second = writer(AvroSchema(AVRO | {"fields": [*AVRO["fields"], currency]}), registry)
    given = [
        (first.encode({"id": 1}), first.schema.id),
        (second.encode({"id": 2, "currency": "USD"}), second.schema.id),
    ]
    assert read(UseLatest(), registry, *given) == [{"id": 1, "currency": "EUR"}, {"id": 2, "currency": "USD"}]
    assert read(Pinned(1), registry, *given) == [{"id": 1}, {"id": 2}]
    assert read(AvroSchema(AVRO), registry, *given, (b"\x06", None)) == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_json_is_read_if_it_conforms_to_the_schema_of_the_reader() -> None:
    registry = FakeRegistry()
    anything = writer(JsonSchema({"type": "object"}), registry)
    given = [(anything.encode(each), anything.schema.id) for each in ({"id": 1, "more": 2}, {"id": "x"})]
    good, bad = read(JsonSchema(JSON), registry, *given)
    assert good == {"id": 1, "more": 2}
    assert (type(bad), bad.details["path"]) == (MalformedMessage, "/id")


def test_bytes_and_text_can_be_made_of_other_kinds_too() -> None:
    registry = FakeRegistry()
    avro, typed = writer(AvroSchema(AVRO), registry), writer(Purchase, registry)
    given = [(avro.encode({"id": 1}), avro.schema.id), (b'{"id": 2}', typed.schema.id)]
    assert read(bytes, registry, *given) == [b"\x02", b'{"id": 2}']
    values = read(str, registry, *given)
    assert values[1] == '{"id": 2}'
    assert "written as AVRO, and is to be read as STRING" in str(values[0])


def test_what_cannot_be_read_says_which_message_it_is_and_the_others_are_read() -> None:
    registry = FakeRegistry()
    made = writer(AvroSchema(AVRO), registry)
    good = (made.encode({"id": 1}), made.schema.id)
    first, bad, unknown, last = read(None, registry, good, (b"", made.schema.id), (b"\x02", 99), good)
    assert (first, last) == ({"id": 1}, {"id": 1})
    assert isinstance(bad, MalformedMessage)
    assert bad.message.startswith("/default/orders 3:11 cannot be read by schema 1, at /id: ")
    where = {"topic": "/default/orders", "partition": 3, "offset": 11, "schema_id": 1, "path": "/id"}
    assert bad.details == where
    assert isinstance(unknown, MalformedMessage)
    assert unknown.message == "/default/orders 3:12 cannot be read by schema 99: Schema 99 not found"


def test_a_registry_out_of_reach_is_told_as_that() -> None:
    async def ask(_topic: str, _facts: Mapping[str, Any]) -> dict[str, Any]:
        raise ServiceUnavailable("not now")

    async def work() -> None:
        batch = messages((b"x", 1))
        batch.origin.decoder = await ValueDecoder(RegistryClient(ask), None, None).batch_decoder(batch)
        with pytest.raises(ServiceUnavailable, match="3:10 cannot be read by schema 1: not now"):
            _ = batch.messages[0].value

    run(work())


def test_the_value_of_a_message_is_worked_out_once() -> None:
    registry = FakeRegistry()
    made = writer(AvroSchema(AVRO), registry)

    async def work() -> None:
        batch = messages((made.encode({"id": 1}), 1))
        with pytest.raises(InvalidRequest):
            _ = batch.messages[0].value
        batch.origin.decoder = await ValueDecoder(registry.client(), None, None).batch_decoder(batch)
        assert batch.messages[0].value is batch.messages[0].value
        assert batch.last(1).messages[0].value == {"id": 1}

    run(work())


# as clients of other registries have it


CONTEXT = SerializationContext("orders", MessageField.VALUE)


def other_registry() -> Any:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def test_the_framing_is_that_of_other_clients() -> None:
    avro = AvroSerializer(other_registry(), json.dumps(AVRO))({"id": 7}, CONTEXT)
    assert writer(AvroSchema(AVRO), framing="confluent").encode({"id": 7}) == avro
    json_ = JSONSerializer(json.dumps(JSON), other_registry())({"id": 7}, CONTEXT)
    assert writer(Purchase, framing="confluent").encode(Purchase(7))[:5] == json_[:5]
    assert AvroDeserializer(_registered(AVRO))(avro, CONTEXT) == {"id": 7}


def _registered(schema: Any) -> Any:
    client = other_registry()
    AvroSerializer(client, json.dumps(schema))({"id": 1}, CONTEXT)
    return client


@pytest.mark.parametrize(("kind", "value"), [(Item, Item(sku="a")), (Order, Order(id=7)), (Note, Note(text="x"))])
def test_every_message_of_a_protobuf_file_is_framed_as_other_clients_do(kind: Any, value: Any) -> None:
    registry, client = FakeRegistry(), other_registry()
    made = writer(kind, registry, framing="confluent")
    theirs = ProtobufSerializer(kind, client, {"use.deprecated.format": False})(value, CONTEXT)
    assert made.encode(value)[5:] == theirs[5:]
    assert ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)(theirs, CONTEXT) == value
    assert read(kind, registry, (made.encode(value), None), framing="confluent") == [value]
    (found,) = read(None, registry, (made.encode(value), None), framing="confluent")
    assert set(found) == {field.name for field in kind.DESCRIPTOR.fields if not field.has_presence}


def test_a_frame_says_which_schema_even_where_the_message_does_not() -> None:
    registry = FakeRegistry()
    made = writer(AvroSchema(AVRO), registry, framing="confluent")
    framed, bare = made.encode({"id": 7}), b"\x0e"
    assert read(None, registry, (framed, None), (framed, 1), framing="confluent") == [{"id": 7}] * 2
    assert read(None, registry, (framed, None), (framed, 1), (bare, 1), (b"{", None), framing="auto") == [
        {"id": 7},
        {"id": 7},
        {"id": 7},
        b"{",
    ]
    (wrong,) = read(None, registry, (bare, 1), framing="confluent")
    assert "does not begin with a zero byte" in str(wrong)
    (wrong,) = read(None, registry, (framed, 1))
    assert str(wrong).endswith("read it with framing='confluent'")
    (wrong,) = read(None, registry, (prefix(9) + b"x", None), framing="auto")
    assert "Schema 9 not found" in str(wrong)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8).map(tuple))
def test_where_a_message_is_can_be_read_back(indexes: tuple[int, ...]) -> None:
    written = write_indexes(indexes)
    assert read_indexes(b"12345" + written + b"rest", 5) == (indexes, 5 + len(written))


@given(st.binary(max_size=12))
def test_any_bytes_are_indexes_or_refused(data: bytes) -> None:
    try:
        indexes, end = read_indexes(data, 0)
    except MalformedMessage:
        return
    assert indexes
    assert all(index >= 0 for index in indexes)
    assert 0 < end <= len(data)


def test_ids_are_found_only_where_a_prefix_is_whole() -> None:
    assert [framed_id(data) for data in (b"", b"\0\0\0\1", b"\1\0\0\0\1", b"\0\0\0\1\2")] == [None, None, None, 258]
    with pytest.raises(InvalidRequest, match="four bytes"):
        prefix(2**32)


# what becomes of messages that the broker refuses


FIRST_ID = "1ef00000-0000-6000-8000-000000000001"


def test_receipts_of_a_block_leave_out_those_that_were_refused() -> None:
    facts = {
        "parts": [[0, 100, 2, FIRST_ID]],
        "duplicates": [[3, 0, 50]],
        "refused": [[1, "it is not an integer", "/id"], [4, "no schema is named", ""]],
    }
    receipts = BlockReceipts(facts, 5, None, 1)
    stored, refused, next_, duplicate, other = (receipts[row] for row in range(5))
    assert (isinstance(stored, Receipt) and stored.offset, isinstance(next_, Receipt) and next_.offset) == (100, 101)
    assert duplicate == Receipt(0, 50, duplicate=True, id=None)
    assert isinstance(refused, SchemaRejected)
    assert (refused.message, refused.details) == ("at /id: it is not an integer", {"path": "/id"})
    assert str(other) == "no schema is named"


def test_receipts_of_partitions_are_counted_without_those_that_were_refused() -> None:
    keys = [b"a", b"b", None, b"a", None]
    a, b = partition_of(b"a", 4), partition_of(b"b", 4)
    keyless = next(each for each in range(4) if each not in (a, b))
    parts = [[a, 10, 1, FIRST_ID], [b, 20, 1, FIRST_ID], [keyless, 30, 1, FIRST_ID]]
    facts = {"parts": parts, "duplicates": [], "refused": [[0, "r", ""], [2, "r", ""]]}
    receipts = BlockReceipts(facts, 5, keys, 4)
    places = [(each.partition, each.offset) for row in (1, 3, 4) if isinstance(each := receipts[row], Receipt)]
    assert places == [(b, 20), (a, 10), (keyless, 30)]
