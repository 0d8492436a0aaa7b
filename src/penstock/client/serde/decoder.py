"""The decoder of a consumer: it decodes each payload with the schema that its message names.

Schemas are fetched from the registry before a message is handed to the caller, so that the property `value` never
waits. If fetching fails, or a payload cannot be read, receiving still succeeds, and `value` raises the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.client.serde.framing import PREFIX_BYTES, framed_id, read_indexes
from penstock.client.serde.registry_client import SCHEMA_NOT_FOUND, RegistryClient
from penstock.client.serde.schemas import CONFLUENT, require_schema_extra
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import MalformedMessage, PenstockError
from penstock.core.schemas import Definition, SchemaKind

if TYPE_CHECKING:
    from penstock.client.serde.targets import DecodeTarget
    from penstock.record.message import SchemaRef

_ASKED_AT_ONCE: Final = 16
"""The most schema ids of one batch that are fetched from the registry concurrently."""
_DECODERS_MAX: Final = 1000
"""The most decoders that are cached: the same number as cached schemas."""

Decode = Callable[[bytes], Any]
Meaning = Definition | PenstockError
"""The schema of an id, or the error with which fetching it failed."""
_Indexes = tuple[int, ...] | None


class ReceivedMessage(Protocol):
    """A message as the decoder needs it: the payload, the schema that its record names, and the position, for
    errors."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def schema(self) -> SchemaRef | None: ...


class ReceivedBatch(Protocol):
    """A batch as the decoder needs it: messages that arrived together."""

    @property
    def messages(self) -> Sequence[ReceivedMessage]: ...

    def schema_ids(self) -> set[int]:
        """Return the ids of the schemas that the records of the batch name."""
        ...


class ValueDecoder:
    """The decoder of one consumer. It builds and caches one decode function for each schema, when a value is first
    read."""

    def __init__(self, registry: RegistryClient, target: DecodeTarget | None, framing: str | None) -> None:
        self._registry = registry
        self._target = target
        self._framing = framing
        self._decoders: dict[tuple[Definition | None, _Indexes], Decode] = {}

    async def batch_decoder(self, batch: ReceivedBatch) -> BatchDecoder:
        """Fetch the schemas that messages of a batch name, and return the decoder of that batch. A schema that cannot
        be fetched raises nothing here: decoding the messages that name it raises."""
        ids = batch.schema_ids()
        if self._framing is not None:
            ids |= {schema_id for message in batch.messages if (schema_id := framed_id(message.payload)) is not None}
        meanings: dict[int, Meaning] = {
            schema_id: known for schema_id in ids if (known := self._registry.known(schema_id)) is not None
        }
        unknown = sorted(ids - meanings.keys())
        for start in range(0, len(unknown), _ASKED_AT_ONCE):
            some = unknown[start : start + _ASKED_AT_ONCE]
            meanings |= zip(some, await asyncio.gather(*map(self._meaning, some)), strict=True)
        return BatchDecoder(self, meanings)

    async def _meaning(self, schema_id: int) -> Meaning:
        try:
            return await self._registry.definition(schema_id)
        except PenstockError as error:
            return error

    def locate_value(self, message: ReceivedMessage) -> tuple[int | None, int]:
        """Return the id of the schema that a message names (None if it names none), and the offset of the value in its
        payload.

        Raises `ValueMismatch` if the framing is `confluent` and the payload is not framed.
        """
        stamped = None if message.schema is None else message.schema.id
        if self._framing is None:
            return stamped, 0
        framed = framed_id(message.payload)
        if framed is None and self._framing == CONFLUENT:
            raise ValueMismatch("it does not begin with a zero byte and the id of its schema")
        if framed is not None and (self._framing == CONFLUENT or stamped in (None, framed)):
            return framed, PREFIX_BYTES
        return stamped, 0

    def hint(self, message: ReceivedMessage, schema_id: int | None) -> str:
        """Return advice for the error about a message that cannot be read, or an empty text: it may need a framing."""
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
        with require_schema_extra():
            from penstock.client.serde.targets import WriterSchemaTarget

            return (self._target or WriterSchemaTarget()).decoder(definition, indexes)


class BatchDecoder:
    """The decoder of one batch, with the schemas that its messages name."""

    __slots__ = ("_decoder", "_decoders", "_meanings")

    def __init__(self, decoder: ValueDecoder, meanings: Mapping[int, Meaning]) -> None:
        self._decoder = decoder
        self._meanings = meanings
        self._decoders: dict[tuple[int | None, _Indexes], Decode] = {}

    def decode(self, message: ReceivedMessage) -> Any:
        """Return the value of a message. Raises `MalformedMessage` if it cannot be read, or the error with which
        fetching its schema failed."""
        schema_id = None
        try:
            schema_id, start = self._decoder.locate_value(message)
            return self._decoded(schema_id, message.payload, start)
        except Exception as error:
            raise _read_error(error, message, schema_id, hint=self._decoder.hint(message, schema_id)) from error

    def _decoded(self, schema_id: int | None, payload: bytes, start: int) -> Any:
        indexes: _Indexes = None
        if start and self._meaning(schema_id, SchemaKind.PROTOBUF) is not None:
            indexes, start = read_indexes(payload, start)
        decode = self._decoders.get((schema_id, indexes))
        if decode is None:
            decode = self._decoder.decoder(self._meaning(schema_id), indexes)
            self._decoders[schema_id, indexes] = decode
        return decode(payload[start:] if start else payload)

    def _meaning(self, schema_id: int | None, kind: SchemaKind | None = None) -> Definition | None:
        """Return the schema of an id; None without an id, or if `kind` is set and the schema is of another kind. Raises
        the error with which fetching the schema failed."""
        meaning = None if schema_id is None else self._meanings[schema_id]
        if isinstance(meaning, PenstockError):
            raise meaning
        return meaning if meaning is None or kind in (None, meaning.kind) else None


def _read_error(error: Exception, message: ReceivedMessage, schema_id: int | None, *, hint: str) -> PenstockError:
    """Build an error that names the topic, partition and offset of the message, and the schema."""
    details: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    by = ""
    if schema_id is not None:
        details["schema_id"], by = schema_id, f" by schema {schema_id}"
    if isinstance(error, ValueMismatch) and error.path:
        details["path"], by = error.path, f"{by}, at {error.path}"
    kind, reason = _reason(error)
    return kind(f"{message.topic} {message.partition}:{message.offset} cannot be read{by}: {reason}{hint}", **details)


def _reason(error: Exception) -> tuple[type[PenstockError], str]:
    if isinstance(error, PenstockError) and error.details.get("registry_code") != SCHEMA_NOT_FOUND:
        return type(error), error.message
    if isinstance(error, PenstockError | ValueMismatch):
        return MalformedMessage, error.message
    return MalformedMessage, f"{type(error).__name__}: {error}"
