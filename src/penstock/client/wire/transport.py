"""The transport: one TCP connection of the asyncio client. It passes received bytes to the protocol, and the protocol's
events to a callback."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from penstock.client.wire.address import Address
from penstock.client.wire.protocol import ClientProtocol, ConnectionEnding, Event, Greeted
from penstock.core.errors import PenstockError, ServiceUnavailable, Timeout

_QUEUED_BYTES: Final = 1024 * 1024
"""The number of bytes written and not yet sent above which writers must wait."""


class ClientTransport(asyncio.Protocol):
    def __init__(self, protocol: ClientProtocol, handle: Callable[[Event], None]) -> None:
        self._protocol = protocol
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._tcp: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reason: PenstockError | None = None
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[PenstockError] = self._loop.create_future()
        """A future whose result is the reason for which the connection was lost. It is set when the connection is
        gone."""

        self.heard = self._loop.time()

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = transport  # type: ignore[assignment]
        self._protocol.connection_made()
        transport.set_write_buffer_limits(high=_QUEUED_BYTES)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        for event in self._protocol.receive(data):
            if isinstance(event, Greeted) and not self.greeted.done():
                self.greeted.set_result(None)
            elif isinstance(event, ConnectionEnding):
                self._reason = event.error
                if event.unreadable:
                    self.abort()
            self._handle(event)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        why = "the broker closed the connection" if error is None else f"the connection broke: {error}"
        reason = self._reason or ServiceUnavailable(why)
        self._writable.set()
        if not self.greeted.done():
            self.greeted.set_exception(reason)
        if not self.lost.done():
            self.lost.set_result(reason)

    # called by the client

    @property
    def open(self) -> bool:
        return self._tcp is not None and not self.lost.done() and not self._tcp.is_closing()

    def write(self, data: bytes) -> None:
        if self._tcp is not None:
            self._tcp.write(data)

    @property
    def writable(self) -> bool:
        return self._writable.is_set()

    async def drained(self) -> None:
        """Wait until there is room to write, or the connection is gone."""
        await self._writable.wait()

    @property
    def reading(self) -> bool:
        return self._tcp is not None and self._tcp.is_reading()

    def pause_reading(self) -> None:
        if self.open and self._tcp is not None:
            self._tcp.pause_reading()

    def resume_reading(self) -> None:
        if self.open and self._tcp is not None:
            self._tcp.resume_reading()

    def close(self) -> None:
        if self._tcp is not None:
            self._tcp.close()

    def abort(self, reason: PenstockError | None = None) -> None:
        self._reason = self._reason or reason
        if self._tcp is not None:
            self._tcp.abort()


def _tls_reason(error: ssl.SSLError) -> str:
    """Describe a TLS error in words, without OpenSSL's source positions."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); name its authority (tls_ca)"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS; use tcp://"
    return (error.reason or str(error)).replace("_", " ").lower()


def _reason(error: OSError, address: Address) -> str:
    if isinstance(error, socket.gaierror):  # error numbers of getaddrinfo are not those of other errors
        return f"the name {address.host} cannot be resolved ({error.strerror or error})"
    return os.strerror(error.errno) if error.errno else str(error)


async def open_transport(
    address: Address,
    tls: ssl.SSLContext | None,
    protocol: ClientProtocol,
    handle: Callable[[Event], None],
    timeout: float,
) -> ClientTransport:
    """Open a connection and wait for the broker's greeting.

    Raises `Timeout` if there is none within `timeout` seconds, and `ServiceUnavailable` if the connection or TLS fails.
    """
    loop = asyncio.get_running_loop()
    transport = ClientTransport(protocol, handle)
    try:
        async with asyncio.timeout(timeout):
            await loop.create_connection(lambda: transport, address.host, address.port, ssl=tls)
            await transport.greeted
    except TimeoutError:
        transport.abort()
        hint = "" if address.secure else "; is it the port of another protocol, or one for TLS (tls://)?"
        raise Timeout(f"no broker answered at {address} within {timeout:g} s{hint}") from None
    except ssl.SSLError as error:
        transport.abort()
        raise ServiceUnavailable(f"no TLS with {address}: {_tls_reason(error)}") from None
    except OSError as error:
        transport.abort()
        raise ServiceUnavailable(f"no broker at {address}: {_reason(error, address)}") from None
    except ServiceUnavailable as error:
        transport.abort()
        hint = " before saying anything; does it ask for a certificate of ours?" if address.secure else ""
        raise ServiceUnavailable(f"{error.message}{hint}", **error.details) from None
    except BaseException:
        transport.abort()
        raise
    finally:
        if transport.greeted.done() and not transport.greeted.cancelled():
            transport.greeted.exception()  # retrieved, so that asyncio does not warn about it
    return transport
