"""The buffer budget: limits the bytes that connections make the broker hold, and ends connections when there is no
room.

For each connection the broker holds an incomplete message, and output that waits to be sent. One half of the budget is
for incomplete messages and one for output, so that clients that do not read take no room from those that send.

A large message is charged with its whole size when it begins, so that every message that was charged can be completed.
While there is no room for that, its connection is not read. Meanwhile the broker ends connections that keep others
waiting: senders whose incomplete message makes no progress, and readers that do not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError, QuotaExceeded
from penstock.core.limits import KIB, MIB

if TYPE_CHECKING:
    from penstock.server.session import Session

SMALL_BYTES: Final = 64 * KIB
"""The largest incomplete message that may use the reserved part of the budget. A connection for which no more output
than this waits is not ended for it."""
UNAUTHENTICATED_BYTES_MAX: Final = 16 * MIB
"""The most bytes of incomplete messages of all connections together that have not authenticated. A token normally comes
in one piece, and so takes nothing of it."""
CHECK_SECONDS: Final = 1.0
"""The seconds between two checks of which connections keep others waiting."""
_RESERVED_SHARE: Final = 8
"""The divisor for the reserves. An eighth of the half for incomplete messages is only for small ones. Readers are ended
until an eighth of the half for output is free."""
_PROGRESS_SHARE: Final = 16
"""The divisor for progress: a connection makes none if between two checks less than a sixteenth of its message comes,
or of its queued output is taken."""

_UNKNOWN: Final = -1
"""The value of a byte count before the first check."""


class ByteBudget:
    """A count of used bytes with a limit. Bytes taken from a budget with a parent are taken from the parent too."""

    __slots__ = ("_parent", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int, parent: ByteBudget | None = None) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._parent = parent

    @property
    def is_short(self) -> bool:
        return self.used_bytes > self.bytes_max

    def try_take(self, size: int, *, leave: int = 0) -> bool:
        """Take `size` bytes, and return True, if at least `leave` bytes then stay free. Otherwise take none, and return
        False. A negative `size` gives bytes back, which always works."""
        if size > 0 and self.used_bytes + size + leave > self.bytes_max:
            return False
        if self._parent is not None and not self._parent.try_take(size, leave=leave):
            return False
        self.used_bytes += size
        return True

    def add(self, size: int) -> None:
        """Count `size` bytes without asking for room, even beyond the limit, because they are held already. A negative
        `size` gives bytes back."""
        self.used_bytes += size
        if self._parent is not None:
            self._parent.add(size)


class BufferShare:
    """The bytes that one connection is charged with, and its progress at the last check."""

    __slots__ = (
        "budget",
        "partial_bytes",
        "paused_to_drain",
        "progressed",
        "queued_bytes",
        "received_bytes",
        "sent_bytes",
        "waits_for_room",
    )

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.partial_bytes = 0
        """The bytes charged for its incomplete message: the message's whole size, or only what has come while there is
        no room."""

        self.received_bytes = _UNKNOWN
        """The bytes of its incomplete message that had come at the last check."""

        self.progressed = False
        """True if a message of this connection was handled since the last check."""

        self.waits_for_room = False
        """True while there is no room for the rest of its message."""

        self.paused_to_drain = False
        """True while it is not read because its client does not read its output."""

        self.queued_bytes = 0
        """The bytes of output that waited when this was last recorded: when output was sent to it, or at a check."""

        self.sent_bytes = _UNKNOWN
        """The bytes of output that had left its queue in all, at the last check."""


class BufferBudget:
    """The budget of one broker, and the shares of it that connections have."""

    def __init__(
        self,
        bytes_max: int,
        *,
        sessions: Callable[[], list[Session]],
        end: Callable[[Session, PenstockError], None],
        resume: Callable[[Session], None],
    ) -> None:
        """Create the budget. `sessions` returns the open sessions. `end` tells a client the reason and closes its
        session. `resume` is called to go on with a session that has room now."""
        self.incoming = ByteBudget(max(bytes_max // 2, 1))
        self.outgoing = ByteBudget(max(bytes_max // 2, 1))
        self.unauthenticated = ByteBudget(min(UNAUTHENTICATED_BYTES_MAX, self.incoming.bytes_max), self.incoming)
        self._sessions = sessions
        self._end = end
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, int] = {}
        """The connections that wait for room, with the size of the message for which each needs it."""

        self._next_check: asyncio.Handle | None = None

    @property
    def used_bytes(self) -> int:
        return self.incoming.used_bytes + self.outgoing.used_bytes

    def open(self, *, unauthenticated: bool) -> BufferShare:
        return BufferShare(self.unauthenticated if unauthenticated else self.incoming)

    def mark_authenticated(self, share: BufferShare) -> None:
        """Move the share of a connection that has authenticated to the ordinary budget."""
        share.budget.add(-share.partial_bytes)
        share.budget = self.incoming
        self.incoming.add(share.partial_bytes)

    def close(self, session: Session) -> None:
        share = session.share
        self._waiting.pop(session, None)
        share.budget.add(-share.partial_bytes)
        self.outgoing.add(-share.queued_bytes)
        share.partial_bytes = share.queued_bytes = 0
        self._admit()

    # incomplete messages

    def measure(self, session: Session, size: int, held: int) -> None:
        """Charge the incomplete message of a session: `size` is its whole size, `held` how much of it has come. Without
        room for the rest, the connection waits and is not read; without room for what has come, or before it has
        authenticated, it is ended."""
        share = session.share
        freed = size < share.partial_bytes
        if self._charge(share, size):
            self._waiting.pop(session, None)
            share.waits_for_room = False
            if freed:
                self._admit()
        elif share.budget is self.incoming and (held <= SMALL_BYTES or self._charge(share, held)):
            share.budget.add(held - share.partial_bytes)
            share.partial_bytes, share.waits_for_room = held, True
            self._waiting[session] = size
            self.check_soon()
        else:
            self._end(session, _no_room(share.budget))

    def _charge(self, share: BufferShare, size: int) -> bool:
        """Charge `size` bytes in place of what the share has now, and return True; without room return False. A message
        larger than the whole budget is charged if no other connection has any of it."""
        budget, more = share.budget, size - share.partial_bytes
        leave = 0 if size <= SMALL_BYTES else budget.bytes_max // _RESERVED_SHARE
        if not budget.try_take(more, leave=leave):
            if budget.used_bytes > share.partial_bytes:
                return False
            budget.add(more)
        share.partial_bytes = size
        return True

    def _admit(self) -> None:
        """Resume connections that wait for room, those that need least first, so that as many as possible go on. Stops
        at the first for which there is no room."""
        for session in sorted(self._waiting, key=self._waiting.__getitem__):
            self._resume(session)
            if session.share.waits_for_room:
                return

    # queued output

    def record_queued(self, share: BufferShare, size: int) -> None:
        """Record that `size` bytes of output wait for this connection now."""
        self.outgoing.used_bytes += size - share.queued_bytes
        share.queued_bytes = size
        if self.outgoing.is_short:
            self.check_soon()

    def must_drain_first(self, share: BufferShare) -> bool:
        """Return True if the output of all connections is over its limit and much of it is this connection's. Then it
        is not read: more requests would bring more answers that it does not read."""
        return self.outgoing.is_short and share.queued_bytes > SMALL_BYTES

    # shortage

    def check_soon(self) -> None:
        if self._next_check is None:
            self._next_check = self._loop.call_soon(self._check_progress)

    def _check_progress(self) -> None:
        """Measure the progress of all connections, and end those that keep others waiting. Repeats every second until
        there is room again."""
        sessions = self._sessions()
        unsent = [session for session in sessions if self._stalls_sending(session)]
        unread = [session for session in sessions if self._stalls_reading(session)]
        if self._waiting:
            self._end_stalled_senders(unsent)
        if self.outgoing.is_short:
            self._end_stalled_readers([session for session in unread if not session.ending])
        self._admit()
        for session in sessions:
            if session.share.paused_to_drain and not session.ending:
                self._resume(session)
        if self._waiting or self.outgoing.is_short:
            self._next_check = self._loop.call_later(CHECK_SECONDS, self._check_progress)
        else:
            self._next_check = None
            for session in sessions:
                session.share.received_bytes = session.share.sent_bytes = _UNKNOWN

    def _stalls_sending(self, session: Session) -> bool:
        """Return True if a session's incomplete message has room, but hardly any more of it has come since the last
        check. Never True at the first check. Records what has come for the next check."""
        share, (size, held) = session.share, session.partial_message()
        progressed, share.progressed = share.progressed, False
        before, share.received_bytes = share.received_bytes, held
        if not share.partial_bytes or share.waits_for_room:
            share.received_bytes = _UNKNOWN
            return False
        return before != _UNKNOWN and not progressed and (held - before) * _PROGRESS_SHARE < size

    def _stalls_reading(self, session: Session) -> bool:
        """Return True if much output waits for a session's client, and it has taken hardly any since the last check.
        Never True at the first check. Records what was taken for the next check."""
        share, (sent_bytes, queued) = session.share, session.output()
        before, share.sent_bytes = share.sent_bytes, sent_bytes
        self.record_queued(share, queued)
        return before != _UNKNOWN and queued > SMALL_BYTES and (sent_bytes - before) * _PROGRESS_SHARE < queued

    def _end_stalled_senders(self, unsent: list[Session]) -> None:
        for session in sorted(unsent, key=lambda candidate: candidate.share.partial_bytes, reverse=True):
            self._end(session, _stalled_sender(session.share))
            if not self._waiting:
                return

    def _end_stalled_readers(self, unread: list[Session]) -> None:
        enough = self.outgoing.bytes_max - self.outgoing.bytes_max // _RESERVED_SHARE
        for session in sorted(unread, key=lambda candidate: candidate.share.queued_bytes, reverse=True):
            if self.outgoing.used_bytes <= enough:
                return
            self._end(session, _stalled_reader(session.share, self.outgoing))


def _no_room(budget: ByteBudget) -> QuotaExceeded:
    return QuotaExceeded(
        f"No room for more of this message: {budget.bytes_max} bytes of half-received ones are held already;"
        " send it again on a new connection",
        held_bytes_max=budget.bytes_max,
    )


def _stalled_sender(share: BufferShare) -> QuotaExceeded:
    return QuotaExceeded(
        f"Half a message of {share.partial_bytes} bytes did not get on while others waited for room;"
        " closing the connection",
        bytes=share.partial_bytes,
    )


def _stalled_reader(share: BufferShare, budget: ByteBudget) -> QuotaExceeded:
    return QuotaExceeded(
        f"Too slow: {share.queued_bytes} bytes wait to be read, and all connections together are over the limit of"
        f" {budget.bytes_max}; closing the connection",
        bytes=share.queued_bytes,
        held_bytes_max=budget.bytes_max,
    )
