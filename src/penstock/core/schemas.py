"""Words of the registry that every room knows: kinds of schemas, references between them, what a subject allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.names import DEFAULT_NAMESPACE, TopicName


class SchemaKind(StrEnum):
    """What language a schema is written in. The last three have no text: their name says it all."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"
    STRING = "STRING"
    """Any text in UTF-8."""
    NUMBER = "NUMBER"
    """One number, written as in JSON."""
    BYTES = "BYTES"
    """Anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another registered schema that this one uses, and the name it has in there.

    In Avro that is the full name of a type, in JSON Schema what stands in `$ref`, in Protobuf what is imported.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as somebody wrote it."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A schema with the texts of all that it refers to: nothing else is needed to understand it."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each, those that others need first."""


class Compatibility(StrEnum):
    """Which earlier versions of a subject a new one is held against, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    """The new one reads what the last one wrote."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    """The last one reads what the new one writes."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class Mode(StrEnum):
    """What may be done to a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """For every subject, whatever its own mode is."""
    IMPORT = "IMPORT"
    """Schemas come with the ids and versions they had elsewhere."""


SCHEMA_BYTES_MAX: Final = 1_048_576
"""Of one schema's text: the largest in public collections have some hundred KiB."""

SCHEMA_REFERENCES_MAX: Final = 128
"""Of one schema, with all that those refer to: an examination holds all of them at once."""

SCHEMA_CLOSURE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one schema's text and of all that it refers to: an examination has 64 MiB for what becomes of them, and a text
that is understood takes many times its size."""

SCHEMA_DEPTH_MAX: Final = 64
"""How deep a schema may be nested: people stop at ten, and parsers recurse."""

SCHEMA_VERSION_MAX: Final = 2**31 - 1
"""What the envelope holds, and other registries' clients take for a number."""

LATEST: Final = "latest"
"""In the place of a version's number: the last one that is not deleted."""

SUBJECT_CHARS_MAX: Final = 512
"""A topic's name twice, and some: a subject is often a topic's name and a type's."""


_SUBJECT: Final = re.compile(rf"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{{1,{SUBJECT_CHARS_MAX}}}")


def is_subject(text: str) -> bool:
    """Any text, neither empty nor too long, without control characters and halves of characters."""
    return _SUBJECT.fullmatch(text) is not None


def default_subject(topic: TopicName) -> str:
    """The subject of a topic that names none: as other registries' clients name it.

    No topic's name has a slash in it, so no two topics share one.
    """
    if topic.namespace == DEFAULT_NAMESPACE:
        return f"{topic.topic}-value"
    return f"{topic.namespace}/{topic.topic}-value"
