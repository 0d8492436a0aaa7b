"""The seam: what a session needs of a transport. TCP, WebSocket and a test all look like this."""

from __future__ import annotations

from typing import Protocol

from penstock.core.errors import PenstockError


class Stream(Protocol):
    def write(self, frames: bytes) -> None:
        """Queue whole frames, as TCP carries them. Never blocks, never fails: what cannot be sent ends the stream."""
        ...

    def queued_bytes(self) -> int:
        """Not yet taken by the operating system."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: PenstockError) -> None:
        """Send what is queued, then end."""
        ...

    def abort(self) -> None:
        """End now."""
        ...
