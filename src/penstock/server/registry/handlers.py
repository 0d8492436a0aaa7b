"""Handlers of subjects, versions and schemas, in the registry's dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from penstock import __version__
from penstock.broker.access.policy import Operation, Resource, ResourceKind
from penstock.core.schemas import Definition, Schema, SchemaKind
from penstock.schema.errors import RegistryError, SchemaNotFound
from penstock.schema.registry.index import VersionKey
from penstock.schema.registry.models import LookupFilter, RegisteredVersion, hinted_subject
from penstock.schema.steps import ParseSchema, Procedure, SchemaForm
from penstock.server.api.request import ApiRequest, EncodedAnswer, StreamedList
from penstock.server.registry.cache import SchemaAnswerCache
from penstock.server.registry.models import (
    Clusters,
    ReferenceBody,
    RegisteredAnswer,
    SchemaAnswer,
    SchemaBody,
    ServerIdAnswer,
    ServerScope,
    ServerVersionAnswer,
    SubjectVersion,
    VersionAnswer,
    properties,
    properties_of,
)
from penstock.storage.catalog.schema_rows import StoredSchema

NAMES_MAX: Final = 20_000
"""The most names in one answer: some MiB. A client gets the rest with the parameter `offset`."""
SCHEMAS_MAX: Final = 1_000
"""The most whole schemas in one answer. A client gets the rest with the parameter `offset`."""
DESCRIPTOR: Final = re.compile(r"[A-Za-z0-9+/]++={0,2}")
"""The pattern of a serialised Protobuf descriptor in base64. The text of a .proto file never matches, because it has a
semicolon or a brace."""
KINDS: Final = (SchemaKind.AVRO, SchemaKind.JSON, SchemaKind.PROTOBUF)
"""The schema types of the registry's dialect. Its clients may fail on unknown types, so lists leave out the types that
only Penstock has."""
_SERVER: Final = "penstock"
_Item = TypeVar("_Item")


def lookup_filter(request: ApiRequest) -> LookupFilter:
    if request.query.get("deletedOnly"):
        return LookupFilter.DELETED_ONLY
    return LookupFilter.INCLUDE_DELETED if request.query.get("deleted") else LookupFilter.ACTIVE


def page(request: ApiRequest, entries: Sequence[_Item], most: int = NAMES_MAX) -> Sequence[_Item]:
    """Return the part of a list that `offset` and `limit` of the request select, with at most `most` entries. A
    negative `limit` asks for as many as allowed."""
    offset, limit = request.query["offset"], request.query["limit"]
    return entries[offset : offset + (most if limit < 0 else min(limit, most))]


# the server


async def get_server_id(_call: ApiRequest) -> object:
    return ServerIdAnswer(id="", scope=ServerScope(path=[], clusters=Clusters(kafka=_SERVER, registry=_SERVER)))


async def get_server_version(_call: ApiRequest) -> object:
    return ServerVersionAnswer(version=__version__, commit_id="")


async def list_contexts(request: ApiRequest) -> object:
    """Return the list of contexts. There is only the default one, `.`."""
    return page(request, ["."])


async def list_schema_types(_call: ApiRequest) -> object:
    return [kind.value for kind in KINDS]


# subjects and versions


def may_read(request: ApiRequest, subject: str) -> bool:
    """Return True if the client may read the subject with this full name."""
    resource = Resource(ResourceKind.SUBJECT, subject)
    return request.backend.access.allows(request.principal, Operation.SCHEMA_READ, resource)


def sent_schema(request: ApiRequest) -> Schema:
    """Return the schema in the body. Raises `Unauthorized` or `Forbidden` if the client may not read a subject that the
    schema refers to."""
    body: SchemaBody = request.body
    schema = body.as_schema()
    if request.backend.access.enabled:
        for subject in sorted({each.subject for each in schema.references}):
            request.check(Operation.SCHEMA_READ, Resource.subject(subject))
    return schema


async def list_subjects(request: ApiRequest) -> object:
    subjects = request.registry.subjects(request.query["subjectPrefix"], lookup_filter(request))
    return page(request, [subject for subject in subjects if may_read(request, subject)])


async def list_versions(request: ApiRequest) -> object:
    return page(request, request.registry.versions(request.path_params["subject"], lookup_filter(request)))


async def get_version(request: ApiRequest) -> object:
    return await _in_dialect(request, _version(request))


async def get_version_text(request: ApiRequest) -> object:
    version = _version(request)
    return EncodedAnswer((await in_format(request, version.schema_id, version.schema)).text.encode())


def _version(request: ApiRequest) -> RegisteredVersion:
    return request.registry.version(
        request.path_params["subject"], request.path_params["version"], lookup_filter(request)
    )


async def get_with_metadata(request: ApiRequest) -> object:
    """Return the latest version of the subject whose metadata has all properties that the query gives; without any, the
    latest version."""
    keys, values = request.query["key"], request.query["value"]
    if len(keys) != len(values):
        raise RegistryError(f"there are {len(keys)} keys and {len(values)} values: each key has one", field="key")
    required = set(zip(keys, values, strict=True))
    subject, registry = request.path_params["subject"], request.registry
    for version in reversed(registry.versions(subject, lookup_filter(request))):
        registered = registry.version(subject, version, lookup_filter(request))
        if required <= properties(registered.metadata).items():
            return await _in_dialect(request, registered)
    raise SchemaNotFound("Schema not found", subject=subject)


async def list_referrers(request: ApiRequest) -> object:
    subject, version = request.path_params["subject"], request.path_params["version"]
    return page(request, request.registry.referenced_by(subject, version, lookup_filter(request)))


async def register(request: ApiRequest) -> object:
    body: SchemaBody = request.body
    schema = sent_schema(request)
    registered = await request.run(
        request.registry.register(
            request.path_params["subject"],
            schema,
            schema_id=body.wanted_id(),
            version=body.wanted_version(),
            metadata=replace(body.as_metadata(), created_by=request.principal.signature),
        )
    )
    request.trail.add_results(id=registered.schema_id, version=registered.version)
    if not request.accepts_extensions:
        return RegisteredAnswer(id=registered.schema_id)
    # With the schema that was sent: clients cache it as the registered one.
    written = _schema_fields(schema)
    return RegisteredAnswer(id=registered.schema_id, version=registered.version, subject=registered.subject, **written)


async def look_up(request: ApiRequest) -> object:
    schema, deleted = sent_schema(request), request.query["deleted"]
    registered = await request.run(request.registry.look_up(request.path_params["subject"], schema, deleted=deleted))
    return await _in_dialect(request, registered)


async def delete_subject(request: ApiRequest) -> object:
    return await _delete(request, subject=request.path_params["subject"])


async def delete_version(request: ApiRequest) -> object:
    (version,) = await _delete(request, subject=request.path_params["subject"], version=request.path_params["version"])
    return version


async def _delete(request: ApiRequest, **what: Any) -> list[int]:
    """Delete a subject or a version by a request to the broker, which knows whether messages use the schema. `what` has
    the fields of the request. Returns the versions that were deleted."""
    answer = await request.ask("system.schema.delete", what | {"permanent": request.query["permanent"]})
    versions: list[int] = answer["versions"]
    return versions


async def _in_dialect(request: ApiRequest, registered: RegisteredVersion) -> VersionAnswer:
    schema = await in_format(request, registered.schema_id, registered.schema)
    return version_answer(replace(registered, schema=schema), more=request.accepts_extensions)


def version_answer(registered: RegisteredVersion, *, more: bool) -> VersionAnswer:
    """Return the version as an answer. With `more`, it has fields that the registry's dialect does not define."""
    extensions: dict[str, Any] = {}
    if more:
        extensions = {
            "deleted": registered.deleted or None,
            "deprecated": registered.deprecated,
            "description": registered.metadata.description or None,
            "tags": list(registered.metadata.tags),
            "created_by": registered.metadata.created_by or None,
            "created_ms": registered.created_ms,
            "fingerprint": registered.fingerprint,
        }
    return VersionAnswer(
        subject=registered.subject,
        version=registered.version,
        id=registered.schema_id,
        metadata=properties_of(registered.metadata),
        **_schema_fields(registered.schema),
        **extensions,
    )


def _schema_fields(schema: Schema) -> dict[str, Any]:
    return {
        "schema": schema.text,
        "schema_type": None if schema.kind is SchemaKind.AVRO else schema.kind.value,
        "references": [ReferenceBody(each.name, each.subject, each.version) for each in schema.references],
    }


# schemas by id


async def list_schemas(request: ApiRequest) -> object:
    return await _listed(request, [each for each in _readable_versions(request) if each.schema.kind in KINDS])


async def list_all_schemas(request: ApiRequest) -> object:
    """Return the versions of schemas of all types, including those that only Penstock has."""
    return await _listed(request, _readable_versions(request))


def _readable_versions(request: ApiRequest) -> list[RegisteredVersion]:
    prefix, latest_only = request.query["subjectPrefix"], request.query["latestOnly"]
    versions = request.registry.schemas(prefix, lookup_filter(request), latest_only=latest_only)
    return [version for version in versions if may_read(request, version.subject)]


async def _listed(request: ApiRequest, versions: Sequence[RegisteredVersion]) -> StreamedList:
    """Return the requested page of these versions, each with its schema in the requested form."""
    chosen = [await _in_dialect(request, version) for version in page(request, versions, SCHEMAS_MAX)]
    return StreamedList(b"[", map(msgspec.json.encode, chosen), b"]")


async def get_schema(request: ApiRequest) -> object:
    """Return a schema by id, from the cache if possible: this is the most frequent request of most clients."""
    stored, hint = _stored(request), hinted_subject(request.query["subject"])
    if request.query["fetchMaxId"] or request.query["format"] or (hint and request.accepts_extensions):
        return await _schema_with(request, stored, hint)
    body = request.service(SchemaAnswerCache).get(stored.schema_id, stored)
    if body is None:
        body = msgspec.json.encode(
            SchemaAnswer(**_schema_fields(await in_format(request, stored.schema_id, stored.schema)))
        )
        request.service(SchemaAnswerCache).put(stored.schema_id, stored, body)
    return EncodedAnswer(body)


def _stored(request: ApiRequest) -> StoredSchema:
    """Return the schema with the requested id. Raises `SchemaNotFound` if there is none, or if the client may read none
    of its subjects."""
    stored, schema_id = request.registry.schema(request.path_params["id"]), request.path_params["id"]
    if request.backend.access.enabled and not any(
        may_read(request, subject)
        for subject, _ in request.registry.versions_of_schema(schema_id, LookupFilter.INCLUDE_DELETED)
    ):
        raise SchemaNotFound(f"Schema {schema_id} not found", schema_id=schema_id)
    return stored


async def _schema_with(request: ApiRequest, stored: StoredSchema, hint: str | None) -> SchemaAnswer:
    more: dict[str, Any] = {}
    if hint and request.accepts_extensions:
        subject, version = _hinted_version(request, stored.schema_id, hint)
        more = {"subject": subject, "version": version, "id": stored.schema_id}
    if request.query["fetchMaxId"]:
        more["max_id"] = request.service(SchemaAnswerCache).max_id(request.registry)
    return SchemaAnswer(**_schema_fields(await in_format(request, stored.schema_id, stored.schema)), **more)


def _hinted_version(request: ApiRequest, schema_id: int, hint: str) -> VersionKey:
    """Return a subject and version that have this schema, deleted or not, among those that the client may read: the
    newest of the subject `hint`, or the first of all if that has none.

    Clients hint at the subject under which they would have registered the schema. Other clients may have used another
    name.
    """
    places = [
        place
        for place in request.registry.versions_of_schema(schema_id, LookupFilter.INCLUDE_DELETED)
        if may_read(request, place[0])
    ]
    hinted = [place for place in places if place[0] == hint]
    return hinted[-1] if hinted else places[0]


async def get_schema_text(request: ApiRequest) -> object:
    hinted_subject(request.query["subject"])
    stored = _stored(request)
    return EncodedAnswer((await in_format(request, stored.schema_id, stored.schema)).text.encode())


async def list_schema_subjects(request: ApiRequest) -> object:
    return page(request, list(dict.fromkeys(subject for subject, _ in _versions_of_schema(request))))


async def list_schema_versions(request: ApiRequest) -> object:
    return page(request, [SubjectVersion(subject, version) for subject, version in _versions_of_schema(request)])


def _versions_of_schema(request: ApiRequest) -> list[tuple[str, int]]:
    subject = hinted_subject(request.query["subject"])
    versions = request.registry.versions_of_schema(request.path_params["id"], lookup_filter(request))
    return [place for place in versions if may_read(request, place[0]) and (not subject or place[0] == subject)]


async def in_format(request: ApiRequest, schema_id: int, schema: Schema) -> Schema:
    """Return the schema in the requested form. A Protobuf schema is returned as .proto text, or as a serialised
    descriptor if the query asks for that, however it was registered. Schemas of other types are returned unchanged."""
    if schema.kind is not SchemaKind.PROTOBUF:
        return schema
    wanted = SchemaForm.SERIALIZED if request.query.get("format") == SchemaForm.SERIALIZED else SchemaForm.TEXT
    current = SchemaForm.SERIALIZED if DESCRIPTOR.fullmatch(schema.text.strip()) else SchemaForm.TEXT
    if wanted is current:
        return schema
    return replace(schema, text=await request.run(_rewritten(request.registry.definition(schema_id), wanted)))


def _rewritten(definition: Definition, form: SchemaForm) -> Procedure[str]:
    text: str = yield ParseSchema(definition, form)
    return text
