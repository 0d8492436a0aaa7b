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
STRANGERS_BYTES_MAX: Final = 16 * MIB
"""Of all connections together that have not said who they are: a token comes in one piece, and is not held at all."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at who holds others up."""
_KEPT_SHARE: Final = 8
"""An eighth of what may come in is for small messages, and of what goes out is free again when no more are ended."""
_MOVED_SHARE: Final = 16
"""Between two looks a sixteenth of a message comes, or of what waits for a reader is read; or it does not get on."""

_NOT_YET: Final = -1
"""Before the first look."""


class Budget:
    """So many bytes and no more, for whoever holds some. Of a budget within another, both are taken."""

    __slots__ = ("_around", "bytes_max", "used_bytes")

    def __init__(self, bytes_max: int, around: Budget | None = None) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._around = around

    @property
    def is_short(self) -> bool:
        return self.used_bytes > self.bytes_max

    def take(self, size: int, *, leaving: int = 0) -> bool:
        """Take so many, if so many others are left then; or none. Fewer than 0 are given back, which never fails."""
        if size > 0 and self.used_bytes + size + leaving > self.bytes_max:
            return False
        if self._around is not None and not self._around.take(size, leaving=leaving):
            return False
        self.used_bytes += size
        return True

    def add(self, size: int) -> None:
        """Count what is there already, room or no room."""
        self.used_bytes += size
        if self._around is not None:
            self._around.add(size)


class Holding:
    """Of one connection: what it is charged for, and how far it was at the last look."""

    __slots__ = ("budget", "came", "half_bytes", "is_stopped", "moved", "queued_bytes", "sent", "waits")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.half_bytes = 0
        """Of a message of which only a part has come: all of it, once there is room."""

        self.came = _NOT_YET
        """How much of it was there at the last look."""

        self.moved = False
        """A message was completed since then."""

        self.waits = False
        """There is no room for the rest of its message yet."""

        self.is_stopped = False
        """It is not read because it does not read."""

        self.queued_bytes = 0
        """What waited to be sent, when something was last sent to it or it was looked at."""

        self.sent = _NOT_YET
        """What had ever been sent to it at the last look."""


class Holdings:
    """All of them, against one budget."""

    def __init__(
        self,
        bytes_max: int,
        *,
        sessions: Callable[[], list[Session]],
        end: Callable[[Session, PenstockError], None],
        go_on: Callable[[Session], None],
    ) -> None:
        """`end` tells a connection why and closes it, `go_on` has one read again for which there is room now."""
        self.incoming = Budget(max(bytes_max // 2, 1))
        self.outgoing = Budget(max(bytes_max // 2, 1))
        self.strangers = Budget(min(STRANGERS_BYTES_MAX, self.incoming.bytes_max), self.incoming)
        self._sessions = sessions
        self._end = end
        self._go_on = go_on
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, int] = {}
        """How many bytes each needs."""

        self._looking: asyncio.Handle | None = None

    @property
    def used_bytes(self) -> int:
        return self.incoming.used_bytes + self.outgoing.used_bytes

    def open(self, *, stranger: bool) -> Holding:
        return Holding(self.strangers if stranger else self.incoming)

    def known(self, holding: Holding) -> None:
        """It has said who it is."""
        holding.budget.add(-holding.half_bytes)
        holding.budget = self.incoming
        self.incoming.add(holding.half_bytes)

    def close(self, session: Session) -> None:
        holding = session.holding
        self._waiting.pop(session, None)
        holding.budget.add(-holding.half_bytes)
        self.outgoing.add(-holding.queued_bytes)
        holding.half_bytes = holding.queued_bytes = 0
        self._admit()

    # messages of which only a part has come

    def measure(self, session: Session, wanted: int, held: int) -> None:
        """So many bytes of a message are there, of so many that it takes: it is charged, waits, or is over."""
        holding = session.holding
        freed = wanted < holding.half_bytes
        if self._charge(holding, wanted):
            self._waiting.pop(session, None)
            holding.waits = False
            if freed:
                self._admit()
        elif holding.budget is self.incoming and (held <= SMALL_BYTES or self._charge(holding, held)):
            holding.budget.add(held - holding.half_bytes)
            holding.half_bytes, holding.waits = held, True
            self._waiting[session] = wanted
            self.look_soon()
        else:
            self._end(session, _no_room(holding.budget))

    def _charge(self, holding: Holding, size: int) -> bool:
        """A message that is larger than all there may be is taken where it is the only one."""
        budget, more = holding.budget, size - holding.half_bytes
        leaving = 0 if size <= SMALL_BYTES else budget.bytes_max // _KEPT_SHARE
        if not budget.take(more, leaving=leaving):
            if budget.used_bytes > holding.half_bytes:
                return False
            budget.add(more)
        holding.half_bytes = size
        return True

    def _admit(self) -> None:
        """There may be room for those who wait: for the smallest first, as most go on then."""
        for session in sorted(self._waiting, key=self._waiting.__getitem__):
            self._go_on(session)
            if session.holding.waits:
                return

    # what waits to be sent

    def queued(self, holding: Holding, size: int) -> None:
        """So many bytes wait to be sent to it now."""
        self.outgoing.used_bytes += size - holding.queued_bytes
        holding.queued_bytes = size
        if self.outgoing.is_short:
            self.look_soon()

    def is_to_read_first(self, holding: Holding) -> bool:
        """Whether there is no room for what waits to be sent, and some of that waits for this one: what it sends now
        would bring it more answers that it does not take."""
        return self.outgoing.is_short and holding.queued_bytes > SMALL_BYTES

    # want of room

    def look_soon(self) -> None:
        if self._looking is None:
            self._looking = self._loop.call_soon(self._look)

    def _look(self) -> None:
        """See what is really there, and end those who hold others up. Again after a while, as long as there is no room:
        between two looks has to be time to read."""
        sessions = self._sessions()
        unsent = [session for session in sessions if self._does_not_send(session)]
        unread = [session for session in sessions if self._does_not_read(session)]
        if self._waiting:
            self._end_unsent(unsent)
        if self.outgoing.is_short:
            self._end_unread([session for session in unread if not session.ending])
        self._admit()
        for session in sessions:
            if session.holding.is_stopped and not session.ending:
                self._go_on(session)
        if self._waiting or self.outgoing.is_short:
            self._looking = self._loop.call_later(LOOK_SECONDS, self._look)
        else:
            self._looking = None
            for session in sessions:
                session.holding.came = session.holding.sent = _NOT_YET

    def _does_not_send(self, session: Session) -> bool:
        """There is room for its message, and next to nothing of it comes. At the first look nobody can say that."""
        holding, (wanted, held) = session.holding, session.half()
        moved, holding.moved = holding.moved, False
        before, holding.came = holding.came, held
        if not holding.half_bytes or holding.waits:
            holding.came = _NOT_YET
            return False
        return before != _NOT_YET and not moved and (held - before) * _MOVED_SHARE < wanted

    def _does_not_read(self, session: Session) -> bool:
        """It has much to read and takes next to nothing of it."""
        holding, (sent, queued) = session.holding, session.output()
        before, holding.sent = holding.sent, sent
        self.queued(holding, queued)
        return before != _NOT_YET and queued > SMALL_BYTES and (sent - before) * _MOVED_SHARE < queued

    def _end_unsent(self, unsent: list[Session]) -> None:
        for session in sorted(unsent, key=lambda each: each.holding.half_bytes, reverse=True):
            self._end(session, _does_not_come(session.holding))
            if not self._waiting:
                return

    def _end_unread(self, unread: list[Session]) -> None:
        enough = self.outgoing.bytes_max - self.outgoing.bytes_max // _KEPT_SHARE
        for session in sorted(unread, key=lambda each: each.holding.queued_bytes, reverse=True):
            if self.outgoing.used_bytes <= enough:
                return
            self._end(session, _does_not_take(session.holding, self.outgoing))


def _no_room(budget: Budget) -> QuotaExceeded:
    return QuotaExceeded(
        f"No room for more of this message: {budget.bytes_max} bytes of half-received ones are held already;"
        " send it again on a new connection",
        held_bytes_max=budget.bytes_max,
    )


def _does_not_come(holding: Holding) -> QuotaExceeded:
    return QuotaExceeded(
        f"Half a message of {holding.half_bytes} bytes did not get on while others waited for room;"
        " closing the connection",
        bytes=holding.half_bytes,
    )


def _does_not_take(holding: Holding, budget: Budget) -> QuotaExceeded:
    return QuotaExceeded(
        f"Too slow: {holding.queued_bytes} bytes wait to be read, and all connections together are over the limit of"
        f" {budget.bytes_max}; closing the connection",
        bytes=holding.queued_bytes,
        held_bytes_max=budget.bytes_max,
    )
