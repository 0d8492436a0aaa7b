"""Which rows of a batch were written with which schema: by what the message names, or what its payload begins with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.serde.framing import PREFIX_BYTES, framed_id, read_indexes
from penstock.client.serde.schemas import AUTO, CONFLUENT
from penstock.core.errors import MalformedMessage

NO_SCHEMA: Final = "it names no schema"
NOT_FRAMED: Final = "it does not begin with a zero byte and the id of its schema"

RowNumbers = Any
"""An array of numbers of rows."""


class SchemaGroup(NamedTuple):
    """Rows whose payloads were written with one schema."""

    schema_id: int | None
    """None: they name none."""
    indexes: tuple[int, ...] | None
    """Which of its messages, where the payload says so."""
    start: int
    """Where the value begins in each payload."""
    places: RowNumbers


class Unreadable(NamedTuple):
    """A row of which it cannot be told."""

    place: int
    reason: str


def by_schema(schema_ids: pa.Array) -> Iterator[SchemaGroup]:
    """By what messages name. Zero is what a message has that names none."""
    ids = np.asarray(pc.fill_null(schema_ids, 0))
    found = np.unique(ids)
    for schema_id in found.tolist():
        places = np.arange(len(ids)) if len(found) == 1 else np.flatnonzero(ids == schema_id)
        yield SchemaGroup(schema_id or None, None, 0, places)


def by_prefix(
    payloads: pa.Array, schema_ids: pa.Array, framing: str, has_indexes: Callable[[int], bool]
) -> Iterator[SchemaGroup | Unreadable]:
    """By what payloads begin with, as clients of other registries write it.

    With `auto` only those that do are taken so, unless they name another schema besides. `has_indexes`: whether a
    schema is such that the message is named too.
    """
    found: dict[tuple[int | None, tuple[int, ...] | None, int], list[int]] = defaultdict(list)
    named = pc.fill_null(schema_ids, 0).to_pylist()
    for place, (payload, stamped) in enumerate(zip(payloads.to_pylist(), named, strict=True)):
        try:
            found[_key(payload or b"", stamped or None, framing, has_indexes)].append(place)
        except MalformedMessage as error:
            yield Unreadable(place, error.message)
    for key, places in found.items():
        yield SchemaGroup(*key, np.asarray(places))


def _key(
    payload: bytes, stamped: int | None, framing: str, has_indexes: Callable[[int], bool]
) -> tuple[int | None, tuple[int, ...] | None, int]:
    framed = framed_id(payload)
    if framed is None and framing == CONFLUENT:
        raise MalformedMessage(NOT_FRAMED)
    if framed is None or (framing == AUTO and stamped not in (None, framed)):
        return stamped, None, 0
    if not has_indexes(framed):
        return framed, None, PREFIX_BYTES
    return framed, *read_indexes(payload, PREFIX_BYTES)
