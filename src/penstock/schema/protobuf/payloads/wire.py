"""The wire format of Protobuf, field by field, without a schema."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.schema.protobuf.limits import NUMBER_MAX, PAYLOAD_DEPTH_MAX, PAYLOAD_STEPS_MAX

_VARINT_BYTES_MAX: Final = 10


class WireType(IntEnum):
    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    START = 3
    END = 4
    FIXED32 = 5


_SIZES: Final = {WireType.FIXED64: 8, WireType.FIXED32: 4}


class BrokenWire(Exception):
    """The bytes are not a message. The text says why."""


class WireField(NamedTuple):
    """A field as it lies in the bytes."""

    number: int
    wire_type: WireType
    begin: int
    """The begin of its contents; of a group, of the fields in it."""
    end: int
    after: int
    """The begin of the next field."""


class WireReader:
    """A reader of one payload. It visits at most `PAYLOAD_STEPS_MAX` fields in all, then it raises `BrokenWire`."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self._steps_left = PAYLOAD_STEPS_MAX

    def pieces(self, begin: int, end: int) -> Iterator[WireField]:
        """Yield the fields between two offsets. Raises `BrokenWire` where the bytes are no field, and for too many
        fields."""
        at = begin
        while at < end:
            piece = self._piece(at, end)
            if piece.wire_type is WireType.END:
                raise BrokenWire("a group ends that did not begin")
            if piece.wire_type is WireType.START:
                piece = self._group(piece, end)
            yield piece
            at = piece.after

    def _group(self, start: WireField, end: int) -> WireField:
        """Return a group with the end of its contents and the begin of the next field. Groups within it are passed
        over. Raises `BrokenWire`."""
        numbers, at = [start.number], start.after
        while len(numbers) <= PAYLOAD_DEPTH_MAX:
            if at >= end:
                raise BrokenWire("a group does not end")
            piece = self._piece(at, end)
            if piece.wire_type is WireType.START:
                numbers.append(piece.number)
            elif piece.wire_type is WireType.END and numbers.pop() != piece.number:
                raise BrokenWire("a group ends that did not begin")
            if not numbers:
                return start._replace(end=at, after=piece.after)
            at = piece.after
        raise BrokenWire(f"groups are nested more than {PAYLOAD_DEPTH_MAX} deep")

    def _piece(self, at: int, end: int) -> WireField:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise BrokenWire("it is not a message, and too long to say why")
        tag, begin = self._varint(at, end)
        number = tag >> 3
        if not 1 <= number <= NUMBER_MAX or tag & 7 > WireType.FIXED32:
            raise BrokenWire(f"byte {at} begins no field")
        wire_type = WireType(tag & 7)
        begin, after = self._extent(wire_type, begin, end)
        if after > end:
            raise BrokenWire(f"the field {number} at byte {at} is longer than what there is")
        return WireField(number, wire_type, begin, after, after)

    def _extent(self, wire_type: WireType, at: int, end: int) -> tuple[int, int]:
        if wire_type is WireType.VARINT:
            return at, self._varint(at, end)[1]
        if wire_type is WireType.LENGTH:
            length, begin = self._varint(at, end)
            return begin, begin + length
        return at, at + _SIZES.get(wire_type, 0)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Read the varint at `at`; return its value and the offset after it. Raises `BrokenWire` if it does not end
        before `end` or has more than ten bytes."""
        value = 0
        for offset in range(at, min(at + _VARINT_BYTES_MAX, end)):
            byte = self.payload[offset]
            value |= (byte & 0x7F) << 7 * (offset - at)
            if byte < 0x80:
                return value, offset + 1
        raise BrokenWire(f"the number at byte {at} has no end")
