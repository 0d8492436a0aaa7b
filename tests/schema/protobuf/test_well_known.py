"""Well-known files: Google's and Confluent's need no reference and equal their originals."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tests.schema.protobuf.kit import P3, parsed, refused

from penstock.schema.protobuf.linking.library import ROOT
from penstock.schema.protobuf.linking.well_known import ALWAYS, TEXTS

# Schemas with options and decimals import these, and the client that registers such schemas does not register them.
CONFLUENT = "confluent_kafka.schema_registry.confluent"
MODULES = [
    *(f"google.type.{each.name}" for each in pkgutil.iter_modules(importlib.import_module("google.type").__path__)),
    *(f"{CONFLUENT}.{name}" for name in ("meta_pb2", "type.decimal_pb2", "type.variant_pb2", "types.decimal_pb2")),
]


@pytest.mark.parametrize("module", MODULES)
def test_a_file_is_as_its_owner_has_it(module: str) -> None:
    owned: Any = importlib.import_module(module).DESCRIPTOR
    expected = descriptor_pb2.FileDescriptorProto()
    owned.CopyToProto(expected)
    expected.ClearField("options")
    expected.name = ROOT
    assert parsed(TEXTS[owned.name]).library.files[ROOT].file == expected


def test_there_are_no_others() -> None:
    assert len(TEXTS) == len(MODULES)


@pytest.mark.parametrize("name", sorted({*TEXTS, *ALWAYS}))
def test_every_schema_can_import_it(name: str) -> None:
    assert refused(P3 + f'import "{name}"; message M {{}}') is None


def test_tags_of_other_registries_are_options_like_any_other() -> None:
    text = P3 + 'import "confluent/meta.proto"; message M { string a = 1 [(confluent.field_meta).tags = "PII"]; }'
    schema = parsed(text)
    assert '(confluent.field_meta) = { tags: "PII" }' in schema.canonical()
    assert not schema.library.files[ROOT].file.message_type[0].field[0].options.uninterpreted_option


def test_a_reference_goes_first() -> None:
    text = P3 + 'import "google/type/money.proto"; message M { google.type.Money a = 1; }'
    own = P3 + "package google.type; message Money { int32 cents = 1; }"
    assert "int32 cents = 1;" in parsed(text, {"google/type/money.proto": own}).canonical()
    assert "Money" not in parsed(text).canonical().partition("message M {")[0]
