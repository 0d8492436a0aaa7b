"""The registry as a client sees it. What an id means never changes: it is asked for once, and kept."""

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
"""Schemas, and registrations: more than one program writes or reads. Those that came first go first."""
_UNKNOWN_SECONDS: Final = 5.0
"""For so long an id that the registry does not know is not asked for again: it may be imported yet."""
SCHEMA_NOT_FOUND: Final = 40403

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version of a subject."""

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
        """Its version, which is made if it is new. Asks the registry once for each. Raises why it is refused."""
        return await self._resolve_version("system.schema.register", subject, schema)

    async def look_up(self, subject: str, schema: Schema) -> RegisteredVersion:
        """The version that it is. Raises `InvalidRequest` if it is none."""
        return await self._resolve_version("system.schema.lookup", subject, schema)

    async def _resolve_version(self, topic: str, subject: str, schema: Schema) -> RegisteredVersion:
        known = self._registered.get((subject, schema))
        if known is None:
            facts = await self._ask(topic, {"subject": subject} | _described(schema))
            known = RegisteredVersion(subject, facts["version"], facts["id"])
            _remember(self._registered, (subject, schema), known)
        return known

    async def version(self, subject: str, version: int | str) -> RegisteredVersion:
        """One of a subject's, or its `latest`."""
        facts = await self._ask("system.schema.get", {"subject": subject, "version": version})
        return RegisteredVersion(subject, facts["version"], facts["id"])

    def known(self, schema_id: int) -> Definition | None:
        """What an id means, if somebody has asked before."""
        return self._definitions.get(schema_id)

    async def definition(self, schema_id: int) -> Definition:
        """What an id means. Whoever asks meanwhile waits for the same answer. Raises what the registry says."""
        known = self._definitions.get(schema_id)
        if known is not None:
            return known
        since, unknown = self._not_found.get(schema_id, (0.0, None))
        if unknown is not None and time.monotonic() < since + _UNKNOWN_SECONDS:
            raise error_copy(unknown)
        asked = self._fetching.get(schema_id)
        if asked is None:
            asked = self._fetching[schema_id] = asyncio.ensure_future(self._fetch(schema_id))
            asked.add_done_callback(partial(self._fetched, schema_id))
        return await asyncio.shield(asked)

    async def _fetch(self, schema_id: int) -> Definition:
        facts = await self._ask("system.schema.get", {"id": schema_id, "closure": True})
        closure = tuple((name, text) for name, text in facts.get("closure", ()))
        return Definition(SchemaKind(facts["type"]), facts["schema"], closure)

    def _fetched(self, schema_id: int, asked: asyncio.Future[Definition]) -> None:
        self._fetching.pop(schema_id, None)
        if asked.cancelled():
            return
        error = asked.exception()
        if error is None:
            _remember(self._definitions, schema_id, asked.result())
        elif isinstance(error, PenstockError) and error.details.get("registry_code") == SCHEMA_NOT_FOUND:
            _remember(self._not_found, schema_id, (time.monotonic(), error))

    async def closed(self, schema: Schema) -> Definition:
        """A schema with all that it refers to, whether it is registered or not."""
        texts: dict[str, str] = {}
        for reference in schema.references:
            registered = await self.version(reference.subject, reference.version)
            referred = await self.definition(registered.id)
            texts |= dict(referred.references) | {reference.name: referred.text}
        return Definition(schema.kind, schema.text, tuple(texts.items()))


def _described(schema: Schema) -> dict[str, Any]:
    described: dict[str, Any] = {"type": schema.kind.value, "schema": schema.text}
    if schema.references:
        described["references"] = [_reference(each) for each in schema.references]
    return described


def _reference(reference: Reference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _remember(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    while len(kept) >= _KEPT_MAX:
        del kept[next(iter(kept))]
    kept[key] = value
