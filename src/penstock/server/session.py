"""A session: one connection as the hub knows it, from the bytes that it sends to the output that waits for it.

A session counts what the connection makes the broker hold: incomplete messages, unhandled reads, publishes that wait
for the disk, and unsent output. By these counts the hub decides when to read from it, when publishers should wait for
it, and when to end it.
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
"""The most catalog changes, reads and validations of one connection that may be in the background before its messages
wait: those of all other connections queue behind them."""
_UNSTORED_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one connection on their way to the disk before its messages wait: as much as one commit group
holds."""
_UNSTORED_BYTES_ALL: Final = 16 * 1024 * 1024
"""The bytes of all connections on their way to the disk, about: some commit groups. One connection may have at most
half of what is left of this. So a connection that sends little does not wait behind megabytes of each that sends much.
A connection with nothing on its way may always send one message."""
_UNAUTHENTICATED_LIMITS: Final = FrameLimits(payload_bytes_max=64 * 1024)
"""The frame limits before authentication: enough for a token, but not for megabytes that would be held in memory."""
UNAUTHENTICATED_MESSAGES_MAX: Final = 64
"""The most messages before authentication. A client needs one; a person who types may need several attempts."""


class Session:
    """One connection: its transport, its frame reader, its client as the broker knows it, and what waits for it."""

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
        """True until the hub has noticed that the client has authenticated: until then strict limits apply."""

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
        """The read that is being handled, as an iterator over the effects of its messages; None between reads."""

        self.handled_bytes = 0
        """The size in bytes of the read that is being handled."""

        self.waiting_bytes = 0
        """The bytes of its unhandled reads that the read budget counts, as of the last measurement."""

        self.unauthenticated_messages = 0
        """The number of messages handled before authentication."""

        self.lost_reason: str | None = None
        """The reason why the client is gone; None while it is there. Its last reads may still be being handled."""

        self.unstored_bytes = 0
        """The bytes of its publishes that wait for the disk or for validation."""

        self.suspended = False
        """True while its messages are not handled because its backlog is too large."""

        self.open_work = 0
        """The number of its requests that wait for the catalog, a read or a validation."""

        self.ending = False
        self.behind = False
        """True while its output queue is over the high-water mark. Publishers then wait for it, for a limited time."""

        self.stalled = False
        """True after publishers have waited for it in vain. They do not wait for it again until it has caught up."""

        self.waiters: set[Session] = NO_SESSIONS
        """The publishers that are not read until this session has caught up."""

        self.waits_for: set[Session] = NO_SESSIONS
        self.timer: asyncio.TimerHandle | None = None
        """The timer that ends its own waiting as a publisher, for all slow consumers together; None while it does not
        wait."""

        self._sent_bytes = 0
        self._taken_bytes = 0
        self._progress_ms = 0

    @property
    def is_backlogged(self) -> bool:
        """True while its messages must wait: too many of its bytes wait for the disk, too many of its requests are in
        the background, or its client must first read its output."""
        fair = max(0, _UNSTORED_BYTES_ALL - self.hub.unstored_bytes) // 2
        if self.unstored_bytes > min(_UNSTORED_BYTES, fair) or self.open_work > _OPEN_WORK:
            return True
        return self.hub.buffers.must_drain_first(self.share)

    @property
    def is_unauthenticated(self) -> bool:
        """True while authentication is required and the client has not authenticated."""
        return self.restricted and self.client.principal is ANONYMOUS

    @property
    def message_bytes_max(self) -> int:
        """The size in bytes of the longest message that it may send now."""
        return (_UNAUTHENTICATED_LIMITS if self.is_unauthenticated else self.hub.frame_limits).frame_bytes_max

    def partial_message(self) -> tuple[int, int]:
        """Return the whole size of the incomplete message, and how many bytes of it have come; 0 and 0 if there is
        none. Before authentication, both include the reads that wait for their turn."""
        reader, transport, unread = self.reader, self.transport, self._unhandled_bytes() if self.restricted else 0
        return (
            reader.wanted_bytes + transport.wanted_bytes() + unread,
            reader.held_bytes + transport.held_bytes() + unread,
        )

    def _unhandled_bytes(self) -> int:
        return self.transport.unread_bytes() + self.handled_bytes + sum(map(len, self.pending_reads))

    @property
    def is_counted(self) -> bool:
        """True if a budget counts any bytes for this session, as of the last measurement."""
        return bool(self.share.partial_bytes or self.waiting_bytes)

    def measure(self) -> None:
        """Charge the incomplete message to the buffer budget, and the waiting reads to the read budget."""
        if self.ending:
            return
        if not self.restricted and (self.busy or self.waiting_bytes or self.transport.unread_bytes()):
            self._count_reads()
        size, share = self.reader.wanted_bytes + self.transport.wanted_bytes(), self.share
        if self.restricted or size != share.partial_bytes or share.waits_for_room:
            self.hub.buffers.measure(self, *self.partial_message())

    def _count_reads(self) -> None:
        """Update the count of this session's waiting reads in the read budget."""
        waiting = self._unhandled_bytes()
        self.hub.read_budget.add(waiting - self.waiting_bytes)
        self.waiting_bytes = waiting

    def drop_reads(self) -> None:
        """Drop the reads that wait for their turn, because the session is over, and give their bytes back to the read
        budget."""
        self.turn, self.handled_bytes = None, 0
        self.pending_reads.clear()
        self.hub.read_budget.add(-self.waiting_bytes)
        self.waiting_bytes = 0

    def output(self) -> tuple[int, int]:
        """Return the bytes of output that have left the transport's queue so far, and those that still wait in it."""
        queued = self.transport.queued_bytes()
        return self._sent_bytes - queued, queued

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self.pending_reads)

    def received(self, data: bytes) -> None:
        if not self.ending:
            self.hub.received(self, data)

    def send(self, frames: bytes, now_ms: int) -> None:
        """Send frames. Notes the time, in `now_ms`, if earlier output has left the queue since the last call."""
        queued = self.transport.queued_bytes()
        taken = self._sent_bytes - queued
        if taken != self._taken_bytes or not queued:
            self._taken_bytes, self._progress_ms = taken, now_ms
        self._sent_bytes += len(frames)
        self.hub.buffers.record_queued(self.share, queued + len(frames))
        self.transport.write(frames)

    def worth_waiting_for(self, now_ms: int) -> bool:
        """Return True if this consumer is behind but has taken some output lately. A client that has taken nothing for
        longer than `output_wait_ms` will hardly do so soon."""
        moving = now_ms - self._progress_ms < self.hub.limits.output_wait_ms
        return self.behind and moving and not self.stalled and not self.ending

    def heard(self) -> None:
        """Record that the client is alive, after input that is no message, such as a ping. The transport may have
        answered it already."""
        self.hub.broker.note_activity(self.client, self.hub.now_ms())
        if self.behind:
            self.hub.end_if_too_slow(self)

    def fell_behind(self) -> None:
        self.behind = True

    def caught_up(self) -> None:
        self.behind = self.stalled = False
        self.hub.release(self)

    def lost(self, reason: str) -> None:
        """Record that the client has gone or has finished sending, for the given reason. The session ends once its
        earlier reads are handled."""
        self.lost_reason = reason
        if not self.busy:
            self.hub.finish(self, reason)


NO_SESSIONS: Final[set[Session]] = set()
"""The empty set that all sessions share which do not wait and are not waited for. Never change it."""
