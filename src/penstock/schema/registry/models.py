"""What the registry answers with, as values, and what it takes for a subject, a version, a schema and words about it.

Parsed at the door: what is inside is known to be right.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Self

import msgspec

from penstock.core.schemas import (
    LATEST,
    SCHEMA_BYTES_MAX,
    SCHEMA_VERSION_MAX,
    SUBJECT_CHARS_MAX,
    Compatibility,
    Mode,
    Schema,
    is_subject,
)
from penstock.schema.errors import InvalidCompatibility, InvalidMode, InvalidSchema, InvalidVersion, RegistryError
from penstock.storage.catalog.schema_rows import StoredSchema, SubjectVersion, VersionMetadata

DESCRIPTION_CHARS_MAX: Final = 4_096
"""Of a description, or of a reason to use a version no more: a page."""

TAGS_MAX: Final = 64
TAG_CHARS_MAX: Final = 128
"""Of one tag: for lists and filters."""
CREATOR_CHARS_MAX: Final = 140
"""Whoever registers: the longest name that credentials may have, and of which kind they are."""

_CONTEXT: Final = re.compile(r":\.([^:]*):(.*)", re.DOTALL)
_DEFAULT_CONTEXT: Final = ":.:"
_VERSION: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


class LookupFilter(Enum):
    """The versions that a lookup sees; of subjects, those that have such a version."""

    ACTIVE = auto()
    """Versions that are not deleted."""
    INCLUDE_DELETED = auto()
    """Soft-deleted versions too."""
    DELETED_ONLY = auto()
    """Soft-deleted versions alone; subjects all of whose versions are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredVersion:
    """A version of a subject, with its schema."""

    subject: str
    version: int
    schema_id: int
    schema: Schema
    fingerprint: str
    metadata: VersionMetadata
    created_ms: int
    deleted: bool
    deprecated: str | None

    @classmethod
    def of(cls, version: SubjectVersion, stored: StoredSchema) -> Self:
        return cls(
            subject=version.subject,
            version=version.version,
            schema_id=stored.schema_id,
            schema=stored.schema,
            fingerprint=stored.fingerprint,
            metadata=version.metadata,
            created_ms=version.created_ms,
            deleted=version.deleted,
            deprecated=version.deprecated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatus:
    """What a message that names a version has to know of it."""

    subject: str
    deprecated: str | None
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityConfig:
    """What new versions are held to."""

    compatibility: Compatibility
    lenient: bool


def parse_subject(text: str) -> str:
    """A subject as it is kept: `:.:orders` is `orders`, in the only context there is.

    What is kept means itself: a name that would once more be read as one in a context is refused.
    """
    written = _CONTEXT.fullmatch(text)
    if written is not None and written[1]:
        raise RegistryError(
            f"There is no context '.{printable(written[1])}': all subjects are in the default one.", field="subject"
        )
    name = text if written is None else written[2]
    if not is_subject(name):
        raise RegistryError(
            f"The specified subject '{printable(name)}' is not valid: a subject has 1 to {SUBJECT_CHARS_MAX}"
            " characters, none of them a control character.",
            field="subject",
        )
    if written is not None and _CONTEXT.fullmatch(name):
        raise RegistryError(
            f"The specified subject '{printable(name)}' is not valid: one context is enough.", field="subject"
        )
    return name


def hinted_subject(text: str) -> str | None:
    """The subject in which a client supposes a schema; None where it supposes nothing, for which some write `:.:`."""
    return None if text in ("", _DEFAULT_CONTEXT) else parse_subject(text)


def subject_prefix(text: str) -> str:
    """`:*:` and `:.:` stand before a name, not in it."""
    return text[3:] if text.startswith((":*:", ":.:")) else text


def parse_version(version: int | str) -> int | None:
    """None for the latest, which is also written `-1`. Raises `InvalidVersion` for what is no version."""
    if version in (LATEST, -1, "-1"):
        return None
    number = int(version) if isinstance(version, int) or _VERSION.fullmatch(version) else 0
    if isinstance(version, bool) or not 1 <= number <= SCHEMA_VERSION_MAX:
        raise InvalidVersion(
            f"The specified version '{printable(str(version))}' is not a valid version id. Allowed values are between"
            ' [1, 2^31-1] and the string "latest"'
        )
    return number


def parse_compatibility(text: str) -> Compatibility:
    try:
        return Compatibility(text.upper())
    except ValueError:
        levels = ", ".join(level.lower() for level in Compatibility)
        raise InvalidCompatibility(f"Invalid compatibility level. Valid values are {levels}") from None


def parse_mode(text: str) -> Mode:
    try:
        return Mode(text.upper())
    except ValueError:
        raise InvalidMode(f"Invalid mode. Valid values are {', '.join(Mode)}") from None


def check_schema(schema: Schema) -> None:
    """Raises `InvalidSchema` for what cannot be stored, whatever it means."""
    try:
        size = len(schema.text.encode())
    except UnicodeEncodeError:
        raise InvalidSchema("Invalid schema: its text has half a character in it (a lone surrogate)") from None
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchema(
            f"Invalid schema: it has {size} bytes, more than {SCHEMA_BYTES_MAX}", size=size, limit=SCHEMA_BYTES_MAX
        )
    if "\0" in schema.text:
        raise InvalidSchema("Invalid schema: there is a zero byte in its text")
    for reference in schema.references:
        if not is_subject(reference.name):
            raise InvalidSchema(f"Invalid schema: nothing can be referred to as '{printable(reference.name)}'")


def check_metadata(metadata: VersionMetadata) -> None:
    check_text("description", metadata.description, DESCRIPTION_CHARS_MAX)
    check_text("created_by", metadata.created_by, CREATOR_CHARS_MAX)
    if len(metadata.tags) > TAGS_MAX:
        raise RegistryError(f"tags: there are {len(metadata.tags)}, more than {TAGS_MAX}", field="tags")
    for tag in metadata.tags:
        check_text("tags", tag, TAG_CHARS_MAX)


def check_text(field: str, words: str, chars_max: int) -> None:
    """Raises `RegistryError`, with the field's name, for words that are too many, or cannot be stored."""
    if len(words) > chars_max:
        raise RegistryError(f"{field}: {len(words)} characters are more than {chars_max}", field=field)
    if "\0" in words or words != words.encode(errors="replace").decode():
        raise RegistryError(f"{field}: there is half a character or a zero byte in it", field=field)


def fingerprint_of(schema: Schema, canonical: str) -> str:
    """Schemas with the same one are the same schema: they mean the same, and mean it by the same references.

    By the references too, because they are what keeps others from being deleted: were two that refer to different
    versions one schema, one of them would hold on to nothing.
    """
    references = sorted((reference.name, reference.subject, reference.version) for reference in schema.references)
    return hashlib.sha256(msgspec.json.encode([schema.kind, canonical, references])).hexdigest()


def printable(text: str) -> str:
    """Short, and without what would spoil a line or could not be sent at all."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:SUBJECT_CHARS_MAX]
    )
