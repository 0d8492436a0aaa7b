"""The references for a broker of live messages: minimal programs on uvloop that handle the same frames, each a process.

`python -m penstock.bench.uvloop_peers echo` prints its port and sends every frame back. `relay` prints its port and
passes frames between one client and one server. `responder PORT FIRST_MESSAGE` connects to a relay or a broker, sends
the message, and answers every frame it gets.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final

import uvloop

LENGTH_BYTES: Final = 4


class Frames(asyncio.Protocol):
    """A protocol that splits received bytes into frames, calls `handle` for each, and writes what it returns."""

    def __init__(self, handle: Callable[[Frames, bytes], bytes]) -> None:
        self._handle = handle
        self._rest = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        position, out = 0, []
        while position + LENGTH_BYTES <= len(data):
            end = position + LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            if end > len(data):
                break
            out.append(self._handle(self, data[position:end]))
            position = end
        self._rest = data[position:]
        if out and self.transport is not None:
            self.transport.write(b"".join(out))


def echo(_connection: Frames, frame: bytes) -> bytes:
    return frame


class Relay:
    """A relay between a server and a client. The first connection that sends a frame is the server. Frames of other
    connections go to it, and its frames go to the connection that sent last."""

    def __init__(self) -> None:
        self._server: Frames | None = None
        self._client: Frames | None = None

    def pass_on(self, connection: Frames, frame: bytes) -> bytes:
        if self._server is None:
            self._server = connection  # its first frame announces it
            return b""
        if connection is not self._server:
            self._client = connection
        target = self._client if connection is self._server else self._server
        if target is not None and target.transport is not None:
            target.transport.write(frame)
        return b""


def respond(connection: Frames, frame: bytes) -> bytes:
    """Return the answer to a frame: to a request of the broker, its own payload; to a frame of the relay, the same
    frame; to any other frame of the broker, such as the greeting, nothing."""
    message = frame[LENGTH_BYTES:]
    if message.startswith(b"request:"):
        answer = b"response" + message[len(b"request") :]
        return len(answer).to_bytes(LENGTH_BYTES, "big") + answer
    if message.startswith((b"publish:", b"response:")):
        return b""
    return echo(connection, frame)


async def _listen(handle: Callable[[Frames, bytes], bytes]) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Frames(handle), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _respond(port: int, first: bytes) -> None:
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: Frames(respond), "127.0.0.1", port)
    transport.write(len(first).to_bytes(LENGTH_BYTES, "big") + first)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    match arguments:
        case ["echo"]:
            uvloop.run(_listen(echo))
        case ["relay"]:
            uvloop.run(_listen(Relay().pass_on))
        case ["responder", port, first]:
            uvloop.run(_respond(int(port), first.encode()))
        case _:
            sys.exit("usage: echo | relay | responder PORT FIRST_MESSAGE")


if __name__ == "__main__":
    main(sys.argv[1:])
