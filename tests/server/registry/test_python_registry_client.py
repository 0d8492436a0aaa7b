"""python-schema-registry-client, unmodified, with its default settings, and its message serialisers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from schema_registry.client import SchemaRegistryClient
from schema_registry.client.errors import ClientError
from schema_registry.client.schema import AvroSchema, JsonSchema
from schema_registry.serializers.message_serializer import AvroMessageSerializer, JsonMessageSerializer
from tests.server.registry.kit import RegistryServer, record, serve_registry

ONE = AvroSchema(record("id:long"))
TWO = AvroSchema(record("id:long", 'note:string=""'))
BAD = AvroSchema(record("id:string"))
DOCUMENT = JsonSchema(json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


@pytest.fixture
def registry(server: RegistryServer) -> Any:
    return SchemaRegistryClient(server.url)


def test_versions_are_registered_found_checked_and_deleted(registry: Any, server: RegistryServer) -> None:
    assert [registry.register("orders-value", each) for each in (ONE, TWO)] == [1, 2]
    found = SchemaRegistryClient(server.url).get_schema("orders-value")
    assert found is not None
    assert (found.schema_id, found.version, found.schema) == (2, 2, TWO)
    assert SchemaRegistryClient(server.url).get_by_id(1) == ONE
    assert registry.check_version("orders-value", ONE).version == 1
    assert registry.get_versions("orders-value") == [1, 2]
    assert registry.get_subjects() == ["orders-value"]
    assert registry.test_compatibility("orders-value", TWO)
    assert not registry.test_compatibility("orders-value", BAD)
    with pytest.raises(ClientError) as error:
        registry.register("orders-value", BAD)
    assert error.value.http_code == 409
    assert registry.delete_version("orders-value", 1) == 1
    assert registry.delete_subject("orders-value") == [2]


def test_levels_are_set_and_told(registry: Any) -> None:
    assert registry.update_compatibility("FULL", "orders-value")
    assert registry.get_compatibility("orders-value") == "FULL"


def test_messages_go_round_in_avro_and_in_json(registry: Any, server: RegistryServer) -> None:
    for serialiser, schema in ((AvroMessageSerializer, TWO), (JsonMessageSerializer, DOCUMENT)):
        sent = {"id": 7, "note": "x"} if schema is TWO else {"id": 7}
        payload = serialiser(registry).encode_record_with_schema(f"{schema.schema_type}-value", schema, sent)
        assert serialiser(SchemaRegistryClient(server.url)).decode_message(payload) == sent
