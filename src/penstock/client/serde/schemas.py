"""Schemas as a program gives them to a producer or a consumer.

Nothing but Python is needed here: codecs are imported when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.client.serde.registry_client import RegistryClient
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import Reference as Reference
from penstock.core.schemas import SchemaKind, default_subject

if TYPE_CHECKING:
    from penstock.client.serde.decoder import ValueDecoder
    from penstock.client.serde.encoder import ValueEncoder

CONFLUENT: Final = "confluent"
"""The framing of other registries' clients: payloads begin with a zero byte and the schema's id."""
AUTO: Final = "auto"
"""Framed and plain payloads mixed: one that begins like a framed one is taken for it."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema: values are dicts for records, and otherwise the types that fastavro uses."""

    kind: ClassVar = SchemaKind.AVRO

    schema: str | Mapping[str, Any] | Sequence[Any]
    """The text of the schema, or its parsed JSON."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON Schema: values are the types of JSON: dicts, lists, text, numbers."""

    kind: ClassVar = SchemaKind.JSON

    schema: str | Mapping[str, Any] | bool
    """The text of the schema, or its parsed JSON."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A Protobuf schema: a generated class, whose messages are the values; or the text of a .proto file, and values are
    dicts.

    With a text, `message` is the name of the message, with or without the package; default: the first one. With a
    class, the files that it needs are registered with it.
    """

    kind: ClassVar = SchemaKind.PROTOBUF

    message_class: type[Any] | None = None
    text: str | None = None
    message: str | None = None
    references: Sequence[Reference] = ()

    def __post_init__(self) -> None:
        if (self.message_class is None) == (self.text is None):
            raise InvalidRequest("a Protobuf schema is a generated class or a text: give one of them")
        if self.message_class is not None and not hasattr(self.message_class, "DESCRIPTOR"):
            raise InvalidRequest(f"{self.message_class!r} is no class that was generated from a .proto file")


@dataclass(frozen=True, slots=True)
class UseLatest:
    """The latest version of the subject when the producer or consumer is created; values are those of its language."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A version of the subject; values are those of its language."""

    version: int


Source = AvroSchema | JsonSchema | ProtobufSchema | UseLatest | Pinned | type[Any]
"""The source of a schema. A type has its schema derived: a dataclass, a msgspec Struct, a pydantic model, or any other
type that msgspec reads; `str`, `int`, `float` and `bytes` have kinds of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serde:
    """The conversion between values and payloads that a producer or a consumer was given."""

    source: Source | None = None
    subject: str | None = None
    register: bool = True
    framing: str | None = None

    async def encoder(self, registry: RegistryClient, topic: str) -> ValueEncoder | None:
        """Build the encoder of a producer; None if values are bytes. Raises what is wrong with the schema, or why the
        registry refuses it."""
        if self.framing not in (None, CONFLUENT):
            raise InvalidRequest(f"a producer's framing is {CONFLUENT!r} or None, not {self.framing!r}")
        if self.source is None:
            if self.subject is not None or self.framing is not None:
                raise InvalidRequest("a subject and a framing belong to a schema: give the producer one")
            return None
        with require_schema_extra():
            from penstock.client.serde.encoder import make_encoder

            subject = self.subject or default_subject(TopicName.parse(topic))
            return await make_encoder(
                registry, self.source, subject, register=self.register, framed=self.framing == CONFLUENT
            )

    async def decoder(self, registry: RegistryClient, topic: str) -> ValueDecoder:
        """Build the decoder of a consumer. Raises what is wrong with the schema of its values."""
        if self.framing not in (None, CONFLUENT, AUTO):
            raise InvalidRequest(f"a consumer's framing is {CONFLUENT!r}, {AUTO!r} or None, not {self.framing!r}")
        from penstock.client.serde.decoder import ValueDecoder

        if self.source is None:
            return ValueDecoder(registry, None, self.framing)
        with require_schema_extra():
            from penstock.client.serde.targets import make_target

            target = await make_target(registry, self.source, self.subject or default_subject(TopicName.parse(topic)))
        return ValueDecoder(registry, target, self.framing)


@contextmanager
def require_schema_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("penstock"):
            raise  # an error in our own imports
        raise InvalidRequest(f"this schema needs the package {error.name!r}: pip install 'penstock[schema]'") from None


def _text(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
