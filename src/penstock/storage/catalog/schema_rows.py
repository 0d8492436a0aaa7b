"""Rows of the schema registry: the queries that find them, and the values they stand for.

The caller has begun the transaction. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, select

from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed
from penstock.core.schemas import Compatibility, Reference, Schema, SchemaKind, SubjectMode
from penstock.storage.catalog.tables import (
    COUNTERS,
    SCHEMA_REFERENCES,
    SCHEMA_SUBJECTS,
    SCHEMA_VERSIONS,
    SCHEMAS,
    CatalogRow,
    read_row,
    read_rows,
)

GLOBAL_SUBJECT: Final = ""
"""The subject of the settings for subjects that have none of their own."""

REVISION: Final = "schema_revision"
"""The counter of changes: every transaction that changes a subject increases it, and gives the subject its number."""

SCHEMA_ID: Final = "schema_id"

SCHEMA_ID_MAX: Final = 2**31 - 1
"""The largest schema id: other registries' clients frame it in four bytes, and read them as a signed number."""


class SubjectChanged(ServiceUnavailable):
    """An error: a subject was changed after a decision about it was made and before the transaction. Nothing was
    changed.

    `details["revision"]`: a revision at which the decision was already out of date.
    """


class SchemaInUse(InvalidRequest):
    """An error: stored messages name the schema, so it cannot be removed. `details["places"]` says where they are.
    Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSettings:
    """Settings of one subject. In a subject, `None` means the global setting; in the global subject, the built-in
    default."""

    compatibility: Compatibility | None = None
    lenient: bool | None = None
    mode: SubjectMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject without its versions. A subject may have no versions: none yet, or all were removed."""

    name: str
    revision: int = 0
    """The revision of the last change to the subject, its settings or its versions; 0 before the first change."""
    last_version: int = 0
    """The highest number that a version of it ever had."""
    settings: SubjectSettings = SubjectSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMetadata:
    """Description, tags and author of a version, as people wrote them."""

    description: str = ""
    tags: tuple[str, ...] = ()
    created_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A schema and its id, the same in every subject that registers it."""

    schema_id: int
    schema: Schema
    fingerprint: str
    created_by: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectVersion:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    metadata: VersionMetadata
    created_ms: int
    deleted: bool = False
    """True after a soft deletion: the version can still be read, and restored."""
    deprecated: str | None = None
    """The reason for its deprecation, and the alternative; None if it is not deprecated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version to be registered. The catalog chooses what is None here.

    `schema_id`: the id that the schema has already, or the next free one. `version`: the next one. `created_ms`: the
    current time.
    """

    subject: str
    schema: Schema
    fingerprint: str
    metadata: VersionMetadata = VersionMetadata()
    schema_id: int | None = None
    version: int | None = None
    deleted: bool = False
    deprecated: str | None = None
    created_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryUpdate:
    """Subjects as they are after a change: those that one transaction changed, or all changed since some revision."""

    revision: int
    subjects: tuple[Subject, ...]
    versions: tuple[SubjectVersion, ...] = ()
    schemas: tuple[StoredSchema, ...] = ()
    """Schemas of `versions`, where the receiver may not know them yet."""
    whole: bool = False
    """True if `versions` are all versions of these subjects; False if the subjects have others too, which did not
    change."""


ExpectedRevisions = Mapping[str, int]
"""The revision of each subject, by name, that a decision is based on."""


def existing_subject(connection: Connection, name: str) -> Subject:
    """Return a subject; one of revision 0 without settings if the name is unknown."""
    row = read_row(connection, select(SCHEMA_SUBJECTS).where(SCHEMA_SUBJECTS.c.subject == name))
    return Subject(name=name) if row is None else subject_of(row)


def check_expected(connection: Connection, expected: ExpectedRevisions) -> None:
    """Raise `SubjectChanged` if one of these subjects is at another revision."""
    for name, revision in expected.items():
        if existing_subject(connection, name).revision != revision:
            raise subject_changed(connection, f"subject '{name}' was changed by somebody else meanwhile; try again")


def subject_changed(connection: Connection, message: str) -> SubjectChanged:
    return SubjectChanged(message, revision=counter_value(connection, REVISION))


def counter_value(connection: Connection, counter: str) -> int:
    """Return the last number given out by a counter; 0 if it is new."""
    row = read_row(connection, select(COUNTERS).where(COUNTERS.c.name == counter))
    return 0 if row is None else int(row["last"])


def schema_with(connection: Connection, condition: ColumnElement[bool]) -> StoredSchema | None:
    row = read_row(connection, select(SCHEMAS).where(condition))
    if row is None:
        return None
    same = SCHEMA_REFERENCES.c.schema_id == row["schema_id"]
    return schema_of(row, _references_by_id(connection, select(SCHEMA_REFERENCES).where(same)).get(row["schema_id"]))


def version_row(connection: Connection, subject: str, version: int) -> CatalogRow | None:
    table = SCHEMA_VERSIONS
    return read_row(connection, select(table).where(table.c.subject == subject, table.c.version == version))


def registered_ids(connection: Connection, ids: Collection[int]) -> set[int]:
    """Return the schema ids that are a version of some subject, deleted or not."""
    holders = select(SCHEMA_VERSIONS.c.schema_id).where(SCHEMA_VERSIONS.c.schema_id.in_(ids)).distinct()
    return {int(row.schema_id) for row in connection.execute(holders)}


def deleted_versions(connection: Connection, subject: str) -> set[int]:
    table = SCHEMA_VERSIONS
    rows = read_rows(connection, select(table).where(table.c.subject == subject, table.c.deleted == 1))
    return {int(row["version"]) for row in rows}


def referred_versions(connection: Connection, subject: str, *, living: bool) -> set[int]:
    """Return those versions of a subject that schemas refer to.

    With `living`, only references of schemas that are a version, not deleted, of some subject.
    """
    referrers = select(SCHEMA_REFERENCES).where(SCHEMA_REFERENCES.c.subject == subject)
    if living:
        alive = select(SCHEMA_VERSIONS.c.schema_id).where(SCHEMA_VERSIONS.c.deleted == 0)
        referrers = referrers.where(SCHEMA_REFERENCES.c.schema_id.in_(alive))
    return {int(row["version"]) for row in read_rows(connection, referrers)}


def living_references(connection: Connection, subject: str) -> set[tuple[str, int]]:
    """Return subject and version of everything that a subject's versions refer to; deleted versions do not count."""
    table = SCHEMA_VERSIONS
    alive = select(table.c.schema_id).where(table.c.subject == subject, table.c.deleted == 0)
    rows = read_rows(connection, select(SCHEMA_REFERENCES).where(SCHEMA_REFERENCES.c.schema_id.in_(alive)))
    return {(row["subject"], int(row["version"])) for row in rows}


def load_changes(connection: Connection, since: int) -> RegistryUpdate:
    """Return every subject changed after a revision, with all its versions."""
    subjects = select(SCHEMA_SUBJECTS).where(SCHEMA_SUBJECTS.c.revision > since)
    return RegistryUpdate(
        revision=counter_value(connection, REVISION),
        subjects=tuple(subject_of(row) for row in read_rows(connection, subjects)),
        whole=True,
        **_content(connection, SCHEMA_SUBJECTS.c.revision > since),
    )


def load_subject(connection: Connection, subject: Subject) -> RegistryUpdate:
    """Return a subject with all its versions."""
    content = _content(connection, SCHEMA_SUBJECTS.c.subject == subject.name)
    return RegistryUpdate(revision=subject.revision, subjects=(subject,), whole=True, **content)


def _content(connection: Connection, condition: ColumnElement[bool]) -> dict[str, Any]:
    """Return the versions of the subjects that match `condition`, and their schemas, as arguments of
    `RegistryUpdate`."""
    names = select(SCHEMA_SUBJECTS.c.subject).where(condition)
    versions = select(SCHEMA_VERSIONS).where(SCHEMA_VERSIONS.c.subject.in_(names))
    ids = select(SCHEMA_VERSIONS.c.schema_id).where(SCHEMA_VERSIONS.c.subject.in_(names))
    references = _references_by_id(connection, select(SCHEMA_REFERENCES).where(SCHEMA_REFERENCES.c.schema_id.in_(ids)))
    schemas = read_rows(connection, select(SCHEMAS).where(SCHEMAS.c.schema_id.in_(ids)))
    return {
        "versions": tuple(version_of(row) for row in read_rows(connection, versions)),
        "schemas": tuple(schema_of(row, references.get(row["schema_id"])) for row in schemas),
    }


def _references_by_id(connection: Connection, query: Select[Any]) -> dict[int, list[Reference]]:
    references: dict[int, list[Reference]] = {}
    for row in sorted(read_rows(connection, query), key=lambda row: int(row["place"])):
        reference = Reference(name=row["name"], subject=row["subject"], version=row["version"])
        references.setdefault(row["schema_id"], []).append(reference)
    return references


def rows_of_references(stored: StoredSchema) -> list[dict[str, object]]:
    return [
        {
            "schema_id": stored.schema_id,
            "place": place,
            "name": reference.name,
            "subject": reference.subject,
            "version": reference.version,
        }
        for place, reference in enumerate(stored.schema.references)
    ]


def row_of_schema(stored: StoredSchema) -> dict[str, object]:
    return {
        "schema_id": stored.schema_id,
        "kind": stored.schema.kind.value,
        "text": stored.schema.text,
        "fingerprint": stored.fingerprint,
        "created_by": stored.created_by,
        "created_ms": stored.created_ms,
    }


def schema_of(row: CatalogRow, references: Iterable[Reference] | None) -> StoredSchema:
    try:
        kind = SchemaKind(row["kind"])
    except ValueError as error:
        raise StorageFailed(f"a stored schema cannot be read: {error}") from error
    return StoredSchema(
        schema_id=row["schema_id"],
        schema=Schema(kind=kind, text=row["text"], references=tuple(references or ())),
        fingerprint=row["fingerprint"],
        created_by=row["created_by"],
        created_ms=row["created_ms"],
    )


def row_of_subject(subject: Subject) -> dict[str, object]:
    settings = subject.settings
    return {
        "subject": subject.name,
        "revision": subject.revision,
        "last_version": subject.last_version,
        "compatibility": None if settings.compatibility is None else settings.compatibility.value,
        "lenient": None if settings.lenient is None else int(settings.lenient),
        "mode": None if settings.mode is None else settings.mode.value,
    }


def subject_of(row: CatalogRow) -> Subject:
    try:
        settings = SubjectSettings(
            compatibility=None if row["compatibility"] is None else Compatibility(row["compatibility"]),
            lenient=None if row["lenient"] is None else bool(row["lenient"]),
            mode=None if row["mode"] is None else SubjectMode(row["mode"]),
        )
    except ValueError as error:
        raise StorageFailed(f"stored settings of a subject cannot be read: {error}") from error
    return Subject(name=row["subject"], revision=row["revision"], last_version=row["last_version"], settings=settings)


def row_of_version(version: SubjectVersion) -> dict[str, object]:
    return {
        "subject": version.subject,
        "version": version.version,
        "schema_id": version.schema_id,
        "deleted": int(version.deleted),
        "deprecated": version.deprecated,
        "description": version.metadata.description,
        "tags": msgspec.json.encode(version.metadata.tags).decode(),
        "created_by": version.metadata.created_by,
        "created_ms": version.created_ms,
    }


def version_of(row: CatalogRow) -> SubjectVersion:
    try:
        tags = _TAGS.decode(row["tags"])
    except msgspec.MsgspecError as error:
        raise StorageFailed(f"stored tags of a schema cannot be read: {error}") from error
    return SubjectVersion(
        subject=row["subject"],
        version=row["version"],
        schema_id=row["schema_id"],
        metadata=VersionMetadata(description=row["description"], tags=tags, created_by=row["created_by"]),
        created_ms=row["created_ms"],
        deleted=bool(row["deleted"]),
        deprecated=row["deprecated"],
    )


_TAGS: Final = msgspec.json.Decoder(tuple[str, ...])
