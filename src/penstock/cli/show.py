"""One message, for people and for scripts."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import on_one_line, text_or_none, time_text
from penstock.core.ids import format_id, parse_id
from penstock.core.offsets import Offset

if TYPE_CHECKING:
    from penstock.client.blocking import StreamMessage
    from penstock.record.message import Record

PAYLOAD_CHARS_SHOWN: Final = 2000
_BOLD, _DIM, _CYAN = 1, 2, 36
"""As a terminal calls them."""


def record_of(message: StreamMessage) -> Record:
    """What a consumer got, as the log has it."""
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
    """Every field. Bytes are text where they are UTF-8, base64 where they are not, under a name that says so."""
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
    """A head line, then attributes, then the payload: pretty if it is text, in hex if it is not."""
    lines = [_head(record, partition)]
    attributes = record.message.attributes.items()
    lines += [_styled(f"    {on_one_line(name)}: {on_one_line(value)}", _DIM) for name, value in attributes]
    # JSON made pretty may hold characters that its text had escaped.
    lines += [f"    {on_one_line(line.expandtabs())}" for line in _pretty(record.message.payload).splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")


def _head(record: Record, partition: int | None) -> str:
    message = record.message
    place = f"{record.offset}" if partition is None else f"{partition}:{record.offset}"
    words = [_styled(place, _BOLD), time_text(record.publish_time_ms), format_id(record.id)]
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
    """By hand: a million messages are not to wait for a layout engine."""
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
    """Bytes on part of a line."""
    text = text_or_none(data)
    shown = data.hex() if text is None else on_one_line(text)
    return shown if len(shown) <= size else f"{shown[: size - 3]}..."
