"""What a consumer reads payloads into: a type, a schema of its own, a class generated from a .proto file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.client.serde.codecs import Indexes, JsonCodec, codec_of
from penstock.client.serde.encoder import found, schema_of, understand
from penstock.client.serde.python_types import MsgspecShape, PydanticShape, Shape
from penstock.client.serde.registry_client import Schemas
from penstock.client.serde.schemas import Pinned, ProtobufSchema, Source, UseLatest
from penstock.client.serde.values import Misfit
from penstock.core.schemas import Definition, SchemaKind

Decode = Callable[[bytes], Any]

_IN_JSON: Final = (SchemaKind.JSON, SchemaKind.NUMBER)
_TEXTUAL: Final = (SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.JSON)


class Target(Protocol):
    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        """For payloads that were written so, None if they name no schema. Raises `Misfit` if it reads no such."""
        ...


async def make_target(schemas: Schemas, source: Source, subject: str) -> Target:
    understood = understand(source)
    match understood:
        case UseLatest() | Pinned():
            registered = await found(schemas, understood, subject)
            return SchemaTarget(await schemas.definition(registered.id))
        case MsgspecShape() | PydanticShape():
            return TypeTarget(understood)
        case ProtobufSchema(message_class=type() as generated):
            return ClassTarget(generated)
        case ProtobufSchema(message=message):
            return SchemaTarget(await schemas.closed(schema_of(understood)), message)
        case _:
            return SchemaTarget(await schemas.closed(schema_of(understood)))


class AsWritten:
    """Whatever the schema says that a payload was written with; bytes where there is none."""

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        return bytes if writer is None else codec_of(writer, indexes).decode


class TypeTarget:
    """Payloads that name no schema are JSON."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        if writer is None or writer.kind in _IN_JSON:
            return self._shape.decode
        decode, convert = codec_of(writer, indexes).decode, self._shape.convert
        return lambda payload: convert(decode(payload))


class ClassTarget:
    def __init__(self, generated: type[Any]) -> None:
        self._generated = generated

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:  # noqa: ARG002
        from penstock.client.serde.protobuf import ClassCodec

        if writer is not None and writer.kind is not SchemaKind.PROTOBUF:
            raise _unreadable(writer.kind, SchemaKind.PROTOBUF)
        return ClassCodec(self._generated).decode


class SchemaTarget:
    """Payloads that name no schema were written with this one."""

    def __init__(self, reader: Definition, message: str | None = None) -> None:
        """Raises `InvalidSchema`, or `InvalidRequest` for a message that is not in it."""
        self._reader = reader
        codec = codec_of(reader, message)
        self._decode = codec.decode
        if isinstance(codec, JsonCodec):
            _ = codec.validator
            self._decode = codec.decode_checked

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:  # noqa: ARG002
        written, wanted = self._reader.kind if writer is None else writer.kind, self._reader.kind
        is_text = wanted is SchemaKind.STRING and written in _TEXTUAL
        if written is not wanted and wanted is not SchemaKind.BYTES and not is_text:
            raise _unreadable(written, wanted)
        if wanted is SchemaKind.AVRO and writer is not None:
            from penstock.client.serde.avro import AvroCodec

            return AvroCodec(writer, self._reader).decode
        return self._decode


def _unreadable(written: SchemaKind, reader: SchemaKind) -> Misfit:
    return Misfit(f"it was written as {written}, and is to be read as {reader}")
