"""Schemas as a program names them when it makes a producer or a consumer.

Nothing but Python here: what encodes and decodes comes in when it is needed.
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
"""Payloads begin with a zero byte and the schema's id, as clients of other registries write and expect them."""
AUTO: Final = "auto"
"""Those that begin so are taken to be so, the others as they are."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """Values are dicts for records, and otherwise what fastavro has for a type."""

    kind: ClassVar = SchemaKind.AVRO

    schema: str | Mapping[str, Any] | Sequence[Any]
    """Its text, or what that text would be read as."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """Values are what JSON has: dicts, lists, text, numbers."""

    kind: ClassVar = SchemaKind.JSON

    schema: str | Mapping[str, Any] | bool
    """Its text, or what that text would be read as."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A generated class, whose messages are the values; or the text of a .proto file, and values are dicts.

    Of a text `message` is the full name of the message, or the name without the package; the first one if it is left
    out. A class knows the files it needs, and they are registered with it.
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
    """The subject's latest version when the producer or consumer is made; values as its kind has them."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """This version of the subject; values as its kind has them."""

    version: int


Source = AvroSchema | JsonSchema | ProtobufSchema | UseLatest | Pinned | type[Any]
"""Where a schema comes from. Of a type the schema is derived: a dataclass, a msgspec Struct, a pydantic model, whatever
else msgspec reads; `str`, `int`, `float` and `bytes` have a kind of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serde:
    """How values of a producer or a consumer become payloads, or payloads values."""

    source: Source | None = None
    subject: str | None = None
    register: bool = True
    framing: str | None = None

    async def encoder(self, registry: RegistryClient, topic: str) -> ValueEncoder | None:
        """None if payloads are bytes. Raises what is wrong with the schema, or why the registry refuses it."""
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
        """Raises what is wrong with the schema that is to be read into."""
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
            raise  # a defect
        raise InvalidRequest(f"this schema needs the package {error.name!r}: pip install 'penstock[schema]'") from None


def _text(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
