"""Handlers of what Penstock's registry has and other schema registries lack: schema policies of topics, undeleting,
deprecating, export and import."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind, default_subject
from penstock.server.api.request import ApiRequest, StreamedList
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
"""The prefix of the names of a topic's settings that concern schemas."""


async def get_topic_schema(request: ApiRequest) -> object:
    return _topic(await request.ask("system.topic.describe", {"topic": request.path_params["topic"]}))


async def put_topic_schema(request: ApiRequest) -> object:
    body: TopicSchemaBody = request.body
    values = {name: getattr(body, name) for name in TopicSchemaBody.__struct_fields__}
    changed = {f"{_PREFIX}{name}": value for name, value in values.items() if value is not UNSET}
    return _topic(await request.ask("system.topic.alter", {"topic": request.path_params["topic"], **changed}))


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


async def list_schema_types(_call: ApiRequest) -> object:
    return [kind.value for kind in SchemaKind]


async def undelete(request: ApiRequest) -> object:
    registry, version = request.registry, request.query["version"]
    return VersionsAnswer(list(await request.run(registry.undelete(request.path_params["subject"], version))))


async def put_deprecation(request: ApiRequest) -> object:
    body: DeprecationBody = request.body
    return await _deprecate(request, body.message)


async def delete_deprecation(request: ApiRequest) -> object:
    return await _deprecate(request, None)


async def _deprecate(request: ApiRequest, message: str | None) -> object:
    subject, version = request.path_params["subject"], request.path_params["version"]
    registered = await request.run(request.registry.deprecate(subject, version, message))
    return version_answer(registered, more=True)


async def export_schemas(request: ApiRequest) -> object:
    records = request.registry.export(request.query["subjectPrefix"])
    return StreamedList(b'{"records":[', (msgspec.json.encode(record) for record in records), b"]}")


async def import_schemas(request: ApiRequest) -> object:
    body: ImportBody = request.body
    result = await request.run(request.registry.import_(body.records))
    refused = [
        RefusedRecord(record.index, record.subject, _number(record.version), record.message)
        for record in result.refused
    ]
    return ImportedAnswer(result.imported, result.known, refused)


def _number(version: int | None) -> int | None:
    """Return the version of a refused record for the report; None also for `true` and `false`, which Python takes for
    numbers."""
    return None if isinstance(version, bool) else version
