"""The check of payloads against the schemas they name. Each payload is validated as the broker does it, and decoded as
the archive does it.

Messages of one schema are checked together. The validation runs in the process that reads the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.schemas import Definition, SchemaKind
from penstock.record import layout as at
from penstock.record.block import Block, Longs
from penstock.schema.language import PayloadFault
from penstock.schema.languages import SchemaLanguages
from penstock.schema.worker.process import FramedPayloadValidator, chunk_stop, start_of
from penstock.schema.worker.protocol import ValidationJob
from penstock.spark.decode.decoder import Decoder
from penstock.spark.decode.options import Mode
from penstock.spark.decode.target import target_of
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.jobs.audit.partition_summary import SAMPLES_MAX, Nonconforming, Sample

_COLUMNS: Final = ("value", "schema_id", "schema_version", "offset", "id")
_SCHEMAS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class SchemaChecks:
    """The validator and the decoder of one schema."""

    judge: FramedPayloadValidator | None
    """Validator of payloads; None for a schema to which every payload conforms."""
    decoder: Decoder | None
    """Decoder of payloads into columns; None if the schema cannot be turned into columns."""


class Conformance:
    """The check of one topic's payloads, made in a worker. A call with a block returns its nonconforming payloads."""

    def __init__(self, registry: RegistryLocation, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self._languages = SchemaLanguages()
        self._checks: dict[int, SchemaChecks | str] = {}

    def __call__(self, block: Block) -> Sample[Nonconforming]:
        named = np.flatnonzero(block.columns[:, at.FLAGS] & at.FLAG_SCHEMA)
        sample: Sample[Nonconforming] = Sample()
        for schema_id in np.unique(block.columns[named, at.SCHEMA_ID]).tolist():
            sample += self._judge(block, named[block.columns[named, at.SCHEMA_ID] == schema_id], schema_id)
        return sample

    def _judge(self, block: Block, rows_of_schema: Longs, schema_id: int) -> Sample[Nonconforming]:
        checks = self._checks_of(schema_id)
        chosen = block if len(rows_of_schema) == len(block) else block.gather(rows_of_schema)
        if isinstance(checks, str):
            reasons = dict.fromkeys(range(len(chosen)), checks)
        else:
            reasons = undecodable(checks.decoder, chosen) | faults(checks.judge, chosen)
        rows = sorted(reasons)[:SAMPLES_MAX]
        places_of = chosen.columns[rows][:, [at.OFFSET, at.SCHEMA_VERSION]].tolist()
        samples = (
            Nonconforming(offset, schema_id, version, reasons[row])
            for row, (offset, version) in zip(rows, places_of, strict=True)
        )
        return Sample(tuple(samples), len(reasons))

    def _checks_of(self, schema_id: int) -> SchemaChecks | str:
        """Return the checks of a schema. If the schema is unknown or invalid, return the error message instead."""
        if schema_id not in self._checks:
            if len(self._checks) >= _SCHEMAS_MAX:
                self._checks.clear()
            try:
                definition = self._registry.open().schema(schema_id)
                self._checks[schema_id] = SchemaChecks(
                    self._payload_judge(definition, schema_id), self._decoder(schema_id)
                )
            except PenstockError as error:
                self._checks[schema_id] = error.message
        return self._checks[schema_id]

    def _payload_judge(self, definition: Definition, schema_id: int) -> FramedPayloadValidator | None:
        if definition.kind is SchemaKind.BYTES:
            return None
        job = ValidationJob(definition, first=0, stop=0, count=0, size=0, newlines=False, schema_id=schema_id)
        return FramedPayloadValidator(self._languages.validator(definition), job)

    def _decoder(self, schema_id: int) -> Decoder | None:
        try:
            return Decoder(target_of(self._registry.open(), self._topic, [schema_id]), self._registry, Mode.QUARANTINE)
        except (InvalidRequest, ValueMismatch):
            return None


def undecodable(decoder: Decoder | None, block: Block) -> dict[int, str]:
    """Return the reason for each record whose payload cannot be decoded, by row number in the block. Empty without a
    decoder."""
    if decoder is None:
        return {}
    reasons = decoder.decode(block.to_arrow(_COLUMNS, views=False)).reasons
    if reasons.null_count == len(reasons):
        return {}
    rows = np.flatnonzero(reasons.is_valid().to_numpy(zero_copy_only=False))
    return dict(zip(rows.tolist(), reasons.take(pa.array(rows)).to_pylist(), strict=True))


def faults(judge: FramedPayloadValidator | None, block: Block) -> dict[int, str]:
    """Return the fault of each record whose payload does not conform to the schema, by row number in the block.

    Many payloads are checked at a time; if that check does not accept all of them, each is checked by itself.
    """
    if judge is None:
        return {}
    out = np.empty(int(block.payload_sizes.sum()) + len(block), dtype=np.uint8)
    ends = np.empty(len(block), dtype=np.int64)
    newlines = block.write_lines(out, ends)
    lines, line_ends = out.data, ends.data
    reasons: dict[int, str] = {}
    row = 0
    while row < len(block):
        stop = chunk_stop(line_ends, row, len(block))
        piece = lines[start_of(line_ends, row) : line_ends[stop - 1]]
        if newlines or not _accepts(judge, piece, stop - row):
            reasons |= _check_one_by_one(judge, block, range(row, stop))
        row = stop
    return reasons


def _accepts(judge: FramedPayloadValidator, lines: memoryview, count: int) -> bool:
    try:
        return judge.validator.accepts_lines(lines, count)
    except (RecursionError, MemoryError):
        return False


def _check_one_by_one(judge: FramedPayloadValidator, block: Block, rows: range) -> dict[int, str]:
    faults_found = ((row, _fault(judge, bytes(block.payload(row)))) for row in rows)
    return {row: _sentence(fault) for row, fault in faults_found if fault is not None}


def _fault(judge: FramedPayloadValidator, payload: bytes) -> PayloadFault | None:
    try:
        return judge.fault(payload)
    except (RecursionError, MemoryError):
        return PayloadFault("", "it cannot be examined: it takes too much memory or is nested too deeply")


def _sentence(fault: PayloadFault) -> str:
    return f"{fault.path}: {fault.message}" if fault.path else fault.message
