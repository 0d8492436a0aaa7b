"""Frames that the broker itself sends: answers, errors, and messages of its own."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgspec

from penstock.core.clock import iso_time
from penstock.core.errors import PenstockError, VerbatimDetails
from penstock.core.limits import LIST_ENTRIES_MAX, QUOTED_CHARS_MAX
from penstock.protocol.actions import Action
from penstock.protocol.frames import frame_bytes

SUCCESS: Final = b'{"status":"success"}'
FAILURE: Final = b'{"status":"failure"}'
VERSION: Final = "1.0.0"


def json_bytes(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)


def encode_list(room: int, what: str, entries: Iterable[Any], total: int) -> bytes:
    """Encode an object with the list `what`, of as many entries as fit into `room` bytes, at most `LIST_ENTRIES_MAX`.
    If some of the `total` are left out, the object has `truncated` and `total` too."""
    encoded_entries: list[msgspec.Raw] = []
    for entry in islice(entries, LIST_ENTRIES_MAX):
        encoded = json_bytes(entry)
        room -= len(encoded) + 1
        if room < 0:
            break
        encoded_entries.append(msgspec.Raw(encoded))
    cut = {"truncated": True, "total": total} if total > len(encoded_entries) else {}
    return json_bytes({what: encoded_entries} | cut)


def error_payload(error: PenstockError, unix_ms: int) -> bytes:
    body: dict[str, Any] = {"code": error.code.value, "message": error.message, "timestamp": iso_time(unix_ms)}
    if error.details:
        body["details"] = {name: quoted(value) for name, value in error.details.items() if value is not None}
    return json_bytes({"error": body})


def quoted(value: Any) -> Any:
    """Return a value that the sender sent, to be repeated in an error. If its text is too long, return that text,
    cut."""
    if value is None or isinstance(value, bool | int | float | VerbatimDetails):
        return value
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    except (RecursionError, ValueError):  # nested too deeply to be encoded, although it could be decoded
        return "..."
    if len(text) > QUOTED_CHARS_MAX:
        return f"{text[:QUOTED_CHARS_MAX]}..."
    return value


def response(topic: str, version: str, request_id: str, payload: bytes) -> bytes:
    return frame_bytes(f"response:{topic}:{version}:{request_id}".encode(), payload)


def publish(topic: str, version: str, message_id: str, payload: bytes) -> bytes:
    return frame_bytes(f"publish:{topic}:{version}:{message_id}".encode(), payload)


def request(topic: str, version: str, request_id: str, payload: bytes) -> bytes:
    return frame_bytes(f"request:{topic}:{version}:{request_id}".encode(), payload)


def own_message(topic: str, payload: bytes, request_id: str = "", action: Action = Action.PUBLISH) -> bytes:
    """Return the frame of a message that the broker itself sends."""
    return frame_bytes(f"{action}:{topic}:{VERSION}{':' if request_id else ''}{request_id}".encode(), payload)
