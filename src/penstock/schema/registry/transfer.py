"""Export and import of a registry as plain records, with the same ids and versions.

A record is one version, or the settings of one subject. Records are in the order in which they can be imported:
referenced versions first, settings last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from penstock.core.schemas import Compatibility, Reference, Schema, SchemaKind, SubjectMode
from penstock.schema.errors import RegistryError
from penstock.schema.registry.configuration import edit_settings
from penstock.schema.registry.index import RegistryIndex, VersionKey
from penstock.schema.registry.models import (
    DESCRIPTION_CHARS_MAX,
    LookupFilter,
    check_metadata,
    check_text,
    parse_subject,
    printable,
)
from penstock.schema.registry.references import resolve_references
from penstock.schema.registry.registration import check_free, check_writable, fingerprints
from penstock.schema.registry.state import RegistryState
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import (
    GLOBAL_SUBJECT,
    NewVersion,
    SubjectSettings,
    SubjectVersion,
    VersionMetadata,
)

RECORDS_MAX: Final = 10_000
"""Records of one import: known ones are looked up in one go, in about a tenth of a second."""


class ReferenceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    subject: str
    version: int


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    subject: str
    version: int
    id: int
    schema_type: SchemaKind
    schema: str
    references: list[ReferenceRecord] = []
    deleted: bool = False
    deprecated: str | None = None
    description: str = ""
    tags: list[str] = []
    created_by: str = ""
    created_ms: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None


class SettingsRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one subject, or of all if it names none. A setting that is left out is not set."""

    subject: str = GLOBAL_SUBJECT
    compatibility: Compatibility | None = None
    lenient: bool | None = None
    mode: SubjectMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """A record that was not imported, and the reason."""

    index: int
    subject: str
    version: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    imported: int
    known: int
    """Records that existed already, unchanged."""
    refused: tuple[RefusedRecord, ...]


def export_records(index: RegistryIndex, prefix: str) -> list[dict[str, Any]]:
    """Return records of all versions and settings of the subjects whose names begin with `prefix`, and of the versions
    that these refer to."""
    versions = [
        _version_record(index, version)
        for version in _in_order(index, index.subjects(prefix, LookupFilter.INCLUDE_DELETED))
    ]
    return [msgspec.to_builtins(record) for record in (*versions, *_settings_records(index, prefix))]


def _in_order(index: RegistryIndex, subjects: Iterable[str]) -> Iterator[SubjectVersion]:
    seen: set[VersionKey] = set()

    def walk(version: SubjectVersion) -> Iterator[SubjectVersion]:
        if (version.subject, version.version) not in seen:
            seen.add((version.subject, version.version))
            for reference in index.schema(version.schema_id).schema.references:
                yield from walk(index.version(reference.subject, reference.version, LookupFilter.INCLUDE_DELETED))
            yield version

    for subject in subjects:
        for version in index.versions(subject, LookupFilter.INCLUDE_DELETED):
            yield from walk(version)


def _version_record(index: RegistryIndex, version: SubjectVersion) -> VersionRecord:
    schema = index.schema(version.schema_id).schema
    return VersionRecord(
        subject=version.subject,
        version=version.version,
        id=version.schema_id,
        schema_type=schema.kind,
        schema=schema.text,
        references=[
            ReferenceRecord(reference.name, reference.subject, reference.version) for reference in schema.references
        ],
        deleted=version.deleted,
        deprecated=version.deprecated,
        description=version.metadata.description,
        tags=list(version.metadata.tags),
        created_by=version.metadata.created_by,
        created_ms=version.created_ms,
    )


def _settings_records(index: RegistryIndex, prefix: str) -> Iterator[SettingsRecord]:
    for name in index.known_subjects():
        settings = index.subject(name).settings
        if name.startswith(prefix) and settings != SubjectSettings():
            yield SettingsRecord(
                subject=name, compatibility=settings.compatibility, lenient=settings.lenient, mode=settings.mode
            )


def import_records(state: RegistryState, records: Sequence[Mapping[str, Any]]) -> Procedure[ImportResult]:
    """Import each record that does not exist yet, whole or not at all, and go on with the next.

    Raises `RegistryError` for more than `RECORDS_MAX` records, before any is imported.
    """
    if len(records) > RECORDS_MAX:
        raise RegistryError(
            f"an import has at most {RECORDS_MAX} records, not {len(records)}: send them in parts", limit=RECORDS_MAX
        )
    imported, refused = 0, []
    missing: set[VersionKey] = set()
    for index, record in enumerate(records):
        try:
            imported += yield from _import_record(state, record, missing)
        except RegistryError as error:
            refused.append(_refused_record(index, record, error))
            missing.add((refused[-1].subject, refused[-1].version or 0))
    return ImportResult(imported=imported, known=len(records) - imported - len(refused), refused=tuple(refused))


def _refused_record(index: int, record: Mapping[str, Any], error: RegistryError) -> RefusedRecord:
    version = record.get("version")
    return RefusedRecord(
        index=index,
        subject=printable(str(record.get("subject", GLOBAL_SUBJECT))),
        version=version if isinstance(version, int) and not isinstance(version, bool) else None,
        message=error.message,
    )


def _import_record(state: RegistryState, record: Mapping[str, Any], missing: set[VersionKey]) -> Procedure[bool]:
    if "version" in record:
        version = _parse_record(record, VersionRecord)
        _check_references_imported(version, missing)
        return (yield from state.retry_on_conflict(lambda: _import_version(state, version)))
    return (yield from _import_settings(state, _parse_record(record, SettingsRecord)))


def _check_references_imported(record: VersionRecord, missing: set[VersionKey]) -> None:
    """Raise `RegistryError` for a record that refers to a record refused in this import: under that version this
    registry may have another schema."""
    for reference in record.references:
        if (reference.subject, reference.version) in missing:
            raise RegistryError(
                f"it refers to version {reference.version} of '{reference.subject}', which was not taken in"
            )


def _parse_record(record: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(dict(record), kind)
    except msgspec.ValidationError as error:
        raise RegistryError(f"it is no record of an export: {error}") from None


def _import_version(state: RegistryState, record: VersionRecord) -> Procedure[bool]:
    """Import a version; return True if it was new."""
    subject, metadata = parse_subject(record.subject), _metadata(record)
    schema, definition = resolve_references(
        state.index, _schema(record), LookupFilter.INCLUDE_DELETED if record.deleted else LookupFilter.ACTIVE
    )
    fingerprint, *legacy = yield from fingerprints(state, subject, schema, definition)
    index, expected = state.index, state.index.expected_revisions(subject)
    known = index.find(subject, record.version, LookupFilter.INCLUDE_DELETED)
    ids = {index.id_of(known_fingerprint) for known_fingerprint in (fingerprint, *legacy)}
    if known is not None and known.schema_id == record.id and record.id in ids:
        return False
    check_writable(index, subject)
    check_free(index, subject, record.version, record.id, fingerprint)
    index.check_room(subject, fingerprint, schema.text)
    new = NewVersion(
        subject=subject,
        schema=schema,
        fingerprint=fingerprint,
        metadata=metadata,
        schema_id=record.id,
        version=record.version,
        deleted=record.deleted,
        deprecated=record.deprecated,
        created_ms=record.created_ms,
    )
    yield from state.commit(lambda: state.catalog.add_version(new, expected=expected))
    return True


def _schema(record: VersionRecord) -> Schema:
    references = (
        Reference(name=reference.name, subject=reference.subject, version=reference.version)
        for reference in record.references
    )
    return Schema(kind=record.schema_type, text=record.schema, references=tuple(references))


def _metadata(record: VersionRecord) -> VersionMetadata:
    metadata = VersionMetadata(description=record.description, tags=tuple(record.tags), created_by=record.created_by)
    check_metadata(metadata)
    check_text("deprecated", record.deprecated or "", DESCRIPTION_CHARS_MAX)
    return metadata


def _import_settings(state: RegistryState, record: SettingsRecord) -> Procedure[bool]:
    subject = parse_subject(record.subject) if record.subject else GLOBAL_SUBJECT
    settings = SubjectSettings(compatibility=record.compatibility, lenient=record.lenient, mode=record.mode)
    if settings == SubjectSettings():
        raise RegistryError("it is no record of an export: it has no version, and sets nothing")

    def edit(known: SubjectSettings) -> SubjectSettings:
        if known not in (SubjectSettings(), settings):
            raise RegistryError("it has other settings here, and they are left alone")
        return settings

    before = yield from edit_settings(state, subject, edit)
    return before != settings
