"""TCP: length-prefixed frames, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import Final

from penstock.broker.access.policy import ANONYMOUS
from penstock.core.errors import PenstockError, ServiceUnavailable
from penstock.server.hub import Hub
from penstock.server.resources.file_descriptors import DescriptorLimits
from penstock.server.resources.read_budget import BudgetedProtocol
from penstock.server.security.credentials import certificate_name, certificate_principal
from penstock.server.session import Session
from penstock.server.transports import listener
from penstock.server.transports.listener import Listener

_UNSENT_BYTES: Final = 256 * 1024
"""The most unsent bytes in the kernel's queue of one connection: as much as one large read, so that the queue does not
run empty between two writes."""


class TcpTransport(BudgetedProtocol):
    """A TCP connection of the wire protocol. The write buffer of its asyncio transport is the output queue of its
    session."""

    __slots__ = ("_eof_seen", "_hub", "_session", "_transport")

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub.read_budget)
        self._hub = hub
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._eof_seen = False

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        limit_write_queue(self._transport, self._hub.queued_high_bytes)  # type: ignore[arg-type]
        principal = certificate_principal(certificate_name(transport)) if self._hub.access.enabled else ANONYMOUS
        self._session = self._hub.connect(self, peer_address(transport), principal=principal)

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._session.received(data)

    def eof_received(self) -> bool:
        """Handle the end of the client's input. The client may still read, so the requests that have come are answered
        before the connection is closed."""
        self._eof_seen = True
        if self._session is None or self._session.ending or self._transport is None:
            return False
        if not self._transport.can_write_eof():
            return False  # TLS cannot be closed in one direction only
        self._session.lost("closed by the client")
        return True

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.fell_behind()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.caught_up()

    def connection_lost(self, error: Exception | None) -> None:
        session, self._session, self._transport = self._session, None, None
        if session is not None and not session.ending:
            session.lost("closed by the client" if error is None else f"connection lost: {error}")

    # what the hub calls

    def write(self, frames: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frames)

    def queued_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def wanted_bytes(self) -> int:
        return 0

    def held_bytes(self) -> int:
        return 0

    def unread_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, reason: PenstockError) -> None:  # noqa: ARG002 - the last frame has said it
        """Send the queued output, then close the connection. Input is read and dropped meanwhile, because TCP discards
        the last frames on their way if a connection is closed with unread bytes."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.can_write_eof() and not self._eof_seen:
            self._transport.resume_reading()
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def limit_write_queue(transport: asyncio.Transport, high_bytes: int) -> None:
    """Set the limits of the transport's write buffer: at `high_bytes` the protocol is told to pause writing, at a
    quarter of that to resume. The kernel's queue is kept small, because the bytes in it are not counted, and are a copy
    for each connection."""
    transport.set_write_buffer_limits(high=high_bytes, low=high_bytes // 4)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


def peer_address(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unknown"


async def listen(
    hub: Hub, host: str, port: int, tls: ssl.SSLContext | None, descriptors: DescriptorLimits | None = None
) -> Listener:
    return await listener.listen(
        partial(TcpTransport, hub),
        host,
        port,
        tls=tls,
        handshake_seconds=hub.limits.handshake_ms / 1000,
        refusal=partial(_refusal, hub),
        descriptors=descriptors,
    )


def _refusal(hub: Hub) -> bytes:
    hub.broker.metrics.add("connection.rejected")
    return hub.broker.error_frame(no_descriptors())


def no_descriptors() -> ServiceUnavailable:
    """Return the error for a connection that is refused because only reserved file descriptors are left."""
    return ServiceUnavailable("Connection refused: the files that are left are for the log; try again later")
