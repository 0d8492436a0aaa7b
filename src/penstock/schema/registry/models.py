"""Values that the registry returns, and the parsing of subjects, versions, modes and metadata that it takes.

Input is parsed at the door; values inside are known to be valid.
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
    Schema,
    SubjectMode,
    is_subject,
)
from penstock.schema.errors import InvalidCompatibility, InvalidMode, InvalidSchema, InvalidVersion, RegistryError
from penstock.storage.catalog.schema_rows import StoredSchema, SubjectVersion, VersionMetadata

DESCRIPTION_CHARS_MAX: Final = 4_096
"""Characters of a description or a deprecation message: a page."""

TAGS_MAX: Final = 64
TAG_CHARS_MAX: Final = 128
"""Characters of one tag: tags are for lists and filters."""
CREATOR_CHARS_MAX: Final = 140
"""Characters of a creator: the longest principal name, with its kind."""

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
    """The facts about a version that publishing a message with it depends on."""

    subject: str
    deprecated: str | None
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityConfig:
    """The compatibility settings that new versions must meet."""

    compatibility: Compatibility
    lenient: bool


def parse_subject(text: str) -> str:
    """Return a subject as it is stored: `:.:orders` is `orders`, in the only context that exists.

    Raises `RegistryError` for another context and for an invalid name. A name that itself begins with a context is
    refused, so that parsing a stored name again returns the same name.
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
    """Return the subject that a client names as a hint for a schema; None for no hint, which some clients write as
    `:.:`."""
    return None if text in ("", _DEFAULT_CONTEXT) else parse_subject(text)


def subject_prefix(text: str) -> str:
    """Return a prefix of subject names without `:*:` (all contexts) or `:.:` (the default one) before it."""
    return text[3:] if text.startswith((":*:", ":.:")) else text


def parse_version(version: int | str) -> int | None:
    """Return a version number; None for the latest, which is also written `-1`. Raises `InvalidVersion`."""
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


def parse_mode(text: str) -> SubjectMode:
    try:
        return SubjectMode(text.upper())
    except ValueError:
        raise InvalidMode(f"Invalid mode. Valid values are {', '.join(SubjectMode)}") from None


def check_schema(schema: Schema) -> None:
    """Raise `InvalidSchema` for a schema that cannot be stored: its text is too large or has a lone surrogate or a zero
    byte, or the name of a reference is invalid. The text is not parsed."""
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
    """Raise `RegistryError`, with the field's name, for a text that is too long or cannot be stored."""
    if len(words) > chars_max:
        raise RegistryError(f"{field}: {len(words)} characters are more than {chars_max}", field=field)
    if "\0" in words or words != words.encode(errors="replace").decode():
        raise RegistryError(f"{field}: there is half a character or a zero byte in it", field=field)


def fingerprint_of(schema: Schema, canonical: str) -> str:
    """Return the fingerprint: schemas with the same one mean the same, by the same references.

    The references count because they keep other schemas from being deleted: were two schemas with references to
    different versions one schema, one of the versions would not be protected.
    """
    references = sorted((reference.name, reference.subject, reference.version) for reference in schema.references)
    return hashlib.sha256(msgspec.json.encode([schema.kind, canonical, references])).hexdigest()


def printable(text: str) -> str:
    """Return a text from outside in a form for messages: shortened, and with unprintable characters replaced."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:SUBJECT_CHARS_MAX]
    )
