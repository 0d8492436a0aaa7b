"""Messages as they are streamed: server-sent events, lines of JSON, CloudEvents. Values in, bytes out.

A server-sent event carries text. What is no text, or would not arrive as the same text, is a `data:` address with
base64, and so is text that begins like one: whoever gets `data:` knows what it is.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.broker.reads.merge import Gap, Slice, Source, Spots
from penstock.record.rows import RecordRow, attributes_of
from penstock.server.events.outgoing_cloudevents import STRUCTURED, cloud_event, note_event

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
GAP: Final = "penstock.gap"
ERROR: Final = "penstock.error"
CONTENT_TYPE: Final = "content-type"
"""The attribute that says what a payload is."""
_BYTES: Final = "application/octet-stream"
_SAYS_NOTHING: Final = (_BYTES, "application/x-www-form-urlencoded")
"""Bytes, and what curl says of its own accord when it is given data."""
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}", re.ASCII)
_SPOT_BYTES: Final = 200
"""What it takes to know where one is in one log."""
_BREAKS: Final = re.compile("[\r\n\0]")


class StreamFormat(Enum):
    """How a stream is written."""

    EVENTS = "events"
    """Server-sent events whose data is the payload."""
    ENVELOPES = "envelopes"
    """Server-sent events whose data is a line of JSON with all there is to know."""
    LINES = "lines"
    """Lines of JSON."""
    CLOUDEVENTS = "cloudevents"
    """Lines of JSON, a CloudEvent each."""

    @property
    def media(self) -> str:
        return {StreamFormat.LINES: NDJSON, StreamFormat.CLOUDEVENTS: STRUCTURED}.get(self, SSE)

    @property
    def is_lines(self) -> bool:
        """Lines of JSON have no room for anything else."""
        return self in (StreamFormat.LINES, StreamFormat.CLOUDEVENTS)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a stream, written; shared by all who read the same."""

    body: bytes
    ends: list[int]
    """Where each message ends in it. What comes before the first of them are gaps."""
    after: int
    """Where to go on."""
    spots: Spots

    @property
    def size(self) -> int:
        """Bytes of memory, about. Of a thousand logs, the spots are more than the body."""
        return len(self.body) + len(self.spots) * _SPOT_BYTES


class MessageId(Struct, frozen=True):
    producer_id: int
    topic_name: str
    broker_addr: str
    topic_offset: int


class EventLine(Struct, frozen=True):
    """One message, with all there is to know of it: a line of `application/x-ndjson`."""

    id: str
    topic: str
    partition: int
    offset: int
    type: str
    publish_time: int
    producer_name: str
    request_id: int
    msg_id: MessageId
    attributes: dict[str, str]
    subscription_name: str | None = None
    key: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    schema_id: int | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class StreamWriter:
    """Writes slices in one form. `address`: of the broker, for MessageIDs."""

    def __init__(self, form: StreamFormat, address: str = "") -> None:
        self.address = address
        self._encode = msgspec.json.Encoder().encode
        self._event: Callable[[Source, RecordRow], bytes] = {
            StreamFormat.EVENTS: sse_event,
            StreamFormat.ENVELOPES: self._envelope,
            StreamFormat.LINES: self._line,
            StreamFormat.CLOUDEVENTS: self._cloud_event,
        }[form]
        noted = {StreamFormat.LINES: self._noted_line, StreamFormat.CLOUDEVENTS: self._noted_cloud_event}
        self._note: Callable[[str, dict[str, Any]], bytes] = noted.get(form, self._noted_event)

    def chunk(self, found: Slice) -> Chunk:
        parts = [self.note(GAP, gap_facts(gap)) for gap in found.gaps]
        place = sum(map(len, parts))
        ends = []
        event = self._event
        for source, row in found.rows:
            part = event(source, row)
            place += len(part)
            parts.append(part)
            ends.append(place)
        return Chunk(b"".join(parts), ends, found.after, found.spots)

    def note(self, kind: str, facts: dict[str, Any]) -> bytes:
        """Something that is no message: it has no id, and does not change where a reader goes on."""
        return self._note(kind, facts)

    def _noted_event(self, kind: str, facts: dict[str, Any]) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + self._encode(facts) + b"\n\n"

    def _noted_line(self, kind: str, facts: dict[str, Any]) -> bytes:
        return self._encode({kind.rpartition(".")[2]: facts}) + b"\n"

    def _noted_cloud_event(self, kind: str, facts: dict[str, Any]) -> bytes:
        return self._encode(note_event(kind, facts)) + b"\n"

    def _cloud_event(self, source: Source, row: RecordRow) -> bytes:
        media = attributes_of(row).get(CONTENT_TYPE)
        return self._encode(cloud_event(source, row, spelled_id(row[0]), media)) + b"\n"

    def _line(self, source: Source, row: RecordRow) -> bytes:
        return self._encode(event_line(source, row, self.address)) + b"\n"

    def _envelope(self, source: Source, row: RecordRow) -> bytes:
        head = _head(spelled_id(row[0]), row[3])
        return head + b"data: " + self._encode(event_line(source, row, self.address)) + b"\n\n"


def sse_event(_source: Source, row: RecordRow) -> bytes:
    return _head(spelled_id(row[0]), row[3]) + sse_data(row[5], attributes_of(row).get(CONTENT_TYPE)) + b"\n"


def _head(spelled: str, kind: str) -> bytes:
    """A type without a name is that of `onmessage` in a browser; line breaks in one are escaped as in an address."""
    if not kind:
        return f"id: {spelled}\n".encode()
    if _BREAKS.search(kind):
        kind = _BREAKS.sub(lambda found: f"%{ord(found[0]):02X}", kind)
    return f"id: {spelled}\nevent: {kind}\n".encode()


def sse_data(payload: bytes, media: str | None = None) -> bytes:
    """The lines of one event's data. What a client puts together from them is the payload, or tells that it is not."""
    if is_plain(payload):
        if b"\n" not in payload:
            return b"data: " + payload + b"\n"
        return b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n"
    kind = media.partition(";")[0].strip() if media else _BYTES
    kind = kind if _MEDIA.fullmatch(kind) else _BYTES
    return b"data: data:" + kind.encode() + b";base64," + b64encode(payload) + b"\n"


def is_plain(payload: bytes) -> bool:
    """Text that arrives as it was sent: UTF-8 in which only newlines end lines, not beginning as a `data:` address."""
    if b"\r" in payload or b"\0" in payload or payload.startswith(b"data:"):
        return False
    return payload.isascii() or _is_text(payload)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def event_line(source: Source, row: RecordRow, address: str) -> EventLine:
    id_, offset, time_ms, kind, key, payload, producer, producer_id, request_id, schema, attributes = row
    return EventLine(
        id=spelled_id(id_),
        topic=str(source.topic),
        partition=source.partition,
        offset=offset,
        type=kind,
        publish_time=time_ms,
        producer_name=producer,
        request_id=request_id,
        msg_id=MessageId(producer_id, source.name, address, offset),
        attributes=dict(attributes or {}),
        schema_id=UNSET if schema is None else schema.id,
        schema_version=UNSET if schema is None else schema.version,
        **({} if key is None else _text_or_base64("key", key)),
        **_text_or_base64("payload", payload),
    )


def _text_or_base64(name: str, data: bytes) -> dict[str, Any]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def spelled_id(id_: bytes) -> str:
    """As `format_id`, and quicker: one is written for every message."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def payload_media(content_type: str | None) -> str | None:
    """What Content-Type says of a payload; None where it says nothing."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return None if not kind or kind in _SAYS_NOTHING else content_type


def gap_facts(gap: Gap) -> dict[str, Any]:
    return {
        "topic": str(gap.topic),
        "partition": gap.partition,
        "start": gap.start,
        "stop": gap.stop,
        "reason": gap.reason,
        "certain": gap.certain,
    }
