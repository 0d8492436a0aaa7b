"""A listener: accepts connections on a port, some at a time. It refuses connections when file descriptors become
scarce, so that enough are left for the log."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.server.resources.file_descriptors import DescriptorLimits, process_descriptors

_LOG: Final = logging.getLogger(__name__)
_ACCEPTS_PER_TURN: Final = 64
"""The most connections that are accepted before other tasks have their turn."""
_BACKLOG: Final = 1024
_RETRY_SECONDS: Final = 0.1
"""The pause in seconds after a connection could not be accepted because the system lacks resources."""
_WARNING_SECONDS: Final = 600.0
_SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _no_refusal() -> bytes:
    return b""


class Listener:
    """A replacement of `asyncio.Server` that refuses connections when file descriptors are scarce."""

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
        refusal: Callable[[], bytes],
        descriptors: DescriptorLimits,
    ) -> None:
        """Start accepting connections on `sockets`, which listen already. `factory` makes the protocol of each
        connection. `refusal` returns the bytes that are sent to a connection for which only reserved file descriptors
        are left; a connection with TLS is closed without them."""
        self.sockets = sockets
        self._factory = factory
        self._tls = {} if tls is None else {"ssl": tls, "ssl_handshake_timeout": handshake_seconds}
        self._refusal = refusal
        self._descriptors = descriptors
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._next_warning = 0.0
        for listening in sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def close(self) -> None:
        """Close the listening sockets. Connections that were accepted stay open."""
        sockets, self.sockets = self.sockets, []
        for listening in sockets:
            self._loop.remove_reader(listening)
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            connection.setblocking(False)  # noqa: FBT003 - the name says what it means
            if connection.fileno() < self._descriptors.connection_limit:
                self._open(connection)
            else:
                self._refuse(connection)

    def _open(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, connection: socket.socket) -> None:
        shutdown = {"ssl_shutdown_timeout": 1.0} if self._tls else {}
        try:
            await self._loop.connect_accepted_socket(self._factory, connection, **self._tls, **shutdown)  # type: ignore[arg-type]
        except Exception as error:  # the exception handler logs it
            connection.close()
            self._loop.call_exception_handler({"message": "a connection could not be set up", "exception": error})

    def _refuse(self, connection: socket.socket) -> None:
        answer = b"" if self._tls else self._refusal()
        with connection, suppress(OSError):  # it is refused all the same
            connection.send(answer)
        self._warn_refused()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Handle an error of accepting. If the system lacks resources, accepting is paused for a moment, since trying
        again at once would only use CPU time. Any other error is logged."""
        if error.errno not in _SHORT or not self.sockets:
            _LOG.error("connections of a port cannot be accepted", extra={"error": str(error)})
            return
        self._warn_refused()
        self._loop.remove_reader(listening)
        self._loop.call_later(_RETRY_SECONDS, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _warn_refused(self) -> None:
        """Log one warning for all connections that are refused within a while, instead of one for each."""
        now = self._loop.time()
        if now >= self._next_warning:
            self._next_warning = now + _WARNING_SECONDS
            fields = {"open_files_max": self._descriptors.limit, "reserve": self._descriptors.reserve}
            _LOG.warning("connections are refused: the files that are left are for the log", extra=fields)


async def listen(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    handshake_seconds: float = 10.0,
    refusal: Callable[[], bytes] = _no_refusal,
    descriptors: DescriptorLimits | None = None,
) -> Listener:
    """Listen on every address of the host, and return once connections are accepted. Port 0 is any free port. The other
    parameters are those of `Listener`; `descriptors` defaults to the limits of this process.

    Raises `OSError` if listening fails.
    """
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _kind, _protocol, _name, address in dict.fromkeys(addresses):
            sockets.append(_bind(family, (address[0], port, *address[2:])))
            port = int(sockets[0].getsockname()[1])
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return Listener(sockets, factory, tls, handshake_seconds, refusal, descriptors or process_descriptors())


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)  # noqa: FBT003 - the name says what it means
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
