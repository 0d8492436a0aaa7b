"""Group commit: one thread takes blocks from many callers and makes all that gathered durable with one sync.

While one group is being synced the next one gathers, so the more callers there are the larger the groups get. Results
come back in the order of submission per log.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from penstock.core.errors import PenstockError, ServiceUnavailable, StorageFailed, Timeout
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.storage.log import Appended, Log

_NO_BLOCK: Final = Draft(b"", 0)


class Ticket:
    """One submitted block. `outcome` is set before `deliver` sees it."""

    __slots__ = ("_done", "draft", "log", "outcome")

    def __init__(self, log: Log | None, draft: Draft) -> None:
        self.log = log
        self.draft = draft
        self.outcome: Appended | PenstockError | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the block is durable, or raise why it is not. A time-out says nothing about the block."""
        if self.outcome is None and not self._done.acquire(timeout=-1 if timeout is None else timeout):
            raise Timeout(f"the append was not confirmed within {timeout} s; it may still be")
        if isinstance(self.outcome, PenstockError):
            raise self.outcome
        assert self.outcome is not None, "released without an outcome"  # noqa: S101 - a defect here, not bad input
        return self.outcome

    def release(self) -> None:
        """Let `result` go on."""
        self._done.release()


class Errand(Ticket):
    """Something else for the writer thread to do, between two groups: it is the only one that changes a log."""

    __slots__ = ("function", "returned")

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(None, _NO_BLOCK)
        self.function = function
        self.returned: Any = None

    def run(self) -> None:
        try:
            self.returned = self.function()
        except BaseException as error:
            self.returned = error
        self.release()

    def wait(self) -> Any:
        self._done.acquire()
        if isinstance(self.returned, BaseException):
            raise self.returned
        return self.returned


def release_all(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        ticket.release()


class GroupCommit:
    """The writer of a data directory. `deliver` is called in its thread, once a group, with outcomes set."""

    def __init__(
        self, limits: Limits | None = None, *, deliver: Callable[[Sequence[Ticket]], None] = release_all
    ) -> None:
        self._limits = limits or Limits()
        self._deliver = deliver
        self._queue: deque[Ticket] = deque()
        self._queued_bytes = 0
        self._closing = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._awake: OrderedDict[Log, None] = OrderedDict()
        self.groups = 0
        self.blocks = 0
        self._thread = threading.Thread(target=self._run, name="penstock-writer", daemon=True)
        self._thread.start()

    def submit(self, log: Log, draft: Draft, *, wait: bool = True) -> Ticket:
        """Queue a block. Waits while the queue is full, or raises `ServiceUnavailable` with `wait=False`.

        Raises `PayloadTooLarge` for a block over the limits; nothing is queued then.
        """
        draft.check_sizes(log.limits)
        ticket = Ticket(log, draft)
        with self._lock:
            self._wait_for_room(wait)
            self._queue.append(ticket)
            self._queued_bytes += len(draft.data)
            if len(self._queue) == 1:
                self._work.notify()
        return ticket

    def run(self, function: Callable[[], Any]) -> Any:
        """Have the writer thread do something between two groups, after all that was submitted before; its result."""
        errand = Errand(function)
        with self._lock:
            if self._closing:
                raise ServiceUnavailable("the data directory is closing")
            self._queue.append(errand)
            self._work.notify()
        return errand.wait()

    def append(self, log: Log, draft: Draft) -> Appended:
        """Submit and wait: durable on return."""
        return self.submit(log, draft).result()

    def _wait_for_room(self, wait: bool) -> None:
        while self._queued_bytes >= self._limits.queue_bytes_max and not self._closing:
            if not wait:
                raise ServiceUnavailable(
                    f"{self._queued_bytes} bytes are waiting for the disk already; try again",
                    limit=self._limits.queue_bytes_max,
                )
            self._room.wait()
        if self._closing:
            raise ServiceUnavailable("the data directory is closing")

    def _run(self) -> None:
        while True:
            group = self._gather()
            if not group:
                return
            if isinstance(group[0], Errand):
                group[0].run()
                continue
            self._write(group)
            self.groups += 1
            self.blocks += len(group)
            self._deliver(group)

    def _gather(self) -> list[Ticket]:
        """All that waits, up to the size of a group; nothing when closed and drained."""
        with self._lock:
            while not self._queue:
                if self._closing:
                    return []
                self._work.wait()
            group: list[Ticket] = [self._queue.popleft()]
            size = len(group[0].draft.data)
            while self._queue and self._may_join(group[0], size):
                ticket = self._queue.popleft()
                size += len(ticket.draft.data)
                group.append(ticket)
            self._queued_bytes -= size
            self._room.notify_all()
            return group

    def _may_join(self, first: Ticket, size: int) -> bool:
        following = self._queue[0]
        if isinstance(first, Errand) or isinstance(following, Errand):
            return False
        return size + len(following.draft.data) <= self._limits.group_bytes_max

    def _write(self, group: list[Ticket]) -> None:
        by_log: dict[Log, list[Ticket]] = {}
        for ticket in group:
            assert ticket.log is not None, "errands are not written"  # noqa: S101 - a defect here, not bad input
            by_log.setdefault(ticket.log, []).append(ticket)
        for log, tickets in by_log.items():
            try:
                outcomes = log.append_group([ticket.draft for ticket in tickets])
            except Exception as error:  # a defect must not leave callers waiting for ever
                outcomes = [StorageFailed(f"{log.path}: {type(error).__name__}: {error}")] * len(tickets)
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.outcome = outcome
            self._keep_awake(log)

    def _keep_awake(self, log: Log) -> None:
        """Only so many logs keep their files open: the one not used for longest lets go of them."""
        self._awake[log] = None
        self._awake.move_to_end(log)
        if len(self._awake) > self._limits.open_logs_max:
            self._awake.popitem(last=False)[0].rest()

    def close(self) -> None:
        """Take no more, finish what is queued, end the thread. Idempotent."""
        with self._lock:
            self._closing = True
            self._work.notify_all()
            self._room.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
