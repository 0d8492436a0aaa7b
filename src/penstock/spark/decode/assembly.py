"""Assembly of a decoded batch: rows of all schema groups in the batch's order, and bad rows with their reasons."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import MalformedMessage
from penstock.spark.decode.payload_decoders import DecodedRows

BAD: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("id", pa.binary()),
        ("schema_id", pa.int64()),
        ("schema_version", pa.int32()),
        ("reason", pa.string()),
        ("value", pa.binary()),
    ]
)
"""Columns of rows that did not decode."""
_NONE_BAD: Final = pa.RecordBatch.from_struct_array(pa.nulls(0, pa.struct(list(BAD))))
"""An empty batch, not made of a Python list: for that, pyarrow imports pandas, where there is one."""

RowNumbers = Any
"""An array of row numbers."""


class BatchAssembly:
    """The decoded rows and the faults of one batch."""

    def __init__(self, fields: pa.Schema, size: int) -> None:
        self.faults: dict[int, str] = {}
        self._fields = fields
        self._size = size
        self._batches: list[pa.RecordBatch] = []
        self._places: list[RowNumbers] = []

    def add(self, made: DecodedRows, places: RowNumbers) -> None:
        """Add decoded rows; `places` are the row numbers of the payloads they were decoded from."""
        for batch, part in made.parts:
            self._batches.append(batch)
            self._places.append(places[part.start : part.stop] if isinstance(part, range) else places[list(part)])
        self.faults |= {int(places[place]): reason for place, reason in made.faults.items()}

    def rows(self, *, keep_all: bool) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the decoded rows in the order of the batch, and the row number in the batch of each.

        With `keep_all` every row of the batch is there; rows that did not decode have nulls.
        """
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        rows = self._concatenated()
        if keep_all and len(places) < self._size:
            found = np.full(self._size, -1)
            found[places] = np.arange(len(places))
            return rows.take(pa.array(found, mask=found < 0)), pa.array(np.arange(self._size))
        order = np.argsort(places, kind="stable")
        if np.any(np.diff(places) < 0):
            rows = rows.take(pa.array(order))
        return rows, pa.array(places[order])

    def _concatenated(self) -> pa.RecordBatch:
        if len(self._batches) == 1:
            return self._batches[0]
        if self._batches:
            return pa.concat_batches(self._batches)
        return pa.RecordBatch.from_pylist([], schema=self._fields)

    def reasons(self) -> pa.Array:
        if not self.faults:
            return pa.nulls(self._size, pa.string())
        return pa.array([self.faults.get(place) for place in range(self._size)], pa.string())


def bad_rows(topic: str, batch: pa.RecordBatch, faults: dict[int, str]) -> pa.RecordBatch:
    """Return the rows that did not decode, with the columns of `BAD`. `faults` has the reason by row number.

    Columns that the batch lacks are null, except that `topic` stands for a missing column of that name.
    """
    if not faults:
        return _NONE_BAD
    places = sorted(faults)
    own = batch.take(pa.array(places, pa.int64()))
    reasons = pa.array([faults[place] for place in places], pa.string())
    given = {name: own.column(name) for name in batch.schema.names} | {"reason": reasons}
    given.setdefault("topic", pa.array([topic] * len(places), pa.string()))
    columns = [
        given[each.name].cast(each.type) if each.name in given else pa.nulls(len(places), each.type) for each in BAD
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BAD)


def failure(bad: pa.RecordBatch) -> MalformedMessage:
    """Return the error for bad rows; its text describes the first of them."""
    first = {name: bad.column(name)[0].as_py() for name in BAD.names if name not in ("value", "id")}
    by = "" if first["schema_id"] is None else f" by schema {first['schema_id']}"
    where = f"{first['topic']} {'' if first['partition'] is None else first['partition']}:{first['offset']}"
    more = f" ({bad.num_rows - 1} more in the same batch)" if bad.num_rows > 1 else ""
    return MalformedMessage(
        f"{where} cannot be read{by}: {first['reason']}{more}; mode='quarantine' puts such messages aside,"
        " mode='null' reads them as nulls",
        **first,
    )
