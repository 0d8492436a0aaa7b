"""Payloads as rows of values: what a language's module gives, and how each payload is read by itself."""

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
    """Of each among the payloads."""
    faults: dict[int, str] = field(default_factory=dict)
    """What is wrong with the others, by their places."""


Reader = Callable[[pa.Array], PayloadRows]
"""Of payloads, none of which is null. Whatever they are, it ends in an answer."""


class WriterSchema(Protocol):
    """A schema that payloads were written with."""

    @property
    def shape(self) -> Record: ...

    @property
    def text(self) -> Read:
        """Any of its values as JSON."""
        ...

    def reader(self, target: Record) -> Reader:
        """What the target has no column for need not be read."""
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
    """A sentence, with the place in the payload where it is known."""
    if isinstance(error, ValueMismatch):
        return f"at {fragment(error.path)}: {fragment(error.message)}" if error.path else fragment(error.message)
    if isinstance(error, PenstockError):
        return error.message
    return error_line(error)
