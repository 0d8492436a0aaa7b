"""Holdings: the bytes that connections make the broker hold, and what happens when there is no room for more.

A connection holds messages of which only a part has come, and what waits to be sent to it. One half of the budget is
for the first, one for the second: readers that do not read take nothing from those who send. A large message is counted
whole when it begins, so that whatever has begun can end; where there is no room it is not read on until there is. Then
those go that hold others up: half a message that does not get on, and readers that do not read.
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
"""A message, half of it there, that nobody is ended for: a part of the budget is kept for these."""
UNAUTHENTICATED_BYTES_MAX: Final = 16 * MIB
"""Of all connections together that have not said who they are: a token comes in one piece, and is not held at all."""
CHECK_SECONDS: Final = 1.0
"""Between two looks at who holds others up."""
_RESERVED_SHARE: Final = 8
"""An eighth of what may come in is for small messages, and of what goes out is free again when no more are ended."""
_PROGRESS_SHARE: Final = 16
"""Between two looks a sixteenth of a message comes, or of what waits for a reader is read; or it does not get on."""

_UNKNOWN: Final = -1
"""Before the first look."""


class ByteBudget:
    """So many bytes and no more, for whoever holds some. Of a budget within another, both are taken."""

    __slots__ = ("_parent", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int, parent: ByteBudget | None = None) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._parent = parent

    @property
    def is_short(self) -> bool:
        return self.used_bytes > self.bytes_max

    def try_take(self, size: int, *, leave: int = 0) -> bool:
        """Take so many, if so many others are left then; or none. Fewer than 0 are given back, which never fails."""
        if size > 0 and self.used_bytes + size + leave > self.bytes_max:
            return False
        if self._parent is not None and not self._parent.try_take(size, leave=leave):
            return False
        self.used_bytes += size
        return True

    def add(self, size: int) -> None:
        """Count what is there already, room or no room."""
        self.used_bytes += size
        if self._parent is not None:
            self._parent.add(size)


class BufferShare:
    """Of one connection: what it is charged for, and how far it was at the last look."""

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
        """Of a message of which only a part has come: all of it, once there is room."""

        self.received_bytes = _UNKNOWN
        """How much of it was there at the last look."""

        self.progressed = False
        """A message was completed since then."""

        self.waits_for_room = False
        """There is no room for the rest of its message yet."""

        self.paused_to_drain = False
        """It is not read because it does not read."""

        self.queued_bytes = 0
        """What waited to be sent, when something was last sent to it or it was looked at."""

        self.sent_bytes = _UNKNOWN
        """What had ever been sent to it at the last look."""


class BufferBudget:
    """All of them, against one budget."""

    def __init__(
        self,
        bytes_max: int,
        *,
        sessions: Callable[[], list[Session]],
        end: Callable[[Session, PenstockError], None],
        resume: Callable[[Session], None],
    ) -> None:
        """`end` tells a connection why and closes it, `go_on` has one read again for which there is room now."""
        self.incoming = ByteBudget(max(bytes_max // 2, 1))
        self.outgoing = ByteBudget(max(bytes_max // 2, 1))
        self.unauthenticated = ByteBudget(min(UNAUTHENTICATED_BYTES_MAX, self.incoming.bytes_max), self.incoming)
        self._sessions = sessions
        self._end = end
        self._resume = resume
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, int] = {}
        """How many bytes each needs."""

        self._next_check: asyncio.Handle | None = None

    @property
    def used_bytes(self) -> int:
        return self.incoming.used_bytes + self.outgoing.used_bytes

    def open(self, *, unauthenticated: bool) -> BufferShare:
        return BufferShare(self.unauthenticated if unauthenticated else self.incoming)

    def mark_authenticated(self, share: BufferShare) -> None:
        """It has said who it is."""
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

    # messages of which only a part has come

    def measure(self, session: Session, wanted: int, held: int) -> None:
        """So many bytes of a message are there, of so many that it takes: it is charged, waits, or is over."""
        share = session.share
        freed = wanted < share.partial_bytes
        if self._charge(share, wanted):
            self._waiting.pop(session, None)
            share.waits_for_room = False
            if freed:
                self._admit()
        elif share.budget is self.incoming and (held <= SMALL_BYTES or self._charge(share, held)):
            share.budget.add(held - share.partial_bytes)
            share.partial_bytes, share.waits_for_room = held, True
            self._waiting[session] = wanted
            self.check_soon()
        else:
            self._end(session, _no_room(share.budget))

    def _charge(self, share: BufferShare, size: int) -> bool:
        """A message that is larger than all there may be is taken where it is the only one."""
        budget, more = share.budget, size - share.partial_bytes
        leave = 0 if size <= SMALL_BYTES else budget.bytes_max // _RESERVED_SHARE
        if not budget.try_take(more, leave=leave):
            if budget.used_bytes > share.partial_bytes:
                return False
            budget.add(more)
        share.partial_bytes = size
        return True

    def _admit(self) -> None:
        """There may be room for those who wait: for the smallest first, as most go on then."""
        for session in sorted(self._waiting, key=self._waiting.__getitem__):
            self._resume(session)
            if session.share.waits_for_room:
                return

    # what waits to be sent

    def record_queued(self, share: BufferShare, size: int) -> None:
        """So many bytes wait to be sent to it now."""
        self.outgoing.used_bytes += size - share.queued_bytes
        share.queued_bytes = size
        if self.outgoing.is_short:
            self.check_soon()

    def must_drain_first(self, share: BufferShare) -> bool:
        """Whether there is no room for what waits to be sent, and some of that waits for this one: what it sends now
        would bring it more answers that it does not take."""
        return self.outgoing.is_short and share.queued_bytes > SMALL_BYTES

    # want of room

    def check_soon(self) -> None:
        if self._next_check is None:
            self._next_check = self._loop.call_soon(self._check_progress)

    def _check_progress(self) -> None:
        """See what is really there, and end those who hold others up. Again after a while, as long as there is no room:
        between two looks has to be time to read."""
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
        """There is room for its message, and next to nothing of it comes. At the first look nobody can say that."""
        share, (wanted, held) = session.share, session.partial_message()
        progressed, share.progressed = share.progressed, False
        before, share.received_bytes = share.received_bytes, held
        if not share.partial_bytes or share.waits_for_room:
            share.received_bytes = _UNKNOWN
            return False
        return before != _UNKNOWN and not progressed and (held - before) * _PROGRESS_SHARE < wanted

    def _stalls_reading(self, session: Session) -> bool:
        """It has much to read and takes next to nothing of it."""
        share, (sent_bytes, queued) = session.share, session.output()
        before, share.sent_bytes = share.sent_bytes, sent_bytes
        self.record_queued(share, queued)
        return before != _UNKNOWN and queued > SMALL_BYTES and (sent_bytes - before) * _PROGRESS_SHARE < queued

    def _end_stalled_senders(self, unsent: list[Session]) -> None:
        for session in sorted(unsent, key=lambda each: each.share.partial_bytes, reverse=True):
            self._end(session, _stalled_sender(session.share))
            if not self._waiting:
                return

    def _end_stalled_readers(self, unread: list[Session]) -> None:
        enough = self.outgoing.bytes_max - self.outgoing.bytes_max // _RESERVED_SHARE
        for session in sorted(unread, key=lambda each: each.share.queued_bytes, reverse=True):
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
