"""Kernels that turn blocks into Arrow columns, in one pass over the records.

The scan has checked all lengths. See `block_kernels`.
"""

from __future__ import annotations

from typing import Any

from penstock.record import layout as at
from penstock.record.kernels import simd
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import BUFFER, BYTES, INTS_OUT, LONG, TABLE, TABLE_IN, inlined, types

# the wanted columns, one bit each
OFFSET = 1
TIME = 2
PRODUCER_ID = 4
REQUEST_ID = 8
SCHEMA = 16
ID = 32
TYPE = 64
NAME = 128
KEY = 256
VALUE = 512

# the rows of `numbers`
NUMBERS = 5
OFFSETS, TIMES, PRODUCER_IDS, REQUEST_IDS, SCHEMA_IDS = range(NUMBERS)
# the rows of `ends`
TEXTS = 4
TYPES, NAMES, KEYS, VALUES = range(TEXTS)
# the rows of `present`
WITH_SCHEMA, WITH_KEY = range(2)

_US_PER_MS = 1000
INTS_TABLE = types.Array(types.int32, 2, "C")
BYTES_TABLE = types.Array(types.uint8, 2, "C")


@kernel(types.UniTuple(LONG, 4)(TABLE_IN))
def text_bytes(columns: Any) -> tuple[int, int, int, int]:
    """Return how many bytes all types, producer names, keys and payloads take."""
    row = simd.address(columns)
    type_bytes = name_bytes = key_bytes = value_bytes = 0
    for _ in range(columns.shape[0]):
        type_bytes += simd.get(row, at.TYPE_BYTES)
        name_bytes += simd.get(row, at.NAME_BYTES)
        key_bytes += simd.get(row, at.KEY_BYTES)
        value_bytes += simd.get(row, at.END) - simd.get(row, at.PAYLOAD)
        row += at.ROW_BYTES
    return type_bytes, name_bytes, key_bytes, value_bytes - columns.shape[0] * at.CHECKSUM_BYTES


# Inlined functions take addresses, not arrays: numba counts references to an array at every call, inlined or not.


@inlined
def _mark(present: int, place: int, here: bool) -> None:
    """Set a bit of an Arrow bitmap, whose bytes are cleared as they are reached."""
    at_byte, bit = place >> 3, place & 7
    before = simd.load8(present, at_byte) if bit else 0
    simd.store8(present, at_byte, before | (1 << bit if here else 0))


@inlined
def _append(target: int, position: int, ends: int, place: int, data: int, start: int, size: int) -> int:
    """Append a text behind the texts before it; return where it ends."""
    simd.copy(target, position, data, start, size)
    simd.native32(ends, 4 * (place + 1), position + size)
    return position + size


@inlined
def _fill_numbers(numbers: int, rows: int, versions: int, ids: int, place: int, wants: int, row: int) -> None:
    if wants & OFFSET:
        simd.put(numbers, OFFSETS * rows + place, simd.get(row, at.OFFSET))
    if wants & TIME:
        simd.put(numbers, TIMES * rows + place, simd.get(row, at.PUBLISH_TIME) * _US_PER_MS)
    if wants & PRODUCER_ID:
        simd.put(numbers, PRODUCER_IDS * rows + place, simd.get(row, at.PRODUCER_ID))
    if wants & REQUEST_ID:
        simd.put(numbers, REQUEST_IDS * rows + place, simd.get(row, at.REQUEST_ID))
    if wants & SCHEMA:
        simd.put(numbers, SCHEMA_IDS * rows + place, simd.get(row, at.SCHEMA_ID))
        simd.native32(versions, 4 * place, simd.get(row, at.SCHEMA_VERSION))
    if wants & ID:
        simd.store64(ids, place * at.ID_BYTES, simd.get(row, at.ID_HIGH))
        simd.store64(ids, place * at.ID_BYTES + 8, simd.get(row, at.ID_LOW))


@inlined
def _fill_present(present: int, row_bytes: int, place: int, wants: int, flags: int) -> None:
    if wants & SCHEMA:
        _mark(present + WITH_SCHEMA * row_bytes, place, flags & at.FLAG_SCHEMA != 0)
    if wants & KEY:
        _mark(present + WITH_KEY * row_bytes, place, flags & at.FLAG_KEY != 0)


@inlined
def _name_start(row: int) -> int:
    start: int = simd.get(row, at.START) + at.HEAD_BYTES + simd.get(row, at.TYPE_BYTES) + at.NAME_LENGTH_AT + 2
    return start


@inlined
def _payload_bytes(row: int) -> int:
    size: int = simd.get(row, at.END) - at.CHECKSUM_BYTES - simd.get(row, at.PAYLOAD)
    return size


_OUT = (TABLE, INTS_OUT, BUFFER, BYTES_TABLE, INTS_TABLE, BUFFER, BUFFER, BUFFER, BUFFER)


@kernel(types.UniTuple(LONG, 2)(BYTES, TABLE_IN, LONG, *_OUT))
def fill(
    block: Any,
    columns: Any,
    wants: int,
    numbers: Any,
    versions: Any,
    ids: Any,
    present: Any,
    ends: Any,
    types_: Any,
    names: Any,
    keys: Any,
    values: Any,
) -> tuple[int, int]:
    """Write the wanted columns; return how many records have a schema, and how many a key.

    `wants` has a bit for each wanted column, which must have room for all records; the others may have any size.
    `present` receives Arrow's bitmaps, and `ends` the n + 1 boundaries of each text column. Times are in microseconds.
    """
    data, row, rows = simd.address(block), simd.address(columns), numbers.shape[1]
    number_out, version_out, id_out = simd.address(numbers), simd.address(versions), simd.address(ids)
    present_out, present_bytes = simd.address(present), present.shape[1]
    type_out, name_out, key_out, value_out = (
        simd.address(types_),
        simd.address(names),
        simd.address(keys),
        simd.address(values),
    )
    end_out, end_bytes = simd.address(ends), 4 * ends.shape[1]
    type_end = name_end = key_end = value_end = with_schema = with_key = 0
    for text in range(TEXTS):
        ends[text, 0] = 0
    for place in range(columns.shape[0]):
        flags = simd.get(row, at.FLAGS)
        _fill_numbers(number_out, rows, version_out, id_out, place, wants, row)
        _fill_present(present_out, present_bytes, place, wants, flags)
        if wants & TYPE:
            start, size = simd.get(row, at.START) + at.TYPE_AT, simd.get(row, at.TYPE_BYTES)
            type_end = _append(type_out, type_end, end_out, place, data, start, size)
        if wants & NAME:
            start, size = _name_start(row), simd.get(row, at.NAME_BYTES)
            name_end = _append(name_out, name_end, end_out + NAMES * end_bytes, place, data, start, size)
        if wants & KEY:
            start, size = _name_start(row) + simd.get(row, at.NAME_BYTES) + 2, simd.get(row, at.KEY_BYTES)
            key_end = _append(key_out, key_end, end_out + KEYS * end_bytes, place, data, start, size)
        if wants & VALUE:
            start, size = simd.get(row, at.PAYLOAD), _payload_bytes(row)
            value_end = _append(value_out, value_end, end_out + VALUES * end_bytes, place, data, start, size)
        with_schema += flags & at.FLAG_SCHEMA
        with_key += (flags & at.FLAG_KEY) >> 1
        row += at.ROW_BYTES
    return with_schema, with_key
