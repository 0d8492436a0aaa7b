"""Frames: one message each. On TCP a 4-byte big-endian length stands before it; on a WebSocket it is one message.

Plain Python, for clients; the broker reads whole chunks at once (`batch_reader`). Both give the same frames.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.errors import MalformedMessage, PayloadTooLarge, PenstockError
from penstock.core.limits import MIB, REQUEST_TIMEOUT_MS_CEILING
from penstock.protocol.actions import ACTION_RULES, Action
from penstock.protocol.header import (
    HEADER_BYTES_MAX,
    NO_HEADER,
    SALVAGE_BYTES_MAX,
    Header,
    SalvagedHeader,
    parse_header,
    salvage,
    serialise,
)

LENGTH_BYTES: Final = 4


class Frame(NamedTuple):
    """A valid message: its parsed header, and its payload."""

    header: Header
    payload: bytes


class RejectedFrame(NamedTuple):
    """An invalid message and its error. After a `fatal` one nothing more can be read: nobody knows where the next frame
    begins."""

    error: PenstockError
    salvage: SalvagedHeader
    fatal: bool = False


class FrameLimits(NamedTuple):
    """The sizes and timeouts that a reader accepts."""

    payload_bytes_max: int = 1 * MIB
    timeout_ms_max: int = REQUEST_TIMEOUT_MS_CEILING
    block_bytes_max: int = 0
    """The largest payload, in bytes, of actions that carry blocks, if that is more than `payload_bytes_max`."""

    @property
    def frame_bytes_max(self) -> int:
        """The longest possible frame: the longest header, its newline, the largest payload."""
        return HEADER_BYTES_MAX + 1 + max(self.payload_bytes_max, self.block_bytes_max)

    def payload_bytes(self, action: Action) -> int:
        """Return the largest payload of a message with this action."""
        return max(self.payload_bytes_max, self.block_bytes_max if ACTION_RULES[action].carries_block else 0)


def encode_frame(header: Header, payload: bytes | bytearray | memoryview) -> bytes:
    """Return a message as a frame for TCP: its length, the header, a newline, the payload."""
    return frame_bytes(serialise(header), payload)


def frame_bytes(header: bytes, payload: bytes | bytearray | memoryview) -> bytes:
    """Return a message as a frame for TCP, as `encode_frame` does, from a header that is bytes already."""
    return b"".join(((len(header) + 1 + len(payload)).to_bytes(LENGTH_BYTES, "big"), header, b"\n", payload))


def parse_message(message: bytes, limits: FrameLimits) -> Frame | RejectedFrame:
    """Parse a message without its length. Raises nothing: an invalid message gives a `RejectedFrame`."""
    newline = message.find(b"\n", 0, HEADER_BYTES_MAX + 1)
    if newline < 0:
        return RejectedFrame(_no_newline(message), salvage(message[:SALVAGE_BYTES_MAX].partition(b"\n")[0]))
    raw = message[:newline]
    try:
        header = parse_header(raw, timeout_ms_max=limits.timeout_ms_max)
        check_payload(len(message) - newline - 1, limits, header.action)
    except PenstockError as error:
        return RejectedFrame(error, salvage(raw))
    return Frame(header, message[newline + 1 :])


def _no_newline(message: bytes) -> MalformedMessage:
    if not message:
        return MalformedMessage("Empty message: expected a header, a newline and a payload", field="header")
    if len(message) > HEADER_BYTES_MAX:
        return MalformedMessage(
            f"Header too long: no newline in the first {HEADER_BYTES_MAX + 1} bytes",
            field="header",
            expected=f"at most {HEADER_BYTES_MAX} bytes and a newline",
        )
    return MalformedMessage("No newline after the header", field="header", expected="a newline, also before no payload")


def check_payload(size: int, limits: FrameLimits, action: Action) -> None:
    """Raise `PayloadTooLarge` if a payload is larger than its action allows."""
    most = limits.payload_bytes(action)
    if size > most:
        raise PayloadTooLarge(
            f"Payload of {size} bytes is larger than the limit of {most}", bytes=size, payload_bytes_max=most
        )


def oversized_frame(size: int, after: bytes, limits: FrameLimits) -> RejectedFrame:
    """Return the fatal rejection of a frame whose length, `size`, is too large. `after` is what was received behind the
    length: the answer is addressed to the header in it, if there is a whole one."""
    error = PayloadTooLarge(
        f"Frame of {size} bytes is larger than the limit of {limits.frame_bytes_max}; closing the connection",
        bytes=size,
        frame_bytes_max=limits.frame_bytes_max,
    )
    raw, newline, _ = after[: HEADER_BYTES_MAX + 1].partition(b"\n")
    return RejectedFrame(error, salvage(raw) if newline else NO_HEADER, fatal=True)


class FrameReader:
    """A protocol reader in plain Python: it takes bytes in pieces of any size and returns frames."""

    def __init__(self, limits: FrameLimits = FrameLimits()) -> None:  # noqa: B008  immutable
        self._limits = limits
        self._buffer = bytearray()
        self._position = 0
        self._failed: RejectedFrame | None = None

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        if self._failed is None:
            del self._buffer[: self._position]
            self._position = 0
            self._buffer += data

    def next_frame(self) -> Frame | RejectedFrame | None:
        """Return the next frame or rejection; None if it is not complete yet. After a fatal rejection every call
        returns that one."""
        if self._failed is not None:
            return self._failed
        start = self._position + LENGTH_BYTES
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._position : start], "big")
        if size > self._limits.frame_bytes_max:
            self._failed = oversized_frame(
                size, bytes(self._buffer[start : start + HEADER_BYTES_MAX + 1]), self._limits
            )
            self._buffer.clear()
            return self._failed
        if len(self._buffer) < start + size:
            return None
        self._position = start + size
        return parse_message(bytes(self._buffer[start : self._position]), self._limits)
