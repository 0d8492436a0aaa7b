"""A cache of encoded schemas by their id."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from penstock.core.limits import MIB
from penstock.schema.registry.models import LookupFilter
from penstock.schema.registry.registry import Registry
from penstock.storage.catalog.schema_rows import StoredSchema

CACHED_BYTES_MAX: Final = 16 * MIB
"""The most bytes in the cache: thousands of ordinary schemas, or a dozen of the largest."""


class SchemaAnswerCache:
    """The encoded answers of the schemas that were requested lately."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, tuple[StoredSchema, bytes]] = OrderedDict()
        self._size = 0
        self._max_id = (-1, 0)

    def get(self, schema_id: int, stored: StoredSchema) -> bytes | None:
        """Return the encoded answer for the schema `stored`; None if it is not cached, or if the cached one belongs to
        another schema that had this id before."""
        cached = self._answers.get(schema_id)
        if cached is None or cached[0] is not stored:
            return None
        self._answers.move_to_end(schema_id)
        return cached[1]

    def put(self, schema_id: int, stored: StoredSchema, body: bytes) -> None:
        self._drop(schema_id)
        self._answers[schema_id] = stored, body
        self._size += len(body)
        while self._size > CACHED_BYTES_MAX:
            self._drop(next(iter(self._answers)))

    def _drop(self, schema_id: int) -> None:
        _, body = self._answers.pop(schema_id, (None, b""))
        self._size -= len(body)

    def max_id(self, registry: Registry) -> int:
        """Return the highest schema id, deleted ones included; 0 if there are none. It is computed once for each
        revision of the registry."""
        if self._max_id[0] != registry.revision:
            ids = (version.schema_id for version in registry.schemas(lookup=LookupFilter.INCLUDE_DELETED))
            self._max_id = registry.revision, max(ids, default=0)
        return self._max_id[1]
