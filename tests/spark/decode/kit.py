"""Schemas and messages to decode: a registry in memory, and batches as the source gives them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa

from penstock.core.names import TopicName
from penstock.core.schemas import Schema, SchemaKind
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.registry import Registry
from penstock.schema.registry.transfer import VersionRecord
from penstock.schema.steps import run_procedure
from penstock.spark.decode.decoder import Decoded, Decoder
from penstock.spark.decode.options import Mode, Unnamed
from penstock.spark.decode.target import Target, target_for
from penstock.spark.files.registry import ExportedRegistry, SchemaSource
from penstock.storage.store import Store

TOPIC: Final = TopicName.parse("orders")
SUBJECT: Final = "orders-value"

Row = dict[str, Any]


class Shelf:
    """Schemas of one subject; the first has the id 1, and is its version 1."""

    def __init__(self, *schemas: tuple[SchemaKind, str], subjects: Sequence[str] | None = None) -> None:
        names = subjects or [SUBJECT] * len(schemas)
        self._records = [
            VersionRecord(
                subject=name, version=names[: place + 1].count(name), id=place + 1, schema_type=kind, schema=text
            )
            for place, (name, (kind, text)) in enumerate(zip(names, schemas, strict=True))
        ]

    def open(self) -> SchemaSource:
        return SchemaSource(ExportedRegistry("the shelf", self._records))

    def target(self, pick: str = "latest", **options: Any) -> Target:
        return target_for(self.open(), TOPIC, pick=pick, **options)

    def decode(
        self,
        *messages: tuple[bytes | None, int | None],
        pick: str = "latest",
        mode: Mode = Mode.QUARANTINE,
        framing: str | None = None,
        unnamed: Unnamed = Unnamed.BAD,
    ) -> Decoded:
        decoder = Decoder(self.target(pick), self, mode, framing=framing, unnamed=unnamed)
        return decoder.decode(batch(*messages))


def batch(*messages: tuple[bytes | None, int | None]) -> pa.RecordBatch:
    """Return a batch of payloads with the ids of their schemas."""
    count = len(messages)
    columns = {
        "value": pa.array([payload for payload, _ in messages], pa.binary()),
        "schema_id": pa.array([schema_id for _, schema_id in messages], pa.int64()),
        "schema_version": pa.array([1] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "id": pa.array([b"%016d" % number for number in range(count)], pa.binary()),
        "topic": pa.array([str(TOPIC)] * count, pa.string()),
        "partition": pa.array([3] * count, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def avro(schema: Any) -> tuple[SchemaKind, str]:
    return SchemaKind.AVRO, json.dumps(schema)


def record(*fields: Row, name: str = "Order") -> Row:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> Row:
    return {"name": name, "type": kind, **more}


def avro_payload(schema: Any, value: Any) -> bytes:
    payload = BytesIO()
    fastavro.schemaless_writer(payload, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return payload.getvalue()


def json_schema(schema: Any) -> tuple[SchemaKind, str]:
    return SchemaKind.JSON, json.dumps(schema)


def properties(*required: str, **kinds: Any) -> Row:
    return {"type": "object", "properties": kinds, "required": list(required)}


def proto(text: str) -> tuple[SchemaKind, str]:
    return SchemaKind.PROTOBUF, f'syntax = "proto3"; {text}'


def rows(decoded: Decoded) -> list[Row]:
    """Return the decoded rows; no row may be bad."""
    assert reasons(decoded) == []
    found: list[Row] = decoded.rows.to_pylist()
    return found


def reasons(decoded: Decoded) -> list[str]:
    found: list[str] = decoded.bad.column("reason").to_pylist()
    return found


def only_reason(decoded: Decoded) -> str:
    assert decoded.rows.num_rows == 0
    (reason,) = reasons(decoded)
    return reason


def kinds(target: Target) -> dict[str, str]:
    return {each.name: str(each.type) for each in target.fields}


def spark_takes(schemas: Iterable[pa.Schema]) -> None:
    """Spark has types for all of them, and writes those down in the same way."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for schema in schemas:
        assert to_arrow_schema(from_arrow_schema(schema), timezone="UTC") == schema


# logs with schemas

V1: Final = properties("id", id={"type": "integer"}, amount={"type": "number"})
V2: Final = properties(
    "id", id={"type": "integer"}, amount={"type": "number"}, at={"type": "string", "format": "date-time"}
)


def make_log(root: Path, *, messages: int = 200, bad: Collection[int] = ()) -> Path:
    """A topic whose schema evolves half way; payloads with the offsets in `bad` are no JSON."""
    with Store.open(root, create=True) as store:
        store.create_topic(TOPIC, partitions=2)
        refs = [register(store, json_schema(schema)) for schema in (V1, V2)]
        for number in range(messages):
            late = number >= messages // 2
            value = {"id": number, "amount": number / 2} | ({"at": "2026-01-31T12:00:00Z"} if late else {})
            payload = b"{" if number in bad else json.dumps(value).encode()
            message = Message(payload=payload, type="order", schema=refs[late])
            store.append(TOPIC, Draft.of([message]), partition=number % 2)
    return root


def register(store: Store, schema: tuple[SchemaKind, str], subject: str = SUBJECT) -> SchemaRef:
    kind, text = schema
    registry = Registry(store.catalog.schemas)
    run_procedure(registry.set_compatibility(subject, "NONE"), SchemaLanguages())
    made = run_procedure(registry.register(subject, Schema(kind=kind, text=text)), SchemaLanguages())
    return SchemaRef(made.schema_id, made.version)
