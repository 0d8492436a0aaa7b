"""The client that users of other registries have, unmodified, and its serializers."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.server.registry.kit import RegistryServer, record, serve_registry

ONE = record("id:long")
TWO = record("id:long", 'note:string=""')
BAD = record("id:long", "more:int")
COLOUR = json.dumps({"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]})
Connect = Callable[[], Any]
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RegistryServer]:
    with serve_registry(tmp_path) as serving:
        yield serving


@pytest.fixture
def fresh(server: RegistryServer, stack: ExitStack) -> Connect:
    """Another that has seen nothing yet."""
    return lambda: stack.enter_context(SchemaRegistryClient({"url": server.url, "max.retries": 0}))


@pytest.fixture
def registry(fresh: Connect) -> Any:
    return fresh()


def refused(call: Any, *arguments: Any, **options: Any) -> tuple[int, int]:
    """The status and the number."""
    with pytest.raises(SchemaRegistryError) as error:
        call(*arguments, **options)
    return error.value.http_status_code, error.value.error_code


def avro(text: str, *references: Any) -> Any:
    return Schema(text, "AVRO", list(references))


# the client


def test_it_registers_looks_up_and_fetches(registry: Any, fresh: Connect) -> None:
    assert registry.register_schema("orders-value", avro(ONE)) == 1
    full = fresh().register_schema_full_response("orders-value", avro(TWO), normalize_schemas=True)
    assert (full.schema_id, full.version, full.subject, full.schema.schema_str) == (2, 2, "orders-value", TWO)
    found = fresh().lookup_schema("orders-value", avro(ONE))
    assert (found.schema_id, found.version, found.subject) == (1, 1, "orders-value")
    other = fresh()
    assert other.get_schema(1) == avro(ONE)
    assert other.get_schema(2, "orders-value") == avro(TWO)
    assert other.get_version("orders-value", 1).schema == avro(ONE)
    assert other.get_latest_version("orders-value").version == 2
    assert other.get_subjects() == ["orders-value"]
    assert other.get_subjects(subject_prefix="x", offset=0, limit=5) == []
    assert other.get_versions("orders-value") == [1, 2]
    assert other.get_subjects_by_schema_id(1) == ["orders-value"]
    assert [(each.subject, each.version) for each in other.get_schema_versions(2)] == [("orders-value", 2)]
    assert set(other.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert other.get_contexts() == ["."]


@pytest.mark.parametrize("subject", ["a/b", "a b+c%2F", "é/😀", "/", "orders?x=1&y#z"])
def test_a_subject_is_any_text(registry: Any, fresh: Connect, subject: str) -> None:
    registry.register_schema(subject, avro(ONE))
    registry.set_compatibility(subject, "FULL")
    assert fresh().get_latest_version(subject).subject == subject
    assert fresh().get_schema(1, subject) == avro(ONE)
    assert registry.get_compatibility(subject) == "FULL"
    assert registry.test_compatibility(subject, avro(ONE))
    assert registry.delete_subject(subject) == [1]
    assert registry.delete_subject(subject, permanent=True) == [1]


def test_it_checks_and_evolves(registry: Any) -> None:
    registry.register_schema("orders-value", avro(ONE))
    assert registry.test_compatibility("orders-value", avro(TWO))
    assert not registry.test_compatibility("orders-value", avro(BAD), version=1, verbose=True)
    assert registry.test_compatibility_all_versions("orders-value", avro(TWO), normalize=True)
    assert not registry.test_compatibility_all_versions("orders-value", avro(BAD), verbose=True)
    assert refused(registry.register_schema, "orders-value", avro(BAD)) == (409, 409)
    registry.set_compatibility("orders-value", "NONE")
    assert registry.register_schema("orders-value", avro(BAD)) == 2


def test_it_deletes_softly_and_then_for_good(registry: Any, fresh: Connect) -> None:
    for schema in (ONE, TWO):
        registry.register_schema("orders-value", avro(schema))
    assert registry.delete_version("orders-value", 1) == 1
    assert registry.get_versions("orders-value") == [2]
    assert registry.get_versions("orders-value", deleted=True) == [1, 2]
    assert registry.get_versions("orders-value", deleted_only=True) == [1]
    assert fresh().get_version("orders-value", 1, deleted=True).schema_id == 1
    assert refused(registry.delete_version, "orders-value", 1) == (404, 40406)
    assert registry.delete_version("orders-value", 1, permanent=True) == 1
    assert registry.delete_subject("orders-value") == [2]
    assert registry.get_subjects(deleted_only=True) == ["orders-value"]
    assert registry.delete_subject("orders-value", permanent=True) == [2]
    assert refused(registry.get_versions, "orders-value") == (404, 40401)


def test_it_sets_what_new_versions_are_held_to(registry: Any) -> None:
    assert registry.get_compatibility() == "BACKWARD"
    assert registry.set_compatibility(level="full") == {"compatibility": "FULL"}
    registry.set_config("orders-value", ServerConfig(compatibility=registry.get_config().compatibility_level))
    assert registry.get_config("orders-value").compatibility_level == "FULL"
    assert registry.delete_config("orders-value").compatibility_level == "FULL"
    assert refused(registry.get_compatibility, "orders-value") == (404, 40408)
    assert refused(registry.set_compatibility, level="sometimes") == (422, 42203)


def test_it_sets_modes(registry: Any) -> None:
    assert registry.get_global_mode() == "READWRITE"
    assert registry.update_mode("orders-value", "READONLY") == "READONLY"
    assert registry.get_mode("orders-value") == "READONLY"
    assert refused(registry.register_schema, "orders-value", avro(ONE)) == (422, 42205)
    assert registry.delete_mode("orders-value") == "READONLY"
    assert refused(registry.get_mode, "orders-value") == (404, 40409)
    assert refused(registry.update_mode, "orders-value", "SLEEP") == (422, 42204)
    registry.register_schema("orders-value", avro(ONE))
    assert refused(registry.update_global_mode, "IMPORT") == (422, 42205)
    assert registry.update_global_mode("IMPORT", force=True) == "IMPORT"


def test_errors_have_the_numbers_it_knows(registry: Any) -> None:
    registry.register_schema("orders-value", avro(ONE))
    assert refused(registry.get_schema, 99) == (404, 40403)
    assert refused(registry.get_latest_version, "nobody") == (404, 40401)
    assert refused(registry.get_version, "orders-value", 9) == (404, 40402)
    assert refused(registry.get_version, "orders-value", "newest") == (422, 42202)
    assert refused(registry.lookup_schema, "nobody", avro(ONE)) == (404, 40401)
    assert refused(registry.lookup_schema, "orders-value", avro(COLOUR)) == (404, 40403)
    assert refused(registry.register_schema, "orders-value", avro("{")) == (422, 42201)
    assert refused(registry.register_schema, "orders-value", Schema(ONE, "COBOL")) == (422, 42201)
    assert refused(registry.delete_subject, "orders-value", permanent=True) == (404, 40405)
    assert refused(registry.delete_version, "orders-value", 1, permanent=True) == (404, 40407)
    assert refused(registry.get_schema_by_guid, "0a1b2c3d-0000-4000-8000-00000000000a") == (404, 404)
    assert refused(registry.get_associations_by_resource_name, "orders", "-") == (404, 404)


def test_it_follows_references_and_cannot_delete_what_is_referred_to(registry: Any, fresh: Connect) -> None:
    registry.register_schema("colour", avro(COLOUR))
    car = avro(record("paint:Colour", name="Car"), SchemaReference("Colour", "colour", 1))
    assert registry.register_schema("car", car) == 2
    assert registry.get_referenced_by("colour", 1) == [2]
    assert fresh().get_latest_version("car").schema == car
    assert refused(registry.delete_subject, "colour") == (422, 42206)


def test_it_finds_the_latest_version_with_its_metadata(registry: Any, fresh: Connect) -> None:
    for text, stage in ((ONE, "old"), (TWO, "new")):
        metadata = Metadata(None, MetadataProperties({"stage": stage, "team": "shop"}), None)
        registry.register_schema("orders-value", Schema(text, "AVRO", [], metadata))
    assert fresh().get_latest_with_metadata("orders-value", {"stage": "old"}).version == 1
    assert fresh().get_latest_with_metadata("orders-value", {"team": "shop"}).version == 2
    found = fresh().get_latest_with_metadata("orders-value", {"stage": "new", "team": "shop"})
    assert (found.version, found.schema_id, found.schema.schema_str) == (2, 2, TWO)
    assert fresh().get_latest_with_metadata("orders-value", {}).version == 2
    assert refused(fresh().get_latest_with_metadata, "orders-value", {"stage": "new", "team": "x"}) == (404, 40403)
    assert refused(fresh().get_latest_with_metadata, "nobody", {"stage": "new"}) == (404, 40401)


def test_settings_that_are_not_kept_are_refused_and_not_dropped(registry: Any) -> None:
    registry.set_compatibility("orders-value", "FULL")
    level = registry.get_config("orders-value").compatibility_level
    grouped = ServerConfig(compatibility=level, compatibility_group="major")
    assert refused(registry.set_config, "orders-value", grouped) == (422, 42205)
    assert registry.get_config("orders-value").compatibility_level == "FULL"


# Avro


def test_avro_goes_round(registry: Any, fresh: Connect) -> None:
    serialize = AvroSerializer(registry, TWO)
    payload = serialize({"id": 7, "note": "seven"}, VALUE)
    assert payload[:5] == b"\0\0\0\0\1"
    assert AvroDeserializer(fresh())(payload, VALUE) == {"id": 7, "note": "seven"}
    assert registry.get_subjects() == ["orders-value"]


def test_avro_of_an_older_version_is_read_with_a_newer_one(registry: Any, fresh: Connect) -> None:
    payload = AvroSerializer(registry, ONE)({"id": 7}, VALUE)
    AvroSerializer(registry, TWO)({"id": 8, "note": ""}, VALUE)
    assert AvroDeserializer(fresh(), TWO)(payload, VALUE) == {"id": 7, "note": ""}
    latest = AvroDeserializer(fresh(), conf={"use.latest.version": True})
    assert latest(payload, VALUE) == {"id": 7, "note": ""}


def test_avro_with_references_and_the_names_of_records_as_subjects(registry: Any, fresh: Connect) -> None:
    registry.register_schema("types/colour", avro(COLOUR))
    car = avro(record("paint:Colour", name="Car"), SchemaReference("Colour", "types/colour", 1))
    conf = {"subject.name.strategy": record_subject_name_strategy}
    payload = AvroSerializer(registry, car, conf=conf)({"paint": "GREEN"}, VALUE)
    assert registry.get_subjects() == ["Car", "types/colour"]
    assert AvroDeserializer(fresh(), conf=conf)(payload, VALUE) == {"paint": "GREEN"}


def test_a_serializer_may_use_what_is_registered_and_nothing_else(registry: Any, fresh: Connect) -> None:
    pinned = {"auto.register.schemas": False}
    with pytest.raises(SchemaRegistryError) as error:
        AvroSerializer(registry, ONE, conf=pinned)({"id": 7}, VALUE)
    assert error.value.error_code == 40401
    registry.register_schema("orders-value", avro(ONE))
    assert AvroSerializer(registry, ONE, conf=pinned)({"id": 7}, VALUE)[:5] == b"\0\0\0\0\1"
    latest = AvroSerializer(fresh(), conf={**pinned, "use.latest.version": True})
    assert latest({"id": 7}, VALUE)[:5] == b"\0\0\0\0\1"


# JSON Schema

ADDRESS = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "http://shop.example/address.json",
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
)
PERSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "home": {"$ref": "http://shop.example/address.json"}},
    }
)


def test_json_goes_round(registry: Any, fresh: Connect) -> None:
    payload = JSONSerializer(ADDRESS, registry)({"city": "Bern"}, VALUE)
    assert payload[:5] == b"\0\0\0\0\1"
    assert JSONDeserializer(None, schema_registry_client=fresh())(payload, VALUE) == {"city": "Bern"}


def test_json_with_references(registry: Any, fresh: Connect) -> None:
    registry.register_schema("types/address", Schema(ADDRESS, "JSON"))
    reference = SchemaReference("http://shop.example/address.json", "types/address", 1)
    person = Schema(PERSON, "JSON", [reference])
    sent = {"name": "Ada", "home": {"city": "London"}}
    payload = JSONSerializer(person, registry)(sent, VALUE)
    assert JSONDeserializer(None, schema_registry_client=fresh())(payload, VALUE) == sent
    assert fresh().get_latest_version("orders-value").schema == person


def test_json_that_could_not_be_read_any_more_is_refused(registry: Any) -> None:
    registry.register_schema("orders-value", Schema(ADDRESS, "JSON"))
    stricter = json.dumps({**json.loads(ADDRESS), "required": ["city", "street"]})
    assert refused(registry.register_schema, "orders-value", Schema(stricter, "JSON")) == (409, 409)
    assert refused(registry.register_schema, "orders-value", Schema('{"type": "nothing"}', "JSON")) == (422, 42201)


# Protobuf

MONEY = """syntax = "proto3"; package shop; message Money { int64 cents = 1; string currency = 2; }"""
ORDER = """syntax = "proto3"; package shop; import "shop/money.proto"; import "google/protobuf/timestamp.proto";
message Ignored { int32 x = 1; }
message Order { string id = 1; Money total = 2; repeated Line lines = 3; google.protobuf.Timestamp at = 4;
  message Line { string what = 1; int32 count = 2; } }
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Compile the messages with protoc, as a user does."""
    from grpc_tools import protoc

    folder = tmp_path_factory.mktemp("protobuf")
    (folder / "shop").mkdir()
    for name, text in (("money", MONEY), ("order", ORDER)):
        (folder / "shop" / f"{name}.proto").write_text(text)
    well_known = Path(protoc.__file__).parent / "_proto"
    files = [f"shop/{name}.proto" for name in ("money", "order")]
    assert protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", *files]) == 0
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("shop.order_pb2")
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
            del sys.modules[name]


def ordered(shop: ModuleType) -> Any:
    order = shop.Order(id="7")
    order.total.cents = 250
    order.lines.add(what="tea", count=2)
    order.at.seconds = 1_700_000_000
    return order


def test_protobuf_goes_round_and_registers_what_it_imports(registry: Any, fresh: Connect, shop: ModuleType) -> None:
    payload = ProtobufSerializer(shop.Order, registry)(ordered(shop), VALUE)
    assert registry.get_subjects() == ["orders-value", "shop/money.proto"]
    (reference,) = registry.get_latest_version("orders-value").schema.references
    assert reference == SchemaReference("shop/money.proto", "shop/money.proto", 1)
    found = ProtobufDeserializer(shop.Order, schema_registry_client=fresh())(payload, VALUE)
    assert found == ordered(shop)


def test_protobuf_that_was_registered_as_a_descriptor_is_shown_as_text(
    registry: Any, fresh: Connect, shop: ModuleType
) -> None:
    serialize = ProtobufSerializer(shop.Order, registry)
    assert base64.b64decode(serialize._schema.schema_str, validate=True) == shop.DESCRIPTOR.serialized_pb
    payload = serialize(ordered(shop), VALUE)
    for subject in ("orders-value", "shop/money.proto"):
        assert fresh().get_latest_version(subject).schema.schema_str.startswith('syntax = "proto3";')
    assert ProtobufDeserializer(shop.Order, schema_registry_client=fresh())(payload, VALUE) == ordered(shop)


def test_protobuf_is_not_registered_twice(registry: Any, fresh: Connect, shop: ModuleType) -> None:
    first = ProtobufSerializer(shop.Order, registry)(ordered(shop), VALUE)
    second = ProtobufSerializer(shop.Order, fresh())(ordered(shop), VALUE)
    assert first == second
    assert registry.get_versions("orders-value") == [1]


def test_protobuf_that_was_registered_as_text_is_the_same_schema(
    registry: Any, fresh: Connect, shop: ModuleType
) -> None:
    registry.register_schema("shop/money.proto", Schema(MONEY, "PROTOBUF"))
    reference = SchemaReference("shop/money.proto", "shop/money.proto", 1)
    registry.register_schema("orders-value", Schema(ORDER, "PROTOBUF", [reference]))
    conf = {"auto.register.schemas": False}
    payload = ProtobufSerializer(shop.Order, fresh(), conf)(ordered(shop), VALUE)
    found = ProtobufDeserializer(shop.Order, schema_registry_client=fresh())(payload, VALUE)
    assert found == ordered(shop)


def test_protobuf_that_could_not_be_read_any_more_is_refused(registry: Any) -> None:
    registry.register_schema("money", Schema(MONEY, "PROTOBUF"))
    other = Schema(MONEY.replace("int64 cents", "string cents"), "PROTOBUF")
    assert not registry.test_compatibility("money", other)
    assert refused(registry.register_schema, "money", other) == (409, 409)
    assert refused(registry.register_schema, "money", Schema("message {", "PROTOBUF")) == (422, 42201)
