"""Formats for printing one message: for people, as JSON, or by a template of the user."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import on_one_line, text_or_none, time_text
from penstock.core.errors import InvalidRequest
from penstock.core.ids import format_id, parse_id
from penstock.core.offsets import Offset

if TYPE_CHECKING:
    from penstock.client.sync import StreamMessage
    from penstock.record.message import Record

PAYLOAD_CHARS_SHOWN: Final = 2000
_BOLD, _DIM, _CYAN = 1, 2, 36
"""Codes of terminal styles."""


def record_of(message: StreamMessage) -> Record:
    """Convert a message of a consumer to a record, as it is in a log."""
    from penstock.record.message import Message, Record

    return Record(
        id=parse_id(message.id),
        offset=Offset(message.offset),
        publish_time_ms=message.publish_time_ms,
        message=Message(
            payload=message.payload,
            type=message.type,
            key=message.key,
            attributes=message.attributes,
            producer_name=message.producer_name,
            producer_id=message.producer_id,
            request_id=message.request_id,
            schema=message.schema,
        ),
    )


def as_json(record: Record) -> dict[str, Any]:
    """Return a dict of all fields. Bytes are a text if they are UTF-8; otherwise base64, in a field named
    `..._base64`."""
    message = record.message
    shown: dict[str, Any] = {
        "offset": record.offset,
        "id": format_id(record.id),
        "publish_time": time_text(record.publish_time_ms),
        "type": message.type,
    }
    if message.key is not None:
        shown |= _bytes_field("key", message.key)
    if message.schema is not None:
        shown |= {"schema_id": message.schema.id, "schema_version": message.schema.version}
    shown |= {"producer_id": message.producer_id, "request_id": message.request_id}
    if message.producer_name:
        shown["producer_name"] = message.producer_name
    return shown | {"attributes": dict(message.attributes)} | _bytes_field("payload", message.payload)


def _bytes_field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def print_record(record: Record, *, partition: int | None = None) -> None:
    """Print a line with offset, time, id, type and other fields; then the attributes; then the payload as indented
    JSON, as other text, or in hex."""
    lines = [_head(record, partition)]
    attributes = record.message.attributes.items()
    lines += [_styled(f"    {on_one_line(name)}: {on_one_line(value)}", _DIM) for name, value in attributes]
    # Indented JSON may hold characters that its text had escaped.
    lines += [f"    {on_one_line(line.expandtabs())}" for line in _pretty(record.message.payload).splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")


def _head(record: Record, partition: int | None) -> str:
    message = record.message
    position = f"{record.offset}" if partition is None else f"{partition}:{record.offset}"
    words = [_styled(position, _BOLD), time_text(record.publish_time_ms), format_id(record.id)]
    if message.type:
        words.append(_styled(on_one_line(message.type), _CYAN))
    if message.key is not None:
        words.append(f"key={short(message.key)}")
    if message.schema is not None:
        words.append(f"schema={message.schema.id}/{message.schema.version}")
    if message.producer_name or message.producer_id:
        name = on_one_line(message.producer_name)
        words.append(f"producer={name}#{message.producer_id} request={message.request_id}")
    return "  ".join(words)


def _styled(text: str, code: int) -> str:
    """Add terminal codes to text, without the library rich, which is too slow for a million messages."""
    return f"\033[{code}m{text}\033[0m" if _in_color() else text


@functools.cache
def _in_color() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _pretty(payload: bytes) -> str:
    text = text_or_none(payload)
    if text is None:
        shown = payload[: PAYLOAD_CHARS_SHOWN // 3]
        return f"{shown.hex(' ')}{' ...' if len(shown) < len(payload) else ''}  ({len(payload)} bytes)"
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    if len(text) > PAYLOAD_CHARS_SHOWN:
        return f"{text[:PAYLOAD_CHARS_SHOWN]} ... ({len(payload)} bytes)"
    return text


def short(data: bytes, size: int = 40) -> str:
    """Return bytes in readable form, cut to at most `size` characters."""
    text = text_or_none(data)
    shown = data.hex() if text is None else on_one_line(text)
    return shown if len(shown) <= size else f"{shown[: size - 3]}..."


Printer = Callable[["StreamMessage"], str]


def _text(data: bytes | None) -> str:
    """Decode bytes as UTF-8. Bytes that are not UTF-8 are shown as escapes."""
    return "" if data is None else data.decode(errors="backslashreplace")


def _attributes(message: StreamMessage) -> str:
    import json

    return json.dumps(dict(message.attributes), ensure_ascii=False)


def _schema(message: StreamMessage) -> str:
    return "" if message.schema is None else f"{message.schema.id}/{message.schema.version}"


DIRECTIVES: Final[dict[str, tuple[str, Printer]]] = {
    "o": ("offset", lambda message: str(message.offset)),
    "p": ("partition", lambda message: str(message.partition)),
    "t": ("type", lambda message: message.type),
    "T": ("publish time", lambda message: time_text(message.publish_time_ms)),
    "k": ("key", lambda message: _text(message.key)),
    "s": ("payload as text", lambda message: _text(message.payload)),
    "i": ("id", lambda message: message.id),
    "h": ("attributes as JSON", _attributes),
    "S": ("schema id and version, as 7/2", _schema),
    "n": ("producer name", lambda message: message.producer_name),
    "%": ("a percent sign", lambda _message: "%"),
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\"}
_PIECE: Final = re.compile(r"%(.?)|\\(.?)|([^%\\]+)", re.DOTALL)


def compile_template(text: str, *, terminal: bool) -> Printer:
    """Compile a template to a function that formats a message. A line end is added unless the template has one.

    If `terminal` is set, control characters in a message are escaped, so that they cannot move the cursor. Raises
    `InvalidRequest` for an unknown directive.
    """
    pieces = [_piece(match, text) for match in _PIECE.finditer(text)]
    end = "" if text.endswith("\\n") else "\n"

    def printed(message: StreamMessage) -> str:
        parts = (each if isinstance(each, str) else _shown(each(message), terminal=terminal) for each in pieces)
        return "".join(parts) + end

    return printed


def _shown(text: str, *, terminal: bool) -> str:
    return on_one_line(text) if terminal else text


def _piece(match: re.Match[str], text: str) -> Printer | str:
    directive, escape, plain = match.groups()
    if plain is not None:
        return plain
    if escape is not None:
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        raise _unknown(text, f"\\{escape}", r"\n, \t, \\")
    if directive in DIRECTIVES:
        return DIRECTIVES[directive][1]
    raise _unknown(text, f"%{directive}", ", ".join(f"%{name} {meaning}" for name, (meaning, _) in DIRECTIVES.items()))


def _unknown(text: str, written: str, known: str) -> InvalidRequest:
    return InvalidRequest(f"--format {text!r}: {written} is not known; there are: {known}", given=text)
