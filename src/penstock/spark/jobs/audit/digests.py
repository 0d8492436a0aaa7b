"""The hashes by which log and archive are compared. They do not depend on the order of messages.

A message has three hashes, each a HighwayHash-64 of words of 8 bytes, big-endian, with the key that segments use:

- its place: the words are its id (two words), its offset, and zero;
- its contents: its id, its offset, and the HighwayHash-64 of its payload;
- its fields: its id, its offset, and the words of `_field_words`.

The hash of many messages is the sum of their hashes, modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.record import layout as at
from penstock.record.block import Block, Bools, Longs, Words
from penstock.record.kernels.tally_kernels import hash_ranges
from penstock.spark.jobs.audit.partition_summary import Digest

DAY_US: Final = 86_400_000_000
Days = dict[int, Digest]
"""Digests by the number of the day since 1970."""

FIELDS: Final = (
    "id",
    "offset",
    "timestamp",
    "producer_id",
    "request_id",
    "schema_id",
    "schema_version",
    "type",
    "producer_name",
    "key",
    "attributes",
)
"""Columns that are compared besides the payload."""
_NUMBERS: Final = ("producer_id", "request_id", "schema_id", "schema_version")
_TEXTS: Final = ("type", "producer_name", "key")
_NONE: Final = Digest()


def days_of_block(block: Block) -> Days:
    if not len(block):
        return {}
    batch = block.to_arrow(FIELDS, views=False)
    payloads = _hashes(block.data, block.columns[:, at.PAYLOAD], block.payload_sizes)
    return _by_day(batch, payloads, np.zeros(len(block), dtype=np.bool_), in_bad_table=False)


def days_of_rows(batch: pa.RecordBatch, *, in_bad_table: bool = False) -> Days:
    """Return the digests of table rows whose columns have their names in the log. A missing column counts as nulls.
    `in_bad_table`: the rows are of a bad-rows table."""
    if not batch.num_rows:
        return {}
    values = _column(batch, "value", pa.binary())
    return _by_day(batch, _hashes(*_binary(values)), _nulls(values), in_bad_table=in_bad_table)


def add_days(found: Days, more: Mapping[int, Digest]) -> None:
    """Add the digests of `more` to those of the same days in `found`, which is changed."""
    for day, digest in more.items():
        found[day] = found.get(day, _NONE) + digest


def _by_day(batch: pa.RecordBatch, payloads: Words, without_payload: Bools, *, in_bad_table: bool) -> Days:
    """Return the digests of a batch by day. `payloads` has the hash of each row's payload, `without_payload` is True
    for rows that have none. Rows of one day that follow each other are summed in one step."""
    place, times = _place_words(batch), _times(batch)
    places = _words(*place, np.zeros(batch.num_rows, dtype=np.int64))
    fields = _row_hashes(_words(*place, *_field_words(batch, times)))
    sums: list[Any] = [_row_hashes(places), fields]
    places[:, 3] = payloads
    contents, named = _row_hashes(places), ~_nulls(_column(batch, "schema_id", pa.int64()))
    optional = named & (not in_bad_table)  # only these may come without a payload
    sums += [np.where(named, 0, contents).astype(np.uint64), np.where(named, contents, 0).astype(np.uint64)]
    sums += [
        flag.astype(np.int64)
        for flag in (named, named & in_bad_table, without_payload & optional, without_payload & ~optional)
    ]
    days = times // DAY_US
    starts = np.flatnonzero(np.concatenate(([True], days[1:] != days[:-1])))
    counts = np.diff(np.append(starts, len(days)))
    added = (np.add.reduceat(column, starts).tolist() for column in sums)
    by_day: Days = {}
    for day, digest in zip(days[starts].tolist(), map(Digest, counts.tolist(), *added), strict=True):
        add_days(by_day, {day: digest})
    return by_day


# the words that are hashed


def _place_words(batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
    words = np.frombuffer(_binary(batch.column("id"))[0], dtype=">i8").reshape(-1, 2)
    return words[:, 0], words[:, 1], _numbers(batch.column("offset"))


def _field_words(batch: pa.RecordBatch, times: Longs) -> list[Any]:
    """Return the words for the hash of the fields, each as an array over the rows. In order: the time in microseconds;
    the numbers of producer, request, schema and schema version, 0 for none; bits for "has a schema" and "has a key";
    the hashes of type, producer name, key and attributes."""
    schema, key = _column(batch, "schema_id", pa.int64()), _column(batch, "key", pa.binary())
    flags = (~_nulls(schema)).astype(np.int64) * at.FLAG_SCHEMA + (~_nulls(key)).astype(np.int64) * at.FLAG_KEY
    numbers = [_numbers(_column(batch, name, pa.int64())) for name in _NUMBERS]
    texts = [_hashes(*_binary(_column(batch, name, pa.binary()))) for name in _TEXTS]
    return [times, *numbers, flags, *texts, _attribute_hashes(batch)]


def _attribute_hashes(batch: pa.RecordBatch) -> Words:
    """Return for each row the sum of the hashes of its attributes (name and value), 0 for none. It is a sum because a
    map has no order."""
    hashes = np.zeros(batch.num_rows, dtype=np.uint64)
    column = _column(batch, "attributes", pa.map_(pa.string(), pa.string()))
    ends = np.asarray(column.offsets, dtype=np.int64)
    first, count = int(ends[0]), int(ends[-1] - ends[0])
    if not count:
        return hashes
    pairs = _words(*(_hashes(*_binary(texts.slice(first, count))) for texts in (column.keys, column.items)))
    sums = np.append(np.uint64(0), np.cumsum(_row_hashes(pairs), dtype=np.uint64))
    hashes[:] = sums[ends[1:] - first] - sums[ends[:-1] - first]
    hashes[_nulls(column)] = 0
    return hashes


def _words(*columns: Any) -> Any:
    """Return a table of big-endian words with these columns side by side; each row is then hashed."""
    table = np.empty((len(columns[0]), len(columns)), dtype=">u8")
    for position, words in enumerate(columns):
        table[:, position] = words if words.dtype == np.uint64 else words.astype(np.int64).view(np.uint64)
    return table


def _hashes(data: Any, starts: Any, sizes: Any) -> Words:
    hashes = np.empty(len(starts), dtype=np.uint64)
    hash_ranges(data, np.ascontiguousarray(starts), np.ascontiguousarray(sizes), hashes)
    return hashes


def _row_hashes(table: Any) -> Words:
    size = table.shape[1] * 8
    starts = np.arange(0, table.nbytes, size)
    return _hashes(table.view(np.uint8).reshape(-1), starts, np.full_like(starts, size))


# columns


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, kind)


def _nulls(column: pa.Array) -> Bools:
    nulls: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _numbers(column: pa.Array) -> Longs:
    whole = column.cast(pa.int64())
    numbers: Longs = (whole.fill_null(0) if whole.null_count else whole).to_numpy(zero_copy_only=False)
    return numbers


def _times(batch: pa.RecordBatch) -> Longs:
    """Return the column `timestamp` as Unix time in microseconds."""
    return _numbers(batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))


def _binary(values: pa.Array) -> tuple[Any, Longs, Longs]:
    """Return the bytes of all values of a column of bytes or text, the position at which each value starts, and its
    size. A null has the size 0."""
    column = values.cast(pa.large_binary()) if not pa.types.is_string(values.type) else _as_bytes(values)
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(0, dtype=np.uint8), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    whole = np.frombuffer(data or b"", dtype=np.uint8)
    return whole[int(ends[0]) : int(ends[-1])], ends[:-1] - ends[0], np.diff(ends)


def _as_bytes(text: pa.Array) -> pa.Array:
    return text.cast(pa.binary()).cast(pa.large_binary())
