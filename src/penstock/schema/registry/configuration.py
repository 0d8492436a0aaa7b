"""The settings of one subject or of all subjects: compatibility and mode. Also changes to a version's metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.core.schemas import Compatibility, SubjectMode
from penstock.schema.errors import (
    CompatibilityNotConfigured,
    ModeNotConfigured,
    OperationNotPermitted,
    SubjectNotFound,
)
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import CompatibilityConfig, LookupFilter, RegisteredVersion
from penstock.schema.registry.registration import check_writable
from penstock.schema.registry.state import RegistryState
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import GLOBAL_SUBJECT, SubjectSettings, SubjectVersion

Edit = Callable[[SubjectSettings], SubjectSettings]
VersionEdit = Callable[[SubjectVersion], SubjectVersion]


def own_compatibility(index: RegistryIndex, subject: str, *, default_to_global: bool) -> CompatibilityConfig:
    """Return the compatibility settings in force for a subject. Raises `CompatibilityNotConfigured` if it has none of
    its own and `default_to_global` is off."""
    if not _has_compatibility(index.subject(subject).settings) and subject != GLOBAL_SUBJECT and not default_to_global:
        raise CompatibilityNotConfigured(
            f"Subject '{subject}' does not have subject-level compatibility configured", subject=subject
        )
    return index.compatibility_config(subject)


def _has_compatibility(settings: SubjectSettings) -> bool:
    return settings.compatibility is not None or settings.lenient is not None


def own_mode(index: RegistryIndex, subject: str, *, default_to_global: bool) -> SubjectMode:
    """Return the mode in force for a subject. Raises `ModeNotConfigured` if it has none of its own and
    `default_to_global` is off."""
    own = index.subject(subject).settings.mode
    if own is None and subject != GLOBAL_SUBJECT and not default_to_global:
        raise ModeNotConfigured(f"Subject '{subject}' does not have subject-level mode configured", subject=subject)
    return own or index.mode(subject)


def set_compatibility(
    state: RegistryState, subject: str, compatibility: Compatibility | None, *, lenient: bool | None
) -> Procedure[CompatibilityConfig]:
    def edit(settings: SubjectSettings) -> SubjectSettings:
        check_writable(state.index, subject)
        return replace(
            settings,
            compatibility=compatibility or settings.compatibility,
            lenient=settings.lenient if lenient is None else lenient,
        )

    yield from edit_settings(state, subject, edit)
    return state.index.compatibility_config(subject)


def clear_compatibility(state: RegistryState, subject: str) -> Procedure[CompatibilityConfig]:
    """Clear a subject's compatibility; return what was in force. Raises `SubjectNotFound` if it had none of its own."""
    before = state.index.compatibility_config(subject)

    def edit(settings: SubjectSettings) -> SubjectSettings:
        _check_configured(subject, configured=_has_compatibility(settings))
        check_writable(state.index, subject)
        return replace(settings, compatibility=None, lenient=None)

    yield from edit_settings(state, subject, edit)
    return before


def set_mode(state: RegistryState, subject: str, mode: SubjectMode, *, force: bool) -> Procedure[SubjectMode]:
    def edit(settings: SubjectSettings) -> SubjectSettings:
        if mode is SubjectMode.IMPORT and not force:
            _check_empty(state.index, subject)
        return replace(settings, mode=mode)

    yield from edit_settings(state, subject, edit)
    return mode


def clear_mode(state: RegistryState, subject: str) -> Procedure[SubjectMode]:
    """Clear a subject's mode; return the mode that was in force. Raises `SubjectNotFound` if it had none of its own."""
    before = own_mode(state.index, subject, default_to_global=True)

    def edit(settings: SubjectSettings) -> SubjectSettings:
        _check_configured(subject, configured=settings.mode is not None)
        return replace(settings, mode=None)

    yield from edit_settings(state, subject, edit)
    return before


def edit_settings(state: RegistryState, subject: str, edit: Edit) -> Procedure[SubjectSettings]:
    """Change a subject's own settings; return the previous ones. The change is durable then."""
    return state.retry_on_conflict(lambda: _edited(state, subject, edit))


def _edited(state: RegistryState, subject: str, edit: Edit) -> Procedure[SubjectSettings]:
    index, expected = state.index, state.index.expected_revisions(subject)
    before = index.subject(subject).settings
    settings = edit(before)
    if settings != before:
        index.check_subject_room(subject)
        yield from state.commit(lambda: state.catalog.put_settings(subject, settings, expected=expected))
    return before


def _check_configured(subject: str, *, configured: bool) -> None:
    if subject != GLOBAL_SUBJECT and not configured:
        raise SubjectNotFound(f"Subject '{subject}' not found.", subject=subject)


def _check_empty(index: RegistryIndex, subject: str) -> None:
    """Raise `OperationNotPermitted` if schemas exist, unless the import mode is on already. Imported schemas bring
    their ids and versions, which could collide with existing ones."""
    there = index.subjects() if subject == GLOBAL_SUBJECT else index.versions(subject)
    if there and index.mode(subject) is not SubjectMode.IMPORT:
        raise OperationNotPermitted("Cannot import since found existing subjects", subject=subject)


def edit_version(
    state: RegistryState, subject: str, version: int | None, change: VersionEdit
) -> Procedure[RegisteredVersion]:
    """Change a version's metadata and return the version. It may be soft-deleted; `None` is the latest that is not
    deleted."""
    return state.retry_on_conflict(lambda: _edited_version(state, subject, version, change))


def _edited_version(
    state: RegistryState, subject: str, version: int | None, change: VersionEdit
) -> Procedure[RegisteredVersion]:
    index, expected = state.index, state.index.expected_revisions(subject)
    stored_version = index.version(
        subject, version, LookupFilter.ACTIVE if version is None else LookupFilter.INCLUDE_DELETED
    )
    changed, stored = change(stored_version), index.schema(stored_version.schema_id)
    if changed != stored_version:
        check_writable(index, subject)
        yield from state.commit(lambda: state.catalog.replace_versions([changed], expected=expected))
    return RegisteredVersion.of(changed, stored)
