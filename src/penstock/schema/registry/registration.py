"""Registering schemas, looking for them, and asking beforehand: procedures over the books."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.core.schemas import SCHEMA_VERSION_MAX, Definition, Mode, Schema, SchemaKind
from penstock.schema.errors import (
    IncompatibleSchema,
    InvalidSchema,
    OperationNotPermitted,
    SchemaNotFound,
    VersionNotFound,
)
from penstock.schema.problems import Problem
from penstock.schema.registry.compatibility import candidate_problems
from penstock.schema.registry.index import Image
from penstock.schema.registry.models import Registered, Which, fingerprint_of
from penstock.schema.registry.references import defined, definition_of
from penstock.schema.registry.state import Books
from penstock.schema.steps import Compare, Examine, Form, Pair, Procedure
from penstock.storage.catalog.schema_rows import SCHEMA_ID_MAX, NewVersion, SubjectVersion, VersionMetadata

_NAMED_MAX: Final = 3
"""Problems told in the sentence; the details have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What somebody wants registered; with the id and the version that it had elsewhere, if it is an import."""

    subject: str
    schema: Schema
    schema_id: int | None = None
    version: int | None = None
    metadata: VersionMetadata


def register(books: Books, wanted: Application) -> Procedure[Registered]:
    return books.deciding(lambda: _register(books, wanted))


def _register(books: Books, wanted: Application) -> Procedure[Registered]:
    schema, definition = defined(books.image, wanted.schema)
    fingerprint, *former = yield from fingerprints(books, wanted.subject, schema, definition)
    # All that the decision rests on is read between two steps, so that it is of one moment.
    image, expected = books.image, books.image.stamps(wanted.subject)
    known = _same(image, wanted.subject, (fingerprint, *former))
    if known is not None and _answers(known, wanted):
        return image.registered(known)
    mode = check_writable(image, wanted.subject)
    _check_numbers(image, wanted, fingerprint, mode)
    image.check_room(wanted.subject, fingerprint, schema.text)
    if mode is not Mode.IMPORT:
        yield from _check_compatible(image, wanted.subject, definition)
    new = NewVersion(
        subject=wanted.subject,
        schema=schema,
        fingerprint=fingerprint,
        metadata=wanted.metadata,
        schema_id=wanted.schema_id,
        version=wanted.version,
    )
    update = yield from books.commit(lambda: books.catalog.add_version(new, expected=expected))
    return Registered.of(update.versions[0], update.schemas[0])


def fingerprints(books: Books, subject: str, schema: Schema, definition: Definition) -> Procedure[tuple[str, ...]]:
    """What a schema is known by; and if the subject does not know it, what it may have been known by before."""
    fingerprint = fingerprint_of(schema, (yield Examine(definition)))
    texts = (definition.text, *(text for _, text in definition.references))
    named = schema.kind is SchemaKind.AVRO and any('"name' in text for text in texts)
    if not named or books.image.same(subject, fingerprint, Which.ALL) is not None:
        return (fingerprint,)
    return fingerprint, fingerprint_of(schema, (yield Examine(definition, Form.FORMER)))


def _same(
    image: Image, subject: str, fingerprints: Iterable[str], which: Which = Which.LIVING
) -> SubjectVersion | None:
    found = (image.same(subject, each, which) for each in fingerprints)
    return next((each for each in found if each is not None), None)


def _answers(known: SubjectVersion, wanted: Application) -> bool:
    return wanted.version in (None, known.version) and wanted.schema_id in (None, known.schema_id)


def check_writable(image: Image, subject: str) -> Mode:
    """The subject's mode. Raises `OperationNotPermitted` if nothing may be changed."""
    mode = image.mode(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise OperationNotPermitted(f"Subject {subject} is in read-only mode", subject=subject, mode=mode)
    return mode


def _check_numbers(image: Image, wanted: Application, fingerprint: str, mode: Mode) -> None:
    """Ids and versions are given from outside in the import mode, and there alone; an id always."""
    if wanted.schema_id is not None and mode is not Mode.IMPORT:
        raise OperationNotPermitted(f"Subject {wanted.subject} is not in import mode", mode=mode)
    if wanted.schema_id is None and mode is Mode.IMPORT:
        raise OperationNotPermitted(f"Subject {wanted.subject} is not in read-write mode", mode=mode)
    following = image.subject(wanted.subject).last_version + 1
    if wanted.version not in (None, following) and mode is not Mode.IMPORT:
        raise InvalidSchema(
            f"Invalid schema: version {wanted.version} is not one more than the last version of subject"
            f" '{wanted.subject}', which makes {following}"
        )
    check_free(image, wanted.subject, wanted.version, wanted.schema_id, fingerprint)


def check_free(image: Image, subject: str, version: int | None, schema_id: int | None, fingerprint: str) -> None:
    """Raises `OperationNotPermitted`, with the reason, if this version or this id is something else already."""
    if version is not None and not 1 <= version <= SCHEMA_VERSION_MAX:
        raise OperationNotPermitted(f"A version is a number from 1 to {SCHEMA_VERSION_MAX}, not {version}")
    if schema_id is not None and not 1 <= schema_id <= SCHEMA_ID_MAX:
        raise OperationNotPermitted(f"A schema id is a number from 1 to {SCHEMA_ID_MAX}, not {schema_id}")
    taken = None if version is None else image.find(subject, version, Which.ALL)
    if taken is not None:
        raise OperationNotPermitted(
            f"Version {version} of subject '{subject}' is there already, with schema id {taken.schema_id}",
            schema_id=taken.schema_id,
        )
    if schema_id is not None:
        _check_id(image, schema_id, fingerprint)


def _check_id(image: Image, schema_id: int, fingerprint: str) -> None:
    known = image.id_of(fingerprint)
    if known is not None and known != schema_id:
        raise OperationNotPermitted(
            f"Schema already registered with id {known} instead of input id {schema_id}", schema_id=known
        )
    if known is None and image.has_id(schema_id):
        holders = ", ".join(f"version {version} of '{subject}'" for subject, version in image.holders(schema_id)[:3])
        raise OperationNotPermitted(
            f"Overwrite new schema with id {schema_id} is not permitted. It is another schema: {holders or 'deleted'}",
            schema_id=schema_id,
        )


def _check_compatible(image: Image, subject: str, candidate: Definition) -> Procedure[None]:
    rules = image.rules(subject)
    problems = yield from candidate_problems(candidate, _earlier(image, image.versions(subject)), rules)
    if problems:
        raise IncompatibleSchema(
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            + "; ".join(problem.sentence() for problem in problems[:_NAMED_MAX])
            + (f"; and {len(problems) - _NAMED_MAX} more" if len(problems) > _NAMED_MAX else ""),
            problems=[problem.as_dict() for problem in problems],
            compatibility=rules.compatibility.value,
        )


def _earlier(image: Image, versions: Iterable[SubjectVersion]) -> Iterator[tuple[int, Definition]]:
    """The newest first; a schema that is several versions counts once."""
    seen: set[int] = set()
    for version in sorted(versions, key=lambda each: -each.version):
        if version.schema_id not in seen:
            seen.add(version.schema_id)
            yield version.version, definition_of(image, image.schema(version.schema_id).schema)


def look_up(books: Books, subject: str, schema: Schema, which: Which) -> Procedure[Registered]:
    books.image.known_versions(subject, which)
    pinned, definition = defined(books.image, schema, Which.ALL)
    known_by = yield from fingerprints(books, subject, pinned, definition)
    found = _same(books.image, subject, known_by, which)
    if found is None:
        raise SchemaNotFound("Schema not found", subject=subject)
    return books.image.registered(found)


def check(books: Books, subject: str, schema: Schema, version: int | None, *, one: bool) -> Procedure[list[Problem]]:
    """Against all that the subject's rules demand; or against one version alone, `None` being the latest."""
    _, definition = defined(books.image, schema)
    yield Examine(definition)
    image = books.image
    versions = _asked_about(image, subject, version) if one else image.versions(subject)
    return (yield from candidate_problems(definition, _earlier(image, versions), image.rules(subject)))


def _asked_about(image: Image, subject: str, version: int | None) -> tuple[SubjectVersion, ...]:
    """The latest of a subject that has none yet asks for nothing."""
    found = image.find(subject, version)
    if found is None and version is not None:
        raise VersionNotFound(f"Version {version} not found.", subject=subject, version=version)
    return () if found is None else (found,)


def check_pair(books: Books, reader: Schema, writer: Schema, *, lenient: bool) -> Procedure[list[Problem]]:
    """Without a subject: can this reader read that writer?"""
    (_, reading), (_, writing) = (defined(books.image, schema, Which.ALL) for schema in (reader, writer))
    answers: list[list[Problem]] = yield Compare((Pair(reading, writing),), lenient=lenient)
    return answers[0]
