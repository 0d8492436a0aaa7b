"""The result of reading payloads in any schema language, and a function that reads payloads one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import PenstockError
from penstock.schema.problems import fragment
from penstock.spark.decode.columns.builder import VALUE_ERRORS, error_line
from penstock.spark.decode.columns.shapes import Read, Record


@dataclass(slots=True)
class PayloadRows:
    values: Sequence[Any]
    places: Sequence[int]
    """The row number of each value among the payloads."""
    faults: dict[int, str] = field(default_factory=dict)
    """Faults of the other payloads, by row number."""


Reader = Callable[[pa.Array], PayloadRows]
"""A reader of payloads, none of which is null. A bad payload raises nothing: its fault is in the result."""


class WriterSchema(Protocol):
    """A schema that payloads were written with."""

    @property
    def shape(self) -> Record: ...

    @property
    def text(self) -> Read:
        """A function that turns values of this language, of any type, into JSON text."""
        ...

    def reader(self, target: Record) -> Reader:
        """Return a reader of payloads. It may skip fields that have no column in the target."""
        ...


def one_by_one(payloads: pa.Array, decode: Callable[[bytes], Any]) -> PayloadRows:
    values: list[Any] = []
    places: list[int] = []
    faults: dict[int, str] = {}
    for place, payload in enumerate(payloads.to_pylist()):
        try:
            values.append(decode(payload))
        except (PenstockError, *VALUE_ERRORS) as error:
            faults[place] = describe_fault(error)
        else:
            places.append(place)
    return PayloadRows(values, places, faults)


def describe_fault(error: Exception) -> str:
    """Return the fault as a sentence, with its place in the payload where that is known."""
    if isinstance(error, ValueMismatch):
        return f"at {fragment(error.path)}: {fragment(error.message)}" if error.path else fragment(error.message)
    if isinstance(error, PenstockError):
        return error.message
    return error_line(error)
