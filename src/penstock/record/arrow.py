"""Blocks as Arrow record batches, and record batches as blocks. Bytes that Arrow can point at are not copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import limits
from penstock.core.errors import InvalidRequest, PayloadTooLarge
from penstock.core.schemas import SCHEMA_VERSION_MAX
from penstock.record import layout as at
from penstock.record.block import Block, Draft, Longs
from penstock.record.kernels import block_kernels
from penstock.record.message import NUMBER_MAX, Message, check_request_ids, draft_bytes

_ATTRIBUTES: Final = pa.map_(pa.string(), pa.string())
_TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
_BINARY_BYTES_MAX: Final = 2**31 - 1
_WITH_CHECKSUMS: Final = True


def to_arrow(block: Block, columns: Iterable[str] | None, *, views: bool) -> pa.RecordBatch:
    """Return the block's records as a batch of the named columns, or of all columns if `columns` is None.

    With `views`, texts and bytes point into the block and are not copied. Raises `InvalidRequest` for an unknown
    column, `PayloadTooLarge` if Arrow cannot address so much in one batch.
    """
    names = list(_READERS) if columns is None else list(columns)
    unknown = [name for name in names if name not in _READERS]
    if unknown:
        raise InvalidRequest(f"no column {unknown[0]!r}: choose from {', '.join(_READERS)}", column=unknown[0])
    return pa.RecordBatch.from_arrays([_READERS[name](block, views) for name in names], names=names)


def _fixed(row: int, kind: pa.DataType) -> Callable[[Block, bool], pa.Array]:
    def read(block: Block, _views: bool) -> pa.Array:
        values = np.ascontiguousarray(block.columns[:, row])
        return pa.Array.from_buffers(kind, len(block), [None, pa.py_buffer(values)])

    return read


def _ids(block: Block, _views: bool) -> pa.Array:
    words = block.columns[:, at.ID_HIGH : at.ID_LOW + 1].astype(">i8")
    return pa.Array.from_buffers(pa.binary(at.ID_BYTES), len(block), [None, pa.py_buffer(words)])


def _where(block: Block, flag: int) -> Any:
    """Return Arrow's bitmap with a bit set for each record that has `flag`; None, which means all, if every record has
    it."""
    present = (block.columns[:, at.FLAGS] & flag) != 0
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _schema_id(block: Block, _views: bool) -> pa.Array:
    values = pa.py_buffer(np.ascontiguousarray(block.columns[:, at.SCHEMA_ID]))
    return pa.Array.from_buffers(pa.int64(), len(block), [_where(block, at.FLAG_SCHEMA), values])


def _schema_version(block: Block, _views: bool) -> pa.Array:
    values = pa.py_buffer(block.columns[:, at.SCHEMA_VERSION].astype(np.int32))
    return pa.Array.from_buffers(pa.int32(), len(block), [_where(block, at.FLAG_SCHEMA), values])


def _type(block: Block, views: bool) -> pa.Array:
    starts = block.columns[:, at.START] + at.TYPE_AT
    return _ranges(block, starts, block.columns[:, at.TYPE_BYTES], text=True, views=views)


def _name_starts(block: Block) -> Longs:
    columns = block.columns
    return columns[:, at.START] + columns[:, at.TYPE_BYTES] + (at.HEAD_BYTES + at.NAME_LENGTH_AT + 2)


def _producer_name(block: Block, views: bool) -> pa.Array:
    return _ranges(block, _name_starts(block), block.columns[:, at.NAME_BYTES], text=True, views=views)


def _key(block: Block, views: bool) -> pa.Array:
    starts = _name_starts(block) + block.columns[:, at.NAME_BYTES] + 2
    present = _where(block, at.FLAG_KEY)
    return _ranges(block, starts, block.columns[:, at.KEY_BYTES], text=False, views=views, present=present)


def _value(block: Block, views: bool) -> pa.Array:
    starts = block.columns[:, at.PAYLOAD]
    return _ranges(block, starts, block.columns[:, at.END] - at.CHECKSUM_BYTES - starts, text=False, views=views)


def _ranges(block: Block, starts: Any, sizes: Any, *, text: bool, views: bool, present: Any = None) -> pa.Array:
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    if views:
        _check_reach(block, starts, sizes)
        out = np.empty(16 * len(block), dtype=np.uint8)
        block_kernels.views(block.data, starts, sizes, out)
        kind = pa.string_view() if text else pa.binary_view()
        return pa.Array.from_buffers(kind, len(block), [present, pa.py_buffer(out), pa.py_buffer(block.data)])
    ends, gathered = _gathered(block, starts, sizes)
    kind = pa.string() if text else pa.binary()
    return pa.Array.from_buffers(kind, len(block), [present, ends, gathered])


def _check_reach(block: Block, starts: Longs, sizes: Longs) -> None:
    """Raise `PayloadTooLarge` if a range is beyond the reach of Arrow views, whose positions are signed 32-bit
    numbers."""
    if block.data.size <= _BINARY_BYTES_MAX or not len(block):
        return
    farthest = max(int(starts.max()), int(sizes.max()))
    if farthest > _BINARY_BYTES_MAX:
        raise PayloadTooLarge(f"an Arrow view reaches {_BINARY_BYTES_MAX} bytes far, not {farthest}: read less at once")


def _gathered(block: Block, starts: Longs, sizes: Longs) -> tuple[Any, Any]:
    total = int(sizes.sum())
    if total > _BINARY_BYTES_MAX:
        raise PayloadTooLarge(
            f"an Arrow column holds at most {_BINARY_BYTES_MAX} bytes, not {total}: read less at once"
        )
    ends = np.empty(starts.size + 1, dtype=np.int32)
    out = np.empty(total, dtype=np.uint8)
    block_kernels.gather(block.data, starts, sizes, ends, out)
    return pa.py_buffer(ends), pa.py_buffer(out)


def _attributes(block: Block, _views: bool) -> pa.Array:
    counts = block.columns[:, at.ATTRIBUTES]
    ends = np.zeros(len(block) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    ranges = np.empty((int(ends[-1]), 4), dtype=np.int64)
    block_kernels.attribute_ranges(block.data, block.columns, ranges.reshape(-1))
    texts = []
    for column in (0, 2):
        starts, sizes = np.ascontiguousarray(ranges[:, column]), np.ascontiguousarray(ranges[:, column + 1])
        texts.append(pa.Array.from_buffers(pa.string(), len(ranges), [None, *_gathered(block, starts, sizes)]))
    # A buffer, because given an array pyarrow would import pandas, if it is installed, which takes a second.
    counted = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    return pa.MapArray.from_arrays(counted, *texts)


_READERS: Final[dict[str, Callable[[Block, bool], pa.Array]]] = {
    "id": _ids,
    "offset": _fixed(at.OFFSET, pa.int64()),
    "timestamp": _fixed(at.PUBLISH_TIME, _TIMESTAMP),
    "type": _type,
    "key": _key,
    "value": _value,
    "producer_name": _producer_name,
    "producer_id": _fixed(at.PRODUCER_ID, pa.int64()),
    "request_id": _fixed(at.REQUEST_ID, pa.int64()),
    "schema_id": _schema_id,
    "schema_version": _schema_version,
    "attributes": _attributes,
}

COLUMN_NAMES: Final = tuple(_READERS)


def from_arrow(
    batch: pa.RecordBatch,
    *,
    producer_name: str | None = None,
    producer_id: int | None = None,
    first_request_id: int | None = None,
) -> Draft:
    """Return the rows of the batch as a draft; columns are as in `Draft.from_arrow`. The columns `id`, `offset` and
    `timestamp` are ignored, since the log assigns them.

    Raises `InvalidRequest`, or `PayloadTooLarge`, naming the column and the row.
    """
    _check_names(batch.schema.names)
    if not batch.num_rows:
        raise InvalidRequest("a block has at least one message")
    return encode(encoder_columns(_in_place(batch, _given(batch, producer_name, producer_id, first_request_id))))


def _given(batch: pa.RecordBatch, name: str | None, producer_id: int | None, first: int | None) -> dict[str, pa.Array]:
    """Return a column for each value that the caller passed as an argument and not in the batch."""
    rows, columns = batch.num_rows, {}
    if name is not None:
        draft_bytes(Message(payload=b"", producer_name=name))  # the same rules
        columns["producer_name"] = pa.repeat(pa.scalar(name, pa.large_string()), rows)
    if producer_id is not None:
        draft_bytes(Message(payload=b"", producer_id=producer_id))
        columns["producer_id"] = pa.repeat(pa.scalar(producer_id, pa.int64()), rows)
    if first is not None:
        check_request_ids(first, rows)
        columns["request_id"] = pa.array(np.arange(rows) + first if first else np.zeros(rows, np.int64))
    return columns


def _in_place(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return the batch with these columns, in place of its own columns of the same names."""
    if not columns:
        return batch
    own = {name: batch.column(name) for name in batch.schema.names} | columns
    return pa.RecordBatch.from_arrays(list(own.values()), names=list(own))


class EncoderColumns(NamedTuple):
    """The checked columns of a batch, as the encoder takes them; `size` is the number of bytes that the block will
    have."""

    columns: tuple[Any, ...]
    rows: int
    size: int
    attributed: bool


def encode(columns: EncoderColumns) -> Draft:
    """Encode checked columns as a draft."""
    out = np.empty(columns.size, dtype=np.uint8)
    taken = block_kernels.encode(*columns.columns, out, _WITH_CHECKSUMS)
    assert taken == columns.size, "encode wrote another size than was added up"  # noqa: S101 - a bug, not bad input
    if columns.attributed:
        return Draft.parse(out, verify=False)  # an Arrow map may name a key twice
    return Draft(out, columns.rows)


def encoder_columns(batch: pa.RecordBatch) -> EncoderColumns:
    """Check a batch and return its columns for the encoder."""
    rows = batch.num_rows
    value = _variable(batch, "value", pa.large_binary(), limits.SEGMENT_BYTES_CEILING, required=True)
    type_ = _variable(batch, "type", pa.large_string(), limits.TYPE_BYTES_MAX)
    key = _variable(batch, "key", pa.large_binary(), limits.KEY_BYTES_MAX)
    name = _variable(batch, "producer_name", pa.large_string(), limits.PRODUCER_NAME_BYTES_MAX)
    attributes = _attribute_columns(batch)
    numbers = _number_rows(batch)
    spans = [np.diff(ends) for _, ends in (type_, name, key, value)]
    total = rows * at.MESSAGE_RECORD_BYTES_MIN + sum(int(span.sum()) for span in spans) + attributes.bytes
    columns = (numbers, *type_, *name, *key, *value, *attributes.columns)
    return EncoderColumns(columns, rows, total, attributed=attributes.bytes > 0)


def _check_names(names: list[str]) -> None:
    unknown = [name for name in names if name not in _READERS]
    if unknown:
        raise InvalidRequest(f"no column {unknown[0]!r}: choose from {', '.join(_READERS)}", column=unknown[0])
    twice = [name for name in _READERS if names.count(name) > 1]
    if twice:
        raise InvalidRequest(f"column {twice[0]!r} is there {names.count(twice[0])} times", column=twice[0])
    if "value" not in names:
        raise InvalidRequest("a batch needs a column 'value' with the payloads", column="value")


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    try:
        column.validate(full=True)  # validate first: a cast trusts the offsets and indices of the column
        return pc.cast(column, kind)
    except pa.ArrowException as error:
        raise InvalidRequest(f"column {name!r}: {column.type} is not {kind}: {error}", column=name) from None


def _variable(
    batch: pa.RecordBatch, name: str, kind: pa.DataType, bytes_max: int, *, required: bool = False
) -> tuple[Any, Longs]:
    column = _column(batch, name, kind)
    if column is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(batch.num_rows + 1, dtype=np.int64)
    if column.null_count and required:
        row = int(pc.index(pc.is_null(column), value=True).as_py())
        raise InvalidRequest(f"column {name!r}, row {row}: a value is missing", column=name, row=row)
    return _bytes_and_ends(column, name, bytes_max, np.arange(batch.num_rows + 1))


def _bytes_and_ends(column: pa.Array, name: str, bytes_max: int, row_ends: Longs) -> tuple[Any, Longs]:
    """Return the bytes of a large binary or string column, and its n + 1 boundaries; null values are empty.

    Row i of the batch has the values from `row_ends[i]` to `row_ends[i + 1]`. Raises `PayloadTooLarge`, naming the row,
    for a value of more than `bytes_max` bytes.
    """
    filled = column.fill_null("" if pa.types.is_large_string(column.type) else b"") if column.null_count else column
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
    sizes = np.diff(ends)
    if sizes.size and int(sizes.max()) > bytes_max:
        row = _row_of(int(sizes.argmax()), row_ends)
        raise PayloadTooLarge(
            f"column {name!r}, row {row}: at most {bytes_max} bytes, not {int(sizes.max())}", column=name, row=row
        )
    return np.frombuffer(data or b"", dtype=np.uint8), ends


def _row_of(entry: int, row_ends: Longs) -> int:
    return int(np.searchsorted(row_ends, entry, side="right")) - 1


class _Attributes:
    """The attribute columns, as the encoder takes them, and the number of bytes that all attributes take in a block."""

    def __init__(self, ends: Longs, names: tuple[Any, Longs], values: tuple[Any, Longs]) -> None:
        self.columns = (ends, *names, *values)
        name_ends, value_ends = names[1], values[1]
        entry_bytes = np.diff(name_ends) + np.diff(value_ends) + 6
        before = np.concatenate(([0], np.cumsum(entry_bytes)))
        per_row = before[ends[1:]] - before[ends[:-1]]
        self.bytes = int(per_row.sum())
        self._check(np.diff(ends), limits.ATTRIBUTES_MAX, "at most {} attributes, not {}")
        self._check(per_row, limits.ATTRIBUTE_BYTES_MAX, "attributes take at most {} bytes, not {}")

    @staticmethod
    def _check(values: Longs, maximum: int, sentence: str) -> None:
        if values.size and int(values.max()) > maximum:
            row = int(values.argmax())
            what = sentence.format(maximum, int(values[row]))
            raise PayloadTooLarge(f"column 'attributes', row {row}: {what}", column="attributes", row=row)


def _attribute_columns(batch: pa.RecordBatch) -> _Attributes:
    column = _column(batch, "attributes", _ATTRIBUTES)
    if column is None:
        nothing = (np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        return _Attributes(np.zeros(batch.num_rows + 1, dtype=np.int64), nothing, nothing)
    present = column.drop_null()
    boundaries = present.offsets.to_numpy()
    counts = np.zeros(batch.num_rows, dtype=np.int64)
    counts[column.is_valid().to_numpy(zero_copy_only=False)] = np.diff(boundaries)
    ends = np.concatenate(([0], np.cumsum(counts)))
    # The entries of a slice are still those of the whole.
    keys, items = (array.slice(int(boundaries[0]), int(ends[-1])) for array in (present.keys, present.items))
    if items.null_count:
        row = _row_of(int(pc.index(pc.is_null(items), value=True).as_py()), ends)
        raise InvalidRequest(f"column 'attributes', row {row}: an attribute has no value", column="attributes", row=row)
    names = _bytes_and_ends(keys.cast(pa.large_string()), "attributes", limits.ATTRIBUTE_NAME_BYTES_MAX, ends)
    values = _bytes_and_ends(items.cast(pa.large_string()), "attributes", limits.ATTRIBUTE_BYTES_MAX, ends)
    return _Attributes(ends, names, values)


def _number_rows(batch: pa.RecordBatch) -> Longs:
    """Return the number rows of `encode`: producer id, request id, schema id, schema version, flags."""
    numbers = np.zeros((5, batch.num_rows), dtype=np.int64)
    bounds = {"producer_id": NUMBER_MAX, "request_id": NUMBER_MAX, "schema_id": NUMBER_MAX}
    for row, (name, maximum) in enumerate((bounds | {"schema_version": SCHEMA_VERSION_MAX}).items()):
        column = _column(batch, name, pa.int64())
        if column is not None:
            numbers[row] = _numbers(column, name, maximum)
    schema = batch.column("schema_id").is_valid() if "schema_id" in batch.schema.names else None
    if schema is not None:
        numbers[4] |= np.where(schema.to_numpy(zero_copy_only=False), at.FLAG_SCHEMA, 0)
    if "key" in batch.schema.names:
        numbers[4] |= np.where(batch.column("key").is_valid().to_numpy(zero_copy_only=False), at.FLAG_KEY, 0)
    stray = np.flatnonzero((numbers[3] != 0) & (numbers[4] & at.FLAG_SCHEMA == 0))
    if stray.size:
        raise InvalidRequest(f"row {int(stray[0])} has a schema_version without a schema_id", row=int(stray[0]))
    return numbers


def _numbers(column: pa.Array, name: str, maximum: int) -> Longs:
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((values < 0) | (values > maximum))
    if wrong.size:
        row = int(wrong[0])
        raise InvalidRequest(
            f"column {name!r}, row {row}: must be from 0 to {maximum}, not {int(values[row])}", column=name, row=row
        )
    return np.asarray(values, dtype=np.int64)
