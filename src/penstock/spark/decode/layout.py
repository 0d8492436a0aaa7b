"""The columns of decoded messages: the message's own without `value`, and the payload's in its place.

A payload field that has the name of a message's column is called `value_` and its name: `value_id`, `value_type`. With
mode `null` there is `_error` at the end, the reason why a payload did not decode. Spark is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.spark.decode.decoder import Decoded
from penstock.spark.decode.options import Mode
from penstock.spark.decode.target import Target
from penstock.spark.scan.columns import NAMES

VALUE = "value"
ERROR = "_error"
NEEDED = ("value", "schema_id")
IDENTIFYING = ("topic", "partition", "offset", "id", "schema_version")
"""Columns that tell which message a bad row is. They are read with the others where the messages have them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns, their order, and the source of each. It pickles."""

    target: Target
    schema: pa.Schema
    sources: tuple[tuple[str, str], ...]
    """The origin of each column, `message`, `payload` or `error`, and its name there."""

    @classmethod
    def of(cls, target: Target, kept: pa.Schema, mode: Mode) -> Layout:
        """Return the layout with all columns. `kept` are the columns of the messages themselves."""
        fields = [(each, ("message", each.name)) for each in kept if each.name != VALUE]
        fields += _payload_fields(target, kept)
        if mode is Mode.NULL:
            fields.append((pa.field(ERROR, pa.string()), ("error", ERROR)))
        return cls(target, pa.schema([each for each, _ in fields]), tuple(source for _, source in fields))

    def only(self, asked: pa.Schema) -> Layout:
        """Return the layout with these columns in this order. Raises `InvalidRequest` for one that is missing or of
        another type.

        Payload fields of other columns are not decoded, so a fault in them makes no row bad. One field is always
        decoded, also if none is asked for.
        """
        places = [self._column_index(each) for each in asked]
        sources = tuple(self.sources[place] for place in places)
        names = {name for origin, name in sources if origin == "payload"} or {self.target.fields.names[0]}
        return Layout(self.target.only(names), asked, sources)

    def _column_index(self, asked: pa.Field) -> int:
        place: int = self.schema.get_field_index(asked.name)
        if place < 0:
            raise InvalidRequest(
                f"decoded messages have no column {asked.name!r}: choose from {', '.join(self.schema.names)}",
                column=asked.name,
            )
        if self.schema.field(place).type != asked.type:
            raise InvalidRequest(
                f"column {asked.name!r} is asked for as {asked.type}, and it is {self.schema.field(place).type}",
                column=asked.name,
            )
        return place

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that have to be read of each message: those kept, those needed for decoding, and those that
        identify a bad row."""
        own = (name for origin, name in self.sources if origin == "message")
        return tuple(dict.fromkeys((*own, *NEEDED, *IDENTIFYING)))

    def rows(self, batch: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
        kept = None if len(decoded.kept) == batch.num_rows else decoded.kept
        columns = {
            "message": lambda name: batch.column(name) if kept is None else batch.column(name).take(kept),
            "payload": decoded.rows.column,
            "error": lambda _: decoded.reasons,
        }
        arrays = [columns[origin](name) for origin, name in self.sources]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _payload_fields(target: Target, kept: pa.Schema) -> Iterator[tuple[pa.Field, tuple[str, str]]]:
    taken = {name.casefold() for name in (*NAMES, *kept.names, ERROR)} - {VALUE}
    for field in target.fields:
        name = _free_name(field.name, taken)
        taken.add(name.casefold())
        yield field.with_name(name), ("payload", field.name)


def _free_name(name: str, taken: set[str]) -> str:
    while name.casefold() in taken:
        name = f"{VALUE}_{name}"
    return name


def check_columns(names: Sequence[str]) -> None:
    """Raise `InvalidRequest` if the columns lack `value` or `schema_id`, without which messages cannot be decoded."""
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise InvalidRequest(
            f"to decode, {' and '.join(missing)} must be among the columns, which are {', '.join(names)}",
            missing=missing,
        )
