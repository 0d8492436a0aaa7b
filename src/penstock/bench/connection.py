"""Connections that publish as fast as a server confirms: bare sockets, with frames that are encoded beforehand.

A connection counts confirmations by the byte, so that what is measured is the server and not its client.
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
    """A connection with a window: the number of messages that may still be sent before another is confirmed."""

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
        """Return the bytes that have arrived; waits for some. Raises `ServiceUnavailable` at the end of the
        connection."""
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ServiceUnavailable("the server closed the connection")
        return data

    @abstractmethod
    def encode(self, payload: bytes) -> bytes:
        """Return the bytes that publish one message."""

    @abstractmethod
    def count_confirmations(self, data: bytes) -> int:
        """Return how many messages these bytes confirm. Raises `InvalidRequest` if the server refused one."""

    def encode_window(self, payload: bytes, window: int) -> None:
        """Encode a whole window beforehand; every send is then a piece of it."""
        frame = self.encode(payload)
        self.free, self._frames, self._frame_bytes = window, memoryview(frame * window), len(frame)

    def send(self, most: int) -> int:
        """Send as many messages as the window has room for; return how many."""
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
    """Publish `count` messages; return the seconds until each is confirmed.

    At most `window` are unconfirmed at a time, over all connections. A connection sends when it has room for `batch` of
    them: a system call for one message would measure this client. Sending may block, because the servers keep their
    answers in memory, and so never wait for this client to read.
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
    """Measure messages of 100 B a second on one connection, with the best of `batches`."""

    def seconds(batch: int) -> float:
        with connect(port) as connection:
            return publish_all([connection], b"x" * 100, count, window=in_flight, batch=batch)

    return count / min(seconds(batch) for batch in batches)
