"""The header: `{action}:{topic}:{version}[:{requestId}[:{parentRequestId}[:{timeout}]]]`, strict in every field.

The grammar is a table. A header that matches it is split at once. One that does not is checked field by field, to
report which field is wrong, what was expected there, and what it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from penstock.core.errors import MalformedMessage, TopicNotSupported
from penstock.core.limits import (
    NAMESPACE_CHARS_MAX,
    QUOTED_CHARS_MAX,
    REQUEST_ID_CHARS,
    REQUEST_TIMEOUT_MS_CEILING,
    TOPIC_CHARS_MAX,
    VERSION_CHARS_MAX,
)
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName, TopicPattern
from penstock.protocol.actions import ACTION_CHARS_MAX, ACTION_RULES, ACTIONS_BY_NAME, Action

_FULL_TOPIC_CHARS_MAX: Final = len("//") + NAMESPACE_CHARS_MAX + len(DEAD_LETTER_SUFFIX) + TOPIC_CHARS_MAX
_TIMEOUT_CHARS_MAX: Final = len(str(REQUEST_TIMEOUT_MS_CEILING))
_KNOWN_HEADS: Final = 4096  # distinct action:topic:version remembered: a broker's working set, about 2 MiB


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A field of the grammar: its name, pattern and longest form, and the words for its expected content."""

    name: str
    pattern: str
    chars_max: int
    expected: str


_NUMBER: Final = "(?:0|[1-9][0-9]*)"
_UUID4: Final = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

FIELDS: Final = (
    HeaderField("action", "[A-Za-z]+", ACTION_CHARS_MAX, f"one of {', '.join(Action)}"),
    HeaderField("topic", "[A-Za-z0-9._/+#-]+", _FULL_TOPIC_CHARS_MAX, "a topic such as orders.created"),
    HeaderField("version", rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}", VERSION_CHARS_MAX, "MAJOR.MINOR.PATCH, such as 1.0.0"),
    HeaderField("requestId", _UUID4, REQUEST_ID_CHARS, "a UUID version 4"),
    HeaderField("parentRequestId", _UUID4, REQUEST_ID_CHARS, "a UUID version 4"),
    HeaderField("timeout", "[1-9][0-9]*", _TIMEOUT_CHARS_MAX, "milliseconds, a whole number from 1"),
)
REQUIRED: Final = 3


def _longest(action: Action) -> int:
    """Return the length of the action's longest header: every field at its longest, and the colons between them."""
    fields = FIELDS if ACTION_RULES[action].takes_timeout else FIELDS[:-1]
    return len(action) + sum(1 + field.chars_max for field in fields[1:])


HEADER_BYTES_MAX: Final = max(_longest(action) for action in Action)
"""The longest header there can be."""

_COMPILED: Final = tuple(re.compile(field.pattern, re.ASCII) for field in FIELDS)
_HEAD: Final = ":".join(field.pattern for field in FIELDS[:REQUIRED])
_ID, _PARENT, _TIMEOUT = (field.pattern for field in FIELDS[REQUIRED:])
# A field left out at the end is left out with its colon; an empty field in between keeps its colon.
_SHAPE: Final = re.compile(
    f"({_HEAD})(?::({_ID})|:({_ID})?:({_PARENT})|:({_ID})?:({_PARENT})?:({_TIMEOUT}))?".encode(), re.ASCII
)
_UUID4_SHAPE: Final = re.compile(_UUID4, re.ASCII)
_UUID4_BYTES: Final = re.compile(_UUID4.encode(), re.ASCII)
_ANY_UUID: Final = re.compile(rb"(?<![\w./-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w./-])", re.ASCII)
SALVAGE_BYTES_MAX: Final = 4 * HEADER_BYTES_MAX
"""The most bytes of an overlong header that are searched for an id: four times the longest valid header."""


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a header that repeats from message to message: action, topic as it was spelled, and version."""

    action: Action
    topic: str
    version: str
    name: TopicName | TopicPattern
    """The parsed topic; a pattern only where the action takes one."""

    @property
    def is_system(self) -> bool:
        """True if the topic is one of the broker's own."""
        return self.name.is_system

    @property
    def destination(self) -> TopicName:
        """The topic that a message goes to. Only for actions that take no pattern: a pattern raises
        `TopicNotSupported`."""
        name = self.name
        return name if isinstance(name, TopicName) else TopicName(name.namespace, name.pattern)


class Header(NamedTuple):
    """A parsed header."""

    head: Head
    request_id: str | None = None
    parent_id: str | None = None
    timeout_ms: int | None = None

    @property
    def action(self) -> Action:
        return self.head.action

    @property
    def topic(self) -> str:
        return self.head.topic

    @property
    def version(self) -> str:
        return self.head.version


def is_request_id(text: str) -> bool:
    return _UUID4_SHAPE.fullmatch(text) is not None


def header(
    action: Action,
    topic: str,
    version: str = "1.0.0",
    request_id: str | None = None,
    parent_id: str | None = None,
    timeout_ms: int | None = None,
) -> Header:
    """Make a header from its parts, checked as one from the wire; a part with a colon or newline in it is invalid.

    Raises `MalformedMessage`.
    """
    timeout = "" if timeout_ms is None else str(timeout_ms)
    fields = [str(action), topic, version, request_id or "", parent_id or "", timeout]
    for number, text in enumerate(fields):
        if ":" in text:
            _wrong(number, text)
    while len(fields) > REQUIRED and not fields[-1]:
        fields.pop()
    return parse_header(":".join(fields).encode(errors="backslashreplace"))


def serialise(header_: Header) -> bytes:
    """Return the header as it stands on the wire, without the newline."""
    head = header_.head
    timeout = "" if header_.timeout_ms is None else str(header_.timeout_ms)
    optional = f":{header_.request_id or ''}:{header_.parent_id or ''}:{timeout}".rstrip(":")
    return f"{head.action}:{head.topic}:{head.version}{optional}".encode()


def parse_header(raw: bytes, *, timeout_ms_max: int = REQUEST_TIMEOUT_MS_CEILING) -> Header:
    """Parse a header. Raises `MalformedMessage` with the wrong field, the expected content and the actual one."""
    id_start = len(raw) - REQUEST_ID_CHARS
    if raw.count(b":") == REQUIRED and raw[id_start - 1 : id_start] == b":" and _UUID4_BYTES.fullmatch(raw, id_start):
        return Header(parse_head(raw[: id_start - 1]), raw[id_start:].decode())  # the most frequent form
    match = _SHAPE.fullmatch(raw) if len(raw) <= HEADER_BYTES_MAX else None
    if match is None:
        raise_header_error(raw, timeout_ms_max)
    known, *optional = match.groups()
    head = parse_head(known)
    if match.end() == len(known):
        return Header(head)
    texts = [None if value is None else value.decode() for value in optional]
    one, two, parent_two, three, parent_three, timeout = texts
    waited = None if timeout is None else _timeout(timeout, head.action, timeout_ms_max)
    return Header(head, one or two or three, parent_two or parent_three, waited)


@lru_cache(maxsize=_KNOWN_HEADS)
def parse_head(raw: bytes) -> Head:
    """Parse `{action}:{topic}:{version}`; the last few thousand results are cached. Raises `MalformedMessage`."""
    fields = raw.split(b":")
    if len(fields) > REQUIRED:
        raise_header_error(raw)
    return _head(fields)


def _head(fields: list[bytes]) -> Head:
    """Parse the three required fields, from the left. Raises `MalformedMessage` for the first one that is wrong."""
    action = _action(_field(0, fields))
    topic = _field(1, fields)
    name = _name(action, topic)
    return Head(action, topic, _field(2, fields), name)


def _action(text: str) -> Action:
    action = ACTIONS_BY_NAME.get(text.lower())
    if action is None:
        _wrong(0, text)
    return action


def _name(action: Action, topic: str) -> TopicName | TopicPattern:
    kind = TopicPattern if ACTION_RULES[action].takes_pattern else TopicName
    try:
        return kind.parse(topic)
    except TopicNotSupported as error:
        raise MalformedMessage(
            f"Invalid topic: {error.message}", field="topic", expected=FIELDS[1].expected, got=_quoted(topic)
        ) from None


def _timeout(text: str, action: Action, most: int) -> int:
    if not ACTION_RULES[action].takes_timeout:
        raise MalformedMessage(
            f"Invalid timeout: only a request has one, not {action}", field="timeout", expected="nothing", got=text
        )
    if int(text) > most:
        raise MalformedMessage(
            f"Invalid timeout: at most {most} ms", field="timeout", expected=f"1 to {most}", got=_quoted(text)
        )
    return int(text)


def raise_header_error(raw: bytes, timeout_ms_max: int = REQUEST_TIMEOUT_MS_CEILING) -> NoReturn:
    """Raise the error of a header that does not match: for the first field, from the left, that breaks its rule."""
    if not raw:
        raise MalformedMessage("Empty header: expected action:topic:version", field="header", expected="a header")
    if len(raw) > HEADER_BYTES_MAX:
        raise MalformedMessage(
            f"Header too long: at most {HEADER_BYTES_MAX} bytes before the newline",
            field="header",
            expected=f"at most {HEADER_BYTES_MAX} bytes",
            got=len(raw),
        )
    fields = raw.split(b":")
    head = _head(fields)
    for number in range(REQUIRED, min(len(fields), len(FIELDS))):
        if fields[number] or number == len(fields) - 1:  # an empty one between filled ones is allowed
            text = _field(number, fields)
            if number == len(FIELDS) - 1:
                _timeout(text, head.action, timeout_ms_max)
    raise MalformedMessage(
        f"Too many fields: at most {len(FIELDS)}", field="header", expected=f"{len(FIELDS)} fields", got=len(fields)
    )


def _field(number: int, fields: list[bytes]) -> str:
    """Return the text of a field. Raises `MalformedMessage` if the field breaks its rule."""
    field = FIELDS[number]
    if number >= len(fields):
        raise MalformedMessage(
            f"Missing {field.name}: expected {field.expected}", field=field.name, expected=field.expected
        )
    if not fields[number]:
        _empty(number)
    text = fields[number].decode("ascii", "backslashreplace")
    if not _fits(number, text):
        _wrong(number, text)
    return text


def _empty(number: int) -> NoReturn:
    field = FIELDS[number]
    advice = f"expected {field.expected}" if number < REQUIRED else "leave it out with its colon"
    raise MalformedMessage(f"Empty {field.name}: {advice}", field=field.name, expected=field.expected, got="")


def _wrong(number: int, text: str) -> NoReturn:
    field = FIELDS[number]
    longest = f" of at most {field.chars_max} characters" if len(text) > field.chars_max else ""
    raise MalformedMessage(
        f"Invalid {field.name}: expected {field.expected}{longest}",
        field=field.name,
        expected=field.expected,
        got=_quoted(text),
    )


def _quoted(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS_MAX else f"{text[:QUOTED_CHARS_MAX]}..."


@dataclass(frozen=True, slots=True)
class SalvagedHeader:
    """The readable parts of an invalid header, with defaults for the others: enough to address the error to its
    sender."""

    topic: str
    version: str
    request_id: str | None


NO_HEADER: Final = SalvagedHeader("error", "1.0.0", None)
"""The header of an error that answers no message in particular, as the founding protocol has it."""


def salvage(raw: bytes) -> SalvagedHeader:
    """Return what can be read of an invalid header. Each field is read by itself, so that one wrong field does not hide
    the others.

    An invalid topic or version becomes that of `NO_HEADER`. The request id may be a UUID of any version; None if there
    is none.
    """
    line = raw[:SALVAGE_BYTES_MAX]
    fields = line.split(b":")
    texts = [value.decode("ascii", "backslashreplace") for value in fields[:REQUIRED]]
    return SalvagedHeader(
        texts[1] if len(texts) > 1 and _is_topic(texts[1]) else NO_HEADER.topic,
        texts[2] if len(texts) > 2 and _fits(2, texts[2]) else NO_HEADER.version,
        _request_id(line if len(fields) <= REQUIRED else fields[REQUIRED]),
    )


def _request_id(text: bytes) -> str | None:
    """Return the first UUID in the text, in any version and with anything around it; None if there is none."""
    match = _ANY_UUID.search(text)
    return None if match is None else match.group().decode()


def _fits(number: int, text: str) -> bool:
    return len(text) <= FIELDS[number].chars_max and _COMPILED[number].fullmatch(text) is not None


def _is_topic(text: str) -> bool:
    try:
        TopicPattern.parse(text)
    except TopicNotSupported:
        return False
    return True
