"""HTTP on uvicorn, in the broker's own event loop: connections, and nothing of what is asked over them.

uvicorn leaves to us: how many connections there are, those that say nothing or read nothing, TLS handshakes that never
end, signals (which are the broker's), and pages of other sites.
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
"""Of HTTP/1.1 in uvicorn."""

ABORT: Final = "abort"
"""Under this name the `state` of a request has what ends its connection at once, whatever waits to be sent."""

CLOSE: Final = "close"
"""The same, once what waits to be sent is."""

HEALTH: Final = (b"/livez", b"/readyz", b"/metrics")
"""What is answered however many connections there are: or else an orchestrator would end a broker that is well."""

SPARE_HEAD_BYTES_MAX: Final = 8 * KIB
"""Of a request for one of those: a token, and what proxies add."""

TURN_BYTES: Final = 16 * KIB
"""Read of one connection before others have their turn."""

_READS: Final = (b"GET", b"HEAD")
_LIMITS: Final = WireLimits()

SILENCE_SECONDS: Final = 15.0
"""Within twice that a request's head has come, and some of an answer is read: a connection is not held for nothing."""

ALIVE_SECONDS: Final = 30
"""Of silence, after which a machine is asked whether it is still there: it may have gone without a word."""

_KEEP_ALIVE_SECONDS: Final = 60
"""Longer than the pools of clients keep a connection: they rarely meet one that was just closed."""
_HANDSHAKE_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 5.0
"""For answers under way when the broker stops: longer than any schema is examined."""
_FINISHED_SECONDS: Final = 0.005
_NO_FILES: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)
"""To a connection for which there is no file but those of the log."""


class HttpServer:
    """A listener. Whoever opened it closes it."""

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
        """Accepts connections on return; port 0 is any free one. Raises `OSError` where it cannot listen.

        One address has at most `each_max` of them. `denied` is told of pages that may not ask, and `closing` when it
        closes: answers that go on and on end then.
        """
        guarded_app = OriginGuard(app, origins, loopback_only=is_loopback(host), denied=denied)
        server = _Server(_config(UnreadBodyGuard(SecurityHeaders(guarded_app))), ConnectionSlots(each_max))
        listener = await listen(
            partial(_Connection, server),
            host,
            port,
            tls=tls,
            handshake_seconds=_HANDSHAKE_SECONDS,
            refusal=lambda: _NO_FILES,
            descriptors=process_descriptors().for_probes(),
        )
        server.servers = [listener]  # type: ignore[list-item]
        return cls(server, listener, closing)

    async def close(self) -> None:
        """No new connections; requests under way are answered, or cut off after a few seconds."""
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
        log_level="error",  # what a client does wrong is the client's to hear
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    return config


class _Server(uvicorn.Server):
    """Listens already when it is started, stops when it is told and not at the next tick, and leaves signals alone."""

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
        """Once a second it has another date to tell."""
        while not self.stop.is_set():
            with suppress(OverflowError):  # a clock beyond what Python tells: the date in answers stays as it was
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
        """Whoever is still at it may say so."""
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
    """Reading stops also while some of what was read waits for its turn, whoever else would go on."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._wanted = True
        self.held = False
        """Some of what was read waits for its turn."""

    def pause_reading(self) -> None:
        self._wanted = False
        super().pause_reading()

    def resume_reading(self) -> None:
        self._wanted = True
        if not self.held:
            super().resume_reading()

    def hold(self) -> None:
        """Whatever was paused before: uvicorn goes on reading in places without asking here."""
        self.held = self.read_paused = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.held = False
        if self._wanted:
            super().resume_reading()


class _Connection(H11Protocol):
    """One of a bounded number, ended when it is only held, and read a little in each turn."""

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
        """Those who go instead of it are gone at once: they hold nothing but their place."""
        address = address_group(self.client[0]) if self.client else ""
        self._slot, gone = self._slots.acquire(self, address, self.loop.time())
        for each in gone:
            each.transport.abort()
        if self._slot is SlotKind.SPARE:
            self._parser.head_bytes_max = SPARE_HEAD_BYTES_MAX
        return self._slot

    def resume_writing(self) -> None:
        """What was waiting for the other side has been taken, but for a little."""
        self._output_progressed = True
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._slots.release(self)
        for each in (self._watch, self._turn):
            if each is not None:
                each.cancel()
        super().connection_lost(exc)

    # what comes

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
        """Read `data`, or some of what came before. The rest has a turn of its own; until then nothing more comes."""
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
        """In another turn where something is left that can be read now; or else more may come."""
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
        """A whole request is being answered: what comes behind it waits for that."""
        return self._parser.their_state not in (h11.IDLE, h11.SEND_BODY)

    def handle_events(self) -> None:
        """What can be read now. As uvicorn has it, for requests that ask for no other protocol."""
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
            kind = type(event)  # not `isinstance`: events are abstract, and asking that takes long
            if kind is h11.Request:
                self._begin(event)
            elif kind is h11.Data:
                self._add(event.data)
            elif kind is h11.EndOfMessage and self._ends_here():
                return

    def _begin(self, request: h11.Request) -> None:
        """A head has come: whoever answers it has a task of its own."""
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
        """Some of a body; nobody wants it any more once the request is answered."""
        if self._parser.our_state is h11.DONE:
            return
        self.cycle.body += piece
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def _ends_here(self) -> bool:
        """All of a request has come. Whether nothing more of this connection is read."""
        if self._parser.our_state is h11.DONE:
            self.transport.resume_reading()
            self._parser.start_next_cycle()
            return False
        self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]
        self.cycle.more_body = False
        self.cycle.message_event.set()
        return self._parser.their_state is h11.MUST_CLOSE

    def _head_received(self, request: h11.Request) -> h11.Request:
        """A head has come. Raises `Refused` for what a spare place is not for."""
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
        """Nothing new since the last look, and nothing of ours that it waits for: it is only held."""
        if self.cycle is self._last_cycle and (
            self._is_idle() or (self.flow.write_paused and not self._output_progressed)
        ):
            self.transport.abort()
        else:
            self._watch_later()

    def _is_idle(self) -> bool:
        """It is answered, if it has asked, and has not gone quiet since: the timer of quiet ones is uvicorn's.

        One that was answered before its body had come is not quiet: it owes us the rest.
        """
        cycle: Any = self.cycle
        if self._ended or self.transport.is_closing():
            return True
        if cycle is not None and not cycle.response_complete:
            return False
        return self.timeout_keep_alive_task is None or self._parser.their_state is h11.SEND_BODY

    # what is wrong

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it says no more than this
        cycle: Any = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
        else:
            self._write_error(RequestRejected.of(sys.exception()))
            self._end_after_error()

    def _end_after_error(self) -> None:
        """What still comes is read and not looked at: to close on unread bytes would take back what was said last."""
        self._ended = True
        self._reading.release()
        self._reading.resume_reading()
        self._slots.response_sent(self, self.loop.time())
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:  # nobody hears its answer any more
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _write_error(self, refused: RequestRejected) -> None:
        """Without a request there is nobody to ask what to say."""
        status = refused.status
        answer = flat_error(status, status, refused.message)
        head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        head += [name + b": " + value for name, value in (*answer.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))


def _no_slot() -> RequestRejected:
    return RequestRejected(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many connections: try again later")


def _enable_tcp_keepalive(transport: asyncio.Transport) -> None:
    """Have the system find out about machines that are gone: a stream with nothing to say would never know."""
    connection: socket.socket = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", ALIVE_SECONDS), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class OriginGuard:
    """Keeps out pages of other sites, which would ask in the name of whoever looks at them. Programs may ask."""

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
            # A page whose own name was made to mean this machine: to the browser it is the same site.
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
        """Of an origin that may: its browser asks first whether it may, and then lets it read the answer."""
        if scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method") is not None:
            asked = header(scope, b"access-control-request-headers")
            await preflight(origin, asked)(scope, receive, send)
        else:
            await self._app(scope, receive, allow_reading(origin, send))


def _requested_host(scope: Scope) -> str | None:
    """The name by which it is asked: a target that is a whole address says it, whatever else the head says."""
    named = target_host(raw_path(scope))
    return header(scope, b"host") if named is None else named


def _name(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).strip("[]").lower()
