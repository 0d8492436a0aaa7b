"""Decode targets of a consumer, into which payloads of any schema are decoded: a Python type, a schema of the
consumer's own, or a class generated from a .proto file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.client.serde.codecs import Indexes, JsonCodec, codec_of
from penstock.client.serde.encoder import existing_version, parse_source, schema_of
from penstock.client.serde.python_types import MsgspecCodec, PydanticCodec, TypeCodec
from penstock.client.serde.registry_client import RegistryClient
from penstock.client.serde.schemas import Pinned, ProtobufSchema, Source, UseLatest
from penstock.client.serde.values import ValueMismatch
from penstock.core.schemas import Definition, SchemaKind

Decode = Callable[[bytes], Any]

_IN_JSON: Final = (SchemaKind.JSON, SchemaKind.NUMBER)
_TEXTUAL: Final = (SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.JSON)


class DecodeTarget(Protocol):
    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        """Return the function that decodes payloads written with the schema `writer`; None stands for payloads that
        name none. `indexes` is the path to a Protobuf message.

        Raises `ValueMismatch` if payloads of that schema cannot be decoded into this target.
        """
        ...


async def make_target(registry: RegistryClient, source: Source, subject: str) -> DecodeTarget:
    parsed = parse_source(source)
    match parsed:
        case UseLatest() | Pinned():
            registered = await existing_version(registry, parsed, subject)
            return ReaderSchemaTarget(await registry.definition(registered.id))
        case MsgspecCodec() | PydanticCodec():
            return TypeTarget(parsed)
        case ProtobufSchema(message_class=type() as generated):
            return GeneratedClassTarget(generated)
        case ProtobufSchema(message=message):
            return ReaderSchemaTarget(await registry.closed(schema_of(parsed)), message)
        case _:
            return ReaderSchemaTarget(await registry.closed(schema_of(parsed)))


class WriterSchemaTarget:
    """Values of the schema that the payload was written with; the payload itself if it names none."""

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        return bytes if writer is None else codec_of(writer, indexes).decode


class TypeTarget:
    """Values of a Python type. Payloads that name no schema are decoded as JSON."""

    def __init__(self, codec: TypeCodec) -> None:
        self._codec = codec

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:
        if writer is None or writer.kind in _IN_JSON:
            return self._codec.decode
        decode, convert = codec_of(writer, indexes).decode, self._codec.convert
        return lambda payload: convert(decode(payload))


class GeneratedClassTarget:
    def __init__(self, generated: type[Any]) -> None:
        self._generated = generated

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:  # noqa: ARG002
        from penstock.client.serde.protobuf import ClassCodec

        if writer is not None and writer.kind is not SchemaKind.PROTOBUF:
            raise _unreadable(writer.kind, SchemaKind.PROTOBUF)
        return ClassCodec(self._generated).decode


class ReaderSchemaTarget:
    """Values of the consumer's own schema. Payloads that name no schema are decoded as if they were written with it."""

    def __init__(self, reader: Definition, message: str | None = None) -> None:
        """Create the target. Raises `InvalidSchema`, and `InvalidRequest` for a `message` that the schema does not
        have."""
        self._reader = reader
        codec = codec_of(reader, message)
        self._decode = codec.decode
        if isinstance(codec, JsonCodec):
            _ = codec.validator
            self._decode = codec.decode_checked

    def decoder(self, writer: Definition | None, indexes: Indexes) -> Decode:  # noqa: ARG002
        written, target = self._reader.kind if writer is None else writer.kind, self._reader.kind
        is_text = target is SchemaKind.STRING and written in _TEXTUAL
        if written is not target and target is not SchemaKind.BYTES and not is_text:
            raise _unreadable(written, target)
        if target is SchemaKind.AVRO and writer is not None:
            from penstock.client.serde.avro import AvroCodec

            return AvroCodec(writer, self._reader).decode
        return self._decode


def _unreadable(written: SchemaKind, reader: SchemaKind) -> ValueMismatch:
    return ValueMismatch(f"it was written as {written}, and is to be read as {reader}")
