"""The decoder: batches of messages as typed columns. Made in the worker that uses it, and kept for as long as it
works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.client.serde.framing import framed_id
from penstock.client.serde.schemas import AUTO, CONFLUENT
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import SchemaKind
from penstock.spark.decode.assembly import BatchAssembly, bad_rows, failure
from penstock.spark.decode.languages.writer_schemas import Registry, Schemas
from penstock.spark.decode.options import Mode, Unnamed
from penstock.spark.decode.payload_decoders import PayloadDecoder, RefusingDecoder, payload_decoder_for, pieces
from penstock.spark.decode.schema_groups import NO_SCHEMA, SchemaGroup, Unreadable, by_prefix, by_schema
from penstock.spark.decode.target import Target

PIECE_BYTES: Final = 8 << 20
"""Bytes of payloads that are decoded at once; decoding takes some ten times as much meanwhile."""
_PLANS_MAX: Final = 1000
"""Schemas whose payload decoders are kept: more than the versions of any topic."""

NO_PAYLOAD: Final = "it has no payload"
FRAMED: Final = "; it begins with the id of its schema: decode it with framing='confluent'"


@dataclass(frozen=True, slots=True)
class Decoded:
    rows: pa.RecordBatch
    """Rows in the target's columns, in the order of the batch."""
    kept: pa.Array
    """Row numbers of these rows in the batch: all, unless bad ones are left out."""
    bad: pa.RecordBatch
    """Rows that did not decode, each with its reason; see `BAD`."""
    reasons: pa.Array
    """The reason why a row did not decode, for each row of the batch; null if it did."""


class Decoder:
    def __init__(
        self,
        target: Target,
        registry: Registry,
        mode: Mode = Mode.FAIL,
        *,
        framing: str | None = None,
        unnamed: Unnamed = Unnamed.BAD,
    ) -> None:
        """Prepare decoding; `framing`: `confluent` if payloads begin with the id of their schema, `auto` if some do."""
        if framing not in (None, CONFLUENT, AUTO):
            raise InvalidRequest(f"framing={framing!r}: it is {CONFLUENT!r}, {AUTO!r}, or left out")
        self.target = target
        self.mode = Mode(mode)
        self._schemas: Schemas = registry.open()
        self._framing = framing
        self._unnamed = Unnamed(unnamed)
        self._fields = target.fields
        self._plans: dict[tuple[int, tuple[int, ...] | None], PayloadDecoder] = {}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode a batch that has `value`, `schema_id`, `schema_version`, `offset` and `id` at least.

        Raises `MalformedMessage` for the first bad row if the mode is `fail`, and errors of the registry: these are no
        fault of the rows.
        """
        made = BatchAssembly(self._fields, batch.num_rows)
        payloads = batch.column("value")
        for group in self._groups(payloads, batch.column("schema_id"), made):
            self._decode_group(group, payloads, made)
        bad = bad_rows(self.target.topic, batch, made.faults)
        if bad.num_rows and self.mode is Mode.FAIL:
            raise failure(bad)
        rows, kept = made.rows(keep_all=self.mode is Mode.NULL)
        return Decoded(rows, kept, bad, made.reasons())

    def _groups(self, payloads: pa.Array, schema_ids: pa.Array, made: BatchAssembly) -> Iterator[SchemaGroup]:
        """Yield the rows by schema, without rows that have no payload or whose schema cannot be determined."""
        present = np.asarray(payloads.is_valid())
        made.faults |= dict.fromkeys(np.flatnonzero(~present).tolist(), NO_PAYLOAD)
        for each in self._found(payloads, schema_ids):
            if isinstance(each, Unreadable):
                made.faults.setdefault(each.place, each.reason)
            else:
                yield each._replace(places=each.places[present[each.places]]) if payloads.null_count else each

    def _found(self, payloads: pa.Array, schema_ids: pa.Array) -> Iterator[SchemaGroup | Unreadable]:
        if self._framing is None:
            return by_schema(schema_ids)
        return by_prefix(payloads, schema_ids, self._framing, self._has_indexes)

    def _decode_group(self, group: SchemaGroup, payloads: pa.Array, made: BatchAssembly) -> None:
        own = payloads if len(group.places) == len(payloads) else payloads.take(pa.array(group.places))
        plan = self._plan(group)
        for begin, piece in pieces(own, PIECE_BYTES):
            value = pa.array([each[group.start :] for each in piece.to_pylist()], pa.binary()) if group.start else piece
            found = plan.make(value)
            self._add_hints(found.faults, group, piece)
            made.add(found, group.places[begin:])

    def _add_hints(self, faults: dict[int, str], group: SchemaGroup, payloads: pa.Array) -> None:
        """Add a hint to payloads that begin with the id of their schema, where no framing was given."""
        if self._framing is not None or group.schema_id is None:
            return
        for place in faults:
            if framed_id(payloads[place].as_py()) == group.schema_id:
                faults[place] += FRAMED

    def _plan(self, group: SchemaGroup) -> PayloadDecoder:
        schema_id = group.schema_id
        if schema_id is None and self._unnamed is Unnamed.LATEST:
            schema_id = self.target.schema_ids[-1]
        if schema_id is None:
            return RefusingDecoder(NO_SCHEMA)
        key = schema_id, group.indexes
        known = self._plans.get(key)
        if known is None:
            known = self._new_plan(*key)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = known
        return known

    def _new_plan(self, schema_id: int, indexes: tuple[int, ...] | None) -> PayloadDecoder:
        try:
            definition = self._schemas.schema(schema_id)
        except InvalidRequest as error:
            if "schema_id" not in error.details:
                raise
            return RefusingDecoder(error.message)
        return payload_decoder_for(self.target, definition, indexes)

    def _has_indexes(self, schema_id: int) -> bool:
        try:
            return self._schemas.schema(schema_id).kind is SchemaKind.PROTOBUF
        except InvalidRequest as error:
            if "schema_id" not in error.details:
                raise
            return False
