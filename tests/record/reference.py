"""The record format and its hash a second time, from the published description alone: nothing of Penstock comes in.

Slow and plain on purpose. What the kernels do is compared with this.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

# HighwayHash-64, after the portable C version of google/highwayhash

KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908, 0x1716151413121110, 0x1F1E1D1C1B1A1918)
MASK = 2**64 - 1
LOW = 2**32 - 1

Lanes = list[int]


def rotated_32(word: int, count: int) -> int:
    """Both halves of a 64-bit word, each rotated left."""
    halves = (word & LOW, word >> 32)
    low, high = ((half << count | half >> (32 - count)) & LOW for half in halves)
    return high << 32 | low


def zipper(first: int, second: int) -> tuple[int, int]:
    """The sixteen bytes of two words, dealt out in the order that the hash prescribes."""
    given = struct.pack("<QQ", first, second)
    dealt = bytes(given[place] for place in (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7))
    one, two = struct.unpack("<QQ", dealt)
    return one, two


class Hash:
    def __init__(self, key: tuple[int, int, int, int]) -> None:
        self.mul0 = [0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3]
        self.mul1 = [0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377]
        self.v0 = [self.mul0[lane] ^ key[lane] for lane in range(4)]
        self.v1 = [self.mul1[lane] ^ rotated_32_by_half(key[lane]) for lane in range(4)]

    def update(self, lanes: Lanes) -> None:
        for lane in range(4):
            self.v1[lane] = (self.v1[lane] + self.mul0[lane] + lanes[lane]) & MASK
            self.mul0[lane] ^= (self.v1[lane] & LOW) * (self.v0[lane] >> 32)
            self.v0[lane] = (self.v0[lane] + self.mul1[lane]) & MASK
            self.mul1[lane] ^= (self.v0[lane] & LOW) * (self.v1[lane] >> 32)
        self.add_zippered(self.v1, self.v0)
        self.add_zippered(self.v0, self.v1)

    @staticmethod
    def add_zippered(source: Lanes, target: Lanes) -> None:
        for lane in (0, 2):
            first, second = zipper(source[lane], source[lane + 1])
            target[lane] = (target[lane] + first) & MASK
            target[lane + 1] = (target[lane + 1] + second) & MASK

    def update_rest(self, rest: bytes) -> None:
        """The last 1 to 31 bytes."""
        size = len(rest)
        for lane in range(4):
            self.v0[lane] = (self.v0[lane] + (size << 32) + size) & MASK
            self.v1[lane] = rotated_32(self.v1[lane], size)
        packet = bytearray(32)
        whole, odd = size & ~3, size & 3
        packet[:whole] = rest[:whole]
        if size & 16:
            packet[28:32] = rest[size - 4 :]
        elif odd:
            packet[16:19] = bytes((rest[whole], rest[whole + (odd >> 1)], rest[size - 1]))
        self.update(list(struct.unpack("<4Q", packet)))

    def permute_and_update(self) -> None:
        self.update([rotated_32_by_half(self.v0[lane]) for lane in (2, 3, 0, 1)])

    def finish(self) -> int:
        for _ in range(4):
            self.permute_and_update()
        return (self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]) & MASK


def rotated_32_by_half(word: int) -> int:
    """The two halves of a 64-bit word, exchanged."""
    return word >> 32 | (word & LOW) << 32


def highwayhash64(data: bytes, key: tuple[int, int, int, int] = KEY) -> int:
    hashing = Hash(key)
    whole = len(data) - len(data) % 32
    for lanes in struct.iter_unpack("<4Q", data[:whole]):
        hashing.update(list(lanes))
    if whole < len(data):
        hashing.update_rest(data[whole:])
    return hashing.finish()


# The record and its envelope

FIXED = struct.Struct(">BBQQQQQI")
UNIX_EPOCH_TICKS = 0x01B21DD213814000


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Every field of one record, the text still as bytes."""

    id: bytes = bytes(16)
    type: bytes = b""
    offset: int = 0
    producer_id: int = 0
    request_id: int = 0
    publish_time: int = 0
    schema: tuple[int, int] | None = None
    producer_name: bytes = b""
    key: bytes | None = None
    attributes: tuple[tuple[bytes, bytes], ...] = ()
    payload: bytes = b""


class Broken(Exception):
    """The bytes violate the format."""


def id_at(ticks: int, low: int = 0x8000_0100_0000_0000) -> bytes:
    """The UUIDv6 of that tick, field by field as RFC 9562 has them."""
    high = (ticks >> 28) << 32 | (ticks >> 12 & 0xFFFF) << 16 | 6 << 12 | ticks & 0xFFF
    return struct.pack(">QQ", high, low)


def time_of(id_: bytes) -> int:
    """Unix milliseconds of a UUIDv6."""
    word = uuid.UUID(bytes=id_).int >> 64
    ticks = (word >> 32) << 28 | (word >> 16 & 0xFFFF) << 12 | word & 0xFFF
    return (ticks - UNIX_EPOCH_TICKS) // 10_000


def sealed(body: bytes) -> bytes:
    """A record without its checksum, and its checksum."""
    return body + struct.pack(">Q", highwayhash64(body))


def record(id_: bytes, type_: bytes, message: bytes) -> bytes:
    return sealed(id_ + bytes((len(type_),)) + type_ + struct.pack(">I", len(message)) + message)


def sized(form: str, value: bytes) -> bytes:
    return struct.pack(form, len(value)) + value


def envelope(entry: Entry) -> bytes:
    flags = (entry.schema is not None) | (entry.key is not None) << 1
    schema = entry.schema or (0, 0)
    numbers = (entry.offset, entry.producer_id, entry.request_id, entry.publish_time)
    written = FIXED.pack(1, flags, *numbers, *schema)
    written += sized(">H", entry.producer_name) + sized(">H", entry.key or b"")
    written += struct.pack(">H", len(entry.attributes))
    for name, value in entry.attributes:
        written += sized(">H", name) + sized(">I", value)
    return written + entry.payload


def write(*entries: Entry) -> bytes:
    return b"".join(record(entry.id, entry.type, envelope(entry)) for entry in entries)


class Reader:
    """Takes bytes from the front and never more than there are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise Broken(f"{size} bytes expected at {self.place}, {len(self.data) - self.place} there")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def sized(self, size: int) -> bytes:
        return self.take(self.number(size))

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.place)


def read_envelope(id_: bytes, type_: bytes, message: bytes) -> Entry:
    reader = Reader(message)
    version, flags, offset, producer_id, request_id, publish_time, *schema = FIXED.unpack(reader.take(FIXED.size))
    name, key = reader.sized(2), reader.sized(2)
    attributes = tuple((reader.sized(2), reader.sized(4)) for _ in range(reader.number(2)))
    if version != 1 or flags > 3:
        raise Broken(f"version {version}, flags {flags}")
    if not flags & 1 and any(schema):
        raise Broken("a schema that is not there")
    if not flags & 2 and key:
        raise Broken("a key that is not there")
    return Entry(
        id=id_,
        type=type_,
        offset=offset,
        producer_id=producer_id,
        request_id=request_id,
        publish_time=publish_time,
        schema=(schema[0], schema[1]) if flags & 1 else None,
        producer_name=name,
        key=key if flags & 2 else None,
        attributes=attributes,
        payload=reader.rest(),
    )


def read(data: bytes) -> Iterator[tuple[int, Entry]]:
    """Every record and where it ends. Raises `Broken` at the first that is not right."""
    reader = Reader(data)
    while reader.place < len(data):
        start = reader.place
        id_, type_, message = reader.take(16), reader.sized(1), reader.sized(4)
        checksum = highwayhash64(data[start : reader.place])
        if reader.number(8) != checksum:
            raise Broken(f"the checksum of the record at {start}")
        yield reader.place, read_envelope(id_, type_, message)
