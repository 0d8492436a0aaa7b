"""The upgrade: the HTTP request that opens a WebSocket, and its answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
from http import HTTPStatus
from typing import Final

import h11

from penstock.core.limits import QUOTED_CHARS_MAX

HEAD_BYTES_MAX: Final = 16 * 1024
"""The largest upgrade request in bytes: room for a cookie, some credentials, and the headers of proxies."""

_VERSION: Final = "13"
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16


class NotUpgraded(Exception):
    """The error for an upgrade that is refused, with the status and the message of the answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status

    def answer(self) -> bytes:
        body = f"{self}\n".encode(errors="replace")
        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Connection: close",
            f"Sec-WebSocket-Version: {_VERSION}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join((*lines, "", "")).encode("ascii") + body


class Upgrade:
    """The head of a request to open a WebSocket. If a header occurs several times, the first counts."""

    def __init__(self, request: h11.Request) -> None:
        self._headers: dict[str, str] = {}
        for name, value in request.headers:
            self._headers.setdefault(name.decode("ascii"), value.decode("ascii", "surrogateescape"))
        if request.method != b"GET" or request.http_version != b"1.1":
            raise NotUpgraded(HTTPStatus.BAD_REQUEST, "A WebSocket is opened with GET and HTTP/1.1")
        if self.header("Transfer-Encoding") is not None or (self.header("Content-Length") or "0").strip("0"):
            raise NotUpgraded(HTTPStatus.BAD_REQUEST, "An upgrade has no body")

    def header(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    def accepted(self) -> bytes:
        """Return the bytes of the answer that opens the WebSocket. Raises `NotUpgraded` if the request is not a valid
        upgrade."""
        if self.header("Sec-WebSocket-Version") != _VERSION:
            raise NotUpgraded(HTTPStatus.UPGRADE_REQUIRED, f"This port speaks WebSocket, version {_VERSION}")
        requested = (self.header("Upgrade") or "").lower(), _words(self.header("Connection"))
        if requested[0] != "websocket" or "upgrade" not in requested[1]:
            raise NotUpgraded(HTTPStatus.BAD_REQUEST, "This port speaks WebSocket: send Upgrade and Connection headers")
        proof = base64.b64encode(hashlib.sha1(self._key() + _MAGIC, usedforsecurity=False).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        return head + b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"

    def _key(self) -> bytes:
        sent = self.header("Sec-WebSocket-Key") or ""
        try:
            key = sent.encode("ascii")
            if len(base64.b64decode(key, validate=True)) == _KEY_BYTES:
                return key
        except (UnicodeEncodeError, binascii.Error):
            pass
        shown = ascii(sent[:QUOTED_CHARS_MAX])
        raise NotUpgraded(HTTPStatus.BAD_REQUEST, f"Sec-WebSocket-Key is 16 bytes in base64, not {shown}")


def _words(value: str | None) -> list[str]:
    return [word.strip().lower() for word in (value or "").split(",")]


class UpgradeReader:
    """Collects the pieces of input until the upgrade request is complete."""

    def __init__(self) -> None:
        self._reader = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    def receive_data(self, data: bytes) -> Upgrade | None:
        """Add input, and return the request once all of it has come; None until then. Raises `NotUpgraded` if the
        request is too large or cannot become a valid one."""
        try:
            self._reader.receive_data(data)
            event = self._reader.next_event()
        except h11.RemoteProtocolError as error:
            raise NotUpgraded(HTTPStatus(error.error_status_hint), str(error)) from None
        return Upgrade(event) if isinstance(event, h11.Request) else None

    @property
    def behind(self) -> bytes:
        """The input that came behind the request: it already belongs to the WebSocket."""
        return bytes(self._reader.trailing_data[0])
