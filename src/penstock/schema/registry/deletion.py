"""Deletion of versions and subjects, first soft and then permanent, and undeletion of soft-deleted ones."""

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
    """Delete permanently a version that was soft-deleted before."""

    archived: bool = False
    """Delete also where archives have messages with the schema."""


def delete_version(state: RegistryState, subject: str, version: int | None, options: DeletionOptions) -> Procedure[int]:
    return state.retry_on_conflict(lambda: _delete_version(state, subject, version, options))


def _delete_version(
    state: RegistryState, subject: str, version: int | None, options: DeletionOptions
) -> Procedure[int]:
    found = state.index.version(
        subject, version, LookupFilter.ACTIVE if version is None else LookupFilter.INCLUDE_DELETED
    )
    check_writable(state.index, subject)
    if found.deleted and not options.permanent:
        raise VersionSoftDeleted(
            f"Subject '{subject}' Version {found.version} was soft deleted.Set permanent=true to delete permanently"
        )
    if options.permanent and not found.deleted:
        raise VersionNotSoftDeleted(
            f"Subject '{subject}' Version {found.version} was not deleted first before being permanently deleted"
        )
    yield from _delete(state, (found,), options)
    return found.version


def delete_subject(state: RegistryState, subject: str, options: DeletionOptions) -> Procedure[tuple[int, ...]]:
    return state.retry_on_conflict(lambda: _delete_subject(state, subject, options))


def _delete_subject(state: RegistryState, subject: str, options: DeletionOptions) -> Procedure[tuple[int, ...]]:
    everything = state.index.known_versions(subject, LookupFilter.INCLUDE_DELETED)
    living = state.index.versions(subject)
    check_writable(state.index, subject)
    if options.permanent and living:
        raise SubjectNotSoftDeleted(f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not options.permanent and not living:
        raise SubjectSoftDeleted(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
    going = everything if options.permanent else living
    yield from _delete(state, going, options)
    return tuple(version.version for version in going)


def _delete(state: RegistryState, going: Sequence[SubjectVersion], options: DeletionOptions) -> Procedure[None]:
    subject, expected = going[0].subject, state.index.expected_revisions(going[0].subject)
    numbers = [version.version for version in going]
    _check_unreferenced(state.index, going, LookupFilter.INCLUDE_DELETED if options.permanent else LookupFilter.ACTIVE)
    if not options.permanent:
        gone = [replace(version, deleted=True) for version in going]
        yield from state.commit(lambda: state.catalog.replace_versions(gone, expected=expected))
        return
    remove = partial(state.catalog.remove_versions, subject, numbers, expected=expected, archived=options.archived)
    try:
        yield from state.commit(remove)
    except SchemaInUse as error:
        raise ReferenceExists(f"Messages are kept that need the schema: {error.message}", **error.details) from error


def _check_unreferenced(index: RegistryIndex, going: Sequence[SubjectVersion], lookup: LookupFilter) -> None:
    """Raise `ReferenceExists` if a schema that stays refers to one that is deleted.

    A soft-deleted schema may be referred to by deleted ones; a permanently deleted one by none, or those could never be
    read.
    """
    leaving = {(version.subject, version.version) for version in going}
    for version in going:
        for referrer in index.referrers(version.subject, version.version, lookup):
            staying = [place for place in index.holders(referrer, lookup) if place not in leaving]
            if staying:
                subject, number = staying[0]
                raise ReferenceExists(
                    "One or more references exist to the schema"
                    f" {{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}."
                    f" Version {number} of subject '{subject}' (schema id {referrer}) refers to it.",
                    referrer=referrer,
                )


def undelete(state: RegistryState, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    """Undelete a version; `None` means every deleted version of the subject."""
    return state.retry_on_conflict(lambda: _undelete(state, subject, version))


def _undelete(state: RegistryState, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    index, expected = state.index, state.index.expected_revisions(subject)
    everything = index.known_versions(subject, LookupFilter.INCLUDE_DELETED)
    chosen = everything if version is None else (index.version(subject, version, LookupFilter.INCLUDE_DELETED),)
    coming = [replace(each, deleted=False) for each in chosen if each.deleted]
    if not coming:
        return ()
    check_writable(index, subject)
    _check_references(index, coming)
    yield from state.commit(lambda: state.catalog.replace_versions(coming, expected=expected))
    return tuple(each.version for each in coming)


def _check_references(index: RegistryIndex, coming: Sequence[SubjectVersion]) -> None:
    back = {(version.subject, version.version) for version in coming}
    for version in coming:
        for reference in index.schema(version.schema_id).schema.references:
            place = reference.subject, reference.version
            if place not in back and index.find(*place) is None:
                raise OperationNotPermitted(
                    f"Version {version.version} of subject '{version.subject}' refers to version {reference.version} of"
                    f" '{reference.subject}', which is deleted: undelete that first"
                )
