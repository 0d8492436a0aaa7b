"""Schemas in the forms in which a program passes them to a producer or a consumer.

This module imports no package outside the standard library and penstock: codecs are imported when they are used.
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
"""The framing in which payloads begin with a zero byte and the schema's id, as clients of other registries write
them."""
AUTO: Final = "auto"
"""The framing of a consumer that accepts both: a payload that looks framed is read as framed, any other as plain."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema. Records are dicts; other values have the Python types that fastavro uses."""

    kind: ClassVar = SchemaKind.AVRO

    schema: str | Mapping[str, Any] | Sequence[Any]
    """The text of the schema, or its parsed JSON."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON Schema. Values are dicts, lists, text, numbers, booleans and None."""

    kind: ClassVar = SchemaKind.JSON

    schema: str | Mapping[str, Any] | bool
    """The text of the schema, or its parsed JSON."""
    references: Sequence[Reference] = ()

    @property
    def text(self) -> str:
        return _text(self.schema)


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A Protobuf schema, either a generated class or the text of a .proto file. Values are messages of the class, or
    dicts for a text.

    With a text, `message` is the name of one of its messages, with or without the package; default: the first one. With
    a class, the files that its file imports are registered too.
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
    """The version of the subject that is the latest when the producer or consumer is created. Values have the Python
    types of that schema's language."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A fixed version of the subject. Values have the Python types of that schema's language."""

    version: int


Source = AvroSchema | JsonSchema | ProtobufSchema | UseLatest | Pinned | type[Any]
"""The source of a schema. A type, such as a dataclass, a msgspec Struct or a pydantic model, has its schema derived;
`str`, `int`, `float` and `bytes` are schemas of their own without a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serde:
    """The options by which a producer or a consumer converts between values and payloads."""

    source: Source | None = None
    subject: str | None = None
    register: bool = True
    framing: str | None = None

    async def encoder(self, registry: RegistryClient, topic: str) -> ValueEncoder | None:
        """Build the encoder of a producer; None without a schema, when values are payloads. The schema is registered or
        looked up.

        Raises `InvalidRequest` for options that do not fit together or an invalid source, and the registry's error.
        """
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
        """Build the decoder of a consumer. Raises `InvalidRequest` for an invalid framing or source, and the registry's
        error."""
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
