"""The topic and its schema: two compatible versions, and a third that is refused, with the reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.sync import Client
from penstock.core.errors import PenstockError
from penstock.demo.base.orders import TOPIC

SUBJECT: Final = f"{TOPIC}-value"
PARTITIONS: Final = 2

_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
FIRST: Final[dict[str, Any]] = {
    "event": _COUNT,
    "order": _COUNT,
    "customer": _COUNT,
    "product": {"type": "string", "minLength": 1},
    "quantity": {"type": "integer", "minimum": 1},
    "cents": _COUNT,
    "at": {"type": "string", "format": "date-time"},
}
SECOND: Final = FIRST | {"channel": {"type": "string"}}
THIRD: Final = SECOND | {"cents": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema version as messages name it."""

    id: int
    version: int


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    first: SchemaVersion
    second: SchemaVersion
    refusal: str
    """The reason why there is no third version."""


def create(client: Client) -> SchemaVersions:
    """Create the topic, register two versions of its schema, and make the topic refuse payloads that do not conform.

    Also tries a third version, which must be refused. Raises `PenstockError` if it is accepted.
    """
    client.ask("system.topic.create", {"topic": TOPIC, "partitions": PARTITIONS})
    first, second = _register(client, FIRST), _register(client, SECOND)
    refusal = _refusal(client)
    policy = {"schema_policy": "enforce", "schema_payloads": True, "schema_default": "latest"}
    client.ask("system.topic.alter", {"topic": TOPIC} | policy)
    return SchemaVersions(first, second, refusal)


def _register(client: Client, fields: dict[str, Any]) -> SchemaVersion:
    answer = client.ask("system.schema.register", {"subject": SUBJECT, "type": "JSON", "schema": text(fields)})
    return SchemaVersion(answer["id"], answer["version"])


def text(fields: dict[str, Any]) -> str:
    """Return the text of a JSON Schema that allows exactly these fields and requires those of the first version."""
    required = list(FIRST)
    described = {"title": "Order", "type": "object", "properties": fields, "required": required}
    return json.dumps(described | {"additionalProperties": False})


def _refusal(client: Client) -> str:
    try:
        _register(client, THIRD)
    except PenstockError as error:
        problems: Any = error.details.get("problems")
        if not problems:
            raise
        return reason(problems[0])
    raise PenstockError(f"{SUBJECT}: a version that cannot read what the others wrote was registered")


def reason(problem: dict[str, Any]) -> str:
    """Return a problem as one line."""
    return f"{problem.get('path') or '/'}: {problem.get('message')}"
