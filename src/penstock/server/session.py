"""A session: one connection as the hub sees it, from the bytes that it sends to the output that waits for it.

It counts what the connection makes the broker hold (incomplete messages, unhandled reads, publishes that wait for the
disk, unsent output), so that the hub can decide when to read from it, when publishers should wait for it, and when it
has to go.
"""

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
"""Catalog changes and reads that one connection may have in the background: those of all others queue behind them."""
_UNSTORED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one connection on their way to the disk, past which it is not read: a commit group holds no more."""
_UNSTORED_BYTES_ALL: Final = 16 * 1024 * 1024
"""Bytes of all connections on their way to the disk: some commit groups. A connection may have at most half of what the
others leave of it, so that one that sends little does not wait behind megabytes of each that sends much. One message of
each is always taken."""
_UNAUTHENTICATED_LIMITS: Final = FrameLimits(payload_bytes_max=64 * 1024)
"""Frame limits before authentication: enough for a token, without megabytes that would wait in memory."""
UNAUTHENTICATED_MESSAGES_MAX: Final = 64
"""Messages before authentication: one is enough for a client, and a person who types may need several attempts."""


class Session:
    """A connection in the broker: its transport, its frame reader, its client, and what waits on its behalf."""

    __slots__ = (
        "_progress_ms",
        "_sent_bytes",
        "_taken_bytes",
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
        """True until the client authenticates: the strict limits apply."""

        limits, scratch = (
            (_UNAUTHENTICATED_LIMITS, hub.unauthenticated_scratch)
            if self.restricted
            else (hub.frame_limits, hub.scratch)
        )
        self.reader = BatchReader(limits, scratch)
        self.share = hub.buffers.open(unauthenticated=self.restricted)
        self.pending_reads: deque[bytes] = deque()
        """Reads that have not been handled yet."""

        self.turn: Iterator[list[Effect]] | None = None
        """The read that is being handled, as an iterator over the effects of its messages."""

        self.handled_bytes = 0
        """The size of the read that is being handled."""

        self.waiting_bytes = 0
        """Bytes of its reads that are counted against the read budget: those that waited at the last measurement."""

        self.unauthenticated_messages = 0
        """Messages handled before authentication."""

        self.lost_reason: str | None = None
        """The reason why the connection is gone, while its last reads are still being handled."""

        self.unstored_bytes = 0
        """Bytes of its publishes on their way to the disk."""

        self.suspended = False
        """True while its reads are not handled because of its backlog."""

        self.open_work = 0
        """Requests of its own that wait for the catalog, a read or a validation."""

        self.ending = False
        self.behind = False
        """True while its output queue is over the high-water mark; publishers wait a little for it."""

        self.stalled = False
        """True after publishers waited for it in vain: they wait again only once it has caught up."""

        self.waiters: set[Session] = NO_SESSIONS
        """Publishers that wait for this session."""

        self.waits_for: set[Session] = NO_SESSIONS
        self.timer: asyncio.TimerHandle | None = None
        """The end of its own wait, for all slow consumers together."""

        self._sent_bytes = 0
        self._taken_bytes = 0
        self._progress_ms = 0

    @property
    def is_backlogged(self) -> bool:
        """True while so many of its publishes wait for the disk, or so much output for its client to read, that it is
        not read."""
        fair = max(0, _UNSTORED_BYTES_ALL - self.hub.unstored_bytes) // 2
        if self.unstored_bytes > min(_UNSTORED_BYTES, fair) or self.open_work > _OPEN_WORK:
            return True
        return self.hub.buffers.must_drain_first(self.share)

    @property
    def is_unauthenticated(self) -> bool:
        """True while authentication is required and has not happened."""
        return self.restricted and self.client.principal is ANONYMOUS

    @property
    def message_bytes_max(self) -> int:
        """The longest message that it may send now."""
        return (_UNAUTHENTICATED_LIMITS if self.is_unauthenticated else self.hub.frame_limits).frame_bytes_max

    def partial_message(self) -> tuple[int, int]:
        """Return the size of the incomplete message, and the bytes of it that are there. Before authentication, both
        include reads that wait for their turn."""
        reader, transport, unread = self.reader, self.transport, self._unhandled_bytes() if self.restricted else 0
        return (
            reader.wanted_bytes + transport.wanted_bytes() + unread,
            reader.held_bytes + transport.held_bytes() + unread,
        )

    def _unhandled_bytes(self) -> int:
        return self.transport.unread_bytes() + self.handled_bytes + sum(map(len, self.pending_reads))

    @property
    def is_counted(self) -> bool:
        """True if the last measurement counted anything of it against a budget."""
        return bool(self.share.partial_bytes or self.waiting_bytes)

    def measure(self) -> None:
        """Count incomplete messages and waiting reads against their budgets."""
        if self.ending:
            return
        if not self.restricted and (self.busy or self.waiting_bytes or self.transport.unread_bytes()):
            self._count_reads()
        size, share = self.reader.wanted_bytes + self.transport.wanted_bytes(), self.share
        if self.restricted or size != share.partial_bytes or share.waits_for_room:
            self.hub.buffers.measure(self, *self.partial_message())

    def _count_reads(self) -> None:
        """Count the reads that wait for their turn against the read budget."""
        waiting = self._unhandled_bytes()
        self.hub.read_budget.add(waiting - self.waiting_bytes)
        self.waiting_bytes = waiting

    def drop_reads(self) -> None:
        """Free the reads that wait for their turn: the connection is over, and they are not handled."""
        self.turn, self.handled_bytes = None, 0
        self.pending_reads.clear()
        self.hub.read_budget.add(-self.waiting_bytes)
        self.waiting_bytes = 0

    def output(self) -> tuple[int, int]:
        """Return the bytes that were sent and have left the queue, and those that still wait in it."""
        queued = self.transport.queued_bytes()
        return self._sent_bytes - queued, queued

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self.pending_reads)

    def received(self, data: bytes) -> None:
        if not self.ending:
            self.hub.received(self, data)

    def send(self, frames: bytes, now_ms: int) -> None:
        """Write frames, and note the time if earlier output has left the queue since."""
        queued = self.transport.queued_bytes()
        taken = self._sent_bytes - queued
        if taken != self._taken_bytes or not queued:
            self._taken_bytes, self._progress_ms = taken, now_ms
        self._sent_bytes += len(frames)
        self.hub.buffers.record_queued(self.share, queued + len(frames))
        self.transport.write(frames)

    def worth_waiting_for(self, now_ms: int) -> bool:
        """Return whether it is behind but still reads: a client that has taken nothing for long will not do so soon."""
        moving = now_ms - self._progress_ms < self.hub.limits.output_wait_ms
        return self.behind and moving and not self.stalled and not self.ending

    def heard(self) -> None:
        """Record a sign of life that is no message; the transport may have answered it already."""
        self.hub.broker.note_activity(self.client, self.hub.now_ms())
        if self.behind:
            self.hub.end_if_too_slow(self)

    def fell_behind(self) -> None:
        self.behind = True

    def caught_up(self) -> None:
        self.behind = self.stalled = False
        self.hub.release(self)

    def lost(self, reason: str) -> None:
        """Record that the client has gone or has finished sending. Its earlier reads are still handled."""
        self.lost_reason = reason
        if not self.busy:
            self.hub.finish(self, reason)


NO_SESSIONS: Final[set[Session]] = set()
"""The empty set, shared by sessions that neither wait nor are waited for; never added to."""
