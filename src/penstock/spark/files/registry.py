"""The schemas of messages, for reading: kept with the data, in a registry with HTTP, or in an exported file.

Spark sends a `RegistryLocation` to its workers. A `SchemaSource` is made there; it caches schemas by id, since the
schema of an id never changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from penstock.client.wire.credentials import REGISTRY_VARIABLE, find_secret, secret_in
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import SCHEMA_REFERENCES_MAX, Definition, Reference, Schema, SchemaKind, default_subject
from penstock.schema.registry.transfer import VersionRecord
from penstock.spark.files.location import BROKER_SCHEMES, Location
from penstock.spark.files.web import HttpClient
from penstock.storage.base.layout import CATALOG
from penstock.storage.catalog.reader import CatalogReader

_REUSED_SECONDS: Final = 60.0
"""Seconds for which a process reuses an open source. A stream may start tasks several times a second."""
_SOURCES_MAX: Final = 16

_Kind = TypeVar("_Kind")


class Registry(Protocol):
    """A store of schemas by id, subject and version. Its methods return None, or an empty list, for what it does not
    have."""

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    def schema(self, schema_id: int) -> Schema | None: ...

    def version(self, subject: str, version: int) -> int | None:
        """Return the schema id of a subject's version, also of a deleted one; None if the version is unknown, or was
        deleted permanently."""
        ...

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]: ...

    def subjects_of(self, topic: TopicName) -> tuple[str, ...] | None:
        """Return the subjects of a topic; None if the registry does not know topics."""
        ...


class SchemaSource:
    """A cache of schemas by id. Unknown ids are not cached: they may be registered later."""

    def __init__(self, registry: Registry, topics: Registry | None = None) -> None:
        """Create the cache. `topics` is asked for the subjects of topics, by default `registry` itself."""
        self._registry = registry
        self._topics = topics or registry
        self._definitions: dict[int, Definition] = {}

    def schema(self, schema_id: int) -> Definition:
        """Return the schema of an id, with the texts of all schemas that it refers to. Raises `InvalidRequest` for an
        unknown id."""
        definition = self._definitions.get(schema_id)
        if definition is None:
            schema = self._stored(schema_id)
            texts = dict(self._referred(schema, set()))
            definition = self._definitions[schema_id] = Definition(schema.kind, schema.text, tuple(texts.items()))
        return definition

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]:
        """Return versions and schema ids, the oldest first; empty for an unknown subject. `deleted`: include deleted
        versions, which old messages still name."""
        return self._registry.versions(subject, deleted=deleted)

    def subjects_of(self, topic: TopicName) -> list[str]:
        """Return the subjects that a topic's settings name, or if they name none its default subject, which has the
        topic's name."""
        return list(self._topics.subjects_of(topic) or (default_subject(topic),))

    def _stored(self, schema_id: int) -> Schema:
        schema = self._registry.schema(schema_id)
        if schema is None:
            raise InvalidRequest(
                f"schema id {schema_id} is not known to {self._registry.name}: was the message written with another"
                " registry? Name that one with the option registry",
                schema_id=schema_id,
            )
        return schema

    def _referred(self, schema: Schema, seen: set[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        """Yield name and text of all schemas to which `schema` refers, also indirectly. A schema comes after those to
        which it refers itself. Raises `InvalidRequest` if one is missing or there are too many. `seen` is changed."""
        for reference in schema.references:
            if (reference.subject, reference.version) in seen:
                continue
            seen.add((reference.subject, reference.version))
            if len(seen) > SCHEMA_REFERENCES_MAX:
                raise InvalidRequest(f"a schema of {self._registry.name} has more than {SCHEMA_REFERENCES_MAX} others")
            referred = self._stored(self._id_of(reference))
            yield from self._referred(referred, seen)
            yield reference.name, referred.text

    def _id_of(self, reference: Reference) -> int:
        schema_id = self._registry.version(reference.subject, reference.version)
        if schema_id is None:
            raise InvalidRequest(
                f"version {reference.version} of subject '{reference.subject}', which another schema refers to as"
                f" '{reference.name}', is not known to {self._registry.name}"
            )
        return schema_id


@dataclass(frozen=True, slots=True)
class RegistryLocation:
    """The location of the schemas of the data at `location`.

    `uri` is the URL of a registry, a data directory, or a file that `penstock schema export` wrote. With None the
    schemas are with the data: in the catalog of its directory, or at its broker.
    """

    location: Location
    uri: str | None = None

    def open(self) -> SchemaSource:
        """Return the source of the schemas, which this process reuses for a minute. Raises `InvalidRequest` if there
        are no schemas with the data, or no registry at `uri`."""
        key = (os.getpid(), self)
        since, source = _opened.get(key, (0.0, None))
        if source is None or time.monotonic() > since + _REUSED_SECONDS:
            source = self._source()
            while len(_opened) >= _SOURCES_MAX:
                _opened.pop(next(iter(_opened)), None)
            _opened[key] = time.monotonic(), source
        return source

    def _source(self) -> SchemaSource:
        if self.uri is None:
            with_data = _registry_with_data(self.location)
            if with_data is None:
                raise InvalidRequest(
                    f"there are no schemas with the files in {self.location}: name a registry with the option registry"
                    " (http://HOST:PORT, or a file that `penstock schema export` wrote)"
                )
            return SchemaSource(with_data)
        registry = _registry_at(self.uri)
        return SchemaSource(registry, _registry_with_data(self.location) or registry)


_opened: Final[dict[tuple[int, RegistryLocation], tuple[float, SchemaSource]]] = {}


def _registry_with_data(location: Location) -> Registry | None:
    """Return the registry with the data: the broker's, or the catalog of a local directory. Return None for an object
    store, or a directory without a catalog."""
    if location.is_broker:
        return HttpRegistry(HttpClient(location.uri, dict(location.storage_options), secret=find_secret()))
    directory = location.directory
    catalog = None if directory is None else directory / CATALOG
    return CatalogReader(catalog) if catalog is not None and catalog.exists() else None


def _registry_at(uri: str) -> Registry:
    parts = urlsplit(uri)
    if parts.scheme in BROKER_SCHEMES and parts.hostname:
        return HttpRegistry(HttpClient(uri, what="the registry", secret=secret_in(REGISTRY_VARIABLE)))
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri).expanduser()
    if path.is_dir() and (path / CATALOG).exists():
        return CatalogReader(path / CATALOG)
    if not path.is_file():
        raise InvalidRequest(
            f"registry={uri!r} is neither the URL of a registry (http://HOST:PORT), nor a data directory, nor a file"
            " that `penstock schema export` wrote"
        )
    return read_export(path)


class ExportedRegistry:
    """A registry made from the records that `penstock schema export` wrote."""

    def __init__(self, name: str, records: list[VersionRecord]) -> None:
        self.name = name
        self._schemas = {record.id: _schema(record) for record in records}
        self._versions = {(record.subject, record.version): record for record in records}

    def schema(self, schema_id: int) -> Schema | None:
        return self._schemas.get(schema_id)

    def version(self, subject: str, version: int) -> int | None:
        record = self._versions.get((subject, version))
        return None if record is None else record.id

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]:
        of_subject = (record for record in self._versions.values() if record.subject == subject)
        return sorted((record.version, record.id) for record in of_subject if deleted or not record.deleted)

    def subjects_of(self, topic: TopicName) -> tuple[str, ...] | None:  # noqa: ARG002 - an export says nothing of that
        return None


def read_export(path: Path) -> ExportedRegistry:
    """Return the registry in a file that `penstock schema export` wrote. Raises `InvalidRequest`, with the number of
    the line, for any other file."""
    records: list[VersionRecord] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                records += _records(path, number, line)
    return ExportedRegistry(str(path), records)


def _records(path: Path, number: int, line: bytes) -> Iterator[VersionRecord]:
    """Yield the version that a line describes; nothing if the line has the settings of a subject. Raises
    `InvalidRequest` for any other line."""
    try:
        record = msgspec.json.decode(line, type=dict[str, object])
        if "version" in record:
            yield msgspec.convert(record, VersionRecord)
        elif "subject" not in record:
            raise InvalidRequest(f"{path}, line {number}: neither a version nor settings of a subject")
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            f"{path}, line {number} is no line of `penstock schema export`: {error}", line=number
        ) from None


def _schema(record: VersionRecord) -> Schema:
    references = (
        Reference(name=reference.name, subject=reference.subject, version=reference.version)
        for reference in record.references
    )
    return Schema(kind=record.schema_type, text=record.schema, references=tuple(references))


# over HTTP


class _ReferenceAnswer(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _SchemaAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of a registry that describes a schema. If it names no type, the schema is in Avro."""

    schema: str
    schema_type: SchemaKind = SchemaKind.AVRO
    references: tuple[_ReferenceAnswer, ...] = ()


class _VersionAnswer(msgspec.Struct, frozen=True):
    id: int


class _TopicAnswer(msgspec.Struct, frozen=True):
    subjects: tuple[str, ...]


class HttpRegistry:
    """The registry of a broker, or any other with the same HTTP API."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self.name = client.name

    def schema(self, schema_id: int) -> Schema | None:
        answer = self._get(f"/schemas/ids/{schema_id}", _SchemaAnswer)
        if answer is None:
            return None
        references = (
            Reference(name=reference.name, subject=reference.subject, version=reference.version)
            for reference in answer.references
        )
        return Schema(kind=answer.schema_type, text=answer.schema, references=tuple(references))

    def version(self, subject: str, version: int) -> int | None:
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", _VersionAnswer)
        return None if answer is None else answer.id

    def versions(self, subject: str, *, deleted: bool = False) -> list[tuple[int, int]]:
        query = "?deleted=true" if deleted else ""
        numbers = self._get(f"/subjects/{quote(subject, safe='')}/versions{query}", list[int]) or []
        ids = ((number, self.version(subject, number)) for number in sorted(numbers))
        return [(number, schema_id) for number, schema_id in ids if schema_id is not None]

    def subjects_of(self, topic: TopicName) -> tuple[str, ...] | None:
        """Return the subjects of a topic; None if the server does not know the topic, or is not a Penstock broker and
        knows no topics."""
        answer = self._get(f"/v1/topics/{quote(str(topic), safe='')}/schema", _TopicAnswer)
        return None if answer is None else answer.subjects

    def _get(self, path: str, kind: type[_Kind]) -> _Kind | None:
        body = self._client.get_json(path)
        if body is None:
            return None
        try:
            return msgspec.convert(body, kind)
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                f"{self.name} answers GET {path} with something else than a schema registry would: {error}"
            ) from None
