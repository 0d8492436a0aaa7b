"""The transport: the interface between a session and its connection. TCP, WebSocket and a test double implement it."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import PenstockError


class Transport(Protocol):
    def write(self, frames: bytes) -> None:
        """Queue whole frames, as TCP carries them. Never blocks and never fails: a transport that cannot send them
        ends."""
        ...

    def queued_bytes(self) -> int:
        """Return the bytes that the operating system has not taken yet."""
        ...

    def wanted_bytes(self) -> int:
        """Return the size of the incomplete message that the transport itself is collecting: 0 on TCP."""
        ...

    def held_bytes(self) -> int:
        """Return how many bytes of that message are there."""
        ...

    def unread_bytes(self) -> int:
        """Return the bytes that the transport itself has read and not handled yet: 0 on TCP."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: PenstockError) -> None:
        """Send queued output, then end."""
        ...

    def abort(self) -> None:
        """End at once."""
        ...
