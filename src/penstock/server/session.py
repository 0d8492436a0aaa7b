"""A session: one connection as the hub knows it, and how much of it may wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.broker.access.policy import ANONYMOUS
from penstock.broker.base.effects import Effect
from penstock.broker.live.connections import Client
from penstock.protocol.batch_reader import BatchReader
from penstock.protocol.frames import FrameLimits
from penstock.server.transport import Transport

if TYPE_CHECKING:
    from penstock.server.hub import Hub

_OPEN_WORK: Final = 32
"""Things that one connection asked for and that wait for the catalog: those of all others wait behind them."""
_UNSTORED_BYTES: Final = 4 * 1024 * 1024
"""Of one connection on their way to the disk: past this nothing more is read from it, as a group holds no more."""
_UNSTORED_BYTES_ALL: Final = 16 * 1024 * 1024
"""Of all connections: some groups. Nobody may have more than half of what the others leave of it, so that whoever sends
little does not wait behind megabytes of each who sends much. One message of each is always taken."""
_UNAUTHENTICATED_LIMITS: Final = FrameLimits(payload_bytes_max=64 * 1024)
"""Of a connection that has yet to say who it is: a token, and no megabytes that would wait in memory."""
UNAUTHENTICATED_MESSAGES_MAX: Final = 64
"""Messages of such a connection: one says who it is, and a person who types may be wrong some times."""


class Session:
    """One connection: its stream, its reader, and what the broker knows of it."""

    __slots__ = (
        "_drained",
        "_moved_ms",
        "_written",
        "behind",
        "client",
        "ending",
        "handled_bytes",
        "hub",
        "lost_reason",
        "open_work",
        "pending_reads",
        "reader",
        "restricted",
        "share",
        "stalled",
        "suspended",
        "timer",
        "transport",
        "turn",
        "unauthenticated_messages",
        "unstored_bytes",
        "waiters",
        "waiting_bytes",
        "waits_for",
    )

    def __init__(self, hub: Hub, transport: Transport, client: Client) -> None:
        self.hub = hub
        self.transport = transport
        self.client = client
        self.restricted = hub.access.enabled and client.principal is ANONYMOUS
        """Nobody has said who it is: little is read of it."""

        limits, scratch = (
            (_UNAUTHENTICATED_LIMITS, hub.unauthenticated_scratch)
            if self.restricted
            else (hub.frame_limits, hub.scratch)
        )
        self.reader = BatchReader(limits, scratch)
        self.share = hub.buffers.open(unauthenticated=self.restricted)
        self.pending_reads: deque[bytes] = deque()
        """What it sent and has not been looked at yet."""

        self.turn: Iterator[list[Effect]] | None = None
        """What is being handled."""

        self.handled_bytes = 0
        """The size of the read that is being handled."""

        self.waiting_bytes = 0
        """Of its reads, counted against the read budget: what waited for its turn when that was last looked at."""

        self.unauthenticated_messages = 0
        """Messages that were handled before it was known who it is."""

        self.lost_reason: str | None = None
        """Why it is gone, although not all that it sent has been handled."""

        self.unstored_bytes = 0
        """Of what it sent, on the way to the disk."""

        self.suspended = False
        """What it sent is not looked at until some of what it waits for is done."""

        self.open_work = 0
        """Of what it asked for, what waits for the catalog or a read."""

        self.ending = False
        self.behind = False
        """More is queued than should be; whoever sends to it waits a little."""

        self.stalled = False
        """It was waited for in vain. Until it has caught up nobody waits for it again."""

        self.waiters: set[Session] = NO_SESSIONS
        """Publishers that wait for this one."""

        self.waits_for: set[Session] = NO_SESSIONS
        self.timer: asyncio.TimerHandle | None = None
        """The end of its wait, for all of them together."""

        self._written = 0
        self._drained = 0
        self._moved_ms = 0

    @property
    def is_backlogged(self) -> bool:
        """So much of what it sent waits for the disk, or of what it is sent for it to read, that nothing more is read
        from it."""
        fair = max(0, _UNSTORED_BYTES_ALL - self.hub.unstored_bytes) // 2
        if self.unstored_bytes > min(_UNSTORED_BYTES, fair) or self.open_work > _OPEN_WORK:
            return True
        return self.hub.buffers.must_drain_first(self.share)

    @property
    def is_unauthenticated(self) -> bool:
        """Nobody has said who it is, and somebody has to."""
        return self.restricted and self.client.principal is ANONYMOUS

    @property
    def message_bytes_max(self) -> int:
        """The longest message it may send now."""
        return (_UNAUTHENTICATED_LIMITS if self.is_unauthenticated else self.hub.frame_limits).frame_bytes_max

    def partial_message(self) -> tuple[int, int]:
        """Of a message that is not all there: the bytes it takes, and those that are there. Of a stranger also what
        has been read and waits for its turn."""
        reader, transport, unread = self.reader, self.transport, self._unhandled_bytes() if self.restricted else 0
        return (
            reader.wanted_bytes + transport.wanted_bytes() + unread,
            reader.held_bytes + transport.held_bytes() + unread,
        )

    def _unhandled_bytes(self) -> int:
        return self.transport.unread_bytes() + self.handled_bytes + sum(map(len, self.pending_reads))

    @property
    def is_counted(self) -> bool:
        """Something that it sent counted against a budget when it was last measured."""
        return bool(self.share.partial_bytes or self.waiting_bytes)

    def measure(self) -> None:
        """Count what it holds: messages that have come in part, and reads that wait for their turn."""
        if self.ending:
            return
        if not self.restricted and (self.busy or self.waiting_bytes or self.transport.unread_bytes()):
            self._count_reads()
        wanted, share = self.reader.wanted_bytes + self.transport.wanted_bytes(), self.share
        if self.restricted or wanted != share.partial_bytes or share.waits_for_room:
            self.hub.buffers.measure(self, *self.partial_message())

    def _count_reads(self) -> None:
        """Count the reads that wait for their turn against the read budget."""
        waiting = self._unhandled_bytes()
        self.hub.read_budget.add(waiting - self.waiting_bytes)
        self.waiting_bytes = waiting

    def drop_reads(self) -> None:
        """Free the reads that wait for their turn: the connection is over, and nothing of them is handled."""
        self.turn, self.handled_bytes = None, 0
        self.pending_reads.clear()
        self.hub.read_budget.add(-self.waiting_bytes)
        self.waiting_bytes = 0

    def output(self) -> tuple[int, int]:
        """What was ever sent to it and has gone, and what still waits."""
        queued = self.transport.queued_bytes()
        return self._written - queued, queued

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self.pending_reads)

    def received(self, data: bytes) -> None:
        if not self.ending:
            self.hub.received(self, data)

    def send(self, frames: bytes, now_ms: int) -> None:
        """Write, and see whether anything of what was written before has gone since."""
        queued = self.transport.queued_bytes()
        drained = self._written - queued
        if drained != self._drained or not queued:
            self._drained, self._moved_ms = drained, now_ms
        self._written += len(frames)
        self.hub.buffers.record_queued(self.share, queued + len(frames))
        self.transport.write(frames)

    def worth_waiting_for(self, now_ms: int) -> bool:
        """It is behind, and it moves: whoever has taken nothing for long will not take anything soon."""
        moving = now_ms - self._moved_ms < self.hub.limits.output_wait_ms
        return self.behind and moving and not self.stalled and not self.ending

    def heard(self) -> None:
        """A sign of life that is no message; the stream may have answered it itself."""
        self.hub.broker.heard(self.client, self.hub.now_ms())
        if self.behind:
            self.hub.end_if_too_slow(self)

    def fell_behind(self) -> None:
        self.behind = True

    def caught_up(self) -> None:
        self.behind = self.stalled = False
        self.hub.release(self)

    def lost(self, reason: str) -> None:
        """The connection is gone, or has said all it had to say. What it sent before that is still handled."""
        self.lost_reason = reason
        if not self.busy:
            self.hub.finish(self, reason)


NO_SESSIONS: Final[set[Session]] = set()
"""Shared by all who wait for nobody; never added to."""
