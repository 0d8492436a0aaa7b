"""Decoders of payloads: turn payloads of one schema into the target's columns, and report the bad ones with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.serde.schemas import require_schema_extra
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Definition, SchemaKind
from penstock.spark.decode.columns.builder import VALUE_ERRORS, ColumnsBuilder
from penstock.spark.decode.languages.rows import describe_fault
from penstock.spark.decode.languages.writer_schemas import writer_schema
from penstock.spark.decode.target import Target

_PARTS: Final = 16
"""The number of parts that failing rows are cut into, again and again, until the bad ones are found: few attempts for
one bad row, and about one for each row where all are bad."""
_TEXTUAL: Final = (SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.JSON)


@dataclass(slots=True)
class DecodedRows:
    parts: list[tuple[pa.RecordBatch, Sequence[int]]] = field(default_factory=list)
    """Batches of decoded rows, each with the row numbers of its payloads."""
    faults: dict[int, str] = field(default_factory=dict)


class PayloadDecoder(Protocol):
    def decode(self, payloads: pa.Array) -> DecodedRows: ...


class RefusingDecoder:
    """A decoder for a schema that cannot be read, or not into this target: every payload is bad for the same reason."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def decode(self, payloads: pa.Array) -> DecodedRows:
        return DecodedRows(faults=dict.fromkeys(range(len(payloads)), self._fault))


class SchemaDecoder:
    def __init__(self, target: Target, definition: Definition, message: tuple[int, ...] | None) -> None:
        """Prepare decoding of payloads that were written with the schema `definition`.

        `message` chooses the message of a Protobuf schema, by indexes. Raises `InvalidRequest` or `ValueMismatch` if
        the schema cannot be read into the target.
        """
        source = writer_schema(_readable_as(definition, target), message)
        if target.keys.isdisjoint(field.keys[0] for field in source.shape.fields):
            raise ValueMismatch(f"what it was written with has none of the columns of {target.topic}")
        self._read = source.reader(target.shape)
        self._columns = ColumnsBuilder(target.shape, source.shape, source.text)

    def decode(self, payloads: pa.Array) -> DecodedRows:
        rows = self._read(payloads)
        return DecodedRows(list(self._isolate_faults(rows.values, rows.places, rows.faults)), rows.faults)

    def _isolate_faults(
        self, values: Sequence[Any], places: Sequence[int], faults: dict[int, str]
    ) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """Yield all rows as one batch, with their row numbers. If that fails, divide them, and try each part by itself.

        A single row that fails is added to `faults` with its reason.
        """
        if not values:
            return
        try:
            yield self._columns.build(values), places
        except VALUE_ERRORS as error:
            if len(values) == 1:
                faults[places[0]] = describe_fault(error)
                return
            size = -(-len(values) // _PARTS)
            for start in range(0, len(values), size):
                part = slice(start, start + size)
                yield from self._isolate_faults(values[part], places[part], faults)


def payload_decoder_for(
    target: Target, definition: Definition, message: tuple[int, ...] | None = None
) -> PayloadDecoder:
    try:
        with require_schema_extra():
            return SchemaDecoder(target, definition, message)
    except (InvalidRequest, ValueMismatch) as error:
        return RefusingDecoder(describe_fault(error))


def _readable_as(definition: Definition, target: Target) -> Definition:
    """Return the schema to read payloads by. Every payload can be read as bytes; numbers and JSON can be read as text,
    too.

    Raises `ValueMismatch` if the target is of another kind.
    """
    if definition.kind in target.kinds:
        return definition
    if SchemaKind.BYTES in target.kinds:
        return Definition(SchemaKind.BYTES, "")
    if SchemaKind.STRING in target.kinds and definition.kind in _TEXTUAL:
        return Definition(SchemaKind.STRING, "")
    kinds = " or ".join(sorted(target.kinds))
    raise ValueMismatch(f"it was written as {definition.kind}, and is to be read as {kinds}")


def pieces(payloads: pa.Array, bytes_max: int) -> Iterator[tuple[int, pa.Array]]:
    """Yield slices of the payloads of at most `bytes_max` bytes, but at least one row, each with the number of its
    first row.

    Decoding them one by one limits the memory, however large the batch is.
    """
    if payloads.nbytes <= bytes_max:
        yield 0, payloads
        return
    lengths = np.cumsum(np.asarray(pc.binary_length(payloads)))
    start = 0
    while start < len(payloads):
        before = int(lengths[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(lengths, before + bytes_max, side="right")))
        yield start, payloads.slice(start, stop - start)
        start = stop
