"""A transport without a socket, for tests: it records what a session writes."""

from __future__ import annotations

from penstock.core.errors import PenstockError
from penstock.protocol.frames import Frame, FrameReader, RejectedFrame


class ScriptedStream:
    """A stand-in for TCP or a WebSocket. `queued` counts the bytes written; a test lowers it to act as a client that
    reads."""

    def __init__(self) -> None:
        self.written = b""
        self.queued = 0
        self.reading = True
        self.closed: PenstockError | None = None
        self.aborted = False

    def write(self, frames: bytes) -> None:
        self.written += frames
        self.queued += len(frames)

    def queued_bytes(self) -> int:
        return self.queued

    def wanted_bytes(self) -> int:
        return 0

    def held_bytes(self) -> int:
        return 0

    def unread_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self, reason: PenstockError) -> None:
        self.closed = reason

    def abort(self) -> None:
        self.aborted = True
        self.queued = 0

    def taken(self) -> list[Frame]:
        """Return the frames written since the last call. Raises the error of a frame that is invalid."""
        reader = FrameReader()
        reader.receive_data(self.written)
        self.written = b""
        frames = []
        while (item := reader.next_frame()) is not None:
            if isinstance(item, RejectedFrame):
                raise item.error
            frames.append(item)
        return frames
