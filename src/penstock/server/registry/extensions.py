"""Answers to what the dialect does not have: policies of topics, undeleting, deprecating, taking schemas elsewhere."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind, default_subject
from penstock.server.api.request import Call, Pieces
from penstock.server.registry.handlers import version_answer
from penstock.server.registry.models import (
    DeprecationBody,
    ImportBody,
    ImportedAnswer,
    RefusedRecord,
    TopicSchemaAnswer,
    TopicSchemaBody,
    VersionsAnswer,
)
from penstock.storage.catalog.topics import SchemaPolicy

_PREFIX: Final = "schema_"
"""What a topic's settings about schemas begin with."""


async def get_topic_schema(call: Call) -> object:
    return _topic(await call.ask("system.topic.describe", {"topic": call.named["topic"]}))


async def put_topic_schema(call: Call) -> object:
    body: TopicSchemaBody = call.body
    values = {name: getattr(body, name) for name in TopicSchemaBody.__struct_fields__}
    changed = {f"{_PREFIX}{name}": value for name, value in values.items() if value is not UNSET}
    return _topic(await call.ask("system.topic.alter", {"topic": call.named["topic"], **changed}))


def _topic(described: dict[str, Any]) -> TopicSchemaAnswer:
    settings = described["settings"]
    name = TopicName.parse(described["topic"])
    return TopicSchemaAnswer(
        topic=described["topic"],
        policy=SchemaPolicy(settings.get("schema_policy", SchemaPolicy.NONE)),
        subjects=list(settings.get("schema_subjects") or [default_subject(name)]),
        payloads=settings.get("schema_payloads", False),
        default=settings.get("schema_default"),
        deprecated=settings.get("schema_deprecated", True),
    )


async def list_schema_types(_call: Call) -> object:
    return [kind.value for kind in SchemaKind]


async def undelete(call: Call) -> object:
    registry, version = call.desk.registry, call.query["version"]
    return VersionsAnswer(list(await call.desk.run(registry.undelete(call.named["subject"], version))))


async def put_deprecation(call: Call) -> object:
    body: DeprecationBody = call.body
    return await _deprecate(call, body.message)


async def delete_deprecation(call: Call) -> object:
    return await _deprecate(call, None)


async def _deprecate(call: Call, message: str | None) -> object:
    registry = call.desk.registry
    found = await call.desk.run(registry.deprecate(call.named["subject"], call.named["version"], message))
    return version_answer(found, more=True)


async def export_schemas(call: Call) -> object:
    records = call.desk.registry.export(call.query["subjectPrefix"])
    return Pieces(b'{"records":[', (msgspec.json.encode(record) for record in records), b"]}")


async def import_schemas(call: Call) -> object:
    body: ImportBody = call.body
    found = await call.desk.run(call.desk.registry.import_(body.records))
    refused = [RefusedRecord(each.index, each.subject, _number(each.version), each.message) for each in found.refused]
    return ImportedAnswer(found.imported, found.known, refused)


def _number(version: int | None) -> int | None:
    """Of a record that is refused anything may be the version."""
    return None if isinstance(version, bool) else version
