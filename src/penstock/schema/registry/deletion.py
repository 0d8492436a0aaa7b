"""Deleting versions and subjects, softly and then for good, and bringing back what was deleted softly."""

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
from penstock.schema.registry.index import Image
from penstock.schema.registry.models import Which
from penstock.schema.registry.registration import check_writable
from penstock.schema.registry.state import Books
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import SchemaInUse, SubjectVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How much of it goes."""

    permanent: bool = False
    """For good, what was deleted softly before."""

    archived: bool = False
    """Also where archives have messages of it."""


def delete_version(books: Books, subject: str, version: int | None, grade: Grade) -> Procedure[int]:
    return books.deciding(lambda: _delete_version(books, subject, version, grade))


def _delete_version(books: Books, subject: str, version: int | None, grade: Grade) -> Procedure[int]:
    found = books.image.version(subject, version, Which.LIVING if version is None else Which.ALL)
    check_writable(books.image, subject)
    if found.deleted and not grade.permanent:
        raise VersionSoftDeleted(
            f"Subject '{subject}' Version {found.version} was soft deleted.Set permanent=true to delete permanently"
        )
    if grade.permanent and not found.deleted:
        raise VersionNotSoftDeleted(
            f"Subject '{subject}' Version {found.version} was not deleted first before being permanently deleted"
        )
    yield from _delete(books, (found,), grade)
    return found.version


def delete_subject(books: Books, subject: str, grade: Grade) -> Procedure[tuple[int, ...]]:
    return books.deciding(lambda: _delete_subject(books, subject, grade))


def _delete_subject(books: Books, subject: str, grade: Grade) -> Procedure[tuple[int, ...]]:
    everything = books.image.known_versions(subject, Which.ALL)
    living = books.image.versions(subject)
    check_writable(books.image, subject)
    if grade.permanent and living:
        raise SubjectNotSoftDeleted(f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not grade.permanent and not living:
        raise SubjectSoftDeleted(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
    going = everything if grade.permanent else living
    yield from _delete(books, going, grade)
    return tuple(version.version for version in going)


def _delete(books: Books, going: Sequence[SubjectVersion], grade: Grade) -> Procedure[None]:
    subject, expected = going[0].subject, books.image.stamps(going[0].subject)
    numbers = [version.version for version in going]
    _check_unreferred(books.image, going, Which.ALL if grade.permanent else Which.LIVING)
    if not grade.permanent:
        gone = [replace(version, deleted=True) for version in going]
        yield from books.commit(lambda: books.catalog.replace_versions(gone, expected=expected))
        return
    remove = partial(books.catalog.remove_versions, subject, numbers, expected=expected, archived=grade.archived)
    try:
        yield from books.commit(remove)
    except SchemaInUse as error:
        raise ReferenceExists(f"Messages are kept that need the schema: {error.message}", **error.details) from error


def _check_unreferred(image: Image, going: Sequence[SubjectVersion], which: Which) -> None:
    """Raises `ReferenceExists` if a schema that stays refers to one that goes.

    What goes softly may be referred to by what is deleted; what goes for good by nothing, or that could never be read.
    """
    leaving = {(version.subject, version.version) for version in going}
    for version in going:
        for referrer in image.referrers(version.subject, version.version, which):
            staying = [place for place in image.holders(referrer, which) if place not in leaving]
            if staying:
                subject, number = staying[0]
                raise ReferenceExists(
                    "One or more references exist to the schema"
                    f" {{magic=1,keytype=SCHEMA,subject={version.subject},version={version.version}}}."
                    f" Version {number} of subject '{subject}' (schema id {referrer}) refers to it.",
                    referrer=referrer,
                )


def undelete(books: Books, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    """`None`: every version that is deleted."""
    return books.deciding(lambda: _undelete(books, subject, version))


def _undelete(books: Books, subject: str, version: int | None) -> Procedure[tuple[int, ...]]:
    image, expected = books.image, books.image.stamps(subject)
    everything = image.known_versions(subject, Which.ALL)
    chosen = everything if version is None else (image.version(subject, version, Which.ALL),)
    coming = [replace(each, deleted=False) for each in chosen if each.deleted]
    if not coming:
        return ()
    check_writable(image, subject)
    _check_references(image, coming)
    yield from books.commit(lambda: books.catalog.replace_versions(coming, expected=expected))
    return tuple(each.version for each in coming)


def _check_references(image: Image, coming: Sequence[SubjectVersion]) -> None:
    back = {(version.subject, version.version) for version in coming}
    for version in coming:
        for reference in image.schema(version.schema_id).schema.references:
            place = reference.subject, reference.version
            if place not in back and image.find(*place) is None:
                raise OperationNotPermitted(
                    f"Version {version.version} of subject '{version.subject}' refers to version {reference.version} of"
                    f" '{reference.subject}', which is deleted: undelete that first"
                )
