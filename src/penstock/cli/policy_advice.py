"""Advice about messages that a topic's schema policy refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError, SchemaRejected
from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind, default_subject

if TYPE_CHECKING:
    from penstock.client.sync import Client

_NAMELESS: Final = "names no schema"
"""Words that the broker's error contains if a message names no schema, and the topic has no default schema."""
_BINARY: Final = (SchemaKind.AVRO, SchemaKind.PROTOBUF)


def with_advice(client: Client, topic: str, error: SchemaRejected, payload: bytes) -> SchemaRejected:
    """Return the error with advice added to its message; without a change if there is no advice for it."""
    advice = nameless_advice(topic) if is_nameless(error.message) else _encoding_advice(client, topic, payload)
    advised = SchemaRejected(f"{error.message}; {advice}" if advice else error.message)
    advised.details = error.details
    return advised


def is_nameless(message: str) -> bool:
    return _NAMELESS in message


def nameless_advice(topic: str) -> str:
    return f"`penstock topic schema set {topic} --default latest` says what is meant where a message names none"


def _encoding_advice(client: Client, topic: str, payload: bytes) -> str:
    """Return advice if the payload looks like JSON, but the schema is Avro or Protobuf; otherwise an empty text."""
    if payload.lstrip()[:1] not in (b"{", b"["):
        return ""
    kind = _kind(client, topic)
    encoded = "a producer of the Python client with schema=... encodes values"
    return f"the schema is {kind}, and this looks like JSON: {encoded}" if kind in _BINARY else ""


def _kind(client: Client, topic: str) -> str | None:
    """Return the language of the schema with which messages of the topic are validated; None if it cannot be found
    out."""
    try:
        facts = client.ask("system.topic.describe", {"topic": topic})
        version = {"subject": _first_subject(facts), "version": facts["settings"].get("schema_default") or "latest"}
        return str(client.ask("system.schema.get", version)["type"])
    except PenstockError:
        return None


def _first_subject(facts: dict[str, Any]) -> str:
    """Return the first subject of a topic's schema policy, or its default subject. `facts` is the topic's
    description."""
    subjects = facts["settings"].get("schema_subjects")
    return str(subjects[0]) if subjects else default_subject(TopicName.parse(facts["topic"]))
