"""Schemas as the dialect writes them, however they were registered: types that its clients know, Protobuf as text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from tests.server.registry.kit import RegistryServer, record, serve_registry

TEXT = 'syntax = "proto3";\n\npackage shop;\n\nmessage Money {\n  int64 cents = 1;\n}\n'
PROTOBUF = "PROTOBUF"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


def money(cents: str = "cents") -> FileDescriptorProto:
    file = FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Money").field.add(
        name=cents, number=1, type=FieldDescriptorProto.TYPE_INT64, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    return file


def serialised(file: FileDescriptorProto) -> str:
    return b64encode(file.SerializeToString()).decode()


def register(server: RegistryServer, subject: str, schema: str, **more: Any) -> int:
    number: int = server.post(f"/subjects/{subject}/versions", {"schema": schema, "schemaType": PROTOBUF, **more})["id"]
    return number


def test_protobuf_that_came_as_a_descriptor_is_told_as_text(server: RegistryServer) -> None:
    assert register(server, "money", serialised(money())) == 1
    assert server.get("/schemas/ids/1") == {"schema": TEXT, "schemaType": PROTOBUF}
    assert server.get("/schemas/ids/1?subject=money") == {"schema": TEXT, "schemaType": PROTOBUF}
    assert server.ask("GET", "/schemas/ids/1/schema").body.decode() == TEXT
    assert server.get("/subjects/money/versions/latest")["schema"] == TEXT
    assert server.ask("GET", "/subjects/money/versions/1/schema").body.decode() == TEXT
    assert [each["schema"] for each in server.get("/schemas")] == [TEXT]
    assert server.post("/subjects/money", {"schema": TEXT, "schemaType": PROTOBUF})["schema"] == TEXT


@pytest.mark.parametrize("schema", [TEXT, serialised(money())], ids=["text", "descriptor"])
def test_a_client_that_asks_for_descriptors_gets_them(server: RegistryServer, schema: str) -> None:
    register(server, "money", schema)
    for path in ("/schemas/ids/1", "/subjects/money/versions/1"):
        told = server.get(f"{path}?format=serialized")["schema"]
        found = FileDescriptorProto.FromString(b64decode(told))
        assert [field.name for field in found.message_type[0].field] == ["cents"]
    (listed,) = server.get("/schemas?format=serialized")
    assert FileDescriptorProto.FromString(b64decode(listed["schema"])).package == "shop"


def test_both_forms_are_one_schema(server: RegistryServer) -> None:
    assert register(server, "a", serialised(money())) == register(server, "a", TEXT) == register(server, "b", TEXT)
    assert server.get("/subjects/a/versions") == [1]
    assert register(server, "c", serialised(money("pennies"))) == 2


def test_what_a_descriptor_imports_stays_a_reference(server: RegistryServer) -> None:
    register(server, "money", serialised(money()))
    order = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", dependency=["money.proto"])
    order.message_type.add(name="Order").field.add(
        name="total", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".shop.Money", label=1
    )
    references = [{"name": "money.proto", "subject": "money", "version": 1}]
    register(server, "order", serialised(order), references=references)
    found = server.get("/schemas/ids/2")
    assert found["references"] == references
    assert 'import "money.proto";' in found["schema"]
    assert register(server, "order", found["schema"], references=references) == 2


def test_types_of_penstock_s_own_are_listed_only_below_v1(server: RegistryServer) -> None:
    server.post("/subjects/avro/versions", {"schema": record("id:long")})
    for kind in ("STRING", "NUMBER", "BYTES"):
        server.post(f"/subjects/{kind}/versions", {"schemaType": kind})
    for accept in ("*/*", "application/json", "application/vnd.schemaregistry.v1+json"):
        assert server.get("/schemas/types", Accept=accept) == ["AVRO", "JSON", "PROTOBUF"]
        assert [each["subject"] for each in server.get("/schemas", Accept=accept)] == ["avro"]
    every = [each.get("schemaType", "AVRO") for each in server.get("/v1/schemas")]
    assert every == ["BYTES", "NUMBER", "STRING", "AVRO"]
    assert [each["subject"] for each in server.get("/v1/schemas?offset=3&limit=9")] == ["avro"]
