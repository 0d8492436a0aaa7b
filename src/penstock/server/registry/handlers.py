"""Answers in the dialect about subjects, versions and schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from penstock import __version__
from penstock.broker.access import Kind as ResourceKind
from penstock.broker.access import Operation, Resource
from penstock.core.schemas import Definition, Schema, SchemaKind
from penstock.schema.errors import SchemaNotFound
from penstock.schema.procedures import Examine, Procedure
from penstock.schema.registered import Registered, Which, subject_name
from penstock.server.api.calls import Call, Encoded, Pieces
from penstock.server.registry.bodies import (
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
    properties_of,
)
from penstock.server.registry.kept import Kept
from penstock.storage.schema_rows import StoredSchema

NAMES_MAX: Final = 20_000
"""Subjects in one answer: some MiB. Those behind them are asked for with an offset."""
SCHEMAS_MAX: Final = 1_000
"""Whole schemas in one answer; likewise."""
DESCRIPTOR: Final = re.compile(r"[A-Za-z0-9+/]++={0,2}")
"""A serialised descriptor in base64: there is no text of a schema in Protobuf without a semicolon or a brace."""
_SERVER: Final = "penstock"
_Item = TypeVar("_Item")


def which(call: Call) -> Which:
    if call.query.get("deletedOnly"):
        return Which.DELETED
    return Which.ALL if call.query.get("deleted") else Which.LIVING


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
    return [kind.value for kind in SchemaKind]


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


def _version(call: Call) -> Registered:
    return call.desk.registry.version(call.named["subject"], call.named["version"], which(call))


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


async def _in_dialect(call: Call, found: Registered) -> VersionAnswer:
    schema = await in_format(call, found.schema_id, found.schema)
    return version_answer(replace(found, schema=schema), more=call.more)


def version_answer(found: Registered, *, more: bool) -> VersionAnswer:
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
    found = call.desk.registry.schemas(call.query["subjectPrefix"], which(call), latest_only=call.query["latestOnly"])
    chosen = page(call, [each for each in found if may_read(call, each.subject)], SCHEMAS_MAX)
    return Pieces(b"[", (msgspec.json.encode(version_answer(each, more=call.more)) for each in chosen), b"]")


async def get_schema(call: Call) -> object:
    """What most clients ask most: the answer is kept, encoded, for as long as the schema is the same."""
    stored = _stored(call)
    if call.query["subject"] or call.query["fetchMaxId"] or call.query["format"]:
        return await _schema_with(call, stored)
    body = call.part(Kept).get(stored.schema_id, stored)
    if body is None:
        body = msgspec.json.encode(SchemaAnswer(**_written(stored.schema)))
        call.part(Kept).put(stored.schema_id, stored, body)
    return Encoded(body)


def _stored(call: Call) -> StoredSchema:
    """Raises `SchemaNotFound` also where none of the subjects that have it may be read."""
    stored, schema_id = call.desk.registry.schema(call.named["id"]), call.named["id"]
    if call.desk.access.enabled and not any(
        may_read(call, subject) for subject, _ in call.desk.registry.places(schema_id, Which.ALL)
    ):
        raise SchemaNotFound(f"Schema {schema_id} not found", schema_id=schema_id)
    return stored


async def _schema_with(call: Call, stored: StoredSchema) -> SchemaAnswer:
    more: dict[str, Any] = {}
    if call.query["subject"]:
        subject, version = _place_in(call, call.query["subject"])
        more = {"subject": subject, "version": version, "id": stored.schema_id} if call.more else {}
    if call.query["fetchMaxId"]:
        more["max_id"] = call.part(Kept).max_id(call.desk.registry)
    return SchemaAnswer(**_written(await in_format(call, stored.schema_id, stored.schema)), **more)


def _place_in(call: Call, subject: str) -> tuple[str, int]:
    """The newest version of the subject that has this schema, deleted or not. Raises `SchemaNotFound`."""
    wanted, schema_id = subject_name(subject), call.named["id"]
    places = [place for place in call.desk.registry.places(schema_id, Which.ALL) if place[0] == wanted]
    if not may_read(call, wanted):
        places = []
    if not places:
        raise SchemaNotFound(f"Schema {schema_id} not found in subject '{wanted}'", schema_id=schema_id, subject=wanted)
    return places[-1]


async def get_schema_text(call: Call) -> object:
    if call.query["subject"]:
        _place_in(call, call.query["subject"])
    stored = _stored(call)
    return Encoded((await in_format(call, stored.schema_id, stored.schema)).text.encode())


async def list_schema_subjects(call: Call) -> object:
    return page(call, list(dict.fromkeys(subject for subject, _ in _places(call))))


async def list_schema_versions(call: Call) -> object:
    return page(call, [SubjectVersion(subject, version) for subject, version in _places(call)])


def _places(call: Call) -> list[tuple[str, int]]:
    wanted = call.query["subject"] and subject_name(call.query["subject"])
    found = call.desk.registry.places(call.named["id"], which(call))
    return [place for place in found if may_read(call, place[0]) and (not wanted or place[0] == wanted)]


async def in_format(call: Call, schema_id: int, schema: Schema) -> Schema:
    """Some clients of Protobuf want every schema as a serialised descriptor, however it was registered."""
    if call.query["format"] != "serialized" or schema.kind is not SchemaKind.PROTOBUF:
        return schema
    if DESCRIPTOR.fullmatch(schema.text.strip()):
        return schema
    return replace(schema, text=await call.desk.run(_serialized(call.desk.registry.definition(schema_id))))


def _serialized(definition: Definition) -> Procedure[str]:
    descriptor: str = yield Examine(definition, serialized=True)
    return descriptor
