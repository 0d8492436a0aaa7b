"""What a consumer reads with: every payload becomes a value by the schema that its message names.

What an id means is asked of the registry before a message is handed out, so that `value` never waits. Where that fails,
or a payload cannot be read, it is `value` that raises, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.client.serde.framing import PREFIX_BYTES, framed_id, read_indexes
from penstock.client.serde.registry_client import SCHEMA_NOT_FOUND, Schemas
from penstock.client.serde.schemas import CONFLUENT, needs_schemas
from penstock.client.serde.values import Misfit
from penstock.core.errors import MalformedMessage, PenstockError
from penstock.core.schemas import Definition, SchemaKind

if TYPE_CHECKING:
    from penstock.client.consume.messages import Batch, StreamMessage
    from penstock.client.serde.targets import Target

_ASKED_AT_ONCE: Final = 16
"""Ids of one batch that the registry is asked for at a time."""
_DECODERS_MAX: Final = 1000
"""As many as schemas are kept."""

Decode = Callable[[bytes], Any]
Meaning = Definition | PenstockError
"""Of a schema's id; or why it is not known."""
_Indexes = tuple[int, ...] | None


class Reader:
    """Of one consumer. Its decoders are made when a value is first asked for."""

    def __init__(self, schemas: Schemas, target: Target | None, framing: str | None) -> None:
        self._schemas = schemas
        self._target = target
        self._framing = framing
        self._decoders: dict[tuple[Definition | None, _Indexes], Decode] = {}

    async def learn(self, batch: Batch) -> Values:
        """What the schemas of these messages mean."""
        ids = batch.schema_ids()
        if self._framing is not None:
            ids |= {found for each in batch.messages if (found := framed_id(each.payload)) is not None}
        meanings: dict[int, Meaning] = {each: known for each in ids if (known := self._schemas.known(each)) is not None}
        unknown = sorted(ids - meanings.keys())
        for start in range(0, len(unknown), _ASKED_AT_ONCE):
            some = unknown[start : start + _ASKED_AT_ONCE]
            meanings |= zip(some, await asyncio.gather(*map(self._meaning, some)), strict=True)
        return Values(self, meanings)

    async def _meaning(self, schema_id: int) -> Meaning:
        try:
            return await self._schemas.definition(schema_id)
        except PenstockError as error:
            return error

    def find(self, message: StreamMessage) -> tuple[int | None, int]:
        """The id of the schema that a message names, and where in its payload the value begins."""
        stamped = None if message.schema is None else message.schema.id
        if self._framing is None:
            return stamped, 0
        framed = framed_id(message.payload)
        if framed is None and self._framing == CONFLUENT:
            raise Misfit("it does not begin with a zero byte and the id of its schema")
        if framed is not None and (self._framing == CONFLUENT or stamped in (None, framed)):
            return framed, PREFIX_BYTES
        return stamped, 0

    def hint(self, message: StreamMessage, schema_id: int | None) -> str:
        """What else may be said of a message that cannot be read."""
        if self._framing is not None or schema_id is None or framed_id(message.payload) != schema_id:
            return ""
        return "; it begins with the id of its schema: read it with framing='confluent'"

    def decoder(self, definition: Definition | None, indexes: _Indexes) -> Decode:
        known = self._decoders.get((definition, indexes))
        if known is None:
            known = self._make(definition, indexes)
            if len(self._decoders) >= _DECODERS_MAX:
                self._decoders.clear()
            self._decoders[definition, indexes] = known
        return known

    def _make(self, definition: Definition | None, indexes: _Indexes) -> Decode:
        if self._target is None and definition is None:
            return bytes
        with needs_schemas():
            from penstock.client.serde.targets import AsWritten

            return (self._target or AsWritten()).decoder(definition, indexes)


class Values:
    """Of messages that arrived together: it knows what their schemas mean."""

    __slots__ = ("_decoders", "_meanings", "_reader")

    def __init__(self, reader: Reader, meanings: Mapping[int, Meaning]) -> None:
        self._reader = reader
        self._meanings = meanings
        self._decoders: dict[tuple[int | None, _Indexes], Decode] = {}

    def of(self, message: StreamMessage) -> Any:
        """Raises `MalformedMessage` for what cannot be read, or why it is not known what its schema means."""
        schema_id = None
        try:
            schema_id, start = self._reader.find(message)
            return self._decoded(schema_id, message.payload, start)
        except Exception as error:
            raise _told(error, message, schema_id, hint=self._reader.hint(message, schema_id)) from error

    def _decoded(self, schema_id: int | None, payload: bytes, start: int) -> Any:
        indexes: _Indexes = None
        if start and self._meaning(schema_id, SchemaKind.PROTOBUF) is not None:
            indexes, start = read_indexes(payload, start)
        decode = self._decoders.get((schema_id, indexes))
        if decode is None:
            decode = self._reader.decoder(self._meaning(schema_id), indexes)
            self._decoders[schema_id, indexes] = decode
        return decode(payload[start:] if start else payload)

    def _meaning(self, schema_id: int | None, kind: SchemaKind | None = None) -> Definition | None:
        """None if there is no schema, or it is of another kind."""
        meaning = None if schema_id is None else self._meanings[schema_id]
        if isinstance(meaning, PenstockError):
            raise meaning
        return meaning if meaning is None or kind in (None, meaning.kind) else None


def _told(error: Exception, message: StreamMessage, schema_id: int | None, *, hint: str) -> PenstockError:
    """An error that says which message it is about."""
    facts: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    by = ""
    if schema_id is not None:
        facts["schema_id"], by = schema_id, f" by schema {schema_id}"
    if isinstance(error, Misfit) and error.path:
        facts["path"], by = error.path, f"{by}, at {error.path}"
    kind, reason = _reason(error)
    return kind(f"{message.topic} {message.partition}:{message.offset} cannot be read{by}: {reason}{hint}", **facts)


def _reason(error: Exception) -> tuple[type[PenstockError], str]:
    if isinstance(error, PenstockError) and error.details.get("registry_code") != SCHEMA_NOT_FOUND:
        return type(error), error.message
    if isinstance(error, PenstockError | Misfit):
        return MalformedMessage, error.message
    return MalformedMessage, f"{type(error).__name__}: {error}"
