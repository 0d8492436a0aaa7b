"""WebSocket: the upgrade, frames as `protocol.websocket` reads them, Origin, and how much of a turn one may take."""

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
from penstock.protocol.websocket import Event, Farewell, Messages, Part, Ping, Pong, WebSocketReader
from penstock.record.hashing import as_array
from penstock.record.kernels.frame_kernels import to_websocket
from penstock.server.hub import Hub
from penstock.server.resources.file_descriptors import DescriptorLimits
from penstock.server.resources.read_budget import BudgetedProtocol
from penstock.server.security.credentials import OTHER_SITE, certificate_name, certified, note_page, shown_token
from penstock.server.session import Session
from penstock.server.settings import is_loopback
from penstock.server.transports import listener
from penstock.server.transports.listener import Listener
from penstock.server.transports.tcp import bound_queue, no_files, peer_address
from penstock.server.transports.websocket_upgrade import NotUpgraded, Upgrade, UpgradeReader

SURFACE: Final = "websocket"
FRAMES_A_TURN: Final = 128
"""Fragments and control frames of one connection that are looked at before others have their turn: a millisecond."""
IDLE_FRAMES_MAX: Final = 256
"""Pings, pongs and empty fragments within `IDLE_FRAMES_MS`, no message between them: clients send a few a minute."""
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
"""1011 where there is no row."""


class IdleFrames:
    """Frames that carry nothing: how many came since the last message, or since a while ago."""

    __slots__ = ("_count", "_since_ms")

    def __init__(self) -> None:
        self._count = 0
        self._since_ms = 0

    def too_many(self, now_ms: int) -> bool:
        """One more has come."""
        if now_ms - self._since_ms > IDLE_FRAMES_MS:
            self._count, self._since_ms = 0, now_ms
        self._count += 1
        return self._count > IDLE_FRAMES_MAX

    def message(self) -> None:
        self._count = 0


@dataclass(frozen=True, slots=True)
class Door:
    """What all connections of one port share."""

    hub: Hub
    origins: tuple[str, ...]
    here: bool
    """Only this machine can come in."""

    reframed: Reframed = field(default_factory=lambda: Reframed())


class WebSocketTransport(BudgetedProtocol):
    """One connection. A message is one frame of the protocol."""

    __slots__ = (
        "_asking",
        "_door",
        "_hub",
        "_idle",
        "_over",
        "_paused",
        "_reader",
        "_said_all",
        "_session",
        "_timer",
        "_transport",
        "_waits",
        "_why",
    )

    def __init__(self, door: Door) -> None:
        super().__init__(door.hub.read_budget)
        self._door = door
        self._hub = door.hub
        self._asking: UpgradeReader | None = UpgradeReader()
        """Until it is a WebSocket."""

        self._reader = WebSocketReader(0)
        self._idle = IdleFrames()
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._why = "closed by the client"
        self._over = False
        """It was refused, or said goodbye: whatever came after that is not looked at."""

        self._said_all = False
        self._paused = False
        """The hub wants nothing more of it for now."""

        self._waits = False
        """It has had its turn, and more of what it sent is to be looked at in the next."""

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        bound_queue(self._transport, self._hub.queued_high_bytes)  # type: ignore[arg-type]
        seconds = self._hub.limits.handshake_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if self._asking is not None:
            self._upgrade(self._asking, data)
        else:
            self._reader.receive_data(data)
            if not self._waits:
                self._take_turn()

    def eof_received(self) -> bool:
        """What it sent before is looked at before the connection is closed."""
        self._said_all = True
        return self._waits and self._transport is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.fell_behind()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.caught_up()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        session, self._session, self._transport = self._session, None, None
        self._over = True
        self._stop_timer()
        if session is not None and not session.ending:
            session.lost(self._why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # the upgrade

    def _upgrade(self, asking: UpgradeReader, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - it has just received something
        try:
            request = asking.receive_data(data)
            if request is None:
                return
            principal, answer = self._admitted(request), request.accepted()
        except NotUpgraded as refused:
            self._hub.broker.metrics.add("connection.rejected")
            self._over = True
            self._transport.write(refused.answer())
            self._transport.close()
            return
        self._stop_timer()
        self._asking = None
        self._transport.write(answer)
        self._open(principal)
        if asking.behind:
            self.data_received(asking.behind)

    def _open(self, principal: Principal) -> None:
        assert self._transport is not None  # noqa: S101 - it has just been written to
        address = peer_address(self._transport)
        self._session = self._hub.connect(self, address, principal=principal, surface=SURFACE)
        if self._session is not None:
            self._reader.bytes_max = self._session.message_bytes_max

    def _admitted(self, request: Upgrade) -> Principal:
        """Who opens it. Raises `NotUpgraded` for a page that may not, and for credentials that are no good."""
        assert self._transport is not None  # noqa: S101 - it has just received something
        access, whence = self._hub.access, Origin(SURFACE, peer_address(self._transport))
        origin = request.header("Origin")
        if not origin_allowed(origin, request.header("Host"), self._door.origins, here=self._door.here):
            note_page(access, whence, OTHER_SITE)
            raise NotUpgraded(HTTPStatus.FORBIDDEN, f"Origin {origin!r} is not allowed: list it with --ws-origin")
        if not access.enabled:
            return ANONYMOUS
        try:
            token = shown_token(access, request.header("Authorization"), request.header("X-API-Key"), whence)
            if token is None:
                return certified(certificate_name(self._transport))
            return access.authenticate(token, whence)
        except Unauthorized as error:
            raise NotUpgraded(HTTPStatus.UNAUTHORIZED, error.message) from None

    # frames

    def _take_turn(self) -> None:
        """Look at what it sent, as far as its turn goes; the rest in the next."""
        self._waits = False
        for _ in range(FRAMES_A_TURN):
            event = None if self._over else self._reader.next_event()
            if event is None:
                break
            self._happened(event)
        else:
            self._wait_for_turn()
            return
        if self._said_all and self._transport is not None:
            self._transport.close()
        elif self._session is not None and (self._reader.wanted_bytes or self._session.is_counted):
            self._hub.update_reading(self._session)

    def _wait_for_turn(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._waits = True
            self._transport.pause_reading()
            if self._session is not None:
                self._session.measure()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._take_turn()
        if not self._waits and not self._paused:
            self.resume_reading()

    def _happened(self, event: Event) -> None:
        match event:
            case Messages(frames):
                self._idle.message()
                self._received(frames)
            case Part(size):
                if not size:
                    self._count()
            case Ping(payload):
                self._pong(payload)
                self._sign_of_life()
            case Pong():
                self._sign_of_life()
            case Farewell(code, reason):
                self._refuse(code, reason)

    def _received(self, frames: bytes) -> None:
        session = self._session
        if session is not None:
            session.received(frames)
            self._reader.bytes_max = session.message_bytes_max

    def _pong(self, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes((0x80 | wire.PONG, len(payload))) + payload)

    def _sign_of_life(self) -> None:
        self._count()
        if self._session is not None:
            self._session.heard()

    def _count(self) -> None:
        """A frame that carries nothing costs as much as a message, and nothing bounds how many fit into a read."""
        if self._idle.too_many(self._hub.now_ms()):
            seconds = IDLE_FRAMES_MS // 1000
            idle = f"more than {IDLE_FRAMES_MAX} pings, pongs or empty fragments in {seconds} s, and no message"
            self._hub.broker.metrics.add("flood.ended")
            self._refuse(wire.POLICY_VIOLATION, idle)

    def _refuse(self, code: int, why: str) -> None:
        """What the WebSocket protocol itself forbids, it also answers itself. What came before is answered first."""
        self._why = why or self._why
        self._say_goodbye(code, why)

    def _say_goodbye(self, code: int, why: str) -> None:
        if self._over or self._transport is None or self._transport.is_closing():
            return
        self._over = True
        whole = why.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")  # no half of a character
        said = code.to_bytes(2, "big") + whole.encode()
        self._transport.write(bytes((0x80 | wire.CLOSE, len(said))) + said)
        self._transport.close()

    # what the hub calls

    def write(self, frames: bytes) -> None:
        """All of them as one write."""
        if self._transport is not None and not self._over and not self._transport.is_closing():
            self._transport.write(self._door.reframed(frames))

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
        if not self._waits and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, reason: PenstockError) -> None:
        self._say_goodbye(_CLOSE_CODES.get(reason.code, _INTERNAL_ERROR), reason.message)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Reframed:
    """TCP frames as WebSocket frames. One delivery to many is done once: they all hold the same bytes."""

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


def origin_allowed(origin: str | None, asked: str | None, allowed: tuple[str, ...], *, here: bool) -> bool:
    """A browser says which page opens the connection, and which host it asked. Programs say nothing, and may.

    A broker that listens only here (on this machine) takes pages of this machine, by their own names: any other name
    may be made to point here. One that listens for others takes pages of the host that was asked. Other pages must be
    listed: otherwise every page a person looks at could talk to the broker on that person's machine.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        page, host = urlsplit(origin).hostname, urlsplit(f"//{asked or ''}").hostname
    except ValueError:
        return False
    if page is None:
        return False
    return (is_loopback(page) and is_loopback(host or "")) if here else page == host


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
        partial(WebSocketTransport, Door(hub, origins, is_loopback(host))),
        host,
        port,
        tls=tls,
        handshake_seconds=hub.limits.handshake_ms / 1000,
        refusal=partial(_refusal, hub),
        descriptors=descriptors,
    )


def _refusal(hub: Hub) -> bytes:
    hub.broker.metrics.add("connection.rejected")
    return NotUpgraded(HTTPStatus.SERVICE_UNAVAILABLE, no_files().message).answer()
