"""Words of the schema registry that all parts of Penstock use: kinds of schemas, references, compatibility and
modes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.names import DEFAULT_NAMESPACE, TopicName


class SchemaKind(StrEnum):
    """The language of a schema. A schema of one of the last three kinds needs no text."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"
    STRING = "STRING"
    """Any text in UTF-8."""
    NUMBER = "NUMBER"
    """A number, written as in JSON."""
    BYTES = "BYTES"
    """Any bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference of one schema to another, which is version `version` of `subject`; `name` is its name in the
    referring text.

    In Avro the name is the full name of a type, in JSON Schema the value of `$ref`, in Protobuf the path of the import.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as its author wrote it: kind, text and references."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """A schema with the texts of all its references: enough to understand it."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each referenced schema. A schema comes after all that it refers to itself."""


class Compatibility(StrEnum):
    """The rule for a new version of a subject: which earlier versions it is compared with, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    """Readers with the new version can read what was written with the last one."""
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    """Readers with the last version can read what is written with the new one."""
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class SubjectMode(StrEnum):
    """The operations that a subject allows."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Every subject is read-only, whatever its own mode is."""
    IMPORT = "IMPORT"
    """Schemas keep the ids and versions that they had in another registry."""


SCHEMA_BYTES_MAX: Final = 1_048_576
"""Bytes of one schema's text: the largest in public collections have some hundred KiB."""

SCHEMA_REFERENCES_MAX: Final = 128
"""References of one schema, with those of its references: a check holds all of them at once."""

SCHEMA_CLOSURE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of one schema's text with all its references. A check may use 64 MiB of memory for them, and a parsed text
takes many times its size."""

SCHEMA_DEPTH_MAX: Final = 64
"""The deepest nesting of a schema. Schemas that people write have about ten levels, and parsers recurse at each."""

SCHEMA_VERSION_MAX: Final = 2**31 - 1
"""The largest version in the envelope, and the largest that other registries' clients can read."""

LATEST: Final = "latest"
"""The word in place of a version number for the last version that is not deleted."""

SUBJECT_CHARS_MAX: Final = 512
"""The longest subject. Subjects are often made of the names of a topic and a type, so it is more than twice a topic's
name."""


_SUBJECT: Final = re.compile(rf"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{{1,{SUBJECT_CHARS_MAX}}}")


def is_subject(text: str) -> bool:
    """Return True for a text that is not empty, not too long, and has no control characters or lone surrogates."""
    return _SUBJECT.fullmatch(text) is not None


def default_subject(topic: TopicName) -> str:
    """Return the subject of a topic whose settings name none, as other registries' clients name it.

    That is the topic's name with `-value` behind it; outside the default namespace, the namespace and a slash stand
    before it. Topic names have no slash, so no two topics share a subject.
    """
    if topic.namespace == DEFAULT_NAMESPACE:
        return f"{topic.topic}-value"
    return f"{topic.namespace}/{topic.topic}-value"
