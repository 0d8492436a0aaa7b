"""Messages as Python objects: as a producer sends them, and as the log returns them. No numpy, no kernels."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core import limits
from penstock.core.errors import InvalidRequest, PayloadTooLarge
from penstock.core.ids import format_id
from penstock.core.offsets import Offset
from penstock.core.schemas import SCHEMA_VERSION_MAX
from penstock.record.layout import CHECKSUM_BYTES, FLAG_KEY, FLAG_SCHEMA, ID_BYTES, VERSION

NUMBER_MAX: Final = 2**63 - 1
"""The largest producer, request or schema id: signed 64-bit in Arrow and in Spark."""

_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_WORD: Final = 2**64 - 1

_FIXED: Final = struct.Struct(">BBqqqqqI")
_SIZE16: Final = struct.Struct(">H")
_SIZE32: Final = struct.Struct(">I")
_NO_ID: Final = bytes(ID_BYTES)
_NO_CHECKSUM: Final = bytes(CHECKSUM_BYTES)
_Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """The schema version that a payload was written with."""

    id: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as a producer sends it. `request_id` is the producer's own number of it, from 1 on and rising; 0 means
    none."""

    payload: bytes
    type: str = ""
    key: bytes | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    producer_name: str = ""
    producer_id: int = 0
    request_id: int = 0
    schema: SchemaRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A message as the log returns it, with the id, offset and time (Unix milliseconds) that the log gave it."""

    id: bytes
    offset: Offset
    publish_time_ms: int
    message: Message

    def __str__(self) -> str:
        return f"{self.offset} {format_id(self.id)} {self.message.type}"


def key_hash(key: bytes) -> int:
    """Return the 64-bit FNV-1a hash of a key. Unlike `hash`, it is the same in every language and every process."""
    mixed = _FNV_BASIS
    for byte in key:
        mixed = (mixed ^ byte) * _FNV_PRIME & _WORD
    return mixed


def partition_of(key: bytes, partitions: int) -> int:
    """Return the number of the partition for messages with this key, in a topic with `partitions` partitions."""
    return key_hash(key) % partitions


def draft_bytes(message: Message) -> bytes:
    """Encode one message as a record whose id, offset, time and checksum are zero.

    Raises `InvalidRequest` or `PayloadTooLarge` for a field that is impossible.
    """
    type_ = _text(message.type, "type", limits.TYPE_BYTES_MAX)
    name = _text(message.producer_name, "producer_name", limits.PRODUCER_NAME_BYTES_MAX)
    key = b"" if message.key is None else checked_bytes(message.key, "key", limits.KEY_BYTES_MAX)
    body = b"".join(
        (
            _fixed(message),
            _SIZE16.pack(len(name)),
            name,
            _SIZE16.pack(len(key)),
            key,
            _attributes(message.attributes),
            checked_bytes(message.payload, "payload", limits.SEGMENT_BYTES_CEILING),
        )
    )
    return b"".join((_NO_ID, bytes((len(type_),)), type_, _SIZE32.pack(len(body)), body, _NO_CHECKSUM))


def check_request_ids(first: int, count: int) -> None:
    """Raise `InvalidRequest` unless `count` request ids can count up from `first`. With 0, which means no ids, any
    count can."""
    _number(first, "first_request_id", NUMBER_MAX)
    _number(first + count - 1 if first else 0, "request_id", NUMBER_MAX)


def _fixed(message: Message) -> bytes:
    flags = FLAG_KEY if message.key is not None else 0
    schema_id = schema_version = 0
    if message.schema is not None:
        flags |= FLAG_SCHEMA
        schema_id = _number(message.schema.id, "schema.id", NUMBER_MAX)
        schema_version = _number(message.schema.version, "schema.version", SCHEMA_VERSION_MAX)
    producer_id = _number(message.producer_id, "producer_id", NUMBER_MAX)
    request_id = _number(message.request_id, "request_id", NUMBER_MAX)
    return _FIXED.pack(VERSION, flags, 0, producer_id, request_id, 0, schema_id, schema_version)


def _attributes(attributes: Mapping[str, str]) -> bytes:
    if not attributes:
        return b"\0\0"
    if len(attributes) > limits.ATTRIBUTES_MAX:
        raise InvalidRequest(f"a message has at most {limits.ATTRIBUTES_MAX} attributes, not {len(attributes)}")
    parts: list[_Bytes] = []
    for name, value in attributes.items():
        encoded = _text(name, "attribute name", limits.ATTRIBUTE_NAME_BYTES_MAX)
        text = _text(value, f"attribute {name!r}", limits.ATTRIBUTE_BYTES_MAX)
        parts += (_SIZE16.pack(len(encoded)), encoded, _SIZE32.pack(len(text)), text)
    encoded_all = b"".join(parts)
    if len(encoded_all) > limits.ATTRIBUTE_BYTES_MAX:
        raise PayloadTooLarge(
            f"the attributes of a message take at most {limits.ATTRIBUTE_BYTES_MAX} bytes, not {len(encoded_all)}"
        )
    return _SIZE16.pack(len(attributes)) + encoded_all


def _text(value: str, what: str, bytes_max: int) -> _Bytes:
    if not isinstance(value, str):
        raise InvalidRequest(f"{what} must be text, not {type(value).__name__}", field=what)
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is not valid Unicode: {error.reason}", field=what) from None
    return checked_bytes(encoded, what, bytes_max)


def checked_bytes(value: _Bytes, what: str, bytes_max: int) -> _Bytes:
    """Return bytes of at most `bytes_max`, as a value whose `len` is its number of bytes.

    Raises `InvalidRequest` for a value that is not bytes, `PayloadTooLarge` for one that is too long; `what` is the
    name of the field.
    """
    if not isinstance(value, _Bytes):
        raise InvalidRequest(f"{what} must be bytes, not {type(value).__name__}", field=what)
    if isinstance(value, memoryview) and (value.ndim != 1 or value.itemsize != 1 or not value.contiguous):
        value = value.tobytes()  # its length is not that of its bytes, or they lie apart
    if len(value) > bytes_max:
        raise PayloadTooLarge(f"{what} takes at most {bytes_max} bytes, not {len(value)}", field=what, limit=bytes_max)
    return value


def _number(value: object, what: str, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise InvalidRequest(f"{what} must be a whole number from 0 to {maximum}, not {value!r}", field=what)
    return value
