"""The schema catalog: subjects, their versions, and where messages of each schema are stored. See `Catalog.schemas`.

The registry decides what may change before it begins a transaction. It passes the revisions of the subjects that the
decision is based on; if one has changed since, the transaction raises `SubjectChanged` and changes nothing. This module
checks the invariants as well: ids and versions are unique, referenced versions exist, and messages keep their schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, delete, select

from penstock.core.clock import Clock, now_ms
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import SCHEMA_VERSION_MAX
from penstock.storage.catalog.database import CatalogFile
from penstock.storage.catalog.schema_rows import (
    REVISION,
    SCHEMA_ID,
    SCHEMA_ID_MAX,
    ExpectedRevisions,
    NewVersion,
    RegistryUpdate,
    SchemaInUse,
    StoredSchema,
    Subject,
    SubjectSettings,
    SubjectVersion,
    check_expected,
    counter_value,
    deleted_versions,
    existing_subject,
    living_references,
    load_changes,
    load_subject,
    referred_versions,
    registered_ids,
    row_of_schema,
    row_of_subject,
    row_of_version,
    rows_of_references,
    schema_with,
    subject_changed,
    version_row,
)
from penstock.storage.catalog.tables import (
    COUNTERS,
    SCHEMA_REFERENCES,
    SCHEMA_SUBJECTS,
    SCHEMA_USES,
    SCHEMA_VERSIONS,
    SCHEMAS,
    add_rows,
    read_rows,
    replace_rows,
    write_row,
)


class SchemaCatalog:
    """The part of a catalog that holds the schema registry. Every change is one transaction, durable on return.

    Methods raise what those of `Catalog` raise. `expected` has the revision of each subject that the caller's decision
    is based on: `SubjectChanged` is raised if one of them has changed since.
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def load(self, since: int = 0) -> RegistryUpdate:
        """Return every subject changed after a revision, with all its versions; all subjects by default."""
        with self._file.reading() as connection:
            return load_changes(connection, since)

    def add_version(self, new: NewVersion, *, expected: ExpectedRevisions) -> RegistryUpdate:
        """Add a version of a subject.

        Its schema is the stored one with the same fingerprint, or is stored as a new one with an id never used before.
        Returns an update with exactly this version. Raises `InvalidRequest` when version numbers or ids are used up.
        """
        with self._changing(new.subject, expected) as (connection, subject):
            references = {(reference.subject, reference.version) for reference in new.schema.references}
            _check_references(connection, references, deleted=new.deleted)
            version = _within(SCHEMA_VERSION_MAX, subject.last_version + 1 if new.version is None else new.version)
            if version_row(connection, subject.name, version) is not None:
                raise subject_changed(connection, f"subject '{subject.name}' has a version {version}")
            subject = replace(subject, last_version=max(subject.last_version, version))
            write_row(connection, SCHEMA_SUBJECTS, row_of_subject(subject))
            stored = self._shared_or_new(connection, new)
            new_version = SubjectVersion(
                subject=subject.name,
                version=version,
                schema_id=stored.schema_id,
                metadata=new.metadata,
                created_ms=self._time(new),
                deleted=new.deleted,
                deprecated=new.deprecated,
            )
            add_rows(connection, SCHEMA_VERSIONS, [row_of_version(new_version)])
        return RegistryUpdate(
            revision=subject.revision, subjects=(subject,), versions=(new_version,), schemas=(stored,)
        )

    def replace_versions(self, versions: Sequence[SubjectVersion], *, expected: ExpectedRevisions) -> RegistryUpdate:
        """Replace versions of one subject by `versions`, at least one, with the same numbers. Versions that do not
        exist are skipped.

        Raises `SubjectChanged` if a version that is not deleted would then refer to a deleted one.
        """
        with self._changing(versions[0].subject, expected) as (connection, subject):
            write_row(connection, SCHEMA_SUBJECTS, row_of_subject(subject))
            replace_rows(connection, SCHEMA_VERSIONS, [row_of_version(version) for version in versions])
            referred = referred_versions(connection, subject.name, living=True)
            _check_unreferred(connection, subject.name, deleted_versions(connection, subject.name) & referred)
            _check_references(connection, living_references(connection, subject.name), deleted=False)
        return RegistryUpdate(revision=subject.revision, subjects=(subject,), versions=tuple(versions))

    def remove_versions(
        self, name: str, versions: Collection[int], *, expected: ExpectedRevisions, archived: bool = False
    ) -> RegistryUpdate:
        """Delete versions of a subject for good, and schemas that have no version left; no number is used again.

        A subject without versions loses its settings too. Raises `SchemaInUse` if messages with the id of a schema that
        would be deleted are stored. With `archived`, messages in archives do not count.
        """
        with self._changing(name, expected) as (connection, subject):
            table = SCHEMA_VERSIONS
            gone = table.c.subject == name, table.c.version.in_(versions)
            ids = {int(row["schema_id"]) for row in read_rows(connection, select(table).where(*gone))}
            connection.execute(delete(table).where(*gone))
            going = ids - registered_ids(connection, ids)
            if archived:
                _forget_archives(connection, going)
            _forget_schemas(connection, going)
            _check_unreferred(connection, name, set(versions) & referred_versions(connection, name, living=False))
            update = load_subject(connection, subject)
            if not update.versions:
                subject = replace(subject, settings=SubjectSettings())
            write_row(connection, SCHEMA_SUBJECTS, row_of_subject(subject))
        return replace(update, subjects=(subject,))

    def put_settings(self, name: str, settings: SubjectSettings, *, expected: ExpectedRevisions) -> RegistryUpdate:
        """Replace all settings of a subject; with the name `GLOBAL_SUBJECT`, the global ones."""
        with self._changing(name, expected) as (connection, subject):
            subject = replace(subject, settings=settings)
            write_row(connection, SCHEMA_SUBJECTS, row_of_subject(subject))
        return RegistryUpdate(revision=subject.revision, subjects=(subject,))

    def note_use(self, schema_id: int, place: str) -> bool:
        """Record that messages with a schema id are stored at a place, such as `topic 17`. Idempotent.

        Returns True, or False if the id is unknown; nothing is recorded then.
        """
        with self._file.writing() as connection:
            if schema_with(connection, SCHEMAS.c.schema_id == schema_id) is None:
                return False
            if place not in _places(connection, schema_id):
                row = {"schema_id": schema_id, "place": place, "created_ms": now_ms(self._clock)}
                add_rows(connection, SCHEMA_USES, [row])
        return True

    def copy_uses(self, source: str, place: str) -> None:
        """Record that `place` stores messages with all schema ids that are recorded for `source`."""
        with self._file.reading() as connection:
            if not _ids_at(connection, source) - _ids_at(connection, place):
                return
        with self._file.writing() as connection:
            missing = sorted(_ids_at(connection, source) - _ids_at(connection, place))
            at_ms = now_ms(self._clock)
            rows = [{"schema_id": schema_id, "place": place, "created_ms": at_ms} for schema_id in missing]
            if rows:
                add_rows(connection, SCHEMA_USES, rows)

    def uses(self, schema_id: int) -> tuple[str, ...]:
        """Return the places where messages with a schema id are stored, in order."""
        with self._file.reading() as connection:
            return _places(connection, schema_id)

    def forget_use(self, schema_id: int, place: str) -> None:
        """Delete the record that a place stores messages with a schema id."""
        with self._file.writing() as connection:
            gone = SCHEMA_USES.c.schema_id == schema_id, SCHEMA_USES.c.place == place
            connection.execute(delete(SCHEMA_USES).where(*gone))

    @contextmanager
    def _changing(self, name: str, expected: ExpectedRevisions) -> Iterator[tuple[Connection, Subject]]:
        """Begin a transaction that changes a subject. Yields it with the next revision; the caller writes it.

        Raises `SubjectChanged` if a subject in `expected` is at another revision.
        """
        with self._file.writing() as connection:
            check_expected(connection, expected)
            revision = counter_value(connection, REVISION) + 1
            yield connection, replace(existing_subject(connection, name), revision=revision)
            write_row(connection, COUNTERS, {"name": REVISION, "last": revision})

    def _shared_or_new(self, connection: Connection, new: NewVersion) -> StoredSchema:
        known = schema_with(connection, SCHEMAS.c.fingerprint == new.fingerprint)
        if known is not None and new.schema_id in (None, known.schema_id):
            return known
        if known is not None or schema_with(connection, SCHEMAS.c.schema_id == new.schema_id) is not None:
            raise subject_changed(connection, f"id {new.schema_id} is another schema's, or this schema has another id")
        return self._new_schema(connection, new)

    def _new_schema(self, connection: Connection, new: NewVersion) -> StoredSchema:
        last = counter_value(connection, SCHEMA_ID)
        schema_id = _within(SCHEMA_ID_MAX, last + 1 if new.schema_id is None else new.schema_id)
        write_row(connection, COUNTERS, {"name": SCHEMA_ID, "last": max(last, schema_id)})
        stored = StoredSchema(
            schema_id=schema_id,
            schema=new.schema,
            fingerprint=new.fingerprint,
            created_by=new.metadata.created_by,
            created_ms=self._time(new),
        )
        add_rows(connection, SCHEMAS, [row_of_schema(stored)])
        if references := rows_of_references(stored):
            add_rows(connection, SCHEMA_REFERENCES, references)
        return stored

    def _time(self, new: NewVersion) -> int:
        return now_ms(self._clock) if new.created_ms is None else new.created_ms


def forget_place(connection: Connection, place: str) -> None:
    """Delete the records of all schemas at a place. Called in the transaction that deletes the place itself."""
    connection.execute(delete(SCHEMA_USES).where(SCHEMA_USES.c.place == place))


TOPIC_PLACE: Final = "topic "
ARCHIVE_PLACE: Final = "archive "


def topic_place(topic_uid: int) -> str:
    """Return the name of a topic as a place that stores messages."""
    return f"{TOPIC_PLACE}{topic_uid}"


def archive_place(name: str, topic: TopicName) -> str:
    """Return the name of an archive's table of a topic as a place, valid also after the topic is deleted."""
    return f"{ARCHIVE_PLACE}{name} of {topic}"


def _ids_at(connection: Connection, place: str) -> set[int]:
    rows = read_rows(connection, select(SCHEMA_USES).where(SCHEMA_USES.c.place == place))
    return {int(row["schema_id"]) for row in rows}


def _places(connection: Connection, schema_id: int) -> tuple[str, ...]:
    rows = read_rows(connection, select(SCHEMA_USES).where(SCHEMA_USES.c.schema_id == schema_id))
    return tuple(sorted(row["place"] for row in rows))


def _forget_archives(connection: Connection, ids: Collection[int]) -> None:
    archives = SCHEMA_USES.c.place.startswith(ARCHIVE_PLACE)
    connection.execute(delete(SCHEMA_USES).where(SCHEMA_USES.c.schema_id.in_(ids), archives))


def _forget_schemas(connection: Connection, ids: Collection[int]) -> None:
    """Delete schemas. Raises `SchemaInUse` if messages with any of these ids are stored."""
    uses = read_rows(connection, select(SCHEMA_USES).where(SCHEMA_USES.c.schema_id.in_(ids)))
    if uses:
        schema_id = min(int(row["schema_id"]) for row in uses)
        places = _places(connection, schema_id)
        raise SchemaInUse(f"messages with schema id {schema_id} are kept in {', '.join(places)}", places=list(places))
    connection.execute(delete(SCHEMA_REFERENCES).where(SCHEMA_REFERENCES.c.schema_id.in_(ids)))
    connection.execute(delete(SCHEMAS).where(SCHEMAS.c.schema_id.in_(ids)))


def _check_references(connection: Connection, references: Collection[tuple[str, int]], *, deleted: bool) -> None:
    """Raise `SubjectChanged` if a referenced version (subject, version) does not exist, or is deleted.

    With `deleted`, which means that the referring version is deleted itself, it may refer to deleted versions.
    """
    for subject, version in references:
        row = version_row(connection, subject, version)
        if row is None or (row["deleted"] and not deleted):
            raise subject_changed(connection, f"version {version} of '{subject}' is no longer there")


def _check_unreferred(connection: Connection, subject: str, referred: Collection[int]) -> None:
    if referred:
        raise subject_changed(connection, f"another schema refers to version {min(referred)} of '{subject}'")


def _within(most: int, number: int) -> int:
    if not 1 <= number <= most:
        raise InvalidRequest(f"ids and versions of schemas go from 1 to {most}: {number} is none", number=number)
    return number
