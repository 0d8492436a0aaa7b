"""The UTF-8 check of kernels: are the text fields of a record valid UTF-8?"""

from __future__ import annotations

from penstock.record.kernels import simd
from penstock.record.kernels.kernel_types import inlined

_HIGH_BITS = -0x7F7F7F7F7F7F7F80  # of eight bytes: none is set in ASCII


@inlined
def _is_ascii(data: int, start: int, stop: int) -> bool:
    while stop - start >= 8:
        if simd.load64(data, start) & _HIGH_BITS != 0:
            return False
        start += 8
    while start < stop:
        if simd.load8(data, start) >= 0x80:
            return False
        start += 1
    return True


@inlined
def _sequence_bytes(lead: int, second: int) -> int:
    """Return the length of the UTF-8 sequence that begins with these two bytes; 0 if no valid one does (Unicode, table
    3-7)."""
    if 0xC2 <= lead <= 0xDF:
        return 2 if 0x80 <= second <= 0xBF else 0
    if 0xE0 <= lead <= 0xEF:
        low = 0xA0 if lead == 0xE0 else 0x80
        high = 0x9F if lead == 0xED else 0xBF
        return 3 if low <= second <= high else 0
    if 0xF0 <= lead <= 0xF4:
        low = 0x90 if lead == 0xF0 else 0x80
        high = 0x8F if lead == 0xF4 else 0xBF
        return 4 if low <= second <= high else 0
    return 0


@inlined
def is_utf8(data: int, start: int, stop: int) -> bool:
    if _is_ascii(data, start, stop):
        return True
    while start < stop:
        if simd.load8(data, start) < 0x80:
            start += 1
            continue
        if start + 1 >= stop:
            return False
        size = _sequence_bytes(simd.load8(data, start), simd.load8(data, start + 1))
        if size == 0 or start + size > stop:
            return False
        for place in range(start + 2, start + size):
            if simd.load8(data, place) & 0xC0 != 0x80:
                return False
        start += size
    return True


@inlined
def is_text(data: int, start: int, size: int) -> bool:
    """Return True if a text field of a record is valid UTF-8.

    Reads up to eight bytes behind the field together with its last bytes. They are always there: at least the checksum
    follows each field.
    """
    place, left = start, size
    while left >= 8:
        if simd.load64(data, place) & _HIGH_BITS != 0:
            return is_utf8(data, place, start + size)
        place += 8
        left -= 8
    if left > 0 and (simd.load64(data, place) >> (64 - 8 * left)) & _HIGH_BITS != 0:
        return is_utf8(data, place, start + size)
    return True


@inlined
def attributes_are_text(data: int, position: int, count: int) -> bool:
    for _ in range(count):
        size = simd.load16(data, position)
        if not is_text(data, position + 2, size):
            return False
        position += 2 + size
        size = simd.load32(data, position)
        if not is_text(data, position + 4, size):
            return False
        position += 4 + size
    return True
