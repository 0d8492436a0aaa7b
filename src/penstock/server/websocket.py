"""WebSocket on picows. It leaves to us: fragments, reserved bits, whether text is text, Origin, a message's size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,
)

from penstock.broker.access import ANONYMOUS, Origin, Principal
from penstock.core.errors import Code, PenstockError, Unauthorized
from penstock.protocol.frames import LENGTH_BYTES
from penstock.record.frame_kernels import to_websocket
from penstock.record.hashing import as_array
from penstock.server.hub import Hub, Session
from penstock.server.security.credentials import OTHER_SITE, certificate_name, certified, note_page, shown_token
from penstock.server.settings import is_loopback
from penstock.server.tcp import bound_queue, peer_address

SURFACE: Final = "websocket"
_NOWHERE_YET: Final = Origin(SURFACE, "")
"""Of an upgrade: picows says whose it is only once it is open."""
_FRAME_HEAD_BYTES_MAX: Final = 10
_FRAME_BYTES_MIN: Final = LENGTH_BYTES + len("ack:a:1.0.0\n")
_REASON_BYTES_MAX: Final = 123
_NOT_TO_BE_SENT: Final = (1004, 1005, 1006, 1015)  # RFC 6455, 7.4.1: they mean that no code was sent
_READ_BUFFER_BYTES: Final = 4096  # picows grows it when needed; ten thousand idle connections must stay cheap
_CLOSE_CODES: Final = {
    Code.PAYLOAD_TOO_LARGE: WSCloseCode.MESSAGE_TOO_BIG,
    Code.QUOTA_EXCEEDED: WSCloseCode.POLICY_VIOLATION,
    Code.UNAUTHORIZED: WSCloseCode.POLICY_VIOLATION,
    Code.SERVICE_UNAVAILABLE: WSCloseCode.TRY_AGAIN_LATER,
    Code.TIMEOUT: WSCloseCode.GOING_AWAY,
}
"""1011 where there is no row."""


class WebSocketStream(WSListener):
    """One connection. A message is one frame of the protocol; those of one read are handled together."""

    def __init__(self, hub: Hub, reframed: Reframed, token: str | None = None) -> None:
        """`token`: who opens it, as the upgrade said; it was good a moment ago."""
        self._hub = hub
        self._token = token
        self._reframed = reframed
        self._session: Session | None = None
        self._transport: WSTransport | None = None
        self._complete: list[bytes] = []
        self._partial: bytearray | None = None
        self._text = False
        self._over = False
        """It was refused, or said goodbye: whatever came after that is not looked at."""

    # what picows calls

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        bound_queue(transport.underlying_transport, self._hub.queued_high_bytes)
        below = transport.underlying_transport
        principal = self._principal(below) if self._hub.access.enabled else ANONYMOUS
        self._session = self._hub.connect(self, peer_address(below), principal=principal, surface=SURFACE)

    def _principal(self, transport: asyncio.Transport) -> Principal:
        token, self._token = self._token, None
        if token is None:
            return certified(certificate_name(transport))
        try:
            return self._hub.access.authenticate(token, Origin(SURFACE, peer_address(transport)))
        except Unauthorized:
            return ANONYMOUS  # revoked between the upgrade and now: nothing is answered

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self._over:
            return
        kind = frame.msg_type
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._refuse(WSCloseCode.PROTOCOL_ERROR, "reserved bits are not in use")
        elif kind in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._part(kind, frame)
        elif kind == WSMsgType.CLOSE:
            self._goodbye(frame)
        else:
            self._sign_of_life(transport, frame)
        if frame.last_in_buffer and self._complete:
            self._flush()

    def _goodbye(self, frame: WSFrame) -> None:
        code = int.from_bytes(frame.get_payload_as_bytes()[:2], "big")
        if not frame.payload_size:
            self._refuse(WSCloseCode.OK, "")
        elif 1000 <= code < 5000 and code not in _NOT_TO_BE_SENT:
            self._refuse(code, "")
        else:
            self._refuse(WSCloseCode.PROTOCOL_ERROR, "not a close code")

    def _sign_of_life(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
        if self._session is not None:
            self._session.alive()

    def _part(self, kind: WSMsgType, frame: WSFrame) -> None:
        """A message, or a fragment of one."""
        if (kind == WSMsgType.CONTINUATION) != (self._partial is not None):
            self._refuse(WSCloseCode.PROTOCOL_ERROR, "fragments out of order")
            return
        if kind != WSMsgType.CONTINUATION:
            self._text = kind == WSMsgType.TEXT
        if self._partial is None and frame.fin:
            self._message(frame.get_payload_as_bytes())
            return
        self._partial = self._partial or bytearray()
        self._partial += frame.get_payload_as_memoryview()
        if len(self._partial) > self._hub.frame_limits.frame_bytes_max:
            self._refuse(WSCloseCode.MESSAGE_TOO_BIG, "message too large")
        elif frame.fin:
            whole, self._partial = bytes(self._partial), None
            self._message(whole)

    def _message(self, payload: bytes) -> None:
        if self._text and not _is_text(payload):
            self._refuse(WSCloseCode.INVALID_TEXT, "a text message must be UTF-8; send binary for anything else")
            return
        self._complete.append(len(payload).to_bytes(LENGTH_BYTES, "big"))
        self._complete.append(payload)

    def _flush(self) -> None:
        data = b"".join(self._complete)
        self._complete.clear()
        if self._session is not None:
            self._session.received(data)

    def _refuse(self, code: WSCloseCode | int, why: str) -> None:
        """What the WebSocket protocol itself forbids, it also answers itself. What came before is answered first."""
        if self._complete:
            self._flush()
        self._over = True
        if self._transport is not None:
            self._transport.send_close(code, why.encode())  # type: ignore[arg-type]
            self._transport.disconnect()

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.fell_behind()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.caught_up()

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        session, self._session, self._transport = self._session, None, None
        if session is not None and not session.ending:
            session.lost("closed by the client")

    # what the hub calls

    def write(self, frames: bytes) -> None:
        """All of them as one write: picows itself would make one system call each."""
        transport = self._transport
        if transport is not None and not transport.is_close_frame_sent and not transport.is_disconnected:
            transport.underlying_transport.write(self._reframed(frames))

    def queued_bytes(self) -> int:
        if self._transport is None:
            return 0
        size: int = self._transport.underlying_transport.get_write_buffer_size()
        return size

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_disconnected:
            self._transport.underlying_transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_disconnected:
            self._transport.underlying_transport.resume_reading()

    def close(self, reason: PenstockError) -> None:
        if self._transport is not None and not self._transport.is_disconnected:
            code = _CLOSE_CODES.get(reason.code, WSCloseCode.INTERNAL_ERROR)
            self._transport.send_close(code, reason.message.encode()[:_REASON_BYTES_MAX])
            self._transport.disconnect()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.underlying_transport.abort()


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


def _is_text(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


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


def _refusal(
    hub: Hub, request: WSUpgradeRequest, origins: tuple[str, ...], *, here: bool
) -> tuple[HTTPStatus, str] | None:
    """What an upgrade is refused with; None where it is welcome."""
    if request.headers.get("Sec-WebSocket-Version") != "13":
        return HTTPStatus.UPGRADE_REQUIRED, "This port speaks WebSocket, version 13"
    origin = request.headers.get("Origin")
    if not origin_allowed(origin, request.headers.get("Host"), origins, here=here):
        note_page(hub.access, _NOWHERE_YET, OTHER_SITE)
        return HTTPStatus.FORBIDDEN, f"Origin {origin!r} is not allowed: list it with --ws-origin"
    return None


def _credentials(hub: Hub, request: WSUpgradeRequest) -> tuple[str | None, tuple[HTTPStatus, str] | None]:
    """What the upgrade says of who asks, if it does; and why that is refused, if it is."""
    try:
        given = request.headers.get("Authorization"), request.headers.get("X-API-Key")
        token = shown_token(hub.access, *given, _NOWHERE_YET)
        if token is not None:
            hub.access.authenticate(token, _NOWHERE_YET)
    except Unauthorized as error:
        return None, (HTTPStatus.UNAUTHORIZED, error.message)
    return token, None


def _router(hub: Hub, origins: tuple[str, ...], *, here: bool) -> Callable[[WSUpgradeRequest], object]:
    reframed = Reframed()

    def route(request: WSUpgradeRequest) -> object:
        refused = _refusal(hub, request, origins, here=here)
        token = None
        if refused is None and hub.access.enabled:
            token, refused = _credentials(hub, request)
        if refused is None:
            return WebSocketStream(hub, reframed, token)
        hub.broker.metrics.add("connection.rejected")
        status, said = refused
        answer = WSUpgradeResponse.create_error_response(
            status, f"{said}\n".encode(errors="replace"), {"Sec-WebSocket-Version": "13"}
        )
        return WSUpgradeResponseWithListener(answer, None)

    return route


async def listen(
    hub: Hub, host: str, port: int, tls: ssl.SSLContext | None, *, origins: tuple[str, ...] = ()
) -> asyncio.Server:
    handshake = hub.limits.handshake_ms / 1000
    secure: dict[str, Any] = (
        {"ssl": tls, "ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": 1.0} if tls else {}
    )
    return await ws_create_server(
        _router(hub, origins, here=is_loopback(host)),  # type: ignore[arg-type]
        host,
        port,
        websocket_handshake_timeout=handshake,
        enable_auto_pong=False,  # it would keep from us that a ping was the last frame of a read
        max_frame_size=hub.frame_limits.frame_bytes_max,
        read_buffer_init_size=_READ_BUFFER_BYTES,
        use_aiofastnet=False,  # the same transports, with the same queues, as TCP
        backlog=1024,
        **secure,
    )
