"""Deletion of versions and subjects, soft at first and then permanent, and undeletion of soft-deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.schema.errors import (
    OperationNotPermitted,
    ReferenceExists,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import LookupFilter
from penstock.schema.registry.registration import check_writable
from penstock.schema.registry.state import RegistryState
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import SchemaInUse, SubjectVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOptions:
    """Options of a deletion."""

    permanent: bool = False
    """Delete for good, which needs a soft delete before."""

    archived: bool = False
    """Delete permanently even if archives have messages with the schema."""


def delete_version(state: RegistryState, subject: str, version: int | None, options: DeletionOptions) -> Procedure[int]:
    return state.retry_on_conflict(lambda: _delete_version(state, subject, version, options))


def _delete_version(
    state: RegistryState, subject: str, version: int | None, options: DeletionOptions
) -> Procedure[int]:
    target = state.index.version(
        subject, version, LookupFilter.ACTIVE if version is None else LookupFilter.INCLUDE_DELETED
    )
    check_writable(state.index, subject)
    if target.deleted and not options.permanent:
        raise VersionSoftDeleted(
            f"Subject '{subject}' Version {target.version} was soft deleted.Set permanent=true to delete permanently"
        )
    if options.permanent and not target.deleted:
        raise VersionNotSoftDeleted(
            f"Subject '{subject}' Version {target.version} was not deleted first before being permanently deleted"
        )
    yield from _delete(state, (target,), options)
    return target.version


def delete_subject(state: RegistryState, subject: str, options: DeletionOptions) -> Procedure[tuple[int, ...]]:
    return state.retry_on_conflict(lambda: _delete_subject(state, subject, options))


def _delete_subject(state: RegistryState, subject: str, options: DeletionOptions) -> Procedure[tuple[int, ...]]:
    all_versions = state.index.known_versions(subject, LookupFilter.INCLUDE_DELETED)
    active = state.index.versions(subject)
    check_writable(state.index, subject)
    if options.permanent and active:
        raise SubjectNotSoftDeleted(f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not options.permanent and not active:
        raise SubjectSoftDeleted(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
    targets = all_versions if options.permanent else active
    yield from _delete(state, targets, options)
    return tuple(version.version for version in targets)


def _delete(state: RegistryState, targets: Sequence[SubjectVersion], options: DeletionOptions) -> Procedure[None]:
    subject, expected = targets[0].subject, state.index.expected_revisions(targets[0].subject)
    numbers = [version.version for version in targets]
    _check_unreferenced(
        state.index, targets, LookupFilter.INCLUDE_DELETED if options.permanent else LookupFilter.ACTIVE
    )
    if not options.permanent:
        deleted = [replace(version, deleted=True) for version in targets]
        yield from state.commit(lambda: state.catalog.replace_versions(deleted, expected=expected))
        return
    remove = partial(state.catalog.remove_versions, subject, numbers, expected=expected, archived=options.archived)
    try:
        yield from state.commit(remove)
    except SchemaInUse as error:
        raise ReferenceExists(f"Messages are kept that need the schema: {error.message}", **error.details) from error


def _check_unreferenced(index: RegistryIndex, deleted: Sequence[SubjectVersion], lookup: LookupFilter) -> None:
    """Raise `ReferenceExists` if a version that stays refers to one that is deleted. `lookup` selects the referring
    versions that count.

    Soft-deleted versions may refer to a version that is soft-deleted. No version may refer to one that is permanently
    deleted, because it could never be read again.
    """
    deleted_keys = {(version.subject, version.version) for version in deleted}
    for version in deleted:
        for referrer in index.referrers(version.subject, version.version, lookup):
            staying = [key for key in index.holders(referrer, lookup) if key not in deleted_keys]
            if staying:
                subject, number = staying[0]
                raise ReferenceExists(
                    "One or more references exist to the schema"
                    f" {{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}."
                    f" Version {number} of subject '{subject}' (schema id {referrer}) refers to it.",
                    referrer=referrer,
                )


def undelete(state: RegistryState, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    """Undelete a version, or with `None` every soft-deleted version of the subject. Returns the numbers of the
    undeleted versions."""
    return state.retry_on_conflict(lambda: _undelete(state, subject, version))


def _undelete(state: RegistryState, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    index, expected = state.index, state.index.expected_revisions(subject)
    all_versions = index.known_versions(subject, LookupFilter.INCLUDE_DELETED)
    chosen = all_versions if version is None else (index.version(subject, version, LookupFilter.INCLUDE_DELETED),)
    undeleted = [replace(stored_version, deleted=False) for stored_version in chosen if stored_version.deleted]
    if not undeleted:
        return ()
    check_writable(index, subject)
    _check_references(index, undeleted)
    yield from state.commit(lambda: state.catalog.replace_versions(undeleted, expected=expected))
    return tuple(stored_version.version for stored_version in undeleted)


def _check_references(index: RegistryIndex, undeleted: Sequence[SubjectVersion]) -> None:
    undeleted_keys = {(version.subject, version.version) for version in undeleted}
    for version in undeleted:
        for reference in index.schema(version.schema_id).schema.references:
            key = reference.subject, reference.version
            if key not in undeleted_keys and index.find(*key) is None:
                raise OperationNotPermitted(
                    f"Version {version.version} of subject '{version.subject}' refers to version {reference.version} of"
                    f" '{reference.subject}', which is deleted: undelete that first"
                )
