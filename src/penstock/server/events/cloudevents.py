"""CloudEvents 1.0 as messages. An event comes in headers (binary mode), as a JSON object (structured mode), or in a
JSON array of such objects (batched mode).

The event's type becomes the message's type and its data the payload. Its partition key, or without one its subject,
becomes the key. Its other attributes become message attributes: `ce-id`, `ce-source` and so on.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge, PenstockError
from penstock.core.limits import ATTRIBUTES_MAX, KIB, QUOTED_CHARS_MAX
from penstock.record.message import Message
from penstock.server.events.outgoing_cloudevents import JSON_MEDIA, NAME, PREFIX, TRACE, VERSION
from penstock.server.events.stream_formats import CONTENT_TYPE, payload_media

BATCH: Final = "application/cloudevents-batch+json"
_REQUIRED: Final = ("id", "source", "type")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE: Final = msgspec.json.Decoder(str | bool | int | None)
_TEXT: Final = msgspec.json.Decoder(str)


class _EventOutline(msgspec.Struct, frozen=True, gc=False):
    """The least that each element of an array must have to be an event."""

    specversion: msgspec.Raw


_EVENT_OUTLINES: Final = msgspec.json.Decoder(list[_EventOutline])
_UNCHECKED_BYTES_MAX: Final = 64 * KIB
"""The largest array that is decoded without first counting its elements: some ten thousand values."""


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return True if the headers are those of an event in binary mode."""
    return any(PREFIX + name in headers for name in ("specversion", *_REQUIRED))


def from_headers(headers: Mapping[str, str], payload: bytes) -> Message:
    """Return the message for an event in binary mode. Content-Type is the media type of the data, unless it is one that
    a client sends by default. Raises `InvalidRequest`."""
    said = {
        name.removeprefix(PREFIX): _header_value(name, value)
        for name, value in headers.items()
        if name.startswith(PREFIX)
    }
    return _message(said, payload, payload_media(headers.get("content-type")))


def _header_value(name: str, value: str) -> str:
    """Return the value of a header without quotes around it and with percent escapes decoded."""
    found = _QUOTED.fullmatch(value)
    text = re.sub(r"\\(.)", r"\1", found[1]) if found else value
    try:
        return unquote_to_bytes(text).decode() if "%" in text else text
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name} is not UTF-8 escaped with %", field=name) from None


def from_object(raw: bytes | msgspec.Raw) -> Message:
    """Return the message for an event in structured mode: a JSON object. Raises `InvalidRequest` or
    `MalformedMessage`."""
    try:
        bytes(raw).decode()  # a `Raw` that is stored as it was written is not validated otherwise
        fields = _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the event is no JSON object: {error}", field="body") from None
    data, encoded = fields.pop("data", None), fields.pop("data_base64", None)
    if len(fields) > ATTRIBUTES_MAX:
        raise InvalidRequest(f"an event has at most {ATTRIBUTES_MAX} attributes, not {len(fields)}", field="body")
    said = {name: text for name, value in fields.items() if (text := _attribute(name, value)) is not None}
    if data is not None and encoded is not None:
        raise InvalidRequest("an event has data or data_base64, not both", field="data_base64")
    media = said.pop("datacontenttype", None)
    if encoded is not None:
        return _message(said, _unpacked(encoded), media)
    payload, media = _written(data, media)
    return _message(said, payload, media)


def from_array(raw: bytes, most: int) -> Iterable[Message]:
    """Yield the messages for events in batched mode: a JSON array of at most `most` events. Raises `MalformedMessage`
    if the body is no array of objects. If a single event is wrong, raises a `PenstockError` with its number, counted
    from 1."""
    try:
        events = _elements(raw, most)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the body is no JSON array of events: {error}", field="body") from None
    for number, event in enumerate(events, 1):
        try:
            yield from_object(event)
        except PenstockError as error:
            raise type(error)(f"event {number}: {error.message}", **error.details, event=number) from None


def _elements(raw: bytes, most: int) -> list[msgspec.Raw]:
    """Return the elements of the array, not decoded. In a large array they are counted first: few bytes can hold very
    many values. Raises `PayloadTooLarge` if such an array has more than `most`."""
    if len(raw) > _UNCHECKED_BYTES_MAX and len(_EVENT_OUTLINES.decode(raw)) > most:
        raise PayloadTooLarge(f"a POST has at most {most} messages", limit=most)
    return _ARRAY.decode(raw)


def _attribute(name: str, raw: msgspec.Raw) -> str | None:
    """Return the attribute as text; None for null. Numbers and booleans become text. Raises `InvalidRequest` for a list
    or an object, without building it."""
    try:
        value = _VALUE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = name[:QUOTED_CHARS_MAX]
        raise InvalidRequest(
            f"{shown!r} of an event is a text, a whole number or true or false: {error}", field=shown
        ) from None
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _unpacked(raw: msgspec.Raw) -> bytes:
    try:
        return b64decode(_TEXT.decode(raw), validate=True)
    except (msgspec.DecodeError, Base64Error, ValueError):
        raise InvalidRequest("data_base64 is not base64", field="data_base64") from None


def _written(data: msgspec.Raw | None, media: str | None) -> tuple[bytes, str | None]:
    """Return the payload for the event's `data`, and its media type. JSON is stored as it was written. If the media
    type is not JSON, a string is stored as its characters."""
    if data is None:
        return b"", media
    raw = bytes(data)
    if media is None or JSON_MEDIA.match(media.lower()):
        return raw, media or "application/json"
    return (text_bytes("data", raw) if raw.startswith(b'"') else raw), media


def text_bytes(name: str, raw: bytes) -> bytes:
    """Return the characters of a JSON string as UTF-8. Raises `MalformedMessage` for a lone surrogate, which UTF-8
    cannot express."""
    try:
        return _TEXT.decode(raw).encode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedMessage(f"{name} is no text of JSON: {error}", field=name) from None


def _message(said: dict[str, str], payload: bytes, media: str | None) -> Message:
    _check(said)
    attributes = {PREFIX + name: value for name, value in said.items() if name != "type"}
    for name in TRACE:
        if name in said:
            attributes[name] = attributes.pop(PREFIX + name)
    if media:
        attributes[CONTENT_TYPE] = media
    key = said.get("partitionkey") or said.get("subject")
    return Message(payload=payload, type=said["type"], key=None if not key else key.encode(), attributes=attributes)


def _check(said: Mapping[str, Any]) -> None:
    if said.get("specversion") != VERSION:
        given = said.get("specversion")
        raise InvalidRequest(
            f"an event says specversion {VERSION!r}, and no other is known", field="specversion", given=given
        )
    for name in _REQUIRED:
        if not said.get(name):
            raise InvalidRequest(f"an event has {', '.join(_REQUIRED)}, and this one has no {name}", field=name)
    for name in said:
        if not NAME.fullmatch(name):
            shown = name[:QUOTED_CHARS_MAX]
            raise InvalidRequest(
                f"{shown!r} is no name of an event's attribute: letters a to z and digits alone", field=shown
            )
