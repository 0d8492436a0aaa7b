"""The registry client: it fetches and registers schemas through a broker. The schema of an id never changes, so each is
fetched once and cached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from penstock.client.wire.connection import error_copy
from penstock.core.errors import PenstockError
from penstock.core.schemas import Definition, Reference, Schema, SchemaKind

Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]

_KEPT_MAX: Final = 1000
"""The most schemas, and the most registrations, that are cached; the oldest are dropped. Few programs use as many."""
_UNKNOWN_SECONDS: Final = 5.0
"""The time in seconds for which an unknown id is not looked up again. After it, the schema may have been imported."""
SCHEMA_NOT_FOUND: Final = 40403

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version of a subject, and the id of its schema."""

    subject: str
    version: int
    id: int


class RegistryClient:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._definitions: dict[int, Definition] = {}
        self._registered: dict[tuple[str, Schema], RegisteredVersion] = {}
        self._not_found: dict[int, tuple[float, PenstockError]] = {}
        self._fetching: dict[int, asyncio.Future[Definition]] = {}

    async def register(self, subject: str, schema: Schema) -> RegisteredVersion:
        """Return the version of a schema under a subject, registering it if it is new. The result is cached. Raises the
        registry's error if it refuses the schema."""
        return await self._resolve_version("system.schema.register", subject, schema)

    async def look_up(self, subject: str, schema: Schema) -> RegisteredVersion:
        """Return the version of a schema under a subject; the result is cached. Raises `InvalidRequest` if there is
        none."""
        return await self._resolve_version("system.schema.lookup", subject, schema)

    async def _resolve_version(self, topic: str, subject: str, schema: Schema) -> RegisteredVersion:
        known = self._registered.get((subject, schema))
        if known is None:
            answer = await self._ask(topic, {"subject": subject} | _described(schema))
            known = RegisteredVersion(subject, answer["version"], answer["id"])
            _remember(self._registered, (subject, schema), known)
        return known

    async def version(self, subject: str, version: int | str) -> RegisteredVersion:
        """Return a version of a subject, by number or `latest`. Always asks the broker. Raises its error if there is
        none."""
        answer = await self._ask("system.schema.get", {"subject": subject, "version": version})
        return RegisteredVersion(subject, answer["version"], answer["id"])

    def known(self, schema_id: int) -> Definition | None:
        """Return the schema of an id if it is cached, else None."""
        return self._definitions.get(schema_id)

    async def definition(self, schema_id: int) -> Definition:
        """Return the schema of an id, from the cache or the broker. Concurrent callers share one request. Raises the
        registry's error; the error for an unknown id is cached for five seconds."""
        known = self._definitions.get(schema_id)
        if known is not None:
            return known
        since, unknown = self._not_found.get(schema_id, (0.0, None))
        if unknown is not None and time.monotonic() < since + _UNKNOWN_SECONDS:
            raise error_copy(unknown)
        fetching = self._fetching.get(schema_id)
        if fetching is None:
            fetching = self._fetching[schema_id] = asyncio.ensure_future(self._fetch(schema_id))
            fetching.add_done_callback(partial(self._fetched, schema_id))
        return await asyncio.shield(fetching)

    async def _fetch(self, schema_id: int) -> Definition:
        answer = await self._ask("system.schema.get", {"id": schema_id, "closure": True})
        closure = tuple((name, text) for name, text in answer.get("closure", ()))
        return Definition(SchemaKind(answer["type"]), answer["schema"], closure)

    def _fetched(self, schema_id: int, fetching: asyncio.Future[Definition]) -> None:
        self._fetching.pop(schema_id, None)
        if fetching.cancelled():
            return
        error = fetching.exception()
        if error is None:
            _remember(self._definitions, schema_id, fetching.result())
        elif isinstance(error, PenstockError) and error.details.get("registry_code") == SCHEMA_NOT_FOUND:
            _remember(self._not_found, schema_id, (time.monotonic(), error))

    async def closed(self, schema: Schema) -> Definition:
        """Return a schema together with all schemas that it refers to. The schema itself need not be registered."""
        texts: dict[str, str] = {}
        for reference in schema.references:
            registered = await self.version(reference.subject, reference.version)
            referred = await self.definition(registered.id)
            texts |= dict(referred.references) | {reference.name: referred.text}
        return Definition(schema.kind, schema.text, tuple(texts.items()))


def _described(schema: Schema) -> dict[str, Any]:
    described: dict[str, Any] = {"type": schema.kind.value, "schema": schema.text}
    if schema.references:
        described["references"] = [_reference(reference) for reference in schema.references]
    return described


def _reference(reference: Reference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _remember(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    while len(kept) >= _KEPT_MAX:
        del kept[next(iter(kept))]
    kept[key] = value
