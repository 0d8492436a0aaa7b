"""Schemas of all languages, with others that they refer to."""

from __future__ import annotations

import json

from tests.spark.decode.kit import field, properties, proto, record

from penstock.core.schemas import Definition, SchemaKind
from penstock.spark.decode.columns.shapes import arrow_schema
from penstock.spark.decode.languages.writer_schemas import writer_schema


def columns(definition: Definition) -> dict[str, str]:
    return {each.name: str(each.type) for each in arrow_schema(writer_schema(definition).shape)}


def test_avro_uses_the_types_of_others() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    money = json.dumps(record(field("amount", price), name="Money"))
    order = json.dumps(record(field("price", "Money")))
    found = columns(Definition(SchemaKind.AVRO, order, (("Money", money),)))
    assert found == {"price": "struct<amount: decimal128(6, 2)>"}


def test_json_schema_refers_to_others() -> None:
    money = json.dumps(properties(amount={"type": "number"}))
    order = json.dumps(properties(price={"$ref": "money.json"}))
    found = columns(Definition(SchemaKind.JSON, order, (("money.json", money),)))
    assert found == {"price": "struct<amount: double>"}


def test_protobuf_imports_others() -> None:
    money = proto("message Money { double amount = 1; }")[1]
    order = proto('import "money.proto"; message Order { Money price = 1; }')[1]
    found = columns(Definition(SchemaKind.PROTOBUF, order, (("money.proto", money),)))
    assert found == {"price": "struct<amount: double>"}
