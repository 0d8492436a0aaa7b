"""The registry: the schemas that exist, the rules for adding more, and their deletion.

Queries are answered at once, from memory. Operations that need parsing or a commit are procedures (see `steps`) and are
durable when they return. HTTP stays outside, but errors have the words that clients of schema registries know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.schemas import Definition, Schema, SubjectMode
from penstock.schema.errors import InvalidVersion
from penstock.schema.problems import Problem
from penstock.schema.registry import configuration, deletion, registration, transfer
from penstock.schema.registry.deletion import DeletionOptions
from penstock.schema.registry.index import VersionKey
from penstock.schema.registry.models import (
    DESCRIPTION_CHARS_MAX,
    CompatibilityConfig,
    LookupFilter,
    RegisteredVersion,
    VersionStatus,
    check_metadata,
    check_text,
    parse_compatibility,
    parse_mode,
    parse_subject,
    parse_version,
    subject_prefix,
)
from penstock.schema.registry.references import definition_of
from penstock.schema.registry.state import RegistryState
from penstock.schema.registry.transfer import ImportResult
from penstock.schema.steps import Procedure, at_low_priority
from penstock.storage.catalog.schema_rows import GLOBAL_SUBJECT, StoredSchema, SubjectVersion, VersionMetadata
from penstock.storage.catalog.schemas import SchemaCatalog


class Registry:
    """The schemas of one catalog. A registry belongs to one thread, the one that drives its procedures.

    A version is a number, `"latest"` or `-1`. Every call that takes a subject or a version refuses an invalid one with
    `RegistryError` (422) or `InvalidVersion`.
    """

    def __init__(self, catalog: SchemaCatalog) -> None:
        """Read the whole catalog."""
        self._state = RegistryState(catalog)

    @property
    def revision(self) -> int:
        """The revision of the last change: answers may be cached while it stays the same."""
        return self._state.index.revision

    # queries

    def schema(self, schema_id: int) -> StoredSchema:
        """Return a schema, soft-deleted or not. Raises `SchemaNotFound`."""
        return self._state.index.schema(schema_id)

    def definition(self, schema_id: int) -> Definition:
        """Return a schema with all that it refers to. Raises `SchemaNotFound`."""
        return definition_of(self._state.index, self.schema(schema_id).schema)

    def versions_of_schema(self, schema_id: int, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[VersionKey, ...]:
        """Return the subjects and versions that have this schema, in order. Raises `SchemaNotFound`."""
        self.schema(schema_id)
        return self._state.index.holders(schema_id, lookup)

    def subjects(self, prefix: str = "", lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[str, ...]:
        """Return the subjects in order. `DELETED_ONLY`: subjects all of whose versions are deleted."""
        return self._state.index.subjects(subject_prefix(prefix), lookup)

    def versions(self, subject: str, lookup: LookupFilter = LookupFilter.ACTIVE) -> tuple[int, ...]:
        """Return the version numbers in order. Raises `SubjectNotFound` if there are none."""
        return tuple(
            stored_version.version
            for stored_version in self._state.index.known_versions(parse_subject(subject), lookup)
        )

    def version(
        self, subject: str, version: int | str, lookup: LookupFilter = LookupFilter.ACTIVE
    ) -> RegisteredVersion:
        """Return a version. Raises `SubjectNotFound` or `VersionNotFound`."""
        index = self._state.index
        return index.registered(index.version(parse_subject(subject), parse_version(version), lookup))

    def schemas(
        self, prefix: str = "", lookup: LookupFilter = LookupFilter.ACTIVE, *, latest_only: bool = False
    ) -> tuple[RegisteredVersion, ...]:
        """Return every version of every subject whose name begins with `prefix`, in order. `latest_only`: only the last
        version of each."""
        index = self._state.index
        versions_by_subject = (
            index.versions(subject, lookup) for subject in self.subjects(prefix, LookupFilter.INCLUDE_DELETED)
        )
        return tuple(
            index.registered(stored_version)
            for versions in versions_by_subject
            for stored_version in versions[-1 if latest_only else 0 :]
        )

    def referenced_by(
        self, subject: str, version: int | str, lookup: LookupFilter = LookupFilter.ACTIVE
    ) -> tuple[int, ...]:
        """Return the ids of the schemas that refer to a version, in order. Raises `SubjectNotFound` or
        `VersionNotFound`."""
        stored_version = self._state.index.version(
            parse_subject(subject), parse_version(version), LookupFilter.INCLUDE_DELETED
        )
        return self._state.index.referrers(stored_version.subject, stored_version.version, lookup)

    def accepted_versions(self, subjects: Iterable[str]) -> Mapping[tuple[int, int], VersionStatus]:
        """Return the versions that messages may name if they use one of these subjects: status by schema id and
        version. Soft-deleted versions are included; the status tells.

        Where two subjects have the same id and version, the better status counts.
        """
        statuses: dict[tuple[int, int], VersionStatus] = {}
        for subject in subjects:
            for version in self._state.index.versions(parse_subject(subject), LookupFilter.INCLUDE_DELETED):
                key = version.schema_id, version.version
                status = VersionStatus(subject=version.subject, deprecated=version.deprecated, deleted=version.deleted)
                statuses[key] = min(statuses.get(key, status), status, key=_status_rank)
        return statuses

    # registration

    def register(
        self,
        subject: str,
        schema: Schema,
        *,
        schema_id: int | None = None,
        version: int | None = None,
        metadata: VersionMetadata = VersionMetadata(),  # noqa: B008  frozen
    ) -> Procedure[RegisteredVersion]:
        """Return the version that already has this schema, or register the next version, or the given one.

        Raises `InvalidSchema`, also because of a reference; `IncompatibleSchema`, whose details have all `problems` and
        the `compatibility` that was demanded; `OperationNotPermitted` if the mode forbids it, if a given id or version
        is taken, or if there is no room.
        """
        check_metadata(metadata)
        request = registration.RegistrationRequest(
            subject=parse_subject(subject), schema=schema, schema_id=schema_id, version=version, metadata=metadata
        )
        return registration.register(self._state, request)

    def look_up(self, subject: str, schema: Schema, *, deleted: bool = False) -> Procedure[RegisteredVersion]:
        """Return the version of the subject that has this schema. `deleted`: soft-deleted versions count too. Raises
        `SubjectNotFound`, `SchemaNotFound`, or `InvalidSchema`."""
        lookup = LookupFilter.INCLUDE_DELETED if deleted else LookupFilter.ACTIVE
        return registration.look_up(self._state, parse_subject(subject), schema, lookup)

    def check(self, subject: str, schema: Schema, version: int | str | None = None) -> Procedure[list[Problem]]:
        """Return the problems that would keep the schema from being registered; empty if there are none. Raises
        `InvalidSchema`.

        With `version`, the schema is compared with that version alone, by the subject's compatibility. Raises
        `VersionNotFound` if the subject does not have it.
        """
        number = None if version is None else parse_version(version)
        procedure = registration.check(self._state, parse_subject(subject), schema, number, one=version is not None)
        return at_low_priority(procedure)

    def check_pair(self, reader: Schema, writer: Schema, *, lenient: bool = False) -> Procedure[list[Problem]]:
        """Return the reasons why a reader with `reader` could not read data written with `writer`; empty if it can. No
        subject is involved. Raises `InvalidSchema`."""
        return at_low_priority(registration.check_pair(self._state, reader, writer, lenient=lenient))

    # deletion

    def delete_version(
        self, subject: str, version: int | str, *, permanent: bool = False, archived: bool = False
    ) -> Procedure[int]:
        """Soft-delete a version or, with `permanent`, delete a soft-deleted version for good. Returns its number.

        Raises `VersionSoftDeleted` for a second soft delete, and `VersionNotSoftDeleted` for a permanent one without a
        soft delete before. Raises `ReferenceExists` while other schemas refer to the version, and for a permanent
        delete also while messages have its id. `archived`: messages in archives do not count, only those of topics.
        """
        number, options = parse_version(version), DeletionOptions(permanent=permanent, archived=archived)
        return deletion.delete_version(self._state, parse_subject(subject), number, options)

    def delete_subject(
        self, subject: str, *, permanent: bool = False, archived: bool = False
    ) -> Procedure[tuple[int, ...]]:
        """Delete all versions of a subject, like `delete_version`. Returns their numbers. Raises `SubjectSoftDeleted`
        for a second soft delete, `SubjectNotSoftDeleted` for a permanent one while a version is not soft-deleted, and
        `ReferenceExists`."""
        options = DeletionOptions(permanent=permanent, archived=archived)
        return deletion.delete_subject(self._state, parse_subject(subject), options)

    def undelete(self, subject: str, version: int | str | None = None) -> Procedure[tuple[int, ...]]:
        """Undelete a soft-deleted version or, without `version`, all of the subject. Returns the numbers of the
        undeleted versions.

        They are not compared with versions that were registered since. Raises `InvalidVersion` for the latest version,
        and `OperationNotPermitted` if they refer to a version that is deleted.
        """
        number = None if version is None else parse_version(version)
        if version is not None and number is None:
            raise InvalidVersion("What was deleted has no latest version: name the one to be brought back")
        return deletion.undelete(self._state, parse_subject(subject), number)

    # settings; without a subject, the global ones

    def compatibility(self, subject: str | None = None, *, default_to_global: bool = False) -> CompatibilityConfig:
        """Return the settings in force. Raises `CompatibilityNotConfigured` if the subject has none of its own, unless
        `default_to_global`."""
        return configuration.own_compatibility(self._state.index, _scope(subject), default_to_global=default_to_global)

    def set_compatibility(
        self, subject: str | None, compatibility: str | None = None, *, lenient: bool | None = None
    ) -> Procedure[CompatibilityConfig]:
        """Change the settings that are not `None` and return the settings in force. Raises `InvalidCompatibility`."""
        level = None if compatibility is None else parse_compatibility(compatibility)
        return configuration.set_compatibility(self._state, _scope(subject), level, lenient=lenient)

    def clear_compatibility(self, subject: str | None) -> Procedure[CompatibilityConfig]:
        """Clear the settings and return the previous ones. Raises `SubjectNotFound` if the subject had none of its
        own."""
        return configuration.clear_compatibility(self._state, _scope(subject))

    def mode(self, subject: str | None = None, *, default_to_global: bool = False) -> SubjectMode:
        """Return the mode in force. Raises `ModeNotConfigured` if the subject has none of its own, unless
        `default_to_global`."""
        return configuration.own_mode(self._state.index, _scope(subject), default_to_global=default_to_global)

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> Procedure[SubjectMode]:
        """Set the mode. Raises `InvalidMode`; `OperationNotPermitted` for `IMPORT` where schemas exist, unless
        `force`."""
        return configuration.set_mode(self._state, _scope(subject), parse_mode(mode), force=force)

    def clear_mode(self, subject: str | None) -> Procedure[SubjectMode]:
        """Clear the mode and return the previous one. Raises `SubjectNotFound` if the subject had none of its own."""
        return configuration.clear_mode(self._state, _scope(subject))

    # metadata of a version

    def deprecate(self, subject: str, version: int | str, message: str | None) -> Procedure[RegisteredVersion]:
        """Set the message that says why a version should not be used any more; `None` removes it."""
        check_text("deprecated", message or "", DESCRIPTION_CHARS_MAX)
        return self._edit_version(subject, version, lambda stored_version: replace(stored_version, deprecated=message))

    def describe(
        self, subject: str, version: int | str, *, description: str | None = None, tags: Sequence[str] | None = None
    ) -> Procedure[RegisteredVersion]:
        """Set the description or the tags of a version, or both; `None` leaves one as it is. Returns the version."""

        def change(stored_version: SubjectVersion) -> SubjectVersion:
            metadata = replace(
                stored_version.metadata,
                description=stored_version.metadata.description if description is None else description,
                tags=stored_version.metadata.tags if tags is None else tuple(tags),
            )
            check_metadata(metadata)
            return replace(stored_version, metadata=metadata)

        return self._edit_version(subject, version, change)

    def _edit_version(
        self, subject: str, version: int | str, change: configuration.VersionEdit
    ) -> Procedure[RegisteredVersion]:
        return configuration.edit_version(self._state, parse_subject(subject), parse_version(version), change)

    # export, import, refresh

    def export(self, prefix: str = "") -> list[dict[str, Any]]:
        """Return all versions of the subjects whose names begin with `prefix`, their references, and settings; see
        `transfer`."""
        return transfer.export_records(self._state.index, subject_prefix(prefix))

    def import_(self, records: Sequence[Mapping[str, Any]]) -> Procedure[ImportResult]:
        """Import records, each whole or not at all, with their ids and versions; repeating an import changes nothing.

        The result names the records that were refused, such as one whose id or version is another schema here.
        """
        return transfer.import_records(self._state, records)

    def refresh(self) -> Procedure[None]:
        """Apply the changes that other processes have made."""
        return self._state.catch_up()


def _scope(subject: str | None) -> str:
    return GLOBAL_SUBJECT if subject is None else parse_subject(subject)


def _status_rank(status: VersionStatus) -> tuple[bool, bool]:
    return status.deleted, status.deprecated is not None
