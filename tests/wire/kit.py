"""Raw connections to a broker, over TCP and WebSocket: bytes as a stranger would send them."""

from __future__ import annotations

import base64
import os
import re
import socket
from typing import Protocol, Self

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_SECONDS = 10.0


class Raw(Protocol):
    def send(self, message: bytes) -> None: ...

    def receive(self, timeout: float = _SECONDS) -> bytes | None:
        """The next message; None if the connection is closed. Raises `TimeoutError` if none comes."""
        ...

    def close(self) -> None: ...


class _Socket:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data


class Tcp(_Socket):
    def send(self, message: bytes) -> None:
        self.socket.sendall(len(message).to_bytes(4, "big") + message)

    def receive(self, timeout: float = _SECONDS) -> bytes | None:
        self.socket.settimeout(timeout)
        length = self.exactly(4)
        return None if length is None else self.exactly(int.from_bytes(length, "big"))


class WebSocket(_Socket):
    """As much of RFC 6455 as a client needs."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ("GET / HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade")
        asked = "\r\n".join((*lines, f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""))
        self.socket.sendall(asked.encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.exactly(1) or b""
        assert answer.startswith(b"HTTP/1.1 101"), answer

    def send(self, message: bytes) -> None:
        try:
            message.decode()
            opcode = 0x81
        except UnicodeDecodeError:
            opcode = 0x82
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(message))
        size = len(message)
        length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
        if size > 65535:
            length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
        self.socket.sendall(bytes([opcode]) + length + mask + masked)

    def receive(self, timeout: float = _SECONDS) -> bytes | None:
        self.socket.settimeout(timeout)
        head = self.exactly(2)
        if head is None or head[0] & 15 == 8:
            return None
        size = head[1]
        if size > 125:
            longer = self.exactly(2 if size == 126 else 8)
            size = int.from_bytes(longer or b"", "big")
        return self.exactly(size)


def normalised(message: bytes) -> str:
    """Ids that a server makes up are `<uuid>`, times `<time>`; the sender's own ids stay."""
    text = message.decode(errors="replace")
    made_up = UUID.sub(lambda found: found[0] if found[0].startswith("00000000-0000-4000") else "<uuid>", text)
    return TIME.sub("<time>", made_up)
