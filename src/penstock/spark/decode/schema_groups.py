"""Groups of rows by the schema they were written with: named by the message, or by the prefix of its payload."""

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
"""An array of row numbers."""


class SchemaGroup(NamedTuple):
    """Rows whose payloads were written with one schema."""

    schema_id: int | None
    """The id of the schema; None if the rows name none."""
    indexes: tuple[int, ...] | None
    """The message within a Protobuf schema, as a path of indexes; None if the payloads do not name it."""
    start: int
    """The number of bytes before the value in each payload: the length of its prefix."""
    places: RowNumbers


class Unreadable(NamedTuple):
    """A row whose writer schema cannot be determined."""

    place: int
    reason: str


def by_schema(schema_ids: pa.Array) -> Iterator[SchemaGroup]:
    """Yield groups by the schema ids of the messages. Zero stands for no schema."""
    ids = np.asarray(pc.fill_null(schema_ids, 0))
    found = np.unique(ids)
    for schema_id in found.tolist():
        places = np.arange(len(ids)) if len(found) == 1 else np.flatnonzero(ids == schema_id)
        yield SchemaGroup(schema_id or None, None, 0, places)


def by_prefix(
    payloads: pa.Array, schema_ids: pa.Array, framing: str, has_indexes: Callable[[int], bool]
) -> Iterator[SchemaGroup | Unreadable]:
    """Yield groups by the schema id that payloads begin with, as clients of other registries write it.

    With the framing `confluent`, a payload without a prefix is `Unreadable`. With `auto`, it has the schema that its
    message names; so has a payload whose prefix differs from that. `has_indexes` returns whether a schema is of
    Protobuf, whose payloads name the message behind the id.
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
