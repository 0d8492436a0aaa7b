"""Messages as CloudEvents 1.0 in the JSON format: the reverse of `cloudevents`.

An event that was published comes out as the same event. Of other messages the event has the id, the topic, the type and
the time of publishing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import msgspec

from penstock.broker.reads.merge import LogSource
from penstock.record.rows import RecordRow, attributes_of

STRUCTURED: Final = "application/cloudevents+json"
VERSION: Final = "1.0"
PREFIX: Final = "ce-"
"""The prefix of message attributes that hold attributes of an event."""
JSON_MEDIA: Final = re.compile(r"(?:application|text)/json|[^/]+/[^/;]+\+json", re.ASCII)
NAME: Final = re.compile("[a-z0-9]{1,64}", re.ASCII)
"""The valid names of an event's attributes."""
TRACE: Final = ("traceparent", "tracestate")
ID: Final = "penstockid"
"""The extension attribute with the message's own id, from which a reader resumes."""
_UNTYPED: Final = "message"
_BROKER: Final = "/penstock"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def cloud_event(source: LogSource, row: RecordRow, spelled: str, media: str | None) -> dict[str, Any]:
    """Return one message as an event. `spelled` is its id as text, `media` its content type."""
    said = {
        name: value
        for attribute, value in attributes_of(row).items()
        if (name := attribute.removeprefix(PREFIX)) != attribute and name != "data" and NAME.fullmatch(name)
    }
    trace = {name: value for name, value in attributes_of(row).items() if name in TRACE}
    at = (_EPOCH + timedelta(milliseconds=row[2])).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known = {"specversion": VERSION, "id": spelled, "source": str(source.topic), "type": row[3] or _UNTYPED, "time": at}
    return known | _partition_key(row[4], said) | trace | said | {ID: spelled} | _data(row[5], media)


def note_event(kind: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a notice of the broker as an event; the same facts have the same id."""
    spelled = str(uuid5(NAMESPACE_URL, kind + msgspec.json.encode(facts, enc_hook=str).decode()))
    return {"specversion": VERSION, "id": spelled, "source": _BROKER, "type": kind, "data": facts}


def _partition_key(key: bytes | None, said: dict[str, str]) -> dict[str, str]:
    """Return the key as `partitionkey`, if it is text and the event has no subject."""
    if key is None or "subject" in said:
        return {}
    try:
        return {"partitionkey": key.decode()}
    except UnicodeDecodeError:
        return {}


def _data(payload: bytes, media: str | None) -> dict[str, Any]:
    """Return the payload: JSON on one line, text as a string, other bytes in base64."""
    if not payload:
        return {"datacontenttype": media} if media else {}
    is_json = media is None or JSON_MEDIA.match(media.lower()) is not None
    found = _json(payload) if is_json else None
    if found is not None:
        return {"datacontenttype": media or "application/json", "data": msgspec.Raw(found)}
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or (is_json and media is not None):  # as data, a text would be a JSON value
        return {"datacontenttype": media or "application/octet-stream", "data_base64": b64encode(payload).decode()}
    return {"datacontenttype": media or "text/plain", "data": text}


def _json(payload: bytes) -> bytes | None:
    """Return the payload without line breaks; None if it is not JSON."""
    try:
        payload.decode()
        return msgspec.json.format(payload, indent=-1) if b"\n" in payload or b"\r" in payload else _checked(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checked(payload: bytes) -> bytes:
    msgspec.json.decode(payload, type=msgspec.Raw)
    return payload
