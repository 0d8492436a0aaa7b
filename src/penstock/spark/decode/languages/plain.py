"""Payloads of the kinds that need no schema text: text, numbers and bytes. They have a single column."""

from __future__ import annotations

from typing import Any, Final

from penstock.client.serde.codecs import PlainCodec
from penstock.core.schemas import SchemaKind
from penstock.spark.decode.columns import leaves
from penstock.spark.decode.columns.json_texts import texts
from penstock.spark.decode.columns.shapes import Read, Record, root_record
from penstock.spark.decode.languages.rows import PayloadRows, Reader, one_by_one

_LEAVES: Final = {SchemaKind.STRING: leaves.STRING, SchemaKind.NUMBER: leaves.DOUBLE, SchemaKind.BYTES: leaves.BINARY}


class PlainWriterSchema:
    text: Read = staticmethod(texts)

    def __init__(self, kind: SchemaKind) -> None:
        self.shape = root_record(_LEAVES[kind])
        self._kind = kind
        self._decode = PlainCodec(kind).decode

    def reader(self, target: Record) -> Reader:  # noqa: ARG002 - there is but one column
        if self._kind is SchemaKind.BYTES:
            return lambda payloads: PayloadRows(payloads.to_pylist(), range(len(payloads)))
        return lambda payloads: one_by_one(payloads, self._value)

    def _value(self, payload: bytes) -> Any:
        value = self._decode(payload)
        return float(value) if self._kind is SchemaKind.NUMBER else value
