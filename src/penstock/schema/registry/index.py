"""The registry's index in memory: subjects, versions and schemas as the catalog has them, with every lookup.

Only updates change it, in the order of their revisions and once they are durable. It makes no decisions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from penstock.core.limits import MIB
from penstock.core.schemas import Compatibility, SubjectMode
from penstock.schema.errors import OperationNotPermitted, SchemaNotFound, SubjectNotFound, VersionNotFound
from penstock.schema.registry.models import CompatibilityConfig, LookupFilter, RegisteredVersion
from penstock.storage.catalog.schema_rows import (
    GLOBAL_SUBJECT,
    ExpectedRevisions,
    RegistryUpdate,
    StoredSchema,
    Subject,
    SubjectVersion,
)

SUBJECTS_MAX: Final = 100_000
"""Subjects that the registry knows. A subject without versions counts too: the number of its last version is kept. So
many take some 30 MB."""

VERSIONS_MAX: Final = 10_000
"""Versions of one subject: each may have to be compared with a new one."""

TEXTS_BYTES_MAX: Final = 256 * MIB
"""Bytes of all schema texts together, which are held in memory."""

VersionKey = tuple[str, int]
"""A subject and a version number."""


class RegistryIndex:
    """The state of the registry as of `revision`. Lookups of missing entries raise the errors that clients know."""

    def __init__(self) -> None:
        self.revision = 0
        self.text_bytes = 0
        self._subjects: dict[str, Subject] = {}
        self._versions: dict[str, tuple[SubjectVersion, ...]] = {}
        self._schemas: dict[int, StoredSchema] = {}
        self._ids: dict[str, int] = {}
        self._holders: dict[int, set[VersionKey]] = {}
        self._referrers: dict[VersionKey, set[int]] = {}

    # updates

    def apply(self, update: RegistryUpdate) -> None:
        """Apply an update of the catalog. Updates come in the order of their revisions, without gaps."""
        before = self._holdings(update.subjects)
        self._subjects |= {subject.name: subject for subject in update.subjects}
        self._versions |= self._merged(update)
        after = self._holdings(update.subjects)
        # Removals first: an id may have come back with another schema.
        for schema_id, holder in before - after:
            self._remove_holder(schema_id, holder)
        for stored in update.schemas:
            self._add_schema(stored)
        for schema_id, holder in after - before:
            self._holders.setdefault(schema_id, set()).add(holder)
        self.revision = update.revision

    def _holdings(self, subjects: Iterable[Subject]) -> set[tuple[int, VersionKey]]:
        versions = chain.from_iterable(self._versions.get(subject.name, ()) for subject in subjects)
        return {(version.schema_id, (version.subject, version.version)) for version in versions}

    def _merged(self, update: RegistryUpdate) -> dict[str, tuple[SubjectVersion, ...]]:
        """Return the versions of the changed subjects, in order."""
        merged: dict[str, dict[int, SubjectVersion]] = {subject.name: {} for subject in update.subjects}
        if not update.whole:
            merged = {
                name: {versions.version: versions for versions in self._versions.get(name, ())} for name in merged
            }
        for version in update.versions:
            merged[version.subject][version.version] = version
        return {name: tuple(versions[number] for number in sorted(versions)) for name, versions in merged.items()}

    def _add_schema(self, stored: StoredSchema) -> None:
        known = self._schemas.get(stored.schema_id)
        if known is not None and known.fingerprint == stored.fingerprint:
            return
        if known is not None:
            self._drop_schema(known)
        self._schemas[stored.schema_id] = stored
        self._ids[stored.fingerprint] = stored.schema_id
        self.text_bytes += _size(stored)
        for key in _referenced_versions(stored):
            self._referrers.setdefault(key, set()).add(stored.schema_id)

    def _remove_holder(self, schema_id: int, holder: VersionKey) -> None:
        """Remove a version from a schema's holders, and drop a schema that no version has."""
        self._holders[schema_id].discard(holder)
        if not self._holders[schema_id]:
            del self._holders[schema_id]
            self._drop_schema(self._schemas[schema_id])

    def _drop_schema(self, stored: StoredSchema) -> None:
        del self._schemas[stored.schema_id]
        del self._ids[stored.fingerprint]
        self.text_bytes -= _size(stored)
        for key in _referenced_versions(stored):
            self._referrers[key].discard(stored.schema_id)
            if not self._referrers[key]:
                del self._referrers[key]

    # schemas

    def schema(self, schema_id: int) -> StoredSchema:
        stored = self._schemas.get(schema_id)
        if stored is None:
            raise SchemaNotFound(f"Schema {schema_id} not found", schema_id=schema_id)
        return stored

    def id_of(self, fingerprint: str) -> int | None:
        return self._ids.get(fingerprint)

    def has_id(self, schema_id: int) -> bool:
        return schema_id in self._schemas

    def holders(self, schema_id: int, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[VersionKey, ...]:
        """Return the versions that have this schema, in the order of subjects."""
        versions = (self._existing(key) for key in sorted(self._holders.get(schema_id, ())))
        return tuple((version.subject, version.version) for version in _filter(versions, lookup))

    def referrers(self, subject: str, version: int, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[int, ...]:
        """Return the ids of schemas that refer to this version and belong to a version themselves."""
        ids = sorted(self._referrers.get((subject, version), ()))
        return tuple(schema_id for schema_id in ids if self.holders(schema_id, lookup))

    # versions

    def versions(self, subject: str, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[SubjectVersion, ...]:
        """Return the versions in order; empty if the subject does not exist."""
        all_versions = self._versions.get(subject, ())
        return all_versions if lookup is LookupFilter.INCLUDE_DELETED else tuple(_filter(all_versions, lookup))

    def known_versions(self, subject: str, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[SubjectVersion, ...]:
        """Like `versions`, but raise `SubjectNotFound` if there are none."""
        versions = self.versions(subject, lookup)
        if not versions:
            raise SubjectNotFound(f"Subject '{subject}' not found.", subject=subject)
        return versions

    def version(self, subject: str, number: int | None, lookup: LookupFilter = LookupFilter.ACTIVE) -> SubjectVersion:
        """Return a version; `None` is the latest. Raises `SubjectNotFound` or `VersionNotFound`."""
        versions = self.known_versions(subject, lookup)
        if number is None:
            return versions[-1]
        index = bisect_left(versions, number, key=lambda version: version.version)
        if index == len(versions) or versions[index].version != number:
            raise VersionNotFound(f"Version {number} not found.", subject=subject, version=number)
        return versions[index]

    def find(
        self, subject: str, number: int | None, lookup: LookupFilter = LookupFilter.ACTIVE
    ) -> SubjectVersion | None:
        try:
            return self.version(subject, number, lookup)
        except (SubjectNotFound, VersionNotFound):
            return None

    def find_by_fingerprint(
        self, subject: str, fingerprint: str, lookup: LookupFilter = LookupFilter.ACTIVE
    ) -> SubjectVersion | None:
        """Return the subject's version that has this schema; None if there is none. Of several, one that is not deleted
        is preferred, and then the newest."""
        schema_id = self._ids.get(fingerprint)
        holders = self._holders.get(schema_id, set()) if schema_id is not None else set()
        versions = _filter((self._existing(key) for key in holders if key[0] == subject), lookup)
        return max(versions, key=lambda version: (not version.deleted, version.version), default=None)

    def registered(self, version: SubjectVersion) -> RegisteredVersion:
        return RegisteredVersion.of(version, self._schemas[version.schema_id])

    def _existing(self, key: VersionKey) -> SubjectVersion:
        return self.version(*key, LookupFilter.INCLUDE_DELETED)

    # subjects

    def subjects(self, prefix: str = "", lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[str, ...]:
        """Return the subjects in order. `DELETED_ONLY`: subjects that have only deleted versions."""
        names = (name for name in self._versions if name.startswith(prefix))
        return tuple(sorted(name for name in names if self._has_versions(name, lookup)))

    def _has_versions(self, subject: str, lookup: LookupFilter) -> bool:
        versions = self._versions[subject]
        living = any(not version.deleted for version in versions)
        match lookup:
            case LookupFilter.ACTIVE:
                return living
            case LookupFilter.INCLUDE_DELETED:
                return bool(versions)
            case LookupFilter.DELETED_ONLY:
                return bool(versions) and not living

    def subject(self, name: str) -> Subject:
        """Return the subject's row, or an empty one if it does not exist yet."""
        return self._subjects.get(name) or Subject(name=name)

    def known_subjects(self) -> tuple[str, ...]:
        """Return every subject that ever had a version or has settings, in order."""
        return tuple(sorted(self._subjects))

    def expected_revisions(self, *subjects: str) -> ExpectedRevisions:
        """Return the revisions that a decision about these subjects rests on, with that of the global settings."""
        return {name: self.subject(name).revision for name in (*subjects, GLOBAL_SUBJECT)}

    def compatibility_config(self, subject: str) -> CompatibilityConfig:
        """Return the settings in force for a subject: its own, the global ones where it has none, else `BACKWARD` and
        not lenient."""
        own, general = self.subject(subject).settings, self.subject(GLOBAL_SUBJECT).settings
        compatibility = own.compatibility or general.compatibility or Compatibility.BACKWARD
        lenient = general.lenient if own.lenient is None else own.lenient
        return CompatibilityConfig(compatibility=compatibility, lenient=bool(lenient))

    def mode(self, subject: str) -> SubjectMode:
        own, general = self.subject(subject).settings.mode, self.subject(GLOBAL_SUBJECT).settings.mode
        return general if general is SubjectMode.READONLY_OVERRIDE else own or general or SubjectMode.READWRITE

    # limits

    def check_room(self, subject: str, fingerprint: str, text: str) -> None:
        """Raise `OperationNotPermitted` if the registry or the subject is full."""
        self.check_subject_room(subject)
        if len(self._versions.get(subject, ())) >= VERSIONS_MAX:
            raise OperationNotPermitted(
                f"Subject '{subject}' has {VERSIONS_MAX} versions, deleted ones included, and can have no more:"
                " delete some permanently",
                limit=VERSIONS_MAX,
            )
        if fingerprint not in self._ids and self.text_bytes + len(text.encode()) > TEXTS_BYTES_MAX:
            raise OperationNotPermitted(
                f"All schemas together have {self.text_bytes} bytes, and can have {TEXTS_BYTES_MAX}: delete some"
                " permanently",
                limit=TEXTS_BYTES_MAX,
            )

    def check_subject_room(self, subject: str) -> None:
        if subject not in self._subjects and len(self._subjects) >= SUBJECTS_MAX:
            raise OperationNotPermitted(
                f"The registry knows {SUBJECTS_MAX} subjects, those included that are deleted, and takes no more",
                limit=SUBJECTS_MAX,
            )


def _filter(versions: Iterable[SubjectVersion], lookup: LookupFilter) -> Iterator[SubjectVersion]:
    if lookup is LookupFilter.INCLUDE_DELETED:
        return iter(versions)
    deleted = lookup is LookupFilter.DELETED_ONLY
    return (version for version in versions if version.deleted is deleted)


def _referenced_versions(stored: StoredSchema) -> set[VersionKey]:
    return {(reference.subject, reference.version) for reference in stored.schema.references}


def _size(stored: StoredSchema) -> int:
    return len(stored.schema.text.encode())
