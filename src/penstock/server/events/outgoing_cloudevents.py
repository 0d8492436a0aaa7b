"""Messages as CloudEvents 1.0 in the JSON format: the reverse of `cloudevents`.

An event that was published as a CloudEvent comes out as the same event. For any other message, the event's id, source,
type and time are the message's id, topic, type and publishing time.
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
"""The prefix of the message attributes that hold the attributes of a CloudEvent."""
JSON_MEDIA: Final = re.compile(r"(?:application|text)/json|[^/]+/[^/;]+\+json", re.ASCII)
NAME: Final = re.compile("[a-z0-9]{1,64}", re.ASCII)
"""The valid names of the attributes of a CloudEvent."""
TRACE: Final = ("traceparent", "tracestate")
ID: Final = "penstockid"
"""The extension attribute of a CloudEvent that holds the id of the message. A reader sends it as Last-Event-ID to
resume."""
_UNTYPED: Final = "message"
_BROKER: Final = "/penstock"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def cloud_event(source: LogSource, row: RecordRow, spelled: str, media: str | None) -> dict[str, Any]:
    """Return one message as the fields of a CloudEvent. `spelled` is the message's id as text, `media` its content
    type."""
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
    """Return a notice of the broker, such as a gap, as a CloudEvent. `kind` becomes its type. The same notice always
    has the same id."""
    spelled = str(uuid5(NAMESPACE_URL, kind + msgspec.json.encode(facts, enc_hook=str).decode()))
    return {"specversion": VERSION, "id": spelled, "source": _BROKER, "type": kind, "data": facts}


def _partition_key(key: bytes | None, said: dict[str, str]) -> dict[str, str]:
    """Return the message's key as the attribute `partitionkey`. Returns no attribute if the key is not text, or if the
    event has a `subject`, since the key may have been made from that. `said` has the event's attributes."""
    if key is None or "subject" in said:
        return {}
    try:
        return {"partitionkey": key.decode()}
    except UnicodeDecodeError:
        return {}


def _data(payload: bytes, media: str | None) -> dict[str, Any]:
    """Return the payload as the fields `data` or `data_base64`, with `datacontenttype`: JSON as a value on one line,
    text as a string, other bytes in base64."""
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
    """Return the payload as JSON on one line; None if it is not JSON."""
    try:
        payload.decode()
        return msgspec.json.format(payload, indent=-1) if b"\n" in payload or b"\r" in payload else _checked(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _checked(payload: bytes) -> bytes:
    msgspec.json.decode(payload, type=msgspec.Raw)
    return payload
