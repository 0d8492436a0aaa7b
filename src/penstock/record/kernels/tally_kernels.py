"""Kernels that count the records of an audit, in one pass over their columns; and hashes of many ranges.

They read columns made by `block_kernels.scan`, so nothing is checked again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.record import layout as at
from penstock.record.kernels import simd
from penstock.record.kernels.kernel_cache import kernel
from penstock.record.kernels.kernel_types import BYTES, LONG, LONGS, LONGS_OUT, TABLE, TABLE_IN, WORDS, inlined, types

# buckets of a histogram: every value below 64 has its own, and each doubling from there on is cut into 64
FINE: Final = 64
_FINE_BITS: Final = 6
VALUE_BITS: Final = 44
"""Bits of the values in histograms: larger sizes and durations fall into the last bucket."""
BUCKETS: Final = FINE * (VALUE_BITS - _FINE_BITS + 1)

# totals
PAYLOAD_BYTES: Final = 0
FIRST_MS: Final = 1
LAST_MS: Final = 2
SMALLEST: Final = 3
LARGEST: Final = 4
TOTALS: Final = 5

# a row of the volume: how many, how many bytes
VOLUME_COLUMNS: Final = 2

# a row of the table of producers; one of the table of schemas has the first three
KEY: Final = 0
SECOND: Final = 1
COUNT: Final = 2
FIRST: Final = 3
LAST: Final = 4
BREAKS: Final = 5
ROW: Final = 6

_SPREAD: Final = 0x9E3779B97F4A7C15 - 2**64
FULL_AT: Final = 4
"""Divisor: a table takes no new keys once only a quarter of its rows are free, so that searches stay short."""


# constants of index entries, the same as in `storage.log.index`
_END_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_OFFSET_FACTOR: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_TAG_SALT: Final = np.uint64(0x165667B19E3779F9)


@inlined
def _bucket(value: int) -> int:
    """Return the histogram bucket of a value that is not negative."""
    if value < FINE:
        return max(value, 0)
    shift = 0
    while value >> (shift + _FINE_BITS + 1) != 0:
        shift += 1
    return min(FINE * (shift + 1) + (value >> shift) - FINE, BUCKETS - 1)


@inlined
def _place(table: Any, key: int, second: int) -> int:
    """Return the row of the hash table that has these two keys, or else the free row where they belong."""
    mask = table.shape[0] - 1
    place = (((key ^ (second << 1)) * _SPREAD) >> 32) & mask
    while table[place, COUNT] != 0 and (table[place, KEY] != key or table[place, SECOND] != second):
        place = (place + 1) & mask
    return int(place)


@inlined
def _counted(table: Any, place: int, key: int, second: int) -> None:
    table[place, KEY] = key
    table[place, SECOND] = second
    table[place, COUNT] += 1


@inlined
def _requested(table: Any, place: int, request: int) -> None:
    """Record a request id of the producer in this row, and count it as a break if it does not rise. `_counted` comes
    first."""
    if table[place, COUNT] == 1:
        table[place, FIRST] = request
    elif request <= table[place, LAST]:
        table[place, BREAKS] += 1
    table[place, LAST] = request


@kernel(LONG(TABLE_IN, LONG, LONG, LONG, LONGS_OUT, LONGS_OUT, TABLE, TABLE, TABLE, LONGS_OUT))
def tally(
    columns: Any,
    row: int,
    since_ms: int,
    width_ms: int,
    totals: Any,
    sizes: Any,
    volume: Any,
    producers: Any,
    schemas: Any,
    used: Any,
) -> int:
    """Count records from row `row` on into the tables; return the row at which a table was full, or the number of
    records.

    `volume` has a row for each span of `width_ms` from `since_ms` on; earlier and later records count in its first or
    last row. The numbers of rows of `producers` and `schemas` are powers of two; `used` is how many rows of each are
    taken.
    """
    spans = volume.shape[0]
    # Neighbours are mostly alike, so the row of the last record is tried first.
    span, span_start, span_stop = 0, 0, 0
    producer_place, schema_place = 0, 0
    while row < columns.shape[0]:
        if used[0] * FULL_AT >= producers.shape[0] * (FULL_AT - 1):
            return row
        if used[1] * FULL_AT >= schemas.shape[0] * (FULL_AT - 1):
            return row
        size = columns[row, at.END] - columns[row, at.PAYLOAD] - at.CHECKSUM_BYTES
        time = columns[row, at.PUBLISH_TIME]
        totals[PAYLOAD_BYTES] += size
        totals[FIRST_MS] = min(totals[FIRST_MS], time)
        totals[LAST_MS] = max(totals[LAST_MS], time)
        totals[SMALLEST] = min(totals[SMALLEST], size)
        totals[LARGEST] = max(totals[LARGEST], size)
        sizes[_bucket(size)] += 1
        if not span_start <= time < span_stop:
            span = (time - since_ms) // width_ms
            span_start, span_stop = since_ms + span * width_ms, since_ms + (span + 1) * width_ms
            span = min(max(span, 0), spans - 1)
        volume[span, 0] += 1
        volume[span, 1] += columns[row, at.END] - columns[row, at.START]
        producer, request = columns[row, at.PRODUCER_ID], columns[row, at.REQUEST_ID]
        if producer != 0 and request != 0:
            if producers[producer_place, KEY] != producer:
                producer_place = _place(producers, producer, 0)
            used[0] += producers[producer_place, COUNT] == 0
            _counted(producers, producer_place, producer, 0)
            _requested(producers, producer_place, request)
        if columns[row, at.FLAGS] & at.FLAG_SCHEMA:
            schema, version = columns[row, at.SCHEMA_ID], columns[row, at.SCHEMA_VERSION]
            if schemas[schema_place, KEY] != schema or schemas[schema_place, SECOND] != version:
                schema_place = _place(schemas, schema, version)
            used[1] += schemas[schema_place, COUNT] == 0
            _counted(schemas, schema_place, schema, version)
        row += 1
    return row


@kernel(LONG(BYTES, TABLE_IN, LONG, LONG))
def entries_held(entries: Any, columns: Any, position: int, first_offset: int) -> int:
    """Return how many records, from the first on, end where the entries of an index say. `position` is where the block
    begins in the segment.

    The format of entries is that of `storage.log.index.encode_entries`; a test compares the two.
    """
    data = simd.address(entries)
    for row in range(columns.shape[0]):
        end = np.uint64(columns[row, at.END] + position)
        mixed = (end * _END_FACTOR) ^ (np.uint64(first_offset + row) * _OFFSET_FACTOR) ^ _TAG_SALT
        tag = ((mixed ^ (mixed >> np.uint64(29))) * _END_FACTOR) >> np.uint64(32)
        if np.uint64(simd.load64(data, 8 * row)) != (end << np.uint64(32)) | tag:
            return row
    return int(columns.shape[0])


@kernel(types.void(LONGS, LONGS_OUT))
def count_values(values: Any, buckets: Any) -> None:
    """Count each value in its histogram bucket."""
    for place in range(values.shape[0]):
        buckets[_bucket(values[place])] += 1


@kernel(types.void(BYTES, LONGS, LONGS, WORDS))
def hash_ranges(block: Any, starts: Any, sizes: Any, hashes: Any) -> None:
    """Write the HighwayHash-64 of each range of a block."""
    data = simd.address(block)
    for row in range(starts.shape[0]):
        hashes[row] = np.uint64(simd.hash64(data, starts[row], sizes[row]))
