"""The seam: what a session needs of a transport. TCP, WebSocket and a test all look like this."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import PenstockError


class Transport(Protocol):
    def write(self, frames: bytes) -> None:
        """Queue whole frames, as TCP carries them. Never blocks, never fails: what cannot be sent ends the stream."""
        ...

    def queued_bytes(self) -> int:
        """Not yet taken by the operating system."""
        ...

    def wanted_bytes(self) -> int:
        """What the stream itself is going to hold of a message that has begun to come: nothing, on TCP."""
        ...

    def held_bytes(self) -> int:
        """As much of that as is there."""
        ...

    def unread_bytes(self) -> int:
        """What the stream itself has read and not yet looked at: nothing, on TCP."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: PenstockError) -> None:
        """Send what is queued, then end."""
        ...

    def abort(self) -> None:
        """End now."""
        ...
