"""A client that floods a broker from a process of its own.

python -m tests.server.flooder KIND PORT CONNECTIONS

Connections that are cut off come back. It prints `flooding` once every connection has sent something, and goes on until
it is killed.
"""

from __future__ import annotations

import socket
import sys
import threading
from typing import Final

from tests.server.kit import (
    BINARY,
    CONTINUATION,
    ID,
    PING,
    PONG,
    framed,
    message,
    upgrade,
    ws_frame,
)

_BEAT: Final = message(f"request:system.heartbeat:1.0.0:{ID}", b"{}")
_OPENED: Final = ws_frame(BINARY, b"x", fin=False)

WEBSOCKET: Final = {
    "pings": (b"", ws_frame(PING) * 10_000),
    "pongs": (b"", ws_frame(PONG) * 10_000),
    "empty fragments": (_OPENED, ws_frame(CONTINUATION, fin=False) * 10_000),
    "small fragments": (_OPENED, ws_frame(CONTINUATION, bytes(20), fin=False) * 4_000),
    "pings and a message": (b"", (ws_frame(PONG) * 250 + ws_frame(BINARY, _BEAT)) * 40),
}
TCP: Final = {
    "empty frames": framed(b"") * 20_000,
    "endless headers": framed(b"publish:" + b"a" * 2_000) * 50,
}


def connect(kind: str, port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    if kind in WEBSOCKET:
        connection.sendall(upgrade(port))
        connection.recv(4096)
        connection.sendall(WEBSOCKET[kind][0])
    return connection


def swallow(connection: socket.socket) -> None:
    """Read and drop answers, so that no connection is cut off for not reading."""
    try:
        while connection.recv(1 << 18):
            pass
    except OSError:
        pass


def flood(kind: str, port: int, begun: threading.Barrier) -> None:
    data = WEBSOCKET[kind][1] if kind in WEBSOCKET else TCP[kind]
    first = True
    while True:
        try:
            with connect(kind, port) as connection:
                threading.Thread(target=swallow, args=(connection,), daemon=True).start()
                while True:
                    connection.sendall(data)
                    if first:
                        first = False
                        begun.wait()
        except OSError:
            if first:
                first = False
                begun.wait()


def main(kind: str, port: int, connections: int) -> None:
    begun = threading.Barrier(connections + 1)
    for _ in range(connections):
        threading.Thread(target=flood, args=(kind, port, begun), daemon=True).start()
    begun.wait()
    print("flooding", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
