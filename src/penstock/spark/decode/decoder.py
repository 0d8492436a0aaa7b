"""The decoder: turns batches of messages into typed columns. A worker makes its own, and uses it for all its
batches."""

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
"""Bytes of payloads that are decoded at once. Decoding takes about ten times as much memory while it runs."""
_DECODERS_MAX: Final = 1000
"""The number of schemas whose payload decoders are kept: more than the versions of any topic. Then all are dropped."""

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
        """Open the registry and prepare decoding into the target's columns.

        `framing` is `confluent` if all payloads begin with the id of their schema, `auto` if some do, None if none do.
        Raises `InvalidRequest` for another word, and errors of the registry.
        """
        if framing not in (None, CONFLUENT, AUTO):
            raise InvalidRequest(f"framing={framing!r}: it is {CONFLUENT!r}, {AUTO!r}, or left out")
        self.target = target
        self.mode = Mode(mode)
        self._schemas: Schemas = registry.open()
        self._framing = framing
        self._unnamed = Unnamed(unnamed)
        self._fields = target.fields
        self._payload_decoders: dict[tuple[int, tuple[int, ...] | None], PayloadDecoder] = {}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode a batch of messages, which needs at least the columns `value`, `schema_id`, `schema_version`, `offset`
        and `id`.

        In the mode `fail`, raises `MalformedMessage` for the first row that does not decode; in other modes such rows
        are in the result. Raises errors of the registry in every mode, since the rows are not at fault.
        """
        assembly = BatchAssembly(self._fields, batch.num_rows)
        payloads = batch.column("value")
        for group in self._groups(payloads, batch.column("schema_id"), assembly):
            self._decode_group(group, payloads, assembly)
        bad = bad_rows(self.target.topic, batch, assembly.faults)
        if bad.num_rows and self.mode is Mode.FAIL:
            raise failure(bad)
        rows, kept = assembly.rows(keep_all=self.mode is Mode.NULL)
        return Decoded(rows, kept, bad, assembly.reasons())

    def _groups(self, payloads: pa.Array, schema_ids: pa.Array, assembly: BatchAssembly) -> Iterator[SchemaGroup]:
        """Yield the rows by schema, without rows that have no payload or whose schema cannot be determined."""
        present = np.asarray(payloads.is_valid())
        assembly.faults |= dict.fromkeys(np.flatnonzero(~present).tolist(), NO_PAYLOAD)
        for group in self._grouped(payloads, schema_ids):
            if isinstance(group, Unreadable):
                assembly.faults.setdefault(group.place, group.reason)
            elif payloads.null_count:
                yield group._replace(places=group.places[present[group.places]])
            else:
                yield group

    def _grouped(self, payloads: pa.Array, schema_ids: pa.Array) -> Iterator[SchemaGroup | Unreadable]:
        if self._framing is None:
            return by_schema(schema_ids)
        return by_prefix(payloads, schema_ids, self._framing, self._has_indexes)

    def _decode_group(self, group: SchemaGroup, payloads: pa.Array, assembly: BatchAssembly) -> None:
        own = payloads if len(group.places) == len(payloads) else payloads.take(pa.array(group.places))
        payload_decoder = self._payload_decoder(group)
        for begin, piece in pieces(own, PIECE_BYTES):
            value = pa.array([each[group.start :] for each in piece.to_pylist()], pa.binary()) if group.start else piece
            found = payload_decoder.decode(value)
            self._add_hints(found.faults, group, piece)
            assembly.add(found, group.places[begin:])

    def _add_hints(self, faults: dict[int, str], group: SchemaGroup, payloads: pa.Array) -> None:
        """Add a hint to payloads that begin with the id of their schema, where no framing was given."""
        if self._framing is not None or group.schema_id is None:
            return
        for place in faults:
            if framed_id(payloads[place].as_py()) == group.schema_id:
                faults[place] += FRAMED

    def _payload_decoder(self, group: SchemaGroup) -> PayloadDecoder:
        schema_id = group.schema_id
        if schema_id is None and self._unnamed is Unnamed.LATEST:
            schema_id = self.target.schema_ids[-1]
        if schema_id is None:
            return RefusingDecoder(NO_SCHEMA)
        key = schema_id, group.indexes
        known = self._payload_decoders.get(key)
        if known is None:
            known = self._new_payload_decoder(*key)
            if len(self._payload_decoders) >= _DECODERS_MAX:
                self._payload_decoders.clear()
            self._payload_decoders[key] = known
        return known

    def _new_payload_decoder(self, schema_id: int, indexes: tuple[int, ...] | None) -> PayloadDecoder:
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
