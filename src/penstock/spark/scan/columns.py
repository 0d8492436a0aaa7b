"""The columns of a topic as a DataFrame: their names and types, and how they are made from a block of records.

The Arrow types are exactly those that Spark accepts from a Python worker. Spark is not imported here, and no file is
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidRequest, PayloadTooLarge
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.record.kernels import column_kernels as kernels
from penstock.spark.scan.memory import allocate

_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "id": pa.binary(),
    "type": pa.string(),
    "producer_name": pa.string(),
    "producer_id": pa.int64(),
    "request_id": pa.int64(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "schema_id": pa.int64(),
    "schema_version": pa.int32(),
}
NULLABLE: Final = frozenset({"key", "schema_id", "schema_version"})
"""Columns that a message may lack; every other column has a value in every row.

Spark is told which are never null: it then skips the null check of each value, a sixth of what a row costs it.
"""
COLUMNS: Final[pa.Schema] = pa.schema([pa.field(name, kind, name in NULLABLE) for name, kind in _TYPES.items()])
NAMES: Final[tuple[str, ...]] = tuple(COLUMNS.names)
ATTRIBUTES: Final = "attributes"
"""The one column that is made only on request: it takes as long as all others together."""
DEFAULT_NAMES: Final = tuple(name for name in NAMES if name != ATTRIBUTES)
SLICE_COLUMNS: Final[pa.Schema] = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""Columns of `rows = slices`, which gives slices instead of records."""


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order. Raises `InvalidRequest` for an unknown name."""
    if not names:
        raise InvalidRequest(f"no columns are asked for: choose from {', '.join(NAMES)}", allowed=list(NAMES))
    for place, name in enumerate(names):
        if name not in NAMES:
            raise InvalidRequest(f"no column {name!r}: choose from {', '.join(NAMES)}", column=name)
        if name in names[:place]:
            raise InvalidRequest(f"column {name!r} is asked for twice", column=name)
    return pa.schema([COLUMNS.field(name) for name in names])


class BatchBuilder:
    """A builder of Arrow batches with the chosen columns, from the records of one partition.

    The columns `topic` and `partition` are made once and used again. A batch holds copies: it stays valid when the
    records' buffer is reused. `rows_max` is the expected number of rows; a larger block is no error.
    """

    def __init__(self, names: Sequence[str], topic: str, partition: int, *, rows_max: int) -> None:
        self.schema = schema_of(names)
        self._rows_max = rows_max
        self._values: dict[str, str | int] = {"topic": topic, "partition": partition}
        self._constants: dict[str, pa.Array] = {}
        self._needed = sum({bits for name, (bits, _) in _FILLED.items() if name in names})

    def batch(self, block: Block) -> pa.RecordBatch:
        columns = _Columns(block, self._needed)
        arrays = [self._array(name, columns, block) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, columns: _Columns, block: Block) -> pa.Array:
        if name in _FILLED:
            return _FILLED[name][1](columns)
        return self._constant(name, len(block)) if name in self._values else block.to_arrow([name]).column(0)

    def _constant(self, name: str, rows: int) -> pa.Array:
        made = self._constants.get(name)
        if made is None or len(made) < rows:
            made = pa.repeat(_scalar(self._values[name]), max(rows, self._rows_max))
            self._constants[name] = made
        return made.slice(0, rows)


def _scalar(value: str | int) -> pa.Scalar:
    """Return a topic's name or a partition's number as an Arrow scalar, made of buffers.

    From a Python value pyarrow would make the same, but first import pandas, where there is one: a second in every
    worker.
    """
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.array([value], np.int32))])[0]
    text = value.encode()
    ends = pa.py_buffer(np.array([0, len(text)], np.int32))
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(text)])[0]


class _Columns:
    """The chosen columns of a block, in memory that a kernel has filled."""

    def __init__(self, block: Block, needed: int) -> None:
        self.rows = rows = len(block)
        self._numbers = allocate(kernels.NUMBERS, rows if needed & _ANY_NUMBER else 0, kind=np.int64)
        self._versions = allocate(rows if needed & kernels.SCHEMA else 0, kind=np.int32)
        self._ids = allocate(rows * at.ID_BYTES if needed & kernels.ID else 0)
        self._present = allocate(2, (rows + 7) // 8)
        self._ends = allocate(kernels.TEXTS, rows + 1, kind=np.int32)
        sizes = _text_sizes(block, needed)
        self._texts = [allocate(size if needed & bits else 0) for bits, size in zip(_TEXT_BITS, sizes, strict=True)]
        numbers = self._numbers, self._versions, self._ids
        found = kernels.fill(block.data, block.columns, needed, *numbers, self._present, self._ends, *self._texts)
        self._counts: tuple[int, int] = found

    def _null_bitmap(self, which: int) -> Any:
        """Return Arrow's validity bitmap, with a bit set for each row that has a value; None if all rows have one."""
        return None if self._counts[which] == self.rows else pa.py_buffer(self._present[which])

    def number(self, name: str, which: int) -> pa.Array:
        present = self._null_bitmap(kernels.WITH_SCHEMA) if which == kernels.SCHEMA_IDS else None
        buffers = [present, pa.py_buffer(self._numbers[which])]
        return pa.Array.from_buffers(COLUMNS.field(name).type, self.rows, buffers)

    def version(self) -> pa.Array:
        buffers = [self._null_bitmap(kernels.WITH_SCHEMA), pa.py_buffer(self._versions)]
        return pa.Array.from_buffers(pa.int32(), self.rows, buffers)

    def id(self) -> pa.Array:
        ends = np.arange(0, (self.rows + 1) * at.ID_BYTES, at.ID_BYTES, dtype=np.int32)
        return pa.Array.from_buffers(pa.binary(), self.rows, [None, pa.py_buffer(ends), pa.py_buffer(self._ids)])

    def text(self, name: str, which: int) -> pa.Array:
        present = self._null_bitmap(kernels.WITH_KEY) if which == kernels.KEYS else None
        buffers = [present, pa.py_buffer(self._ends[which]), pa.py_buffer(self._texts[which])]
        return pa.Array.from_buffers(COLUMNS.field(name).type, self.rows, buffers)


def _text_sizes(block: Block, needed: int) -> Sequence[int]:
    """Return the size of each text column in bytes. Raises `PayloadTooLarge` if one exceeds the 2 GiB that Arrow's
    offsets of 32 bits reach."""
    if not needed & _ANY_TEXT:
        return (0,) * kernels.TEXTS
    sizes: tuple[int, ...] = kernels.text_bytes(block.columns)
    if max(sizes) > _REACH:
        raise PayloadTooLarge(
            f"an Arrow column holds at most {_REACH} bytes, not {max(sizes)}: read fewer rows at once"
        )
    return sizes


_REACH: Final = 2**31 - 1
_TEXT_BITS: Final = (kernels.TYPE, kernels.NAME, kernels.KEY, kernels.VALUE)
_ANY_TEXT: Final = sum(_TEXT_BITS)
_ANY_NUMBER: Final = kernels.OFFSET | kernels.TIME | kernels.PRODUCER_ID | kernels.REQUEST_ID | kernels.SCHEMA

_FILLED: Final[dict[str, tuple[int, Callable[[_Columns], pa.Array]]]] = {
    "offset": (kernels.OFFSET, lambda columns: columns.number("offset", kernels.OFFSETS)),
    "timestamp": (kernels.TIME, lambda columns: columns.number("timestamp", kernels.TIMES)),
    "producer_id": (kernels.PRODUCER_ID, lambda columns: columns.number("producer_id", kernels.PRODUCER_IDS)),
    "request_id": (kernels.REQUEST_ID, lambda columns: columns.number("request_id", kernels.REQUEST_IDS)),
    "schema_id": (kernels.SCHEMA, lambda columns: columns.number("schema_id", kernels.SCHEMA_IDS)),
    "schema_version": (kernels.SCHEMA, _Columns.version),
    "id": (kernels.ID, _Columns.id),
    "type": (kernels.TYPE, lambda columns: columns.text("type", kernels.TYPES)),
    "producer_name": (kernels.NAME, lambda columns: columns.text("producer_name", kernels.NAMES)),
    "key": (kernels.KEY, lambda columns: columns.text("key", kernels.KEYS)),
    "value": (kernels.VALUE, lambda columns: columns.text("value", kernels.VALUES)),
}
