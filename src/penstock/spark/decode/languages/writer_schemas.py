"""Writer schemas, by the language they are in."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.core.names import TopicName
from penstock.core.schemas import Definition, SchemaKind
from penstock.spark.decode.languages.plain import PlainWriterSchema
from penstock.spark.decode.languages.rows import WriterSchema


class Schemas(Protocol):
    """An open registry: the calls that decoding needs. See `penstock.spark.files.registry.SchemaSource`."""

    def schema(self, schema_id: int) -> Definition:
        """Return a schema. Raises `InvalidRequest`, with the `schema_id` in its details, for an unknown id."""
        ...

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]: ...

    def subjects_of(self, topic: TopicName) -> list[str]: ...


class Registry(Protocol):
    """The location of schemas. See `penstock.spark.files.registry.RegistryLocation`."""

    def open(self) -> Any:
        """Open the registry; returns `Schemas`."""
        ...


def writer_schema(definition: Definition, message: str | tuple[int, ...] | None = None) -> WriterSchema:
    """Return the schema with its reader of payloads; `message` chooses one of a Protobuf schema, None the first.

    Raises `InvalidSchema` for a wrong schema, and `InvalidRequest` or `ValueMismatch` for a message that is not in it.
    The module of a language is imported when it is first needed.
    """
    match definition.kind:
        case SchemaKind.AVRO:
            from penstock.spark.decode.languages.avro import AvroWriterSchema

            return AvroWriterSchema(definition)
        case SchemaKind.JSON:
            from penstock.spark.decode.languages.json_schema import JsonWriterSchema

            return JsonWriterSchema(definition)
        case SchemaKind.PROTOBUF:
            from penstock.spark.decode.languages.protobuf import ProtobufWriterSchema

            return ProtobufWriterSchema(definition, message)
        case SchemaKind.STRING | SchemaKind.NUMBER | SchemaKind.BYTES:
            return PlainWriterSchema(definition.kind)
