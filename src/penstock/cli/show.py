"""One message, for people and for scripts."""

from __future__ import annotations

import base64
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.output import console, text_or_none, time_text
from penstock.core.ids import format_id

if TYPE_CHECKING:
    from penstock.record.message import Record

PAYLOAD_CHARS_SHOWN = 2000


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


def print_record(record: Record) -> None:
    """A head line, then attributes, then the payload: pretty if it is text, in hex if it is not."""
    from rich.markup import escape

    message = record.message
    head = [f"[bold]{record.offset}[/bold]", time_text(record.publish_time_ms), format_id(record.id)]
    if message.type:
        head.append(f"[cyan]{escape(message.type)}[/cyan]")
    if message.key is not None:
        head.append(f"key={escape(short(message.key))}")
    if message.schema is not None:
        head.append(f"schema={message.schema.id}/{message.schema.version}")
    if message.producer_name or message.producer_id:
        head.append(f"producer={escape(message.producer_name)}#{message.producer_id} request={message.request_id}")
    out = console()
    out.print("  ".join(head))
    for name, value in message.attributes.items():
        out.print(f"    {escape(name)}: {escape(value)}", style="dim")
    sys.stdout.flush()
    for line in _pretty(message.payload).splitlines():
        sys.stdout.write(f"    {line}\n")


def _pretty(payload: bytes) -> str:
    import json

    text = text_or_none(payload)
    if text is None:
        shown = payload[: PAYLOAD_CHARS_SHOWN // 3]
        return f"{shown.hex(' ')}{' ...' if len(shown) < len(payload) else ''}  ({len(payload)} bytes)"
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    if len(text) > PAYLOAD_CHARS_SHOWN:
        return f"{text[:PAYLOAD_CHARS_SHOWN]} ... ({len(payload)} bytes)"
    return text


def short(data: bytes, size: int = 40) -> str:
    """Bytes on part of a line."""
    text = text_or_none(data)
    shown = data.hex() if text is None else text.replace("\n", "\\n")
    return shown if len(shown) <= size else f"{shown[: size - 3]}..."
