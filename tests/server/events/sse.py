"""Server-sent events as a browser reads them: the algorithm of the HTML standard, step by step."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

DEADLINE_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Event:
    id: str
    type: str
    data: str

    @property
    def payload(self) -> bytes:
        """Return the payload as it was published."""
        if not self.data.startswith("data:"):
            return self.data.encode()
        return base64.b64decode(self.data.partition(";base64,")[2])

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Parser:
    """Bytes in, events out, however they are cut."""

    last_id: str = ""
    retry_ms: int | None = None
    comments: int = 0
    _rest: bytes = b""
    _id: str = ""
    _type: str = ""
    _data: list[str] = field(default_factory=list)

    def receive(self, data: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [event for line in lines for event in self._line(line.decode())]

    def _line(self, line: str) -> list[Event]:
        assert "\r" not in line, "a carriage return would end the line"
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                self.comments += 1
            case "id" if "\0" not in value:
                self._id = value
            case "event":
                self._type = value
            case "data":
                self._data.append(value)
            case "retry" if value.isdecimal():
                self.retry_ms = int(value)
            case other:
                raise AssertionError(f"a field that nobody knows: {other!r}")
        return []

    def _dispatch(self) -> list[Event]:
        self.last_id = self._id
        data, self._data = self._data, []
        kind, self._type = self._type, ""
        return [Event(self.last_id, kind or "message", "\n".join(data))] if data else []


def unchunked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The body of a chunked answer. Ends where the connection does, also in the middle."""
    rest = b""
    for piece in pieces:
        rest += piece
        while True:
            size, line, body = rest.partition(b"\r\n")
            if not line or len(body) < int(size, 16) + 2:
                break
            count = int(size, 16)
            if not count:
                return
            yield body[:count]
            assert body[count : count + 2] == b"\r\n"
            rest = body[count + 2 :]


class Reader:
    """A connection that asks for a stream. `ended`: the answer is whole."""

    def __init__(self, port: int, path: str, **headers: str) -> None:
        self.parser = Parser()
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
        said = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{said}\r\n".encode())
        self.head, self._bodies = b"", unchunked(self._pieces())
        self._events = self._read()
        while b"\r\n\r\n" not in self.head:
            piece = self.connection.recv(65536)
            if not piece:
                break
            self.head += piece
        self.head, _, self._first = self.head.partition(b"\r\n\r\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.connection.close()

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    def _pieces(self) -> Iterator[bytes]:
        yield self._first
        while True:
            try:
                piece = self.connection.recv(65536)
            except ConnectionResetError:
                return
            if not piece:
                return
            yield piece

    def bodies(self) -> Iterator[bytes]:
        return self._bodies

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def _read(self) -> Iterator[Event]:
        for body in self._bodies:
            yield from self.parser.receive(body)

    def take(self, count: int) -> list[Event]:
        return [next(self._events) for _ in range(count)]
