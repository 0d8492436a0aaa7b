"""Registration, lookup and compatibility checks of schemas: procedures over the registry's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.core.schemas import SCHEMA_VERSION_MAX, Definition, Schema, SchemaKind, SubjectMode
from penstock.schema.errors import (
    IncompatibleSchema,
    InvalidSchema,
    OperationNotPermitted,
    SchemaNotFound,
    VersionNotFound,
)
from penstock.schema.problems import Problem
from penstock.schema.registry.compatibility import check_candidate
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import LookupFilter, RegisteredVersion, fingerprint_of
from penstock.schema.registry.references import definition_of, resolve_references
from penstock.schema.registry.state import RegistryState
from penstock.schema.steps import CheckCompatibility, ParseSchema, Procedure, SchemaForm, SchemaPair
from penstock.storage.catalog.schema_rows import SCHEMA_ID_MAX, NewVersion, SubjectVersion, VersionMetadata

_NAMED_MAX: Final = 3
"""Problems named in the error message; the details have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRequest:
    """A schema to register; an import also has the id and version that it had elsewhere."""

    subject: str
    schema: Schema
    schema_id: int | None = None
    version: int | None = None
    metadata: VersionMetadata


def register(state: RegistryState, request: RegistrationRequest) -> Procedure[RegisteredVersion]:
    return state.retry_on_conflict(lambda: _register(state, request))


def _register(state: RegistryState, request: RegistrationRequest) -> Procedure[RegisteredVersion]:
    schema, definition = resolve_references(state.index, request.schema)
    fingerprint, *legacy = yield from fingerprints(state, request.subject, schema, definition)
    # Everything the decision rests on is read between two steps, so that it is a consistent snapshot.
    index, expected = state.index, state.index.expected_revisions(request.subject)
    known = _known_version(index, request.subject, (fingerprint, *legacy))
    if known is not None and _is_requested(known, request):
        return index.registered(known)
    mode = check_writable(index, request.subject)
    _check_numbers(index, request, fingerprint, mode)
    index.check_room(request.subject, fingerprint, schema.text)
    if mode is not SubjectMode.IMPORT:
        yield from _check_compatible(index, request.subject, definition)
    new = NewVersion(
        subject=request.subject,
        schema=schema,
        fingerprint=fingerprint,
        metadata=request.metadata,
        schema_id=request.schema_id,
        version=request.version,
    )
    update = yield from state.commit(lambda: state.catalog.add_version(new, expected=expected))
    return RegisteredVersion.of(update.versions[0], update.schemas[0])


def fingerprints(
    state: RegistryState, subject: str, schema: Schema, definition: Definition
) -> Procedure[tuple[str, ...]]:
    """Return the schema's fingerprint. The fingerprint that earlier releases computed follows, for a schema in Avro
    with names, if the subject has no version with the first one."""
    fingerprint = fingerprint_of(schema, (yield ParseSchema(definition)))
    texts = (definition.text, *(text for _, text in definition.references))
    named = schema.kind is SchemaKind.AVRO and any('"name' in text for text in texts)
    if not named or state.index.find_by_fingerprint(subject, fingerprint, LookupFilter.INCLUDE_DELETED) is not None:
        return (fingerprint,)
    return fingerprint, fingerprint_of(schema, (yield ParseSchema(definition, SchemaForm.FORMER)))


def _known_version(
    index: RegistryIndex, subject: str, fingerprints: Iterable[str], lookup: LookupFilter = LookupFilter.ACTIVE
) -> SubjectVersion | None:
    versions = (index.find_by_fingerprint(subject, fingerprint, lookup) for fingerprint in fingerprints)
    return next((fingerprint for fingerprint in versions if fingerprint is not None), None)


def _is_requested(known: SubjectVersion, request: RegistrationRequest) -> bool:
    return request.version in (None, known.version) and request.schema_id in (None, known.schema_id)


def check_writable(index: RegistryIndex, subject: str) -> SubjectMode:
    """Return the subject's mode. Raises `OperationNotPermitted` if it is read-only."""
    mode = index.mode(subject)
    if mode in (SubjectMode.READONLY, SubjectMode.READONLY_OVERRIDE):
        raise OperationNotPermitted(f"Subject {subject} is in read-only mode", subject=subject, mode=mode)
    return mode


def _check_numbers(index: RegistryIndex, request: RegistrationRequest, fingerprint: str, mode: SubjectMode) -> None:
    """Raise `OperationNotPermitted` for a given id outside of the import mode, for none in it, and for an id or a
    version that is taken. Raise `InvalidSchema` for a given version that is not the next one, outside of the import
    mode."""
    if request.schema_id is not None and mode is not SubjectMode.IMPORT:
        raise OperationNotPermitted(f"Subject {request.subject} is not in import mode", mode=mode)
    if request.schema_id is None and mode is SubjectMode.IMPORT:
        raise OperationNotPermitted(f"Subject {request.subject} is not in read-write mode", mode=mode)
    following = index.subject(request.subject).last_version + 1
    if request.version not in (None, following) and mode is not SubjectMode.IMPORT:
        raise InvalidSchema(
            f"Invalid schema: version {request.version} is not one more than the last version of subject"
            f" '{request.subject}', which makes {following}"
        )
    check_free(index, request.subject, request.version, request.schema_id, fingerprint)


def check_free(
    index: RegistryIndex, subject: str, version: int | None, schema_id: int | None, fingerprint: str
) -> None:
    """Raise `OperationNotPermitted`, with the reason, if this version or this id is taken or out of range."""
    if version is not None and not 1 <= version <= SCHEMA_VERSION_MAX:
        raise OperationNotPermitted(f"A version is a number from 1 to {SCHEMA_VERSION_MAX}, not {version}")
    if schema_id is not None and not 1 <= schema_id <= SCHEMA_ID_MAX:
        raise OperationNotPermitted(f"A schema id is a number from 1 to {SCHEMA_ID_MAX}, not {schema_id}")
    taken = None if version is None else index.find(subject, version, LookupFilter.INCLUDE_DELETED)
    if taken is not None:
        raise OperationNotPermitted(
            f"Version {version} of subject '{subject}' is there already, with schema id {taken.schema_id}",
            schema_id=taken.schema_id,
        )
    if schema_id is not None:
        _check_id(index, schema_id, fingerprint)


def _check_id(index: RegistryIndex, schema_id: int, fingerprint: str) -> None:
    known = index.id_of(fingerprint)
    if known is not None and known != schema_id:
        raise OperationNotPermitted(
            f"Schema already registered with id {known} instead of input id {schema_id}", schema_id=known
        )
    if known is None and index.has_id(schema_id):
        holders = ", ".join(f"version {version} of '{subject}'" for subject, version in index.holders(schema_id)[:3])
        raise OperationNotPermitted(
            f"Overwrite new schema with id {schema_id} is not permitted. It is another schema: {holders or 'deleted'}",
            schema_id=schema_id,
        )


def _check_compatible(index: RegistryIndex, subject: str, candidate: Definition) -> Procedure[None]:
    rules = index.compatibility_config(subject)
    problems = yield from check_candidate(candidate, _newest_first(index, index.versions(subject)), rules)
    if problems:
        raise IncompatibleSchema(
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            + "; ".join(problem.sentence() for problem in problems[:_NAMED_MAX])
            + (f"; and {len(problems) - _NAMED_MAX} more" if len(problems) > _NAMED_MAX else ""),
            problems=[problem.as_dict() for problem in problems],
            compatibility=rules.compatibility.value,
        )


def _newest_first(index: RegistryIndex, versions: Iterable[SubjectVersion]) -> Iterator[tuple[int, Definition]]:
    """Yield versions with their definitions, the newest first. Of several versions with the same schema, only the
    newest is included."""
    seen: set[int] = set()
    for version in sorted(versions, key=lambda stored_version: -stored_version.version):
        if version.schema_id not in seen:
            seen.add(version.schema_id)
            yield version.version, definition_of(index, index.schema(version.schema_id).schema)


def look_up(state: RegistryState, subject: str, schema: Schema, lookup: LookupFilter) -> Procedure[RegisteredVersion]:
    state.index.known_versions(subject, lookup)
    pinned, definition = resolve_references(state.index, schema, LookupFilter.INCLUDE_DELETED)
    known_by = yield from fingerprints(state, subject, pinned, definition)
    version = _known_version(state.index, subject, known_by, lookup)
    if version is None:
        raise SchemaNotFound("Schema not found", subject=subject)
    return state.index.registered(version)


def check(
    state: RegistryState, subject: str, schema: Schema, version: int | None, *, one: bool
) -> Procedure[list[Problem]]:
    """Return the problems of a schema with the versions that the subject's settings demand. With `one`, it is compared
    with `version` alone, of which `None` is the latest."""
    _, definition = resolve_references(state.index, schema)
    yield ParseSchema(definition)
    index = state.index
    versions = _compared_versions(index, subject, version) if one else index.versions(subject)
    return (yield from check_candidate(definition, _newest_first(index, versions), index.compatibility_config(subject)))


def _compared_versions(index: RegistryIndex, subject: str, version: int | None) -> tuple[SubjectVersion, ...]:
    """Return the version to compare with; empty for the latest of a subject that has none yet."""
    known = index.find(subject, version)
    if known is None and version is not None:
        raise VersionNotFound(f"Version {version} not found.", subject=subject, version=version)
    return () if known is None else (known,)


def check_pair(state: RegistryState, reader: Schema, writer: Schema, *, lenient: bool) -> Procedure[list[Problem]]:
    """Return the reasons why a reader with `reader` could not read data written with `writer`. No subject is
    involved."""
    (_, reading), (_, writing) = (
        resolve_references(state.index, schema, LookupFilter.INCLUDE_DELETED) for schema in (reader, writer)
    )
    answers: list[list[Problem]] = yield CheckCompatibility((SchemaPair(reading, writing),), lenient=lenient)
    return answers[0]
