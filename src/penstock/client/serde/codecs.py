"""Codecs: they encode values to payloads and decode payloads to values, one codec class for each schema language."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from penstock.client.serde.python_types import to_builtins
from penstock.client.serde.values import ValueMismatch
from penstock.core.schemas import Definition, SchemaKind
from penstock.schema.language import Validator
from penstock.schema.languages import language

Indexes = tuple[int, ...] | None
"""The path to a message in a Protobuf schema: the index at each level, from the outermost on. None for
other languages."""

_SHOWN_CHARS: Final = 60
"""The length at which a mismatching value is cut in an error message."""


class Codec(Protocol):
    """A codec for one schema."""

    @property
    def indexes(self) -> Indexes: ...

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises `ValueMismatch` if it does not fit the schema."""
        ...

    def decode(self, payload: bytes) -> Any:
        """Decode a payload. Raises `ValueMismatch`, or another exception of the decoding library, if it cannot be
        read."""
        ...


def codec_of(definition: Definition, message: str | tuple[int, ...] | None = None) -> Codec:
    """Return the codec of a schema. For Protobuf, `message` selects one of its messages by name or path; default: the
    first."""
    match definition.kind:
        case SchemaKind.AVRO:
            from penstock.client.serde.avro import AvroCodec

            return AvroCodec(definition)
        case SchemaKind.JSON:
            return JsonCodec(definition)
        case SchemaKind.PROTOBUF:
            from penstock.client.serde.protobuf import MessageCodec

            return MessageCodec(definition, message)
        case SchemaKind.STRING | SchemaKind.NUMBER | SchemaKind.BYTES:
            return PlainCodec(definition.kind)


class PlainCodec:
    """A codec for text, a number, or bytes."""

    indexes: Indexes = None

    def __init__(self, kind: SchemaKind) -> None:
        self._kind = kind

    def encode(self, value: Any) -> bytes:
        match self._kind, value:
            case SchemaKind.STRING, str():
                return value.encode()
            case SchemaKind.NUMBER, int() | float() if not isinstance(value, bool):
                return _finite(value)
            case SchemaKind.BYTES, bytes() | bytearray() | memoryview():
                return bytes(value)
        raise ValueMismatch(f"{abbreviated(value)} is no {self._kind.lower()}")

    def decode(self, payload: bytes) -> Any:
        match self._kind:
            case SchemaKind.STRING:
                return payload.decode()
            case SchemaKind.NUMBER:
                return msgspec.json.decode(payload, type=int | float)
            case _:
                return payload


def _finite(value: float) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        raise ValueMismatch(f"{value} is no number that JSON has") from None


class JsonCodec:
    """A codec for JSON Schema. It validates with the same code as the broker, so both refuse the same values."""

    indexes: Indexes = None

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    @cached_property
    def validator(self) -> Validator:
        """The validator of the schema, built at first use. Raises `InvalidSchema`. `decode` does not use it, since
        payloads of the same schema were validated when they were written."""
        return language(SchemaKind.JSON).parse(self._definition.text, dict(self._definition.references)).validator()

    def encode(self, value: Any) -> bytes:
        try:
            payload = msgspec.json.encode(to_builtins(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueMismatch(str(error)) from None
        self._check(payload)
        return payload

    def decode(self, payload: bytes) -> Any:
        return msgspec.json.decode(payload)

    def decode_checked(self, payload: bytes) -> Any:
        """Decode a payload that was written with another schema. Raises `ValueMismatch` if it does not conform to this
        one."""
        value = msgspec.json.decode(payload)
        self._check(payload)
        return value

    def _check(self, payload: bytes) -> None:
        fault = self.validator.fault(payload)
        if fault is not None:
            raise ValueMismatch(fault.message, fault.path)


def abbreviated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
