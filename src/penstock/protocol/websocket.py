"""WebSocket frames (RFC 6455) as a server reads them: from bytes to messages and control events.

Most messages are one frame. A kernel unmasks many of these at once, and they come out framed as on TCP. Fragments,
control frames and violations are handled one at a time, so that the caller can count them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.protocol.frames import LENGTH_BYTES
from penstock.record.hashing import as_array
from penstock.record.kernels import frame_kernels as at

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_OPCODES: Final = (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
_WHOLE: Final = (0x80 | TEXT, 0x80 | BINARY)
_CONTROL_BYTES_MAX: Final = 125
_MORE_SIZE_BYTES: Final = {126: 2, 127: 8}
"""The number of bytes that encode the size, for each of the two flags that stand in place of a size."""
_NOT_TO_BE_SENT: Final = (1004, 1005, 1006, 1015)  # RFC 6455, 7.4.1: they mean that no code was sent

OK: Final = 1000
PROTOCOL_ERROR: Final = 1002
INVALID_TEXT: Final = 1007
POLICY_VIOLATION: Final = 1008
MESSAGE_TOO_BIG: Final = 1009


class WholeMessages(NamedTuple):
    """One or more whole messages, framed as on TCP."""

    frames: bytes


class MessagePart(NamedTuple):
    """A fragment that is not the last of its message."""

    size: int


class Ping(NamedTuple):
    payload: bytes


class Pong(NamedTuple):
    payload: bytes


class ConnectionEnd(NamedTuple):
    """The end of the connection, with the code and reason for the close frame to be sent. Later bytes are ignored."""

    code: int
    reason: str = ""


WebSocketEvent = WholeMessages | MessagePart | Ping | Pong | ConnectionEnd


class _FrameHead(NamedTuple):
    fin: bool
    reserved: int
    opcode: int
    masked: bool
    flag: int
    """The size if it is below 126; otherwise 126 or 127, which means that the size follows in 2 or 8 bytes."""

    size: int
    payload_at: int

    @property
    def is_control(self) -> bool:
        return self.opcode >= CLOSE


class WebSocketReader:
    """A reader of a client's bytes, in pieces of any size. Take all events before passing the next bytes."""

    __slots__ = ("_data", "_half", "_need", "_over", "_position", "_rest", "_state", "_text", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """The most bytes of a message. A fragment that would exceed it is refused as soon as its head has arrived."""

        self._data = b""
        self._position = 0
        self._rest = bytearray()
        self._need = 0
        self._half: bytearray | None = None
        self._text = False
        self._over = False
        self._state = np.zeros(1, np.int64)

    @property
    def held_bytes(self) -> int:
        """Bytes held of an incomplete message: its earlier fragments, and the incomplete frame."""
        return len(self._rest) + len(self._half or b"")

    @property
    def wanted_bytes(self) -> int:
        """The bytes held once the current frame is complete, as far as its size is known; 0 if no message has begun."""
        return max(self._need, len(self._rest)) + len(self._half or b"")

    @property
    def unread_bytes(self) -> int:
        """Bytes of received frames that are not parsed yet."""
        return len(self._data) - self._position

    def receive_data(self, data: bytes) -> None:
        """Add bytes. A frame in many pieces is parsed when its last piece arrives."""
        if self._position < len(self._data):
            data = self._data[self._position :] + data
        elif self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return
            data = bytes(self._rest)
            self._rest, self._need = bytearray(), 0
        self._data, self._position = data, 0

    def next_event(self) -> WebSocketEvent | None:
        """Return the next event; None if the next frame is not complete yet or the connection has ended."""
        if self._over or self._position >= len(self._data):
            self._data, self._position = b"", 0
            return None
        if self._half is None and self._data[self._position] in _WHOLE:
            room = np.empty(len(self._data) - self._position, np.uint8)
            sizes = self._position, self.bytes_max
            written = at.from_websocket(as_array(self._data), *sizes, room, self._state)
            self._position = int(self._state[0])
            if written:
                return WholeMessages(room[:written].tobytes())
        return self._look()

    def _look(self) -> WebSocketEvent | None:
        """Parse the next frame and return its event; None if it is incomplete."""
        head = self._head()
        if head is None:
            self._wait(0)
            return None
        if (wrong := _broken_rule(head)) or (wrong := self._out_of_order(head)):
            return self._end(PROTOCOL_ERROR, wrong)
        if not head.is_control and len(self._half or b"") + head.size > self.bytes_max:
            return self._end(MESSAGE_TOO_BIG, "message too large")
        if head.payload_at + head.size > len(self._data):
            self._wait(head.payload_at + head.size - self._position)
            return None
        room = np.empty(head.size, np.uint8)
        at.unmask(as_array(self._data), head.payload_at, head.size, room)
        self._position = head.payload_at + head.size
        return self._control(head, room.tobytes()) if head.is_control else self._part(head, room)

    def _head(self) -> _FrameHead | None:
        """Parse a frame's head; return None if it is incomplete."""
        data, position = self._data, self._position
        if len(data) < position + 2:
            return None
        first, second = data[position], data[position + 1]
        flag, masked = second & 0x7F, bool(second & 0x80)
        more = _MORE_SIZE_BYTES.get(flag, 0)
        start = position + 2 + more + (at.MASK_BYTES if masked else 0)
        if len(data) < start:
            return None
        size = int.from_bytes(data[position + 2 : position + 2 + more], "big") if more else flag
        return _FrameHead(bool(first & 0x80), first >> 4 & 7, first & 0xF, masked, flag, size, start)

    def _out_of_order(self, head: _FrameHead) -> str:
        """Return the violation if a new message begins before the last fragment of another, or a fragment continues no
        message; "" if there is none."""
        wrong = not head.is_control and (head.opcode == CONTINUATION) != (self._half is not None)
        return "fragments out of order" if wrong else ""

    def _wait(self, need: int) -> None:
        """Keep the bytes of an incomplete frame until `need` bytes are there; 0 means that its size is unknown."""
        self._rest, self._need = bytearray(memoryview(self._data)[self._position :]), need
        self._data, self._position = b"", 0

    def _end(self, code: int, reason: str = "") -> ConnectionEnd:
        self._over = True
        self._data, self._rest, self._half = b"", bytearray(), None
        return ConnectionEnd(code, reason)

    def _control(self, head: _FrameHead, payload: bytes) -> WebSocketEvent:
        if head.opcode == PING:
            return Ping(payload)
        if head.opcode == PONG:
            return Pong(payload)
        return self._end(*_answer_to_close(payload))

    def _part(self, head: _FrameHead, payload: Any) -> WebSocketEvent:
        if head.opcode != CONTINUATION:
            self._text = head.opcode == TEXT
            self._half = bytearray()
        half = self._half if self._half is not None else bytearray()
        half += memoryview(payload)
        if not head.fin:
            return MessagePart(head.size)
        whole, self._half = bytes(half), None
        if self._text and not _is_text(whole):
            return self._end(INVALID_TEXT, "a text message must be UTF-8; send binary for anything else")
        return WholeMessages(len(whole).to_bytes(LENGTH_BYTES, "big") + whole)


def _broken_rule(head: _FrameHead) -> str:
    """Return the rule of the RFC that a frame's head violates; "" if it violates none."""
    if head.reserved:
        return "reserved bits are not in use"
    if head.opcode not in _OPCODES:
        return f"there is no opcode {head.opcode}"
    if not head.masked:
        return "what a client sends is masked"
    if head.is_control and (not head.fin or head.flag > _CONTROL_BYTES_MAX):
        return "a control frame is one frame of at most 125 bytes"
    if (head.flag == 126 and head.size < 126) or (head.flag == 127 and not 0xFFFF < head.size < 1 << 63):
        return "a length in more bytes than it takes, or in too many"
    return ""


def _answer_to_close(payload: bytes) -> tuple[int, str]:
    """Return code and reason of the answer to a close frame: the client's own code, or an error if that is invalid."""
    if not payload:
        return OK, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not 1000 <= code < 5000 or code in _NOT_TO_BE_SENT:
        return PROTOCOL_ERROR, "not a close code"
    return (code, "") if _is_text(payload[2:]) else (INVALID_TEXT, "")


def _is_text(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
