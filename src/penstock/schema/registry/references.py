"""References of schemas: the texts of all referenced schemas, found in the registry and put in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.core.schemas import (
    SCHEMA_CLOSURE_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    Definition,
    Reference,
    Schema,
    SchemaKind,
)
from penstock.schema.errors import InvalidSchema, RegistryError
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import LookupFilter, check_schema, parse_subject, parse_version, printable

_REFERRING: Final = frozenset({SchemaKind.AVRO, SchemaKind.JSON, SchemaKind.PROTOBUF})
"""Kinds of schemas whose text can name other schemas."""


def resolve_references(
    index: RegistryIndex, schema: Schema, lookup: LookupFilter = LookupFilter.ACTIVE
) -> tuple[Schema, Definition]:
    """Return the schema with every reference pinned to an existing version, and its definition.

    Raises `InvalidSchema` if a reference does not exist or is of another kind, if references are too many or too large
    together, or if one name stands for two schemas.
    """
    check_schema(schema)
    if len(schema.references) > SCHEMA_REFERENCES_MAX:
        raise _too_many()
    if schema.references and schema.kind not in _REFERRING:
        raise InvalidSchema(f"Invalid schema: a schema of type {schema.kind} refers to nothing")
    pinned = replace(
        schema, references=tuple(_pin(index, schema.kind, reference, lookup) for reference in schema.references)
    )
    definition = definition_of(index, pinned)
    _check_size(definition)
    return pinned, definition


def definition_of(index: RegistryIndex, schema: Schema) -> Definition:
    """Return the schema's definition: its text with the texts of all that it refers to. The references must exist,
    deleted or not. Raises `InvalidSchema` if one name stands for two schemas."""
    texts: dict[str, str] = {}
    for name, text in _referenced_texts(index, schema):
        if texts.setdefault(name, text) != text:
            raise InvalidSchema(f"Invalid schema: by way of its references, '{name}' stands for two different schemas")
    return Definition(schema.kind, schema.text, tuple(texts.items()))


def _referenced_texts(index: RegistryIndex, schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield name and text of all referenced schemas, each behind those that it refers to itself.

    References have no cycles: a referenced schema existed before, and never changes.
    """
    seen: set[Reference] = set()

    def walk(referring: Schema) -> Iterator[tuple[str, str]]:
        for reference in referring.references:
            if reference not in seen:
                seen.add(reference)
                if len(seen) > SCHEMA_REFERENCES_MAX:
                    raise _too_many()
                version = index.version(reference.subject, reference.version, LookupFilter.INCLUDE_DELETED)
                stored = index.schema(version.schema_id)
                yield from walk(stored.schema)
                yield reference.name, stored.schema.text

    return walk(schema)


def _check_size(definition: Definition) -> None:
    size = len(definition.text.encode()) + sum(len(text.encode()) for _, text in definition.references)
    if size > SCHEMA_CLOSURE_BYTES_MAX:
        raise InvalidSchema(
            f"Invalid schema: with all that it refers to it has {size} bytes, more than {SCHEMA_CLOSURE_BYTES_MAX}",
            size=size,
            limit=SCHEMA_CLOSURE_BYTES_MAX,
        )


def _pin(index: RegistryIndex, kind: SchemaKind, reference: Reference, lookup: LookupFilter) -> Reference:
    """Return the reference with the number of an existing version; the latest is the one that is latest now. Raises
    `InvalidSchema` if the version does not exist or is of another kind than `kind`."""
    try:
        subject = parse_subject(reference.subject)
        version = index.version(subject, parse_version(reference.version), lookup)
    except RegistryError as error:
        raise InvalidSchema(
            f"Invalid schema: what it refers to as '{reference.name}', version {reference.version} of subject"
            f" '{printable(reference.subject)}', is not there: {error.message}",
            reference=reference.name,
        ) from None
    _check_kind(kind, index.schema(version.schema_id).schema.kind, reference)
    return replace(reference, subject=subject, version=version.version)


def _check_kind(referring: SchemaKind, referred: SchemaKind, reference: Reference) -> None:
    if referred is not referring:
        raise InvalidSchema(
            f"Invalid schema: what it refers to as '{reference.name}' is {referred}, and a schema of type {referring}"
            " refers to its own kind only",
            reference=reference.name,
        )


def _too_many() -> InvalidSchema:
    return InvalidSchema(
        f"Invalid schema: with all that they refer to in turn, it has more than {SCHEMA_REFERENCES_MAX} references",
        limit=SCHEMA_REFERENCES_MAX,
    )
