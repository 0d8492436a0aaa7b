"""Connections that publish as fast as a server confirms. They use plain sockets and send frames that were encoded
before.

They find confirmations by searching the received bytes, without parsing them. This keeps the client's own time small.
"""

from __future__ import annotations

import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Self

from penstock.core.errors import InvalidRequest, ServiceUnavailable, Timeout
from penstock.core.limits import KIB

_HOST: Final = "127.0.0.1"
_ANSWER_SECONDS: Final = 30.0
_RECEIVE_BYTES: Final = 256 * KIB


class PublishConnection(ABC):
    """A connection with a window. `free` is the number of messages that may be sent before another one is confirmed."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((_HOST, port), timeout=_ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.free = 0
        self._frames = memoryview(b"")
        self._frame_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.socket.close()

    def receive(self) -> bytes:
        """Wait for bytes to arrive and return them. Raises `ServiceUnavailable` if the server has closed the
        connection."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ServiceUnavailable("the server closed the connection")
        return data

    @abstractmethod
    def encode(self, payload: bytes) -> bytes:
        """Return the bytes of the frame that publishes one message."""

    @abstractmethod
    def count_confirmations(self, data: bytes) -> int:
        """Return the number of messages that these bytes confirm. Raises `InvalidRequest` if the server refused one."""

    def encode_window(self, payload: bytes, window: int) -> None:
        """Encode `window` messages in advance, and set the window to that size. `send` then sends parts of these
        bytes."""
        frame = self.encode(payload)
        self.free, self._frames, self._frame_bytes = window, memoryview(frame * window), len(frame)

    def send(self, most: int) -> int:
        """Send up to `most` messages, but no more than the window allows; return their number."""
        sent = min(self.free, most)
        if sent:
            self.socket.sendall(self._frames[: sent * self._frame_bytes])
        self.free -= sent
        return sent

    def receive_confirmations(self) -> int:
        done = self.count_confirmations(self.receive())
        self.free += done
        return done


def publish_all(
    connections: Sequence[PublishConnection], payload: bytes, count: int, *, window: int, batch: int
) -> float:
    """Publish `count` messages; return the seconds until all are confirmed.

    At most `window` are unconfirmed at a time, over all connections. A connection sends only when it has room for
    `batch` messages: a system call for each message would make the client the slower side. Sending may block without a
    deadlock, because the servers keep their answers in memory and never wait for this client to read. Raises `Timeout`
    if no confirmation comes for 30 seconds, and `InvalidRequest` if more messages are confirmed than were sent.
    """
    share = max(1, window // len(connections))
    batch = max(1, min(batch, share))
    unsent = unconfirmed = count
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.encode_window(payload, share)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        ready = list(connections)
        began = time.perf_counter()
        while unconfirmed > 0:
            for connection in ready:
                if connection.free >= batch:
                    unsent -= connection.send(unsent)
            ready = [key.data for key, _ in selector.select(_ANSWER_SECONDS)]
            if not ready:
                raise Timeout(f"{unconfirmed} of {count} messages were not confirmed")
            unconfirmed -= sum(connection.receive_confirmations() for connection in ready)
        took = time.perf_counter() - began
    if unconfirmed:
        raise InvalidRequest(f"{-unconfirmed} messages more than were sent have been confirmed")
    return took


def single_publish_rate(
    connect: Callable[[int], PublishConnection], port: int, count: int, in_flight: int, batches: Sequence[int]
) -> float:
    """Return the messages of 100 B per second on one connection, each a frame of its own: the best over the sizes in
    `batches`."""

    def seconds(batch: int) -> float:
        with connect(port) as connection:
            return publish_all([connection], b"x" * 100, count, window=in_flight, batch=batch)

    return count / min(seconds(batch) for batch in batches)
