"""Stream formats: messages as server-sent events, lines of JSON, or CloudEvents. Values in, bytes out.

A server-sent event carries text. A payload that is not text, or would not arrive unchanged, becomes a `data:` URL with
base64, and so does text that begins like one: a reader that gets `data:` can always decode it.
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

from penstock.broker.reads.merge import FeedGap, LogSource, MergedSlice, ReadPositions
from penstock.record.rows import RecordRow, attributes_of
from penstock.server.events.outgoing_cloudevents import STRUCTURED, cloud_event, note_event

SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
GAP: Final = "penstock.gap"
ERROR: Final = "penstock.error"
CONTENT_TYPE: Final = "content-type"
"""The name of the message attribute that holds the media type of the payload."""
_BYTES: Final = "application/octet-stream"
_SAYS_NOTHING: Final = (_BYTES, "application/x-www-form-urlencoded")
"""Media types that say nothing about a payload: that of any bytes, and the one that curl sends by default."""
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}", re.ASCII)
_SPOT_BYTES: Final = 200
"""The bytes of memory that a position in one log takes, about."""
_BREAKS: Final = re.compile("[\r\n\0]")


class StreamFormat(Enum):
    """The format of a stream."""

    EVENTS = "events"
    """Server-sent events. The data of an event is the message's payload."""
    ENVELOPES = "envelopes"
    """Server-sent events. The data of an event is a line of JSON with all fields of the message."""
    LINES = "lines"
    """Lines of JSON, one for each message, with all its fields."""
    CLOUDEVENTS = "cloudevents"
    """Lines of JSON, one CloudEvent each."""

    @property
    def media(self) -> str:
        return {StreamFormat.LINES: NDJSON, StreamFormat.CLOUDEVENTS: STRUCTURED}.get(self, SSE)

    @property
    def is_lines(self) -> bool:
        """True for the formats of JSON lines. They have no comments, and no ids outside of the messages."""
        return self in (StreamFormat.LINES, StreamFormat.CLOUDEVENTS)


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """An encoded part of a stream, which all readers at the same position share."""

    body: bytes
    ends: list[int]
    """The index in `body` of the end of each message. Notices of gaps come before the first message."""
    after: int
    """The position after this chunk."""
    positions: ReadPositions

    @property
    def size(self) -> int:
        """The bytes of memory that the chunk takes, about. With a thousand logs, `positions` takes more than `body`."""
        return len(self.body) + len(self.positions) * _SPOT_BYTES


class MessageId(Struct, frozen=True):
    producer_id: int
    topic_name: str
    broker_addr: str
    topic_offset: int


class EventLine(Struct, frozen=True):
    """A message with all its fields: a line of `application/x-ndjson`."""

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
    """Encodes messages in one format. `address` is the broker's own address, which is part of `msg_id`."""

    def __init__(self, form: StreamFormat, address: str = "") -> None:
        self.address = address
        self._encode = msgspec.json.Encoder().encode
        self._event: Callable[[LogSource, RecordRow], bytes] = {
            StreamFormat.EVENTS: sse_event,
            StreamFormat.ENVELOPES: self._envelope,
            StreamFormat.LINES: self._line,
            StreamFormat.CLOUDEVENTS: self._cloud_event,
        }[form]
        noted = {StreamFormat.LINES: self._noted_line, StreamFormat.CLOUDEVENTS: self._noted_cloud_event}
        self._note: Callable[[str, dict[str, Any]], bytes] = noted.get(form, self._noted_event)

    def chunk(self, found: MergedSlice) -> StreamChunk:
        parts = [self.note(GAP, gap_fields(gap)) for gap in found.gaps]
        place = sum(map(len, parts))
        ends = []
        event = self._event
        for source, row in found.rows:
            part = event(source, row)
            place += len(part)
            parts.append(part)
            ends.append(place)
        return StreamChunk(b"".join(parts), ends, found.after, found.positions)

    def note(self, kind: str, facts: dict[str, Any]) -> bytes:
        """Encode a notice of the broker, such as a gap or an error. It has no id, so a reader that reconnects goes on
        from the message before it."""
        return self._note(kind, facts)

    def _noted_event(self, kind: str, facts: dict[str, Any]) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + self._encode(facts) + b"\n\n"

    def _noted_line(self, kind: str, facts: dict[str, Any]) -> bytes:
        return self._encode({kind.rpartition(".")[2]: facts}) + b"\n"

    def _noted_cloud_event(self, kind: str, facts: dict[str, Any]) -> bytes:
        return self._encode(note_event(kind, facts)) + b"\n"

    def _cloud_event(self, source: LogSource, row: RecordRow) -> bytes:
        media = attributes_of(row).get(CONTENT_TYPE)
        return self._encode(cloud_event(source, row, spelled_id(row[0]), media)) + b"\n"

    def _line(self, source: LogSource, row: RecordRow) -> bytes:
        return self._encode(event_line(source, row, self.address)) + b"\n"

    def _envelope(self, source: LogSource, row: RecordRow) -> bytes:
        head = _head(spelled_id(row[0]), row[3])
        return head + b"data: " + self._encode(event_line(source, row, self.address)) + b"\n\n"


def sse_event(_source: LogSource, row: RecordRow) -> bytes:
    return _head(spelled_id(row[0]), row[3]) + sse_data(row[5], attributes_of(row).get(CONTENT_TYPE)) + b"\n"


def _head(spelled: str, kind: str) -> bytes:
    """Return the lines `id:` and `event:` of a server-sent event. `spelled` is the id as text, `kind` the message's
    type. An empty type gets no `event:` line: browsers then use their default. Line breaks in a type are written as
    percent escapes."""
    if not kind:
        return f"id: {spelled}\n".encode()
    if _BREAKS.search(kind):
        kind = _BREAKS.sub(lambda found: f"%{ord(found[0]):02X}", kind)
    return f"id: {spelled}\nevent: {kind}\n".encode()


def sse_data(payload: bytes, media: str | None = None) -> bytes:
    """Return the `data:` lines of a server-sent event with this payload. The client gets the payload as it is if
    `is_plain`, or else a `data:` URL with the payload in base64, whose media type is `media` without parameters."""
    if is_plain(payload):
        if b"\n" not in payload:
            return b"data: " + payload + b"\n"
        return b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n"
    kind = media.partition(";")[0].strip() if media else _BYTES
    kind = kind if _MEDIA.fullmatch(kind) else _BYTES
    return b"data: data:" + kind.encode() + b";base64," + b64encode(payload) + b"\n"


def is_plain(payload: bytes) -> bool:
    """Return True if a server-sent event can carry the payload as text without changing it: it is UTF-8, has no
    carriage return and no zero byte, and does not begin with `data:`."""
    if b"\r" in payload or b"\0" in payload or payload.startswith(b"data:"):
        return False
    return payload.isascii() or _is_text(payload)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def event_line(source: LogSource, row: RecordRow, address: str) -> EventLine:
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
    """Return an id as text, as `format_id` does, but faster: every message has an id."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def payload_media(content_type: str | None) -> str | None:
    """Return the Content-Type with its parameters; None if it is missing or says nothing about the payload."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return None if not kind or kind in _SAYS_NOTHING else content_type


def gap_fields(gap: FeedGap) -> dict[str, Any]:
    return {
        "topic": str(gap.topic),
        "partition": gap.partition,
        "start": gap.start,
        "stop": gap.stop,
        "reason": gap.reason,
        "certain": gap.certain,
    }
