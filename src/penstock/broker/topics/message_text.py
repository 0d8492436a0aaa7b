"""The text form of one message with its metadata: a line of JSON, a newline, and the payload."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any

from penstock.broker.base.request_fields import Fields, read_fields
from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.record.message import Message, SchemaRef


def parse_message(payload: bytes, *, producer_name: str) -> Message:
    """Parse a message: a line of JSON with its metadata, then the payload. `producer_name` is used if the metadata has
    none. Raises `MalformedMessage` or `InvalidRequest`."""
    line, newline, body = payload.partition(b"\n")
    if not newline:
        raise MalformedMessage("Expected a line of JSON, a newline and the payload", field="payload")
    return message_of(read_fields(line, "The metadata must be a JSON object"), body, producer_name=producer_name)


def message_of(fields: Fields, payload: bytes, *, producer_name: str) -> Message:
    """Build a message from the fields of its metadata. `producer_name` is used if they have none. Raises
    `InvalidRequest` for an unknown field, or for wrong attributes or keys. Other values are checked only when the
    message is encoded."""
    known = {"attributes", "key", "key_base64", "type", "schema_id", "schema_version", "producer_name"}
    unknown = sorted(fields.keys() - known - {"producer_id", "request_id"})
    if unknown:
        shown = unknown[0][:QUOTED_CHARS_MAX]
        raise InvalidRequest(f"Unknown field '{shown}' in the metadata", field=shown)
    schema = None
    if "schema_id" in fields:
        schema = SchemaRef(fields["schema_id"], fields.get("schema_version", 0))
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict):
        raise InvalidRequest("attributes must be an object of texts", field="attributes")
    return Message(
        payload=payload,
        type=fields.get("type", ""),
        key=_key(fields),
        attributes=attributes,
        producer_name=fields.get("producer_name", producer_name),
        producer_id=fields.get("producer_id", 0),
        request_id=fields.get("request_id", 0),
        schema=schema,
    )


def _key(fields: dict[str, Any]) -> bytes | None:
    if "key" in fields and "key_base64" in fields:
        raise InvalidRequest("Give key or key_base64, not both", field="key")
    if "key" in fields:
        if not isinstance(fields["key"], str):
            raise InvalidRequest("key must be text; give other bytes as key_base64", field="key")
        return fields["key"].encode(errors="surrogatepass")
    if "key_base64" in fields:
        try:
            return b64decode(fields["key_base64"], validate=True)
        except (Base64Error, ValueError, TypeError):
            raise InvalidRequest("key_base64 is not base64", field="key_base64") from None
    return None
