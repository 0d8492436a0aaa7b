"""The read budget: limits the bytes that were read from the sockets of all connections and wait for their turn.

A connection is not read while a part of its last read waits, so it holds one read at most. As the budget fills, reads
become smaller: every connection still has its turns, with fewer bytes in each. No connection is ended because of this
budget, and one that sends little does not wait for those that send much.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.core.limits import KIB, MIB

READ_BYTES_MAX: Final = 256 * KIB
"""The largest read: the bytes that the event loop takes from a socket at a time."""
READ_BYTES_MIN: Final = 4 * KIB
"""The smallest read: some tens of messages, so that a turn is still worth its cost."""
WAITING_BYTES_MAX: Final = 32 * MIB
"""The bytes of waiting reads from which on all further reads have the smallest size: 128 of the largest reads, which
take a few turns of each connection."""
_ROOM_SHARE: Final = 16
"""The divisor for the size of a read: it takes at most a sixteenth of the room that is left."""


class ReadBudget:
    """The count of bytes that wait, and the buffer for the next read of any connection."""

    __slots__ = ("_whole", "buffer", "waiting_bytes")

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._whole = memoryview(bytearray(READ_BYTES_MAX))
        self.buffer = self._whole
        """The buffer for the next read; its length is the largest size that the read may have. All connections share
        it, because each read is copied out before the next one begins."""

    def add(self, size: int) -> None:
        """Count `size` more bytes as waiting (fewer if it is negative), and set the size of the next read."""
        self.waiting_bytes += size
        room = (WAITING_BYTES_MAX - self.waiting_bytes) // _ROOM_SHARE
        self.buffer = self._whole[: max(READ_BYTES_MIN, room)]


class BudgetedProtocol(asyncio.BufferedProtocol):
    """A connection whose reads are as large as the read budget allows."""

    __slots__ = ("_reads",)

    def __init__(self, reads: ReadBudget) -> None:
        self._reads = reads

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the budget decides
        return self._reads.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._reads.buffer[:nbytes].tobytes())

    def data_received(self, data: bytes) -> None:
        """Handle the bytes of one read."""
        raise NotImplementedError
