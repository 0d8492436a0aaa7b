"""The kernels at the door: is what claims to be text UTF-8, and does a message name an attribute twice?"""

from __future__ import annotations

from typing import Any

from penstock.record import layout as at
from penstock.record import simd
from penstock.record.kernel_cache import kernel
from penstock.record.kernel_types import BYTES, LONG, TABLE_IN, inlined
from penstock.record.kernels import attributes_start


@inlined
def _is_ascii(data: int, start: int, stop: int) -> bool:
    while stop - start >= 8:
        if simd.load64(data, start) & -0x7F7F7F7F7F7F7F80 != 0:
            return False
        start += 8
    while start < stop:
        if simd.load8(data, start) >= 0x80:
            return False
        start += 1
    return True


@inlined
def _sequence_bytes(lead: int, second: int) -> int:
    """How long the UTF-8 sequence is that begins with these two bytes; 0 if none does (Unicode, table 3-7)."""
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
def _attributes_are_text(data: int, position: int, count: int) -> bool:
    for _ in range(count):
        size = simd.load16(data, position)
        if not is_utf8(data, position + 2, position + 2 + size):
            return False
        position += 2 + size
        size = simd.load32(data, position)
        if not is_utf8(data, position + 4, position + 4 + size):
            return False
        position += 4 + size
    return True


@kernel(LONG(BYTES, TABLE_IN))
def first_bad_text(block: Any, columns: Any) -> int:
    """The first record whose type, producer name or an attribute is not UTF-8; -1 if all are."""
    data, row = simd.address(block), simd.address(columns)
    for record in range(columns.shape[0]):
        start = simd.get(row, at.START) + at.TYPE_AT
        type_end = start + simd.get(row, at.TYPE_BYTES)
        name = type_end + at.MESSAGE_LENGTH_BYTES + at.NAME_LENGTH_AT + 2
        if not is_utf8(data, start, type_end) or not is_utf8(data, name, name + simd.get(row, at.NAME_BYTES)):
            return record
        if not _attributes_are_text(data, attributes_start(row), simd.get(row, at.ATTRIBUTES)):
            return record
        row += at.ROW_BYTES
    return -1


@inlined
def _same(data: int, one: int, other: int, size: int) -> bool:
    for place in range(size):  # noqa: SIM110 - numba compiles no generators
        if simd.load8(data, one + place) != simd.load8(data, other + place):
            return False
    return True


@inlined
def _next_attribute(data: int, position: int) -> int:
    position += 2 + simd.load16(data, position)
    position += 4 + simd.load32(data, position)
    return position


@inlined
def _repeats(data: int, first: int, count: int) -> bool:
    """Each name against all before it: attributes are few, and mostly differ in their length."""
    position = first
    for seen in range(count):
        size = simd.load16(data, position)
        other = first
        for _ in range(seen):
            if simd.load16(data, other) == size and _same(data, other + 2, position + 2, size):
                return True
            other = _next_attribute(data, other)
        position = _next_attribute(data, position)
    return False


@kernel(LONG(BYTES, TABLE_IN))
def first_repeated_attribute(block: Any, columns: Any) -> int:
    """The first record that names an attribute twice; -1 if none does."""
    data, row = simd.address(block), simd.address(columns)
    for record in range(columns.shape[0]):
        if _repeats(data, attributes_start(row), simd.get(row, at.ATTRIBUTES)):
            return record
        row += at.ROW_BYTES
    return -1
