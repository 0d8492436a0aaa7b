"""The formats of a POST: one message that is the body itself, or several in the format that Content-Type names.

Bytes and headers in, messages out. An error says in which line, part or event it is.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from penstock.broker.topics.idempotence import check_not_reserved
from penstock.broker.topics.publish_batch import MessageNumbers
from penstock.core.errors import InvalidRequest, MalformedMessage, PayloadTooLarge, PenstockError
from penstock.core.limits import ATTRIBUTES_MAX, QUOTED_CHARS_MAX
from penstock.record.block import Block, parse_block
from penstock.record.message import Message, SchemaRef
from penstock.server.events import cloudevents
from penstock.server.events.multipart import BodyPart, boundary_of, parameter, parts
from penstock.server.events.outgoing_cloudevents import PREFIX, STRUCTURED
from penstock.server.events.stream_formats import CONTENT_TYPE, NDJSON, payload_media
from penstock.storage.producer_windows import WINDOW

BLOCK: Final = "application/vnd.penstock.block"
MULTIPART: Final = ("multipart/mixed", "multipart/form-data")
BATCH_MAX: Final = WINDOW
"""The most messages of one POST: the broker recognises repeated messages of a producer among this many."""
LINES_MAX: Final = 2 * BATCH_MAX
"""The most lines of an NDJSON body: each message may be followed by an empty line."""
ATTRIBUTE: Final = "x-attr-"
_TRACE: Final = ("traceparent", "tracestate")
_OF_BLOCK: Final = "message {} of the block: "
_NUMBER_DIGITS: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDefaults:
    """The values of the URL, for messages of the request that do not have their own."""

    type: str = ""
    key: bytes | None = None
    payload_lines: bool = False
    """True if each line of an NDJSON body is a payload; False if it is an object with the fields of a message."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """The messages of one request."""

    messages: Sequence[Message] | Block
    single: bool
    """True if the body itself is the message's payload; False for a format of several messages, even if there is only
    one."""
    unit: str = "message"
    """The word for a message in this format, for errors: message, line, part or event."""
    numbers: Sequence[int] = ()
    """The number of each message in the body, for errors; empty if they are numbered 1, 2, 3 and so on."""

    def with_position(self, error: PenstockError) -> PenstockError:
        """Return the error with the number of the message that it is about. Unchanged if it is about no single message;
        without any number if the body is one message."""
        row = error.details.get("record", _first_refused(error))
        if not isinstance(row, int) or self.single:
            return _without_number(error) if self.single else error
        number = self.numbers[row] if self.numbers else row + 1
        _, inside, rest = error.message.partition(_OF_BLOCK.format(row))
        return type(error)(
            f"{self.unit} {number}: {rest if inside else error.message}", **{**error.details, self.unit: number}
        )


def _first_refused(error: PenstockError) -> int | None:
    refused = error.details.get("refused")
    return int(refused[0][0]) if isinstance(refused, list) and refused else None


def _without_number(error: PenstockError) -> PenstockError:
    """Return the error without the number of a message: the request has only one."""
    _, inside, rest = error.message.partition(_OF_BLOCK.format(0))
    return type(error)(rest, **error.details) if inside else error


RequestHeaders = Mapping[str, str]
"""The headers of a request or a part, by name in lower case."""


def request_headers(headers: Iterable[tuple[bytes, bytes]]) -> RequestHeaders:
    """Return the headers by name. If one is repeated, its values are joined by a comma. Raises `InvalidRequest` if a
    header that publishing uses is not UTF-8."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = str(raw_name, "latin-1")
        try:
            value = raw_value.decode()
        except UnicodeDecodeError:
            if not name.startswith((ATTRIBUTE, PREFIX, "x-", "idempotency")):
                continue  # not used here
            raise InvalidRequest(f"the header {name[:QUOTED_CHARS_MAX]} is not UTF-8", field=name) from None
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def is_several(headers: RequestHeaders) -> bool:
    """Return True if Content-Type is that of a format with several messages."""
    return _kind(headers) in _SEVERAL


def is_parsed(headers: RequestHeaders) -> bool:
    """Return True if the body must be parsed; False if it is a payload as it stands."""
    return is_several(headers) or _kind(headers) == STRUCTURED


def _kind(headers: RequestHeaders) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def read(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> PublishRequest:
    """Return all messages of a request. Raises a `PenstockError` if any of them is invalid: then none is published."""
    kind = _kind(headers)
    several = _SEVERAL.get(kind)
    if several is None and kind == STRUCTURED:
        return PublishRequest([_with_header_fields(cloudevents.from_object(body), headers, defaults)], single=True)
    if several is None:
        return PublishRequest([message(headers, body, defaults)], single=True)
    unit, read_all = several
    found = read_all(headers, body, defaults)
    if isinstance(found, Block):
        return PublishRequest(found, single=False)
    numbers, messages = _collected(found)
    return PublishRequest(messages, single=False, unit=unit, numbers=numbers)


_NumberedMessages = Iterable[tuple[int, Message]]
"""Pairs of a message's number in the body, from 1, and the message."""


def _collected(numbered_messages: _NumberedMessages) -> tuple[list[int], list[Message]]:
    numbers: list[int] = []
    found: list[Message] = []
    for number, each in numbered_messages:
        if len(found) >= BATCH_MAX:
            raise PayloadTooLarge(f"a POST has at most {BATCH_MAX} messages", limit=BATCH_MAX)
        numbers.append(number)
        found.append(each)
    if not found:
        raise InvalidRequest("there is no message in the body", field="body")
    return numbers, found


# one message


def message(headers: RequestHeaders, payload: bytes, defaults: PublishDefaults) -> Message:
    """Return the message whose payload is the body. Its other fields are in the headers and the URL; one that the
    headers make a CloudEvent in binary mode is read as such. Raises `InvalidRequest`."""
    if cloudevents.is_binary(headers):
        return _with_header_fields(cloudevents.from_headers(headers, payload), headers, defaults)
    kind = headers.get("x-type") or defaults.type
    if not kind:
        raise InvalidRequest("what type has the message? POST /api/events?type=order.created", field="type")
    media = payload_media(headers.get("content-type"))
    attributes = {} if media is None else {CONTENT_TYPE: media}
    header_fields = _header_fields(headers, defaults)
    return Message(
        payload=payload,
        type=kind,
        key=header_fields.key,
        attributes=attributes | header_fields.attributes,
        producer_name=header_fields.producer_name,
        schema=header_fields.schema,
    )


class _HeaderFields(NamedTuple):
    """The fields of a message that the headers and the URL can set."""

    key: bytes | None
    attributes: dict[str, str]
    producer_name: str
    schema: SchemaRef | None


def _header_fields(headers: RequestHeaders, defaults: PublishDefaults) -> _HeaderFields:
    more = {name.removeprefix(ATTRIBUTE): value for name, value in headers.items() if name.startswith(ATTRIBUTE)}
    if "" in more:
        raise InvalidRequest("the header X-Attr- has no name behind it: X-Attr-Tenant: shop-3", field=ATTRIBUTE)
    more |= {name: headers[name] for name in _TRACE if name in headers}
    key = headers["x-key"].encode() if "x-key" in headers else defaults.key
    return _HeaderFields(key, more, headers.get("x-producer", ""), _schema(headers))


def _with_header_fields(event: Message, headers: RequestHeaders, defaults: PublishDefaults) -> Message:
    """Return the message with the fields that headers and URL give. These win over the message's own fields."""
    header_fields = _header_fields(headers, defaults)
    return replace(
        event,
        key=event.key if header_fields.key is None else header_fields.key,
        attributes={**event.attributes, **header_fields.attributes} if header_fields.attributes else event.attributes,
        producer_name=header_fields.producer_name,
        schema=header_fields.schema,
    )


def _schema(headers: RequestHeaders) -> SchemaRef | None:
    number, version = _number(headers, "x-schema-id"), _number(headers, "x-schema-version")
    if number is None:
        if version is not None:
            raise InvalidRequest("X-Schema-Version belongs to X-Schema-Id, which is missing", field="X-Schema-Id")
        return None
    return SchemaRef(number, version or 0)


def numbered(headers: RequestHeaders, count: int, principal: str) -> MessageNumbers | None:
    """Return the numbers by which the broker recognises these messages if the client sends them again; None if no
    header asks for that. The headers are Idempotency-Key, or X-Producer with X-Request-Id; raises `InvalidRequest` for
    both. `count` is the number of messages; keys of different principals are kept apart."""
    key, producer = headers.get("idempotency-key"), headers.get("x-producer")
    request = _number(headers, "x-request-id") if producer is not None else None
    if producer is not None:
        check_not_reserved(producer)
    if key is None:
        return None if request is None else MessageNumbers.by_number(producer or "", request, principal)
    if request is not None:
        raise InvalidRequest("give Idempotency-Key, or X-Producer and X-Request-Id, not both", field="Idempotency-Key")
    return MessageNumbers.by_key(key, count, principal)


def _number(headers: RequestHeaders, name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS):
        raise InvalidRequest(
            f"{name} is a whole number, not {text[:QUOTED_CHARS_MAX]!r}", field=name, given=text[:QUOTED_CHARS_MAX]
        )
    return int(text)


# lines


class NdjsonMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of `application/x-ndjson`. A line from a stream may be sent back: its position fields are ignored."""

    payload: msgspec.Raw = msgspec.Raw()
    payload_base64: str | None = None
    type: str = ""
    key: str | None = None
    key_base64: str | None = None
    attributes: dict[str, str] = {}
    schema_id: int | None = None
    schema_version: int = 0
    id: msgspec.Raw = msgspec.Raw()
    topic: msgspec.Raw = msgspec.Raw()
    partition: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()
    publish_time: msgspec.Raw = msgspec.Raw()
    producer_name: msgspec.Raw = msgspec.Raw()
    request_id: msgspec.Raw = msgspec.Raw()
    msg_id: msgspec.Raw = msgspec.Raw()
    subscription_name: msgspec.Raw = msgspec.Raw()


_NDJSON_MESSAGE: Final = msgspec.json.Decoder(NdjsonMessage)


def _lines(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> Iterator[tuple[int, Message]]:
    common = _with_header_fields(Message(payload=b""), headers, defaults)
    for number, line in enumerate(_split(body), 1):
        if number > LINES_MAX:
            raise PayloadTooLarge(f"a POST has at most {LINES_MAX} lines, empty ones too", limit=LINES_MAX)
        if not line.strip():
            continue
        try:
            made = _payload_line if defaults.payload_lines else _message_line
            yield number, made(line, common, defaults)
        except PenstockError as error:
            raise _located("line", number, error) from None


def _split(body: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield body[start:end].removesuffix(b"\r")
        start = end + 1


def _payload_line(line: bytes, common: Message, defaults: PublishDefaults) -> Message:
    return replace(common, payload=line, type=_required_type(defaults.type))


def _message_line(line: bytes, common: Message, defaults: PublishDefaults) -> Message:
    try:
        line.decode()  # raw JSON that is stored as it was written is not validated otherwise
        read_line = _NDJSON_MESSAGE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"it is not a message as JSON: {error}") from None
    if (
        len(read_line.attributes) > ATTRIBUTES_MAX
    ):  # checked here, possibly in another thread, instead of where it is stored
        given_count = len(read_line.attributes)
        raise InvalidRequest(
            f"a message has at most {ATTRIBUTES_MAX} attributes, not {given_count}", field="attributes"
        )
    schema = common.schema if read_line.schema_id is None else SchemaRef(read_line.schema_id, read_line.schema_version)
    key = _bytes("key", read_line.key, read_line.key_base64)
    return replace(
        common,
        payload=_payload(read_line),
        type=_required_type(read_line.type or defaults.type),
        key=common.key if key is None else key,
        attributes={**common.attributes, **read_line.attributes},
        schema=schema,
    )


def _payload(line: NdjsonMessage) -> bytes:
    """Return the payload of a line: the characters of a JSON string, or any other JSON value as it was written."""
    raw = bytes(line.payload)
    if not raw:
        found = _bytes("payload", None, line.payload_base64)
        if found is None:
            raise InvalidRequest("it has no payload", field="payload")
        return found
    if line.payload_base64 is not None:
        raise InvalidRequest("give payload or payload_base64, not both", field="payload")
    return cloudevents.text_bytes("payload", raw) if raw.startswith(b'"') else raw


def _bytes(name: str, text: str | None, encoded: str | None) -> bytes | None:
    if text is not None and encoded is not None:
        raise InvalidRequest(f"give {name} or {name}_base64, not both", field=name)
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        raise InvalidRequest(f"{name}_base64 is not base64", field=f"{name}_base64") from None


def _required_type(kind: str) -> str:
    if not kind:
        raise InvalidRequest("it has no type, and the address has none: ?type=order.created", field="type")
    return kind


# parts, events and blocks


def _parts(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> Iterator[tuple[int, Message]]:
    found = parts(body, boundary_of(headers["content-type"]))
    common = {name: value for name, value in headers.items() if not name.startswith("content-")}
    for number, part in enumerate(found, 1):
        try:
            yield number, message(common | _part_headers(part), part.body, defaults)
        except PenstockError as error:
            raise _located("part", number, error) from None


def _part_headers(part: BodyPart) -> dict[str, str]:
    """Return the headers of a part of a multipart body; they win over those of the request. The name of a form field
    becomes the type of the message."""
    headers = dict(request_headers(part.headers))
    name = parameter(headers.get("content-disposition", ""), "name")
    return {"x-type": name, **headers} if name else headers


def _events(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> Iterator[tuple[int, Message]]:
    return enumerate(
        (_with_header_fields(event, headers, defaults) for event in cloudevents.from_array(body, BATCH_MAX)), 1
    )


def _block(headers: RequestHeaders, body: bytes, defaults: PublishDefaults) -> Block:  # noqa: ARG001 - it says everything itself
    found = parse_block(body)
    if len(found) > BATCH_MAX:
        raise PayloadTooLarge(f"a POST has at most {BATCH_MAX} messages, not {len(found)}", limit=BATCH_MAX)
    return found


def _located(what: str, number: int, error: PenstockError) -> PenstockError:
    """Return the error with its place in the body: `what`, such as line or part, and its number."""
    return type(error)(f"{what} {number}: {error.message}", **{**error.details, what: number})


_SEVERAL: Final[
    dict[str, tuple[str, Callable[[RequestHeaders, bytes, PublishDefaults], _NumberedMessages | Block]]]
] = {
    **dict.fromkeys((NDJSON, "application/ndjson", "application/jsonl"), ("line", _lines)),
    **dict.fromkeys(MULTIPART, ("part", _parts)),
    cloudevents.BATCH: ("event", _events),
    BLOCK: ("message", _block),
}
