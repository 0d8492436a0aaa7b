"""WebSocket connections: they read the upgrade request, check its Origin, and then handle frames, a limited number in
each turn."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from penstock.broker.access.policy import ANONYMOUS, Origin, Principal
from penstock.core.errors import Code, PenstockError, Unauthorized
from penstock.protocol import websocket as wire
from penstock.protocol.frames import LENGTH_BYTES
from penstock.protocol.websocket import (
    ConnectionEnd,
    MessagePart,
    Ping,
    Pong,
    WebSocketEvent,
    WebSocketReader,
    WholeMessages,
)
from penstock.record.hashing import as_array
from penstock.record.kernels.frame_kernels import to_websocket
from penstock.server.hub import Hub
from penstock.server.resources.file_descriptors import DescriptorLimits
from penstock.server.resources.read_budget import BudgetedProtocol
from penstock.server.security.credentials import (
    OTHER_SITE,
    audit_denied_page,
    certificate_name,
    certificate_principal,
    presented_token,
)
from penstock.server.session import Session
from penstock.server.settings import is_loopback
from penstock.server.transports import listener
from penstock.server.transports.listener import Listener
from penstock.server.transports.tcp import limit_write_queue, no_descriptors, peer_address
from penstock.server.transports.websocket_upgrade import NotUpgraded, Upgrade, UpgradeReader

SURFACE: Final = "websocket"
FRAMES_PER_TURN: Final = 128
"""The most fragments and control frames of one connection that are handled in one turn: about a millisecond of work."""
IDLE_FRAMES_MAX: Final = 256
"""The most pings, pongs and empty fragments within `IDLE_FRAMES_MS` milliseconds if no message comes in between.
Clients send a few in a minute."""
IDLE_FRAMES_MS: Final = 10_000
_FRAME_HEAD_BYTES_MAX: Final = 10
_FRAME_BYTES_MIN: Final = LENGTH_BYTES + len("ack:a:1.0.0\n")
_REASON_BYTES_MAX: Final = 123
_INTERNAL_ERROR: Final = 1011
_CLOSE_CODES: Final = {
    Code.PAYLOAD_TOO_LARGE: wire.MESSAGE_TOO_BIG,
    Code.QUOTA_EXCEEDED: wire.POLICY_VIOLATION,
    Code.UNAUTHORIZED: wire.POLICY_VIOLATION,
    Code.SERVICE_UNAVAILABLE: 1013,  # try again later
    Code.TIMEOUT: 1001,  # going away
}
"""The WebSocket close code for each of some error codes; the code for all others is 1011."""


class IdleFrames:
    """A count of the frames without content since the last message, or since the current interval began, whichever was
    later."""

    __slots__ = ("_count", "_since_ms")

    def __init__(self) -> None:
        self._count = 0
        self._since_ms = 0

    def exceeds_limit(self, now_ms: int) -> bool:
        """Count one more such frame. Returns True if there were too many."""
        if now_ms - self._since_ms > IDLE_FRAMES_MS:
            self._count, self._since_ms = 0, now_ms
        self._count += 1
        return self._count > IDLE_FRAMES_MAX

    def message(self) -> None:
        self._count = 0


@dataclass(frozen=True, slots=True)
class WebSocketPort:
    """The state that all connections of one port share."""

    hub: Hub
    origins: tuple[str, ...]
    loopback_only: bool
    """True if the port is open only to programs on this machine."""

    reframed: FrameConverter = field(default_factory=lambda: FrameConverter())


class WebSocketTransport(BudgetedProtocol):
    """A WebSocket connection. One message on it is one frame of the wire protocol."""

    __slots__ = (
        "_close_reason",
        "_closing",
        "_eof_seen",
        "_hub",
        "_idle",
        "_paused",
        "_port",
        "_reader",
        "_session",
        "_timer",
        "_transport",
        "_turn_pending",
        "_upgrade_reader",
    )

    def __init__(self, port: WebSocketPort) -> None:
        super().__init__(port.hub.read_budget)
        self._port = port
        self._hub = port.hub
        self._upgrade_reader: UpgradeReader | None = UpgradeReader()
        """The reader of the upgrade request; None once the WebSocket is open."""

        self._reader = WebSocketReader(0)
        self._idle = IdleFrames()
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._close_reason = "closed by the client"
        self._closing = False
        """True after the upgrade was refused or a close frame sent: further input is ignored."""

        self._eof_seen = False
        self._paused = False
        """True while the hub has paused reading of the connection."""

        self._turn_pending = False
        """True while frames wait for the connection's next turn."""

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        limit_write_queue(self._transport, self._hub.queued_high_bytes)  # type: ignore[arg-type]
        seconds = self._hub.limits.handshake_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._upgrade_reader is not None:
            self._upgrade(self._upgrade_reader, data)
        else:
            self._reader.receive_data(data)
            if not self._turn_pending:
                self._take_turn()

    def eof_received(self) -> bool:
        """Handle the end of the client's input. Frames that came before it are handled before the connection is
        closed."""
        self._eof_seen = True
        return self._turn_pending and self._transport is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.fell_behind()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.caught_up()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        session, self._session, self._transport = self._session, None, None
        self._closing = True
        self._stop_timer()
        if session is not None and not session.ending:
            session.lost(self._close_reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # the upgrade

    def _upgrade(self, upgrade_reader: UpgradeReader, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - it has just received something
        try:
            request = upgrade_reader.receive_data(data)
            if request is None:
                return
            principal, answer = self._authenticate(request), request.accepted()
        except NotUpgraded as refused:
            self._hub.broker.metrics.add("connection.rejected")
            self._closing = True
            self._transport.write(refused.answer())
            self._transport.close()
            return
        self._stop_timer()
        self._upgrade_reader = None
        self._transport.write(answer)
        self._open(principal)
        if upgrade_reader.behind:
            self.data_received(upgrade_reader.behind)

    def _open(self, principal: Principal) -> None:
        assert self._transport is not None  # noqa: S101 - it has just been written to
        address = peer_address(self._transport)
        self._session = self._hub.connect(self, address, principal=principal, surface=SURFACE)
        if self._session is not None:
            self._reader.bytes_max = self._session.message_bytes_max

    def _authenticate(self, request: Upgrade) -> Principal:
        """Return the principal that the upgrade request's credentials prove. Raises `NotUpgraded` for a page whose
        origin is not allowed, and for invalid credentials."""
        assert self._transport is not None  # noqa: S101 - it has just received something
        access, whence = self._hub.access, Origin(SURFACE, peer_address(self._transport))
        origin = request.header("Origin")
        if not origin_allowed(
            origin, request.header("Host"), self._port.origins, loopback_only=self._port.loopback_only
        ):
            audit_denied_page(access, whence, OTHER_SITE)
            raise NotUpgraded(HTTPStatus.FORBIDDEN, f"Origin {origin!r} is not allowed: list it with --ws-origin")
        if not access.enabled:
            return ANONYMOUS
        try:
            token = presented_token(access, request.header("Authorization"), request.header("X-API-Key"), whence)
            if token is None:
                return certificate_principal(certificate_name(self._transport))
            return access.authenticate(token, whence)
        except Unauthorized as error:
            raise NotUpgraded(HTTPStatus.UNAUTHORIZED, error.message) from None

    # frames

    def _take_turn(self) -> None:
        """Handle the frames of one turn. The rest waits for a later turn."""
        self._turn_pending = False
        for _ in range(FRAMES_PER_TURN):
            event = None if self._closing else self._reader.next_event()
            if event is None:
                break
            self._handle_event(event)
        else:
            self._schedule_turn()
            return
        if self._eof_seen and self._transport is not None:
            self._transport.close()
        elif self._session is not None and (self._reader.wanted_bytes or self._session.is_counted):
            self._hub.update_reading(self._session)

    def _schedule_turn(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._turn_pending = True
            self._transport.pause_reading()
            if self._session is not None:
                self._session.measure()
            asyncio.get_running_loop().call_soon(self._run_next_turn)

    def _run_next_turn(self) -> None:
        self._take_turn()
        if not self._turn_pending and not self._paused:
            self.resume_reading()

    def _handle_event(self, event: WebSocketEvent) -> None:
        match event:
            case WholeMessages(frames):
                self._idle.message()
                self._received(frames)
            case MessagePart(size):
                if not size:
                    self._count_idle_frame()
            case Ping(payload):
                self._pong(payload)
                self._control_frame_received()
            case Pong():
                self._control_frame_received()
            case ConnectionEnd(code, reason):
                self._refuse(code, reason)

    def _received(self, frames: bytes) -> None:
        session = self._session
        if session is not None:
            session.received(frames)
            self._reader.bytes_max = session.message_bytes_max

    def _pong(self, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes((0x80 | wire.PONG, len(payload))) + payload)

    def _control_frame_received(self) -> None:
        self._count_idle_frame()
        if self._session is not None:
            self._session.heard()

    def _count_idle_frame(self) -> None:
        """Count a frame without content, and close the connection if there were too many. Such a frame costs as much as
        a message, and one read can hold very many."""
        if self._idle.exceeds_limit(self._hub.now_ms()):
            seconds = IDLE_FRAMES_MS // 1000
            idle = f"more than {IDLE_FRAMES_MAX} pings, pongs or empty fragments in {seconds} s, and no message"
            self._hub.broker.metrics.add("flood.ended")
            self._refuse(wire.POLICY_VIOLATION, idle)

    def _refuse(self, code: int, why: str) -> None:
        """Close the connection with this close code and reason, because the client has violated the WebSocket
        protocol."""
        self._close_reason = why or self._close_reason
        self._send_close(code, why)

    def _send_close(self, code: int, why: str) -> None:
        if self._closing or self._transport is None or self._transport.is_closing():
            return
        self._closing = True
        whole = why.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")  # without half a character
        payload = code.to_bytes(2, "big") + whole.encode()
        self._transport.write(bytes((0x80 | wire.CLOSE, len(payload))) + payload)
        self._transport.close()

    # what the hub calls

    def write(self, frames: bytes) -> None:
        """Convert the frames, which are encoded as on TCP, to WebSocket frames, and queue all of them in one write."""
        if self._transport is not None and not self._closing and not self._transport.is_closing():
            self._transport.write(self._port.reframed(frames))

    def queued_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def wanted_bytes(self) -> int:
        return self._reader.wanted_bytes

    def held_bytes(self) -> int:
        return self._reader.held_bytes

    def unread_bytes(self) -> int:
        return self._reader.unread_bytes

    def pause_reading(self) -> None:
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if not self._turn_pending and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, reason: PenstockError) -> None:
        self._send_close(_CLOSE_CODES.get(reason.code, _INTERNAL_ERROR), reason.message)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class FrameConverter:
    """Converts frames as TCP carries them into WebSocket frames. The last result is kept: a delivery to many consumers
    passes the same bytes object for each of them, and is converted once."""

    def __init__(self) -> None:
        self._last = (b"", b"")

    def __call__(self, frames: bytes) -> bytes:
        before, after = self._last
        if frames is not before:
            count_max = len(frames) // _FRAME_BYTES_MIN
            room = np.empty(len(frames) + count_max * (_FRAME_HEAD_BYTES_MAX - LENGTH_BYTES), np.uint8)
            after = room[: to_websocket(as_array(frames), room)].tobytes()
            self._last = (frames, after)
        return after


def origin_allowed(origin: str | None, asked: str | None, allowed: tuple[str, ...], *, loopback_only: bool) -> bool:
    """Return True if a page of this origin may connect. `asked` is the requested host, as in the Host header, and
    `allowed` the origins in the settings, where `*` allows all. Programs send no Origin (None), and may connect.

    On a broker that only this machine can reach (`loopback_only`), pages of this machine are accepted too, if they
    request it by a loopback name: any other name may have been made to resolve to this machine. Otherwise, pages of the
    requested host itself are accepted. Without this check, every page that a person visits could talk to the broker on
    that person's machine.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        page, host = urlsplit(origin).hostname, urlsplit(f"//{asked or ''}").hostname
    except ValueError:
        return False
    if page is None:
        return False
    return (is_loopback(page) and is_loopback(host or "")) if loopback_only else page == host


async def listen(
    hub: Hub,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    descriptors: DescriptorLimits | None = None,
    *,
    origins: tuple[str, ...] = (),
) -> Listener:
    return await listener.listen(
        partial(WebSocketTransport, WebSocketPort(hub, origins, is_loopback(host))),
        host,
        port,
        tls=tls,
        handshake_seconds=hub.limits.handshake_ms / 1000,
        refusal=partial(_refusal, hub),
        descriptors=descriptors,
    )


def _refusal(hub: Hub) -> bytes:
    hub.broker.metrics.add("connection.rejected")
    return NotUpgraded(HTTPStatus.SERVICE_UNAVAILABLE, no_descriptors().message).answer()
