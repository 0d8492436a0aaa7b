"""A registry on a real port without a broker: procedures are carried out on the spot, topics are but settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.server.http_kit import Answer, Client, Serving

from penstock.broker.access.policy import AccessPolicy, Principal
from penstock.broker.admin.topics import parse_settings
from penstock.broker.base.request_fields import topic_name
from penstock.core.errors import TopicNotSupported
from penstock.core.names import TopicName
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure, run_procedure
from penstock.server.api.app import Api
from penstock.server.registry.cache import SchemaAnswerCache
from penstock.server.routes import ROUTE_TABLE
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.topics import TopicSettings
from penstock.testing import ManualClock

_Result = TypeVar("_Result")
V1: Final = "application/vnd.schemaregistry.v1+json"


@dataclass
class LocalBackend:
    registry: Registry
    languages: SchemaLanguages = field(default_factory=SchemaLanguages)
    topics: dict[TopicName, TopicSettings] = field(default_factory=dict)
    failure: Exception | None = None
    access: AccessPolicy = field(default_factory=AccessPolicy)

    async def run(self, procedure: Procedure[_Result]) -> _Result:
        if self.failure is not None:
            raise self.failure
        return run_procedure(procedure, self.languages)

    async def ask(self, topic: str, fields: dict[str, Any], _principal: Principal) -> dict[str, Any]:
        if topic == "system.schema.delete":
            return {"versions": await self._delete(**fields)}
        name = topic_name(fields)
        if name not in self.topics:
            raise TopicNotSupported(f"there is no topic {name}")
        if topic == "system.topic.alter":
            self.topics[name] = parse_settings(fields, self.topics[name])
        known = {each: getattr(self.topics[name], each) for each in TopicSettings.__struct_fields__}
        settings = {each: value for each, value in known.items() if each != "retention" and value is not None}
        return {"topic": str(name), "settings": settings}

    async def _delete(self, *, subject: str, version: int | str | None = None, permanent: bool) -> list[int]:
        if version is None:
            return list(await self.run(self.registry.delete_subject(subject, permanent=permanent)))
        return [await self.run(self.registry.delete_version(subject, version, permanent=permanent))]


@dataclass
class RegistryServer:
    backend: LocalBackend
    serving: Serving
    client: Client

    @property
    def url(self) -> str:
        return self.serving.url

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return self.client.ask(method, path, body, **headers)

    def get(self, path: str, **headers: str) -> Any:
        """Return the answer of a request that must succeed."""
        return self._right(self.ask("GET", path, **headers))

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self._right(self.ask("POST", path, body, **headers))

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self._right(self.ask("PUT", path, body, **headers))

    def delete(self, path: str, **headers: str) -> Any:
        return self._right(self.ask("DELETE", path, **headers))

    def _right(self, answer: Answer) -> Any:
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json


@contextmanager
def serve_registry(folder: Path) -> Iterator[RegistryServer]:
    folder.mkdir(parents=True, exist_ok=True)
    with Catalog.open(folder / "catalog.db", clock=ManualClock()) as catalog:
        backend = LocalBackend(Registry(catalog.schemas))
        with Serving(Api(backend, ROUTE_TABLE, SchemaAnswerCache())) as serving, Client(serving.port) as client:
            yield RegistryServer(backend, serving, client)


def record(*fields: str, name: str = "Order") -> str:
    """An Avro schema: a name and a type each, and a default behind `=`."""
    made = []
    for each in fields:
        written, _, default = each.partition("=")
        label, _, kind = written.partition(":")
        made.append({"name": label, "type": kind} | ({"default": json.loads(default)} if default else {}))
    return json.dumps({"type": "record", "name": name, "fields": made})
