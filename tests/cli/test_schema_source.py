"""Schemas given on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.schema_source import guess_kind, parse_reference, parse_version
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import SchemaKind


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("order.avsc", "whatever", SchemaKind.AVRO),
        ("ORDER.AVSC", "whatever", SchemaKind.AVRO),
        ("order.proto", "whatever", SchemaKind.PROTOBUF),
        ("order.json", '{"type": "record", "name": "A", "fields": []}', SchemaKind.AVRO),
        ("order.json", '{"type": "enum", "name": "A", "symbols": ["B"]}', SchemaKind.AVRO),
        ("order.json", '{"type": "map", "values": "long"}', SchemaKind.AVRO),
        ("order.json", '{"type": "array", "items": "long"}', SchemaKind.AVRO),
        ("order.json", '{"type": "array", "items": ["null", {"type": "map", "values": "int"}]}', SchemaKind.AVRO),
        ("order.json", '{"type": "long", "logicalType": "timestamp-millis"}', SchemaKind.AVRO),
        ("order.json", '{"type": "string", "logicalType": "uuid"}', SchemaKind.AVRO),
        ("order.json", '{"type": {"type": "string"}}', SchemaKind.AVRO),
        ("order.json", '["null", "string"]', SchemaKind.AVRO),
        ("order.json", '"string"', SchemaKind.AVRO),
        ("order.json", '{"type": "object", "properties": {}}', SchemaKind.JSON),
        ("order.json", '{"type": "array", "items": {"type": "string"}}', SchemaKind.JSON),
        ("order.json", '{"type": "array", "items": [{"type": "string"}]}', SchemaKind.JSON),
        ("order.json", '{"type": ["null", "string"]}', SchemaKind.JSON),
        ("order.json", '{"type": "string"}', SchemaKind.JSON),
        ("order.json", '{"$ref": "#/$defs/a"}', SchemaKind.JSON),
        ("order.json", "true", SchemaKind.JSON),
        ("order", 'syntax = "proto3";\nmessage Order {}', SchemaKind.PROTOBUF),
        ("order", '// an order\nedition = "2023";', SchemaKind.PROTOBUF),
        ("order", "message Order { optional int32 id = 1; }", SchemaKind.PROTOBUF),
    ],
)
def test_the_type_is_seen_from_the_ending_and_the_content(name: str, text: str, kind: SchemaKind) -> None:
    assert guess_kind(text, Path(name)) is kind


@pytest.mark.parametrize("text", ["", "7", "null", "an order", "[" * 100_000])
def test_what_looks_like_no_schema_asks_for_its_type(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"order\.txt does not look like a schema: say what it is with --type"):
        guess_kind(text, Path("order.txt"))


@pytest.mark.parametrize(
    ("text", "name", "subject", "version"),
    [
        ("com.shop.Money=money-value:1", "com.shop.Money", "money-value", 1),
        ("shop/money.proto=shop:money:12", "shop/money.proto", "shop:money", 12),
        ("https://shop.example:80/money?v=2=money:3", "https://shop.example:80/money?v=2", "money", 3),
    ],
)
def test_a_reference_is_a_name_a_subject_and_a_version(text: str, name: str, subject: str, version: int) -> None:
    assert parse_reference(text) == {"name": name, "subject": subject, "version": version}


@pytest.mark.parametrize("text", ["", "money", "money:1", "=money:1", "Money=:1", "Money=money", "Money=money:0"])
def test_a_reference_that_is_none_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="expected NAME=SUBJECT:VERSION, such as"):
        parse_reference(text)


def test_a_version_is_a_number_or_the_latest() -> None:
    assert [parse_version("--version", text) for text in ("1", "4711", "latest")] == [1, 4711, "latest"]
    for text in ("0", "-1", "+1", " 1", "1_0", "Latest", "", "99999999999"):
        with pytest.raises(InvalidRequest, match=r"--version: .* is no version"):
            parse_version("--version", text)
