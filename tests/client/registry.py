"""A registry in memory that answers as the broker's does and counts calls; and an encoder that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.client.serde.encoder import ValueEncoder
from penstock.client.serde.registry_client import RegistryClient
from penstock.client.serde.schemas import Serde
from penstock.core.errors import InvalidRequest

T = TypeVar("T")


class FakeRegistry:
    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}

    def client(self) -> RegistryClient:
        """Build a client of this registry."""
        return RegistryClient(self.ask)

    async def ask(self, topic: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((topic, facts))
        match topic.rpartition(".")[2]:
            case "register":
                return self._place(facts, self._add(facts))
            case "lookup":
                return self._place(facts, self._find(facts))
            case _:
                return self._get(facts)

    def _find(self, facts: Mapping[str, Any]) -> int | None:
        described = {name: facts.get(name, []) for name in ("type", "schema", "references")}
        return self.schemas.index(described) + 1 if described in self.schemas else None

    def _add(self, facts: Mapping[str, Any]) -> int:
        found = self._find(facts)
        if found is None:
            self.schemas.append({name: facts.get(name, []) for name in ("type", "schema", "references")})
            found = len(self.schemas)
        versions = self.subjects.setdefault(facts["subject"], [])
        if found not in versions:
            versions.append(found)
        return found

    def _place(self, facts: Mapping[str, Any], schema_id: int | None) -> dict[str, Any]:
        versions = self.subjects.get(facts["subject"], [])
        if schema_id is None or schema_id not in versions:
            raise InvalidRequest("Schema not found", registry_code=40403)
        return {"subject": facts["subject"], "version": versions.index(schema_id) + 1, "id": schema_id}

    def _get(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        if "id" not in facts:
            versions = self.subjects.get(facts["subject"], [])
            version = len(versions) if facts["version"] == "latest" else facts["version"]
            if not versions:
                raise InvalidRequest(f"Subject '{facts['subject']}' not found.", registry_code=40401)
            if version > len(versions):
                raise InvalidRequest(f"Version {version} not found.", registry_code=40402)
            return self._described(versions[version - 1]) | {"version": version}
        if not 1 <= facts["id"] <= len(self.schemas):
            raise InvalidRequest(f"Schema {facts['id']} not found", registry_code=40403)
        return self._described(facts["id"]) | {"closure": self._closure(facts["id"])}

    def _described(self, schema_id: int) -> dict[str, Any]:
        return {**self.schemas[schema_id - 1], "id": schema_id}

    def _closure(self, schema_id: int) -> list[list[str]]:
        texts: dict[str, str] = {}
        for reference in self.schemas[schema_id - 1]["references"]:
            referred = self.subjects[reference["subject"]][reference["version"] - 1]
            texts |= dict(self._closure(referred)) | {reference["name"]: self.schemas[referred - 1]["schema"]}
        return [[name, text] for name, text in texts.items()]


@dataclass
class Purchase:
    id: int
    currency: str = "EUR"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


def writer(source: Any, registry: FakeRegistry | None = None, topic: str = "orders", **options: Any) -> ValueEncoder:
    made = run(Serde(source=source, **options).encoder((registry or FakeRegistry()).client(), topic))
    assert made is not None
    return made
