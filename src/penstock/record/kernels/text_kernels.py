"""Kernels that check text: is it UTF-8, and does a message name an attribute twice?"""

from __future__ import annotations

from typing import Any

from penstock.record import layout as at
from penstock.record.kernels import simd
from penstock.record.kernels.block_kernels import attributes_start, has_text
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import BYTES, LONG, TABLE_IN, inlined


@kernel(LONG(BYTES, TABLE_IN))
def first_bad_text(block: Any, columns: Any) -> int:
    """Return the number of the first record in which type, producer name or an attribute is not UTF-8; -1 if there is
    none."""
    data, row = simd.address(block), simd.address(columns)
    for record in range(columns.shape[0]):
        if not has_text(data, row):
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
    """Return True if two of `count` attributes have the same name. Each is compared with all before it: they are
    few."""
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
    """Return the number of the first record that names an attribute twice; -1 if none does."""
    data, row = simd.address(block), simd.address(columns)
    for record in range(columns.shape[0]):
        if _repeats(data, attributes_start(row), simd.get(row, at.ATTRIBUTES)):
            return record
        row += at.ROW_BYTES
    return -1
