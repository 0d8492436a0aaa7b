"""Confluent's serialisers and deserialisers with their default settings, whatever names the subjects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.server.registry.kit import RegistryServer, record, serve_registry

VALUE = SerializationContext("orders", MessageField.VALUE)
AVRO = record("id:long")
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
STRATEGIES = {
    "the topic's": topic_subject_name_strategy,
    "the record's": record_subject_name_strategy,
    "both": topic_record_subject_name_strategy,
}
Connect = Callable[[], Any]


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"subject.name.strategy": STRATEGIES[request.param]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


@pytest.fixture
def fresh(server: RegistryServer, stack: ExitStack) -> Connect:
    """A client that has seen nothing yet, with the settings that it has by default."""
    return lambda: stack.enter_context(SchemaRegistryClient({"url": server.url}))


def test_avro_is_read_by_a_consumer_that_was_told_nothing(fresh: Connect, strategy: dict[str, Any]) -> None:
    payload = AvroSerializer(fresh(), AVRO, conf=strategy)({"id": 7}, VALUE)
    assert AvroDeserializer(fresh())(payload, VALUE) == {"id": 7}
    assert AvroDeserializer(fresh(), conf=strategy)(payload, VALUE) == {"id": 7}


def test_json_is_read_by_a_consumer_that_was_told_nothing(fresh: Connect, strategy: dict[str, Any]) -> None:
    payload = JSONSerializer(JSON, fresh(), conf=strategy)({"id": 7}, VALUE)
    assert JSONDeserializer(None, schema_registry_client=fresh())(payload, VALUE) == {"id": 7}
    assert JSONDeserializer(None, schema_registry_client=fresh(), conf=strategy)(payload, VALUE) == {"id": 7}


def test_protobuf_is_read_by_a_consumer_that_was_told_nothing(fresh: Connect, strategy: dict[str, Any]) -> None:
    order = _order()
    payload = ProtobufSerializer(order, fresh(), conf=strategy)(order(id=7), VALUE)
    assert ProtobufDeserializer(order, schema_registry_client=fresh())(payload, VALUE) == order(id=7)
    assert ProtobufDeserializer(order, conf=strategy, schema_registry_client=fresh())(payload, VALUE) == order(id=7)


def _order() -> Any:
    """The class of a message, as protoc makes it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=field.TYPE_INT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.mark.parametrize("hint", ["orders-value", "nobody", "other", ":.:", ":.:orders-value", ":.:nobody"])
def test_a_subject_beside_an_id_is_a_hint(fresh: Connect, hint: str) -> None:
    fresh().register_schema("Order", Schema(AVRO, "AVRO"))
    fresh().register_schema("other", Schema('"int"', "AVRO"))
    assert fresh().get_schema(1, subject_name=hint).schema_str == AVRO
