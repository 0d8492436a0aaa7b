"""The Confluent framing of payloads: a zero byte and the schema's id in four bytes before each payload; for Protobuf,
also the path to the message. Clients of other schema registries use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.core.schemas import SCHEMA_DEPTH_MAX

PREFIX_BYTES: Final = 5
FIRST_MESSAGE: Final = (0,)

_ZERO: Final = 0
_ID_MAX: Final = 2**32 - 1
_VARINT_BYTES_MAX: Final = 5
"""The most bytes of a varint that encodes 32 bits."""


def prefix(schema_id: int) -> bytes:
    if not 0 <= schema_id <= _ID_MAX:
        raise InvalidRequest(f"schema {schema_id} has an id that does not fit into this framing's four bytes")
    return bytes((_ZERO,)) + schema_id.to_bytes(4)


def framed_id(payload: bytes) -> int | None:
    """Return the schema's id at the beginning of a framed payload; None if the payload does not begin with a zero byte
    and four bytes more."""
    if len(payload) < PREFIX_BYTES or payload[0] != _ZERO:
        return None
    return int.from_bytes(payload[1:PREFIX_BYTES])


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """Encode the path to a message in a Protobuf schema: its index at each level, from the outermost on.

    The length of the path and each index are zigzag varints. The usual path, to the first message, is a single zero
    byte.
    """
    if indexes == FIRST_MESSAGE:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(indexes), *indexes))


def read_indexes(payload: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Decode the path that begins at offset `start`; return the path, and the offset after it. Raises
    `MalformedMessage`."""
    numbers = _numbers(payload, start)
    count, end = next(numbers)
    if not 0 <= count <= SCHEMA_DEPTH_MAX:
        raise MalformedMessage(f"it names a message {count} levels deep")
    indexes = []
    for _ in range(count):
        index, end = next(numbers)
        if index < 0:
            raise MalformedMessage(f"no message has the number {index}")
        indexes.append(index)
    return tuple(indexes) or FIRST_MESSAGE, end


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _numbers(payload: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Yield varints one after another, each with the offset after it. Raises `MalformedMessage` at the end of the
    payload."""
    while True:
        number, start = 0, position
        for position in range(start, start + _VARINT_BYTES_MAX):
            if position >= len(payload):
                raise MalformedMessage("it ends before it has named its message")
            number |= (payload[position] & 0x7F) << 7 * (position - start)
            if not payload[position] & 0x80:
                break
        else:
            raise MalformedMessage("it names its message by a number that is too large")
        position += 1
        yield number >> 1 ^ -(number & 1), position
