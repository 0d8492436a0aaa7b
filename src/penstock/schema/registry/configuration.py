"""Settings of a subject, or of all of them: what new versions are held to, and what may be done at all; and what is
said about a version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.core.schemas import Compatibility, Mode
from penstock.schema.errors import (
    CompatibilityNotConfigured,
    ModeNotConfigured,
    OperationNotPermitted,
    SubjectNotFound,
)
from penstock.schema.registry.index import Image
from penstock.schema.registry.models import Registered, Rules, Which
from penstock.schema.registry.registration import check_writable
from penstock.schema.registry.state import Books
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import GLOBAL_SUBJECT, SubjectSettings, SubjectVersion

Edit = Callable[[SubjectSettings], SubjectSettings]
Amendment = Callable[[SubjectVersion], SubjectVersion]


def own_rules(image: Image, subject: str, *, default_to_global: bool) -> Rules:
    """Raises `CompatibilityNotConfigured` if it has none of its own, and those of all will not do."""
    if not _has_rules(image.subject(subject).settings) and subject != GLOBAL_SUBJECT and not default_to_global:
        raise CompatibilityNotConfigured(
            f"Subject '{subject}' does not have subject-level compatibility configured", subject=subject
        )
    return image.rules(subject)


def _has_rules(settings: SubjectSettings) -> bool:
    return settings.compatibility is not None or settings.lenient is not None


def own_mode(image: Image, subject: str, *, default_to_global: bool) -> Mode:
    """Raises `ModeNotConfigured` likewise."""
    own = image.subject(subject).settings.mode
    if own is None and subject != GLOBAL_SUBJECT and not default_to_global:
        raise ModeNotConfigured(f"Subject '{subject}' does not have subject-level mode configured", subject=subject)
    return own or image.mode(subject)


def set_compatibility(
    books: Books, subject: str, compatibility: Compatibility | None, *, lenient: bool | None
) -> Procedure[Rules]:
    def edit(settings: SubjectSettings) -> SubjectSettings:
        check_writable(books.image, subject)
        return replace(
            settings,
            compatibility=compatibility or settings.compatibility,
            lenient=settings.lenient if lenient is None else lenient,
        )

    yield from edit_settings(books, subject, edit)
    return books.image.rules(subject)


def clear_compatibility(books: Books, subject: str) -> Procedure[Rules]:
    """Returns what it was. Raises `SubjectNotFound` if there was none of its own."""
    before = books.image.rules(subject)

    def edit(settings: SubjectSettings) -> SubjectSettings:
        _check_configured(subject, configured=_has_rules(settings))
        check_writable(books.image, subject)
        return replace(settings, compatibility=None, lenient=None)

    yield from edit_settings(books, subject, edit)
    return before


def set_mode(books: Books, subject: str, mode: Mode, *, force: bool) -> Procedure[Mode]:
    def edit(settings: SubjectSettings) -> SubjectSettings:
        if mode is Mode.IMPORT and not force:
            _check_empty(books.image, subject)
        return replace(settings, mode=mode)

    yield from edit_settings(books, subject, edit)
    return mode


def clear_mode(books: Books, subject: str) -> Procedure[Mode]:
    """Returns what it was. Raises `SubjectNotFound` if there was none of its own."""
    before = own_mode(books.image, subject, default_to_global=True)

    def edit(settings: SubjectSettings) -> SubjectSettings:
        _check_configured(subject, configured=settings.mode is not None)
        return replace(settings, mode=None)

    yield from edit_settings(books, subject, edit)
    return before


def edit_settings(books: Books, subject: str, edit: Edit) -> Procedure[SubjectSettings]:
    """Returns what they were before."""
    return books.deciding(lambda: _edited(books, subject, edit))


def _edited(books: Books, subject: str, edit: Edit) -> Procedure[SubjectSettings]:
    image, expected = books.image, books.image.stamps(subject)
    before = image.subject(subject).settings
    settings = edit(before)
    if settings != before:
        image.check_subject_room(subject)
        yield from books.commit(lambda: books.catalog.put_settings(subject, settings, expected=expected))
    return before


def _check_configured(subject: str, *, configured: bool) -> None:
    if subject != GLOBAL_SUBJECT and not configured:
        raise SubjectNotFound(f"Subject '{subject}' not found.", subject=subject)


def _check_empty(image: Image, subject: str) -> None:
    """What is imported comes with its ids and versions, and is not to meet others."""
    there = image.subjects() if subject == GLOBAL_SUBJECT else image.versions(subject)
    if there and image.mode(subject) is not Mode.IMPORT:
        raise OperationNotPermitted("Cannot import since found existing subjects", subject=subject)


def amend(books: Books, subject: str, version: int | None, change: Amendment) -> Procedure[Registered]:
    """Say something else about a version, deleted or not; `None` is the latest that is not."""
    return books.deciding(lambda: _amended(books, subject, version, change))


def _amended(books: Books, subject: str, version: int | None, change: Amendment) -> Procedure[Registered]:
    image, expected = books.image, books.image.stamps(subject)
    found = image.version(subject, version, Which.LIVING if version is None else Which.ALL)
    changed, stored = change(found), image.schema(found.schema_id)
    if changed != found:
        check_writable(image, subject)
        yield from books.commit(lambda: books.catalog.replace_versions([changed], expected=expected))
    return Registered.of(changed, stored)
