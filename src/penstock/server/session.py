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
from penstock.server.transport import Stream

if TYPE_CHECKING:
    from penstock.server.hub import Hub

_OPEN_WORK: Final = 32
"""Things that one connection asked for and that wait for the catalog: those of all others wait behind them."""
_UNSTORED_BYTES: Final = 4 * 1024 * 1024
"""Of one connection on their way to the disk: past this nothing more is read from it, as a group holds no more."""
_UNSTORED_BYTES_ALL: Final = 16 * 1024 * 1024
"""Of all connections: some groups. Nobody may have more than half of what the others leave of it, so that whoever sends
little does not wait behind megabytes of each who sends much. One message of each is always taken."""
_UNKNOWN_LIMITS: Final = FrameLimits(payload_bytes_max=64 * 1024)
"""Of a connection that has yet to say who it is: a token, and no megabytes that would wait in memory."""
UNKNOWN_MESSAGES_MAX: Final = 64
"""Messages of such a connection: one says who it is, and a person who types may be wrong some times."""


class Session:
    """One connection: its stream, its reader, and what the broker knows of it."""

    __slots__ = (
        "_drained",
        "_moved_ms",
        "_written",
        "arrived",
        "behind",
        "client",
        "ending",
        "holding",
        "hub",
        "leaving",
        "narrow",
        "open_work",
        "reader",
        "stalled",
        "stopped",
        "stream",
        "timer",
        "turn",
        "turn_bytes",
        "unknown_messages",
        "unstored_bytes",
        "waiters",
        "waiting_bytes",
        "waits_for",
    )

    def __init__(self, hub: Hub, stream: Stream, client: Client) -> None:
        self.hub = hub
        self.stream = stream
        self.client = client
        self.narrow = hub.access.enabled and client.principal is ANONYMOUS
        """Nobody has said who it is: little is read of it."""

        limits, scratch = (_UNKNOWN_LIMITS, hub.small_scratch) if self.narrow else (hub.frame_limits, hub.scratch)
        self.reader = BatchReader(limits, scratch)
        self.holding = hub.holdings.open(stranger=self.narrow)
        self.arrived: deque[bytes] = deque()
        """What it sent and has not been looked at yet."""

        self.turn: Iterator[list[Effect]] | None = None
        """What is being handled."""

        self.turn_bytes = 0
        """The size of the read that is being handled."""

        self.waiting_bytes = 0
        """Of its reads, counted against the read budget: what waited for its turn when that was last looked at."""

        self.unknown_messages = 0
        """Messages that were handled before it was known who it is."""

        self.leaving: str | None = None
        """Why it is gone, although not all that it sent has been handled."""

        self.unstored_bytes = 0
        """Of what it sent, on the way to the disk."""

        self.stopped = False
        """What it sent is not looked at until some of what it waits for is done."""

        self.open_work = 0
        """Of what it asked for, what waits for the catalog or a read."""

        self.ending = False
        self.behind = False
        """More is queued than should be; whoever sends to it waits a little."""

        self.stalled = False
        """It was waited for in vain. Until it has caught up nobody waits for it again."""

        self.waiters: set[Session] = NOBODY
        """Publishers that wait for this one."""

        self.waits_for: set[Session] = NOBODY
        self.timer: asyncio.TimerHandle | None = None
        """The end of its wait, for all of them together."""

        self._written = 0
        self._drained = 0
        self._moved_ms = 0

    @property
    def has_enough(self) -> bool:
        """So much of what it sent waits for the disk that nothing more is read from it."""
        fair = max(0, _UNSTORED_BYTES_ALL - self.hub.unstored_bytes) // 2
        return self.unstored_bytes > min(_UNSTORED_BYTES, fair) or self.open_work > _OPEN_WORK

    @property
    def is_stranger(self) -> bool:
        """Nobody has said who it is, and somebody has to."""
        return self.narrow and self.client.principal is ANONYMOUS

    @property
    def message_bytes_max(self) -> int:
        """The longest message it may send now."""
        return (_UNKNOWN_LIMITS if self.is_stranger else self.hub.frame_limits).frame_bytes_max

    def half(self) -> tuple[int, int]:
        """Of a message that is not all there: the bytes it takes, and those that are there. Of a stranger also what
        has been read and waits for its turn."""
        reader, stream, unread = self.reader, self.stream, self._unhandled_bytes() if self.narrow else 0
        return reader.wanted_bytes + stream.wanted_bytes() + unread, reader.held_bytes + stream.held_bytes() + unread

    def _unhandled_bytes(self) -> int:
        return self.stream.unread_bytes() + self.turn_bytes + sum(map(len, self.arrived))

    @property
    def is_counted(self) -> bool:
        """Something that it sent counted against a budget when it was last measured."""
        return bool(self.holding.half_bytes or self.waiting_bytes)

    def measure(self) -> None:
        """Count what it holds: messages that have come in part, and reads that wait for their turn."""
        if self.ending:
            return
        if not self.narrow and (self.busy or self.waiting_bytes or self.stream.unread_bytes()):
            self._count_reads()
        wanted, holding = self.reader.wanted_bytes + self.stream.wanted_bytes(), self.holding
        if self.narrow or wanted != holding.half_bytes or holding.waits:
            self.hub.holdings.measure(self, *self.half())

    def _count_reads(self) -> None:
        """Count the reads that wait for their turn against the read budget."""
        waiting = self._unhandled_bytes()
        self.hub.reads.add(waiting - self.waiting_bytes)
        self.waiting_bytes = waiting

    def drop_reads(self) -> None:
        """Free the reads that wait for their turn: the connection is over, and nothing of them is handled."""
        self.turn, self.turn_bytes = None, 0
        self.arrived.clear()
        self.hub.reads.add(-self.waiting_bytes)
        self.waiting_bytes = 0

    def output(self) -> tuple[int, int]:
        """What was ever sent to it and has gone, and what still waits."""
        queued = self.stream.queued_bytes()
        return self._written - queued, queued

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self.arrived)

    def received(self, data: bytes) -> None:
        if not self.ending:
            self.hub.received(self, data)

    def send(self, frames: bytes, now_ms: int) -> None:
        """Write, and see whether anything of what was written before has gone since."""
        queued = self.stream.queued_bytes()
        drained = self._written - queued
        if drained != self._drained or not queued:
            self._drained, self._moved_ms = drained, now_ms
        self._written += len(frames)
        self.hub.holdings.queued(self.holding, queued + len(frames))
        self.stream.write(frames)

    def worth_waiting_for(self, now_ms: int) -> bool:
        """It is behind, and it moves: whoever has taken nothing for long will not take anything soon."""
        moving = now_ms - self._moved_ms < self.hub.limits.output_wait_ms
        return self.behind and moving and not self.stalled and not self.ending

    def alive(self) -> None:
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
        self.leaving = reason
        if not self.busy:
            self.hub.leave(self, reason)


NOBODY: Final[set[Session]] = set()
"""Shared by all who wait for nobody; never added to."""
