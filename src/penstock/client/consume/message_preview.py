"""Message previews: the JSON objects in which the broker's answers describe messages; long texts in them may be cut.

This module imports no package outside the standard library and penstock.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from penstock.core.ids import parse_id
from penstock.core.offsets import Offset
from penstock.record.message import Message, Record, SchemaRef


def record_of(entry: Mapping[str, Any]) -> Record:
    """Build a record from the entry of one message. A field that is cut in the entry is cut in the record too; one that
    is left out is empty."""
    schema = SchemaRef(entry["schema_id"], entry["schema_version"]) if "schema_id" in entry else None
    return Record(
        id=parse_id(entry["id"]),
        offset=Offset(entry["offset"]),
        publish_time_ms=entry["publish_time"],
        message=Message(
            payload=_bytes(entry, "payload") or b"",
            type=entry.get("type", ""),
            key=_bytes(entry, "key"),
            attributes=entry.get("attributes", {}),
            producer_name=entry.get("producer_name", ""),
            producer_id=entry.get("producer_id", 0),
            request_id=entry.get("request_id", 0),
            schema=schema,
        ),
    )


def is_cut(entry: Mapping[str, Any]) -> bool:
    """Return True if the payload, the key or the attributes in the entry are cut."""
    return any(entry.get(f"{name}_cut") for name in ("payload", "key", "attributes"))


def _bytes(entry: Mapping[str, Any], name: str) -> bytes | None:
    if name in entry:
        return str(entry[name]).encode()
    return b64decode(entry[f"{name}_base64"]) if f"{name}_base64" in entry else None
