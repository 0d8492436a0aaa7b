"""A fair queue: one job runs at a time, and requesters take turns, however many jobs each of them has."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from penstock.broker.access.policy import ANONYMOUS, Principal
from penstock.core.errors import PenstockError, QuotaExceeded, ServiceUnavailable, Timeout


def _always() -> bool:
    return True


class Requester(NamedTuple):
    """The client for whom a job is done. Its name decides whose turn it is; `is_waiting` returns False once nobody
    waits for the result."""

    name: str
    is_waiting: Callable[[], bool] = _always


_BROKER_ITSELF: Final = Requester("the broker")
REQUESTER: Final[ContextVar[Requester]] = ContextVar("requester", default=_BROKER_ITSELF)
"""The requester of the current asyncio task; by default the broker itself. Each HTTP request, and each effect of a
message, has a task of its own."""


def requester_name(principal: Principal, address: str) -> str:
    """Return one name for all connections of a client: the name of its principal, or for an anonymous client the
    address without the port."""
    return address.rpartition(":")[0] or address if principal is ANONYMOUS else str(principal)


class _Waiting(NamedTuple):
    requester: Requester
    turn: asyncio.Future[None]


class _RequesterQueue:
    """The waiting jobs of one requester."""

    __slots__ = ("low_priority", "normal")

    def __init__(self) -> None:
        self.normal: deque[_Waiting] = deque()
        self.low_priority: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self.normal) + len(self.low_priority)


class FairQueue:
    """A queue that runs one job at a time. Requesters take turns; the jobs of one requester run in their order."""

    def __init__(self, waiting_max: int, waiting_each_max: int | None = None) -> None:
        """Create a queue for at most `waiting_max` waiting jobs. `waiting_each_max` is the limit for one requester,
        which applies separately to its jobs of normal and of low priority."""
        self._waiting_max = waiting_max
        self._each_max = waiting_each_max or waiting_max
        self._queues: dict[str, _RequesterQueue] = {}
        """The waiting jobs by the name of their requester. The first requester has the next turn."""

        self._waiting = 0
        self._busy = False

    @asynccontextmanager
    async def turn(self, requester: Requester, *, low_priority: bool = False) -> AsyncIterator[None]:
        """Return a context in which the caller has the turn: entering it waits, leaving it gives the turn to the next.
        With `low_priority`, all other jobs of the same requester go first.

        Entering raises `QuotaExceeded` if too many jobs of this requester wait already, `ServiceUnavailable` if too
        many jobs of all do, and `Timeout` if the requester no longer waits when its turn comes.
        """
        await self._wait(requester, low_priority)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, requester: Requester, low_priority: bool) -> None:
        if not self._busy:
            self._busy = True
            return
        waiting = _Waiting(requester, asyncio.get_running_loop().create_future())
        self._append(waiting, low_priority=low_priority)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled():
                self._next()  # it had just got its turn
            raise

    def _append(self, waiting: _Waiting, *, low_priority: bool) -> None:
        queue = self._queues.get(waiting.requester.name) or _RequesterQueue()
        same = queue.low_priority if low_priority else queue.normal
        if len(same) >= self._each_max:
            raise QuotaExceeded(
                f"{self._each_max} things that you asked for wait to be examined already; try again",
                waiting_max=self._each_max,
            )
        if self._waiting >= self._waiting_max:
            self._make_room(len(queue))
        self._queues[waiting.requester.name] = queue
        same.append(waiting)
        self._waiting += 1

    def _make_room(self, own: int) -> None:
        """Make room for a job of a requester with `own` waiting jobs: the last job of the requester with the most is
        refused. If that one does not have clearly more, raises `ServiceUnavailable` instead, which refuses the new
        job."""
        longest = max(self._queues.values(), key=len)
        full = ServiceUnavailable("too many schemas or payloads wait to be examined; try again")
        if len(longest) <= own + 1:
            raise full
        last = (longest.low_priority or longest.normal).pop()
        self._waiting -= 1
        _refuse(last, full)

    def _next(self) -> None:
        """Give the turn to the next job whose requester still waits. Jobs before it whose requester does not are
        refused."""
        while self._queues:
            name = next(iter(self._queues))
            queue = self._queues.pop(name)
            waiting = (queue.normal or queue.low_priority).popleft()
            self._waiting -= 1
            if queue:
                self._queues[name] = queue
            if waiting.turn.done():
                continue  # cancelled
            if waiting.requester.is_waiting():
                waiting.turn.set_result(None)
                return
            _refuse(waiting, Timeout("nobody waits for it any more: it was not examined"))
        self._busy = False


def _refuse(waiting: _Waiting, error: PenstockError) -> None:
    if not waiting.turn.done():
        waiting.turn.set_exception(error)
