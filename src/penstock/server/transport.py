"""The transport: the interface between a session and its connection. TCP, WebSocket and a test double implement it."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import PenstockError


class Transport(Protocol):
    def write(self, frames: bytes) -> None:
        """Queue `frames` to be sent: one or more whole frames, encoded as on TCP. Never blocks and never raises. If
        they cannot be sent, the transport ends its connection."""
        ...

    def queued_bytes(self) -> int:
        """Return the number of bytes that are queued here, because the operating system has not taken them yet."""
        ...

    def wanted_bytes(self) -> int:
        """Return the full size of the message that the transport is still collecting from pieces. 0 on TCP, where the
        session's frame reader does that."""
        ...

    def held_bytes(self) -> int:
        """Return how many bytes of the message in `wanted_bytes` have come."""
        ...

    def unread_bytes(self) -> int:
        """Return the number of bytes that the transport has read and not yet passed to the session. 0 on TCP."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: PenstockError) -> None:
        """Send the queued output, then close the connection. `reason` becomes the close code of a WebSocket."""
        ...

    def abort(self) -> None:
        """Close the connection at once, without sending the queued output."""
        ...
