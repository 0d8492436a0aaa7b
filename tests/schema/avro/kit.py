"""Helpers that write, parse and compare Avro schemas, and another implementation to compare ours with."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro

from penstock.schema import avro
from penstock.schema.avro import AvroSchema


def parsed(tree: Any, references: Mapping[str, Any] | None = None) -> AvroSchema:
    texts = {name: json.dumps(each) for name, each in (references or {}).items()}
    return avro.parse(json.dumps(tree), texts)


def verdict(reader: Any, writer: Any) -> list[tuple[str, str]]:
    """Return kind and path of all problems of the reader."""
    return [(problem.kind, problem.path) for problem in parsed(reader).compatibility_problems(parsed(writer))]


def written(tree: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(tree)), value)
    return out.getvalue()


def reread(data: bytes, writer: Any, reader: Any = None) -> Any:
    """Read with the other implementation. Raises its errors."""
    source = BytesIO(data)
    value = fastavro.schemaless_reader(source, copy.deepcopy(writer), copy.deepcopy(reader))
    assert not source.read()
    return value


def record(name: str, *fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields]} | more


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_} | more


def enum(name: str, *symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": [*symbols]} | more


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size} | more


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name} | more
