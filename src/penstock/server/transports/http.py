"""The HTTP server: uvicorn in the broker's own event loop. It knows connections, and nothing of the requests' meaning.

What uvicorn leaves to us: the number of connections, clients that send or read nothing, TLS handshakes that never end,
signals (which are the broker's), and pages of other sites.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import h11
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.broker.access.policy import Origin
from penstock.core.errors import Forbidden
from penstock.core.limits import KIB, WireLimits
from penstock.server.api.bodies import error_response
from penstock.server.api.errors import flat_error
from penstock.server.http_scope import WHOLE, header, raw_path, target_host
from penstock.server.resources.file_descriptors import process_descriptors
from penstock.server.security.credentials import CERTIFICATE, OTHER_NAME, OTHER_SITE, certificate_name
from penstock.server.security.credentials import origin as origin_of
from penstock.server.security.response_headers import SecurityHeaders, allow_reading, preflight
from penstock.server.settings import is_loopback
from penstock.server.transports.http_cycle import RequestCycle
from penstock.server.transports.http_parser import HEAD_BYTES_MAX, Parser, RequestRejected
from penstock.server.transports.http_slots import ConnectionSlots, SlotKind, address_group
from penstock.server.transports.listener import Listener, listen
from penstock.server.transports.unread_bodies import UnreadBodyGuard
from penstock.server.transports.websocket import origin_allowed

IMPLEMENTATION: Final = "h11"
"""The HTTP/1.1 implementation of uvicorn."""

ABORT: Final = "abort"
"""The key, in the `state` of a request's ASGI scope, of the function that aborts its connection at once. Queued output
is dropped."""

CLOSE: Final = "close"
"""The key, in the same `state`, of the function that closes the connection after its queued output was sent."""

HEALTH: Final = (b"/livez", b"/readyz", b"/metrics")
"""Paths that are answered even if no ordinary slots are left. Otherwise an orchestrator would restart a broker that is
healthy but busy."""

SPARE_HEAD_BYTES_MAX: Final = 8 * KIB
"""The largest head of a request for a path in `HEALTH`: enough for a token and the headers of proxies."""

TURN_BYTES: Final = 16 * KIB
"""The bytes of one connection that are parsed at a time, before other connections have their turn."""

_READS: Final = (b"GET", b"HEAD")
_LIMITS: Final = WireLimits()

SILENCE_SECONDS: Final = 15.0
"""The time between two checks of a connection for silence. A connection is closed if between two checks no head of a
request has come whole, or no part of a waiting answer was read. So silence is noticed after at most twice this time."""

ALIVE_SECONDS: Final = 30
"""The seconds without traffic after which TCP probes whether the other machine is still there: it may have gone without
closing the connection."""

_KEEP_ALIVE_SECONDS: Final = 60
"""The seconds for which an idle connection is kept open. Most clients drop idle connections from their pools sooner, so
they rarely use one that is closed here already."""
_HANDSHAKE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 5.0
"""The seconds for which answers under way may go on when the broker stops: longer than any schema validation."""
_FINISHED_SECONDS: Final = 0.005
_NO_DESCRIPTORS: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)
"""The answer to a connection for which only reserved file descriptors are left."""


class HttpServer:
    """A running HTTP server. The caller of `open` must call `close`."""

    def __init__(self, server: _Server, listener: Listener, closing: Callable[[], None] | None = None) -> None:
        self._server = server
        self._closing = closing
        self._serving = asyncio.create_task(server.serve())
        self.port = int(listener.sockets[0].getsockname()[1])

    @classmethod
    async def open(
        cls,
        app: ASGIApp,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        origins: tuple[str, ...] = (),
        each_max: int = _LIMITS.http_address_connections_max,
        denied: Callable[[Origin, str], None] | None = None,
        closing: Callable[[], None] | None = None,
    ) -> HttpServer:
        """Open a server, and return it once connections are accepted. Port 0 is any free port. Raises `OSError` if
        listening fails.

        One address may have at most `each_max` connections in ordinary slots. `origins` lists further origins of web
        pages that are allowed. `denied` is called for each request that is refused because of its Origin or Host
        header, with the client's address and the reason. `closing` is called when the server begins to stop: it must
        end answers that would go on for ever.
        """
        guarded_app = OriginGuard(app, origins, loopback_only=is_loopback(host), denied=denied)
        server = _Server(_config(UnreadBodyGuard(SecurityHeaders(guarded_app))), ConnectionSlots(each_max))
        listener = await listen(
            partial(_Connection, server),
            host,
            port,
            tls=tls,
            handshake_seconds=_HANDSHAKE_SECONDS,
            refusal=lambda: _NO_DESCRIPTORS,
            descriptors=process_descriptors().for_probes(),
        )
        server.servers = [listener]  # type: ignore[list-item]
        return cls(server, listener, closing)

    async def close(self) -> None:
        """Stop the server: accept no more connections, and wait a few seconds for requests under way. Those that take
        longer are cancelled. Returns once the server has ended."""
        self._server.stop.set()
        if self._closing is not None:
            self._closing()
        await self._serving


def _config(app: ASGIApp) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=IMPLEMENTATION,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # an error of a client is only reported to that client
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    return config


class _Server(uvicorn.Server):
    """A uvicorn server on listeners that are open already. It stops at once when told to, and does not handle
    signals."""

    def __init__(self, config: uvicorn.Config, slots: ConnectionSlots[_Connection]) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()
        self.slots = slots

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Any = None) -> None:  # noqa: ARG002
        self.started = True

    async def main_loop(self) -> None:
        """Update the `Date` header of responses once a second, until the server is told to stop."""
        while not self.stop.is_set():
            with suppress(OverflowError):  # a clock beyond Python's range: the date of responses stays as it was
                await self.on_tick(0)
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self.stop.wait()

    async def shutdown(self, sockets: Any = None) -> None:  # noqa: ARG002
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._drained()
        except TimeoutError:
            await self._cut_off()

    async def _cut_off(self) -> None:
        """Cancel the requests that are still under way, and close all connections. A cancelled request may still send
        the end of its answer."""
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.close()

    async def _drained(self) -> None:
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(_FINISHED_SECONDS)


class _ReadFlow(FlowControl):
    """Flow control that also keeps reading paused while bytes that were read wait to be parsed. Meanwhile calls of
    `resume_reading` are noted, and take effect in `release`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._wanted = True
        self.held = False
        """True while bytes that were read wait to be parsed in a later turn."""

    def pause_reading(self) -> None:
        self._wanted = False
        super().pause_reading()

    def resume_reading(self) -> None:
        self._wanted = True
        if not self.held:
            super().resume_reading()

    def hold(self) -> None:
        """Pause reading, even if this class believes that it is paused: uvicorn resumes the transport in some places
        without this class."""
        self.held = self.read_paused = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.held = False
        if self._wanted:
            super().resume_reading()


class _Connection(H11Protocol):
    """An HTTP connection. It occupies a slot, handles a small part of its input in each turn, and is closed if its
    client stays silent."""

    def __init__(self, server: _Server) -> None:
        super().__init__(server.config, server.server_state, app_state={})
        self._stop = server.stop
        self._slots = server.slots
        self._slot = SlotKind.NONE
        self._parser = self.conn = Parser(self._head_received)
        self._unparsed = bytearray()
        self._turn: asyncio.Handle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._last_cycle: object = None
        self._ended = False
        self._output_progressed = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._reading = _ReadFlow(transport)
        name = certificate_name(transport)
        if name is not None:
            self.app_state[CERTIFICATE] = name
        self.app_state[ABORT], self.app_state[CLOSE] = transport.abort, transport.close
        if self._stop.is_set():
            self.transport.abort()
        elif self._acquire_slot() is SlotKind.NONE:
            self._write_error(_no_slot())
            self.transport.close()
        else:
            _enable_tcp_keepalive(transport)
            self._watch_later()

    def _acquire_slot(self) -> SlotKind:
        """Take a slot, and return its kind; `SlotKind.NONE` if none is left. Connections that lose their slot to this
        one are aborted: they were only waiting for a request."""
        address = address_group(self.client[0]) if self.client else ""
        self._slot, gone = self._slots.acquire(self, address, self.loop.time())
        for connection in gone:
            connection.transport.abort()
        if self._slot is SlotKind.SPARE:
            self._parser.head_bytes_max = SPARE_HEAD_BYTES_MAX
        return self._slot

    def resume_writing(self) -> None:
        """Note that the client has read most of the queued output, and let the answer go on."""
        self._output_progressed = True
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slots.release(self)
        for handle in (self._watch, self._turn):
            if handle is not None:
                handle.cancel()
        super().connection_lost(exc)

    # input

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._unset_keepalive_if_required()
        if self._turn is not None:
            self._unparsed += data
            self._reading.hold()
        elif self._unparsed or len(data) > TURN_BYTES or self._is_busy():
            self._unparsed += data
            self._take_turn()
        else:
            self._take_turn(data)

    def _take_turn(self, data: bytes = b"") -> None:
        """Parse `data`, or the first part of the bytes that came earlier and still wait. What then remains is parsed in
        a later turn, and reading is paused until then."""
        self._turn = None
        if self._parser.is_finished:
            self._unparsed.clear()
            return
        self._parser.begin_turn()
        if self._unparsed and not self._is_busy():
            data = bytes(self._unparsed[:TURN_BYTES])
            del self._unparsed[:TURN_BYTES]
        if data:
            self._parser.receive_data(data)
        self.handle_events()
        self._continue_reading()

    def _continue_reading(self) -> None:
        """Schedule another turn if there is something to parse now; otherwise resume reading."""
        if self._ended or self.transport.is_closing():
            self._unparsed.clear()
        elif self._parser.cut_short or (self._unparsed and not self._is_busy()):
            self._reading.hold()
            if self._turn is None:
                self._turn = self.loop.call_soon(self._take_turn)
        elif self._unparsed:
            self._reading.hold()
        elif self._reading.held:
            self._reading.release()

    def _is_busy(self) -> bool:
        """Return True while a request that has come whole is being answered. Bytes behind it wait for the end of its
        answer."""
        return self._parser.their_state not in (h11.IDLE, h11.SEND_BODY)

    def handle_events(self) -> None:
        """Handle the events that can be parsed now, as uvicorn does, but without upgrades to other protocols."""
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                self.send_400_response("")
                return
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:  # the next request waits until this one is answered
                self.flow.pause_reading()
                return
            kind = type(event)  # not `isinstance`: events are abstract classes, for which that is slow
            if kind is h11.Request:
                self._begin(event)
            elif kind is h11.Data:
                self._add(event.data)
            elif kind is h11.EndOfMessage and self._ends_here():
                return

    def _begin(self, request: h11.Request) -> None:
        """Start a task for a request whose head has come."""
        self._unset_keepalive_if_required()
        self.headers = [(name.lower(), value) for name, value in request.headers.raw_items()]
        raw_path, _, query = request.target.partition(b"?")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": request.method.decode("ascii"),
            "root_path": "",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }
        self.cycle = RequestCycle(
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _add(self, piece: bytes) -> None:
        """Add a piece to the request's body. It is dropped if the request has its whole answer already."""
        if self._parser.our_state is h11.DONE:
            return
        self.cycle.body += piece
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def _ends_here(self) -> bool:
        """Handle the end of a request's body. Returns True if the connection reads no further requests."""
        if self._parser.our_state is h11.DONE:
            self.transport.resume_reading()
            self._parser.start_next_cycle()
            return False
        self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]
        self.cycle.more_body = False
        self.cycle.message_event.set()
        return self._parser.their_state is h11.MUST_CLOSE

    def _head_received(self, request: h11.Request) -> h11.Request:
        """Check a request by its head, and return the request. Raises `RequestRejected` if the connection has only a
        spare slot and the request is no health check. The answer to a health check in a spare slot ends the connection.
        """
        self._slots.request_received(self)
        if self._slot is not SlotKind.SPARE:
            return request
        if request.method not in _READS or request.target.partition(b"?")[0] not in HEALTH:
            raise _no_slot()
        headers = [*request.headers, CLOSE_HEADER]
        return h11.Request(
            method=request.method, target=request.target, headers=headers, http_version=request.http_version
        )

    def on_response_complete(self) -> None:
        self._slots.response_sent(self, self.loop.time())
        self._parser.begin_turn()
        super().on_response_complete()
        self._continue_reading()

    # silence

    def _watch_later(self) -> None:
        self._last_cycle, self._output_progressed = self.cycle, False
        self._watch = self.loop.call_later(SILENCE_SECONDS, self._check_silence)

    def _check_silence(self) -> None:
        """Abort the connection if since the last check no request has begun, and it still waits for the client: to
        send, or to read the output."""
        if self.cycle is self._last_cycle and (
            self._is_idle() or (self.flow.write_paused and not self._output_progressed)
        ):
            self.transport.abort()
        else:
            self._watch_later()

    def _is_idle(self) -> bool:
        """Return True if the connection waits for its client: for a request, for the rest of a body that was answered
        early, or to close the connection.

        Returns False for an idle keep-alive connection: uvicorn's own timer closes it.
        """
        cycle: Any = self.cycle
        if self._ended or self.transport.is_closing():
            return True
        if cycle is not None and not cycle.response_complete:
            return False
        return self.timeout_keep_alive_task is None or self._parser.their_state is h11.SEND_BODY

    # errors

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it says no more than this
        cycle: Any = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
        else:
            self._write_error(RequestRejected.of(sys.exception()))
            self._end_after_error()

    def _end_after_error(self) -> None:
        """Stop handling input and end the connection once the client has read the last answer. Input is still read and
        dropped meanwhile, because TCP discards the answer if a connection is closed with unread bytes."""
        self._ended = True
        self._reading.release()
        self._reading.resume_reading()
        self._slots.response_sent(self, self.loop.time())
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:  # its answer can no longer be sent
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _write_error(self, refused: RequestRejected) -> None:
        """Write an error response for input that became no request, in the shape that clients of schema registries
        expect."""
        status = refused.status
        answer = flat_error(status, status, refused.message)
        head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        head += [name + b": " + value for name, value in (*answer.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))


def _no_slot() -> RequestRejected:
    return RequestRejected(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections: try again later")


def _enable_tcp_keepalive(transport: asyncio.Transport) -> None:
    """Have TCP probe the other machine when there is no traffic. Otherwise an event stream without events would never
    notice that its reader is gone."""
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", ALIVE_SECONDS), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class OriginGuard:
    """ASGI middleware that refuses requests of web pages whose origin is not allowed: they would act in the name of the
    person who visits them. Programs send no Origin header and are let through. On a broker that only this machine can
    reach, a Host header with another name is refused too."""

    def __init__(
        self,
        app: ASGIApp,
        origins: tuple[str, ...],
        *,
        loopback_only: bool,
        denied: Callable[[Origin, str], None] | None = None,
    ) -> None:
        self._app = app
        self._origins = origins
        self._here = loopback_only
        self._denied = denied

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        origin, host = header(scope, b"origin"), _requested_host(scope)
        if self._here and host is not None and not is_loopback(_name(host)):
            # A page whose own name was made to resolve to this machine: for the browser it is the same site.
            return self._forbidden(scope, OTHER_NAME, f"{host!r} is not a name of this machine")(scope, receive, send)
        if origin is None:
            return self._app(scope, receive, send)
        if origin_allowed(origin, host, self._origins, loopback_only=self._here):
            return self._answer_page(origin, scope, receive, send)
        return self._forbidden(scope, OTHER_SITE, f"pages of {origin!r} may not ask here")(scope, receive, send)

    def _forbidden(self, scope: Scope, reason: str, message: str) -> Response:
        if self._denied is not None:
            self._denied(origin_of(scope), reason)
        return error_response(Forbidden(message), scope)

    async def _answer_page(self, origin: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a page whose origin is allowed: a preflight request here, any other by the application,
        with headers that let the page read the answer."""
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
            asked = header(scope, b"access-control-request-headers")
            await preflight(origin, asked)(scope, receive, send)
        else:
            await self._app(scope, receive, allow_reading(origin, send))


def _requested_host(scope: Scope) -> str | None:
    """Return the requested host: that of the request target if it is a whole URL, otherwise the Host header. None if
    there is neither."""
    named = target_host(raw_path(scope))
    return header(scope, b"host") if named is None else named


def _name(host: str) -> str:
    """Return the host without port, and without the brackets of an IPv6 address."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).strip("[]").lower()
