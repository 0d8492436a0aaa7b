"""Storage, schemas: subjects, their versions, and where messages of each schema are kept. See `Catalog.schemas`.

Decisions are made elsewhere, before the transaction, and say which revisions of which subjects they rest on; a
transaction that finds others raises `Changed` and leaves everything as it is. What no decision may break is looked at
here as well: ids and versions are unique, whatever is referred to is there, and messages keep their schema.
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
    """The registry's part of one catalog. Every call that changes something is one transaction, durable on return.

    Calls raise what those of `Catalog` raise. Those that take `expected` raise `Changed` if another has been faster.
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def load(self, since: int = 0) -> RegistryUpdate:
        """Every subject that was changed after this revision, whole; all there are, if none is given."""
        with self._file.reading() as connection:
            return load_changes(connection, since)

    def add_version(self, new: NewVersion, *, expected: ExpectedRevisions) -> RegistryUpdate:
        """A new version; its schema is the one with that fingerprint, or new as well, with an id never given before.

        The update has exactly one version. Raises `InvalidRequest` when the last number has been given.
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
            made = SubjectVersion(
                subject=subject.name,
                version=version,
                schema_id=stored.schema_id,
                metadata=new.metadata,
                created_ms=self._time(new),
                deleted=new.deleted,
                deprecated=new.deprecated,
            )
            add_rows(connection, SCHEMA_VERSIONS, [row_of_version(made)])
        return RegistryUpdate(revision=subject.revision, subjects=(subject,), versions=(made,), schemas=(stored,))

    def replace_versions(self, versions: Sequence[SubjectVersion], *, expected: ExpectedRevisions) -> RegistryUpdate:
        """Put these, of one subject and at least one, in the place of those with their numbers.

        Schemas that are not deleted refer to none that is.
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
        """Forget these versions of a subject, and schemas that nobody has any more; their numbers are not given again.

        A subject without versions loses its settings too. Raises `SchemaInUse` if messages with the id of a schema that
        would go are stored; with `archived`, messages in archives do not count.
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
        """Put these in the place of all that the subject had; `EVERYWHERE` is one too."""
        with self._changing(name, expected) as (connection, subject):
            subject = replace(subject, settings=settings)
            write_row(connection, SCHEMA_SUBJECTS, row_of_subject(subject))
        return RegistryUpdate(revision=subject.revision, subjects=(subject,))

    def note_use(self, schema_id: int, place: str) -> bool:
        """Remember that messages with this id are kept there, such as in `topic 17`. False: there is no such schema."""
        with self._file.writing() as connection:
            if schema_with(connection, SCHEMAS.c.schema_id == schema_id) is None:
                return False
            if place not in _places(connection, schema_id):
                row = {"schema_id": schema_id, "place": place, "created_ms": now_ms(self._clock)}
                add_rows(connection, SCHEMA_USES, [row])
        return True

    def copy_uses(self, source: str, place: str) -> None:
        """Remember that whatever messages are kept at one place, others with the same ids are at another."""
        with self._file.reading() as connection:
            if not _ids_at(connection, source) - _ids_at(connection, place):
                return
        with self._file.writing() as connection:
            missing = sorted(_ids_at(connection, source) - _ids_at(connection, place))
            at_ms = now_ms(self._clock)
            rows = [{"schema_id": each, "place": place, "created_ms": at_ms} for each in missing]
            if rows:
                add_rows(connection, SCHEMA_USES, rows)

    def uses(self, schema_id: int) -> tuple[str, ...]:
        """Where messages with this id are kept, in order."""
        with self._file.reading() as connection:
            return _places(connection, schema_id)

    def forget_use(self, schema_id: int, place: str) -> None:
        """Nothing with this id is kept there any more."""
        with self._file.writing() as connection:
            gone = SCHEMA_USES.c.schema_id == schema_id, SCHEMA_USES.c.place == place
            connection.execute(delete(SCHEMA_USES).where(*gone))

    @contextmanager
    def _changing(self, name: str, expected: ExpectedRevisions) -> Iterator[tuple[Connection, Subject]]:
        """A transaction, and the subject as it is now but of the next revision, to be written by whoever asked."""
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
    """Within a transaction that does away with the place itself."""
    connection.execute(delete(SCHEMA_USES).where(SCHEMA_USES.c.place == place))


TOPIC_PLACE: Final = "topic "
ARCHIVE_PLACE: Final = "archive "


def topic_place(topic_uid: int) -> str:
    """How a topic is called among those who keep messages."""
    return f"{TOPIC_PLACE}{topic_uid}"


def archive_place(name: str, topic: TopicName) -> str:
    """How that is called which an archive has of a topic, also when the topic is gone."""
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
    """Raises `SchemaInUse` if there are messages with any of these ids."""
    uses = read_rows(connection, select(SCHEMA_USES).where(SCHEMA_USES.c.schema_id.in_(ids)))
    if uses:
        schema_id = min(int(row["schema_id"]) for row in uses)
        places = _places(connection, schema_id)
        raise SchemaInUse(f"messages with schema id {schema_id} are kept in {', '.join(places)}", places=list(places))
    connection.execute(delete(SCHEMA_REFERENCES).where(SCHEMA_REFERENCES.c.schema_id.in_(ids)))
    connection.execute(delete(SCHEMAS).where(SCHEMAS.c.schema_id.in_(ids)))


def _check_references(connection: Connection, references: Collection[tuple[str, int]], *, deleted: bool) -> None:
    """They are there; and not deleted, unless who refers to them is deleted too."""
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
