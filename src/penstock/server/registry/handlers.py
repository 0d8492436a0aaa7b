"""Answers in the dialect about subjects, versions and schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from penstock import __version__
from penstock.broker.access.policy import Kind as ResourceKind
from penstock.broker.access.policy import Operation, Resource
from penstock.core.schemas import Definition, Schema, SchemaKind
from penstock.schema.errors import RegistryError, SchemaNotFound
from penstock.schema.registry.index import VersionKey
from penstock.schema.registry.models import LookupFilter, RegisteredVersion, hinted_subject
from penstock.schema.steps import ParseSchema, Procedure, SchemaForm
from penstock.server.api.request import Call, Encoded, Pieces
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
"""Subjects in one answer: some MiB. Those behind them are asked for with an offset."""
SCHEMAS_MAX: Final = 1_000
"""Whole schemas in one answer; likewise."""
DESCRIPTOR: Final = re.compile(r"[A-Za-z0-9+/]++={0,2}")
"""A serialised descriptor in base64: there is no text of a schema in Protobuf without a semicolon or a brace."""
KINDS: Final = (SchemaKind.AVRO, SchemaKind.JSON, SchemaKind.PROTOBUF)
"""The types that the dialect has. Clients may fail on any other, so lists of the dialect leave the broker's own out."""
_SERVER: Final = "penstock"
_Item = TypeVar("_Item")


def which(call: Call) -> LookupFilter:
    if call.query.get("deletedOnly"):
        return LookupFilter.DELETED_ONLY
    return LookupFilter.INCLUDE_DELETED if call.query.get("deleted") else LookupFilter.ACTIVE


def page(call: Call, found: Sequence[_Item], most: int = NAMES_MAX) -> Sequence[_Item]:
    """As many as are asked for, and no more than `most`; a negative limit asks for all."""
    offset, limit = call.query["offset"], call.query["limit"]
    return found[offset : offset + (most if limit < 0 else min(limit, most))]


# the server


async def get_server_id(_call: Call) -> object:
    return ServerIdAnswer(id="", scope=ServerScope(path=[], clusters=Clusters(kafka=_SERVER, registry=_SERVER)))


async def get_server_version(_call: Call) -> object:
    return ServerVersionAnswer(version=__version__, commit_id="")


async def list_contexts(call: Call) -> object:
    """There is one."""
    return page(call, ["."])


async def list_schema_types(_call: Call) -> object:
    return [kind.value for kind in KINDS]


# subjects and versions


def may_read(call: Call, subject: str) -> bool:
    """Of a subject by the name it is kept under."""
    return call.desk.access.allows(call.principal, Operation.SCHEMA_READ, Resource(ResourceKind.SUBJECT, subject))


def sent_schema(call: Call) -> Schema:
    """What the body says. Whoever refers to a subject reads it, and holds on to it: that they must be allowed."""
    body: SchemaBody = call.body
    schema = body.as_schema()
    if call.desk.access.enabled:
        for subject in sorted({each.subject for each in schema.references}):
            call.check(Operation.SCHEMA_READ, Resource.subject(subject))
    return schema


async def list_subjects(call: Call) -> object:
    found = call.desk.registry.subjects(call.query["subjectPrefix"], which(call))
    return page(call, [each for each in found if may_read(call, each)])


async def list_versions(call: Call) -> object:
    return page(call, call.desk.registry.versions(call.named["subject"], which(call)))


async def get_version(call: Call) -> object:
    return await _in_dialect(call, _version(call))


async def get_version_text(call: Call) -> object:
    found = _version(call)
    return Encoded((await in_format(call, found.schema_id, found.schema)).text.encode())


def _version(call: Call) -> RegisteredVersion:
    return call.desk.registry.version(call.named["subject"], call.named["version"], which(call))


async def get_with_metadata(call: Call) -> object:
    """The latest version that has all these properties; the latest of all, if there are none."""
    keys, values = call.query["key"], call.query["value"]
    if len(keys) != len(values):
        raise RegistryError(f"there are {len(keys)} keys and {len(values)} values: each key has one", field="key")
    wanted = set(zip(keys, values, strict=True))
    subject, registry = call.named["subject"], call.desk.registry
    for version in reversed(registry.versions(subject, which(call))):
        found = registry.version(subject, version, which(call))
        if wanted <= properties(found.metadata).items():
            return await _in_dialect(call, found)
    raise SchemaNotFound("Schema not found", subject=subject)


async def list_referrers(call: Call) -> object:
    return page(call, call.desk.registry.referenced_by(call.named["subject"], call.named["version"], which(call)))


async def register(call: Call) -> object:
    body: SchemaBody = call.body
    schema = sent_schema(call)
    found = await call.desk.run(
        call.desk.registry.register(
            call.named["subject"],
            schema,
            schema_id=body.wanted_id(),
            version=body.wanted_version(),
            metadata=replace(body.as_metadata(), created_by=call.principal.signature),
        )
    )
    call.trail.found(id=found.schema_id, version=found.version)
    if not call.more:
        return RegisteredAnswer(id=found.schema_id)
    # With what was sent: clients remember it as what they have just registered.
    written = _written(schema)
    return RegisteredAnswer(id=found.schema_id, version=found.version, subject=found.subject, **written)


async def look_up(call: Call) -> object:
    schema, deleted = sent_schema(call), call.query["deleted"]
    found = await call.desk.run(call.desk.registry.look_up(call.named["subject"], schema, deleted=deleted))
    return await _in_dialect(call, found)


async def delete_subject(call: Call) -> object:
    return await _delete(call, subject=call.named["subject"])


async def delete_version(call: Call) -> object:
    (version,) = await _delete(call, subject=call.named["subject"], version=call.named["version"])
    return version


async def _delete(call: Call, **what: Any) -> list[int]:
    """By way of the broker, which knows what messages there are."""
    answer = await call.ask("system.schema.delete", what | {"permanent": call.query["permanent"]})
    versions: list[int] = answer["versions"]
    return versions


async def _in_dialect(call: Call, found: RegisteredVersion) -> VersionAnswer:
    schema = await in_format(call, found.schema_id, found.schema)
    return version_answer(replace(found, schema=schema), more=call.more)


def version_answer(found: RegisteredVersion, *, more: bool) -> VersionAnswer:
    """`more`: with what the dialect has no fields for."""
    facts: dict[str, Any] = {}
    if more:
        facts = {
            "deleted": found.deleted or None,
            "deprecated": found.deprecated,
            "description": found.metadata.description or None,
            "tags": list(found.metadata.tags),
            "created_by": found.metadata.created_by or None,
            "created_ms": found.created_ms,
            "fingerprint": found.fingerprint,
        }
    return VersionAnswer(
        subject=found.subject,
        version=found.version,
        id=found.schema_id,
        metadata=properties_of(found.metadata),
        **_written(found.schema),
        **facts,
    )


def _written(schema: Schema) -> dict[str, Any]:
    return {
        "schema": schema.text,
        "schema_type": None if schema.kind is SchemaKind.AVRO else schema.kind.value,
        "references": [ReferenceBody(each.name, each.subject, each.version) for each in schema.references],
    }


# schemas by id


async def list_schemas(call: Call) -> object:
    return await _listed(call, [each for each in _readable(call) if each.schema.kind in KINDS])


async def list_all_schemas(call: Call) -> object:
    """With the broker's own types."""
    return await _listed(call, _readable(call))


def _readable(call: Call) -> list[RegisteredVersion]:
    found = call.desk.registry.schemas(call.query["subjectPrefix"], which(call), latest_only=call.query["latestOnly"])
    return [each for each in found if may_read(call, each.subject)]


async def _listed(call: Call, found: Sequence[RegisteredVersion]) -> Pieces:
    """A page of versions, each in the form that is asked for."""
    chosen = [await _in_dialect(call, each) for each in page(call, found, SCHEMAS_MAX)]
    return Pieces(b"[", map(msgspec.json.encode, chosen), b"]")


async def get_schema(call: Call) -> object:
    """What most clients ask most: the answer is kept, encoded, for as long as the schema is the same."""
    stored, hint = _stored(call), hinted_subject(call.query["subject"])
    if call.query["fetchMaxId"] or call.query["format"] or (hint and call.more):
        return await _schema_with(call, stored, hint)
    body = call.part(SchemaAnswerCache).get(stored.schema_id, stored)
    if body is None:
        body = msgspec.json.encode(SchemaAnswer(**_written(await in_format(call, stored.schema_id, stored.schema))))
        call.part(SchemaAnswerCache).put(stored.schema_id, stored, body)
    return Encoded(body)


def _stored(call: Call) -> StoredSchema:
    """Raises `SchemaNotFound` also where none of the subjects that have it may be read."""
    stored, schema_id = call.desk.registry.schema(call.named["id"]), call.named["id"]
    if call.desk.access.enabled and not any(
        may_read(call, subject)
        for subject, _ in call.desk.registry.versions_of_schema(schema_id, LookupFilter.INCLUDE_DELETED)
    ):
        raise SchemaNotFound(f"Schema {schema_id} not found", schema_id=schema_id)
    return stored


async def _schema_with(call: Call, stored: StoredSchema, hint: str | None) -> SchemaAnswer:
    more: dict[str, Any] = {}
    if hint and call.more:
        subject, version = _place(call, stored.schema_id, hint)
        more = {"subject": subject, "version": version, "id": stored.schema_id}
    if call.query["fetchMaxId"]:
        more["max_id"] = call.part(SchemaAnswerCache).max_id(call.desk.registry)
    return SchemaAnswer(**_written(await in_format(call, stored.schema_id, stored.schema)), **more)


def _place(call: Call, schema_id: int, hint: str) -> VersionKey:
    """A version that has this schema, deleted or not: the newest of the subject hinted at, else of the first one.

    Clients hint at the subject that they would have registered it under, which another may name otherwise.
    """
    places = [
        place
        for place in call.desk.registry.versions_of_schema(schema_id, LookupFilter.INCLUDE_DELETED)
        if may_read(call, place[0])
    ]
    hinted = [place for place in places if place[0] == hint]
    return hinted[-1] if hinted else places[0]


async def get_schema_text(call: Call) -> object:
    hinted_subject(call.query["subject"])
    stored = _stored(call)
    return Encoded((await in_format(call, stored.schema_id, stored.schema)).text.encode())


async def list_schema_subjects(call: Call) -> object:
    return page(call, list(dict.fromkeys(subject for subject, _ in _places(call))))


async def list_schema_versions(call: Call) -> object:
    return page(call, [SubjectVersion(subject, version) for subject, version in _places(call)])


def _places(call: Call) -> list[tuple[str, int]]:
    wanted = hinted_subject(call.query["subject"])
    found = call.desk.registry.versions_of_schema(call.named["id"], which(call))
    return [place for place in found if may_read(call, place[0]) and (not wanted or place[0] == wanted)]


async def in_format(call: Call, schema_id: int, schema: Schema) -> Schema:
    """A schema in Protobuf as a .proto text, or as a serialised descriptor for those who ask for that, however it was
    registered; others as they are."""
    if schema.kind is not SchemaKind.PROTOBUF:
        return schema
    wanted = SchemaForm.SERIALIZED if call.query.get("format") == SchemaForm.SERIALIZED else SchemaForm.TEXT
    given = SchemaForm.SERIALIZED if DESCRIPTOR.fullmatch(schema.text.strip()) else SchemaForm.TEXT
    if wanted is given:
        return schema
    return replace(schema, text=await call.desk.run(_rewritten(call.desk.registry.definition(schema_id), wanted)))


def _rewritten(definition: Definition, form: SchemaForm) -> Procedure[str]:
    text: str = yield ParseSchema(definition, form)
    return text
