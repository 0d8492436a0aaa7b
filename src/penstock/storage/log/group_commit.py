"""The group commit: one thread takes blocks from many callers and makes all that gathered durable with one sync.

While one group is being synced, the next one gathers, so groups grow with the number of callers. Results of one log
come back in the order of submission. The logs of one group may be written in parallel.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError, ServiceUnavailable, StorageFailed, Timeout
from penstock.core.ids import IdGenerator, IdRun
from penstock.core.limits import Limits
from penstock.record.block import Draft
from penstock.storage.base.metrics import StorageMeter
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log

HELPERS: Final = 4
"""Threads that sync in parallel: a disk serves a few syncs in little more than the time of one; more gain nothing."""

_LOG = logging.getLogger(__name__)
_NO_BLOCK: Final = Draft(b"", 0)


class SharedIds(IdGenerator):
    """An id generator that several threads may use at once. All ids of a run are greater than those of every run before
    it."""

    def __init__(self, clock: Clock, *, node: int) -> None:
        super().__init__(clock, node=node)
        self._turn = threading.Lock()

    def advance(self, ticks: int) -> None:
        with self._turn:
            super().advance(ticks)

    def take(self, count: int) -> IdRun:
        with self._turn:
            return super().take(count)


class PendingAppend:
    """A block that was submitted to the writer. `outcome` is the result or the error; it is None until the block is
    written."""

    __slots__ = ("_done", "draft", "log", "outcome")

    def __init__(self, log: Log | None, draft: Draft) -> None:
        self.log = log
        self.draft = draft
        self.outcome: AppendResult | PenstockError | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def result(self, timeout: float | None = None) -> AppendResult:
        """Wait until the block is durable, and return its place; raise its error if it was not stored.

        Raises `Timeout` after `timeout` seconds: the block may still be stored then.
        """
        if self.outcome is None and not self._done.acquire(timeout=-1 if timeout is None else timeout):
            raise Timeout(f"the append was not confirmed within {timeout} s; it may still be")
        if isinstance(self.outcome, PenstockError):
            raise self.outcome
        assert self.outcome is not None, "released without an outcome"  # noqa: S101 - a bug here, not bad input
        return self.outcome

    def release(self) -> None:
        """Wake the caller that waits in `result`."""
        self._done.release()


class WriterTask(PendingAppend):
    """A function that the writer thread runs between two groups, because only that thread changes logs."""

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


def release_all(appends: Sequence[PendingAppend]) -> None:
    for append in appends:
        append.release()


class GroupCommit:
    """The writer thread of a data directory.

    It calls `deliver` after each group with the blocks of that group, whose outcomes are set by then. `helpers` is the
    number of threads that write the logs of one group at the same time; with 0 the writer writes one log after the
    other. With helpers, logs with a common id generator need one of the class `SharedIds`.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        deliver: Callable[[Sequence[PendingAppend]], None] = release_all,
        helpers: int = 0,
        meter: StorageMeter | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._meter = meter or StorageMeter()
        self._deliver = deliver
        self._helpers = ThreadPoolExecutor(helpers, thread_name_prefix="penstock-sync") if helpers else None
        self._queue: deque[PendingAppend] = deque()
        self._queued_bytes = 0
        self._closing = False
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._open_logs: OrderedDict[Log, None] = OrderedDict()
        self.groups = 0
        self.blocks = 0
        self._thread = threading.Thread(target=self._run, name="penstock-writer", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True until the writer is closed: blocks submitted now will be written."""
        return self._thread.is_alive() and not self._closing

    @property
    def queued_bytes(self) -> int:
        """Bytes of the queued blocks, without the group that is being written."""
        return self._queued_bytes

    def submit(self, log: Log, draft: Draft, *, wait: bool = True) -> PendingAppend:
        """Queue a block and return at once; call `result` on what is returned to wait until it is durable.

        While the queue is full, waits for room; with `wait=False`, raises `ServiceUnavailable` instead. Raises
        `PayloadTooLarge`, and queues nothing, for a block over the log's limits.
        """
        draft.check_sizes(log.limits)
        append = PendingAppend(log, draft)
        with self._lock:
            self._wait_for_room(wait)
            self._queue.append(append)
            self._queued_bytes += len(draft.data)
            if len(self._queue) == 1:
                self._work.notify()
        return append

    def submit_all(self, blocks: Sequence[tuple[Log, Draft]], *, wait: bool = True) -> list[PendingAppend]:
        """Queue several blocks together, all or none. Waits and raises as `submit` does.

        They are all queued as soon as the queue has room for any block, so it may grow past its bound. Also raises the
        failure of a log that takes no more appends.
        """
        for log, draft in blocks:
            if log.failure is not None:
                raise log.failure
            draft.check_sizes(log.limits)
        appends = [PendingAppend(log, draft) for log, draft in blocks]
        with self._lock:
            self._wait_for_room(wait)
            idle = not self._queue
            self._queue.extend(appends)
            self._queued_bytes += sum(len(draft.data) for _, draft in blocks)
            if idle:
                self._work.notify()
        return appends

    def run(self, function: Callable[[], Any]) -> Any:
        """Run a function in the writer thread, after all blocks submitted so far. Returns its result, or raises what it
        raised.

        Blocks the caller until then. `deliver`, which runs in the writer thread, must not call it: it would wait for
        ever.
        """
        task = WriterTask(function)
        with self._lock:
            if self._closing:
                raise ServiceUnavailable("the data directory is closing")
            self._queue.append(task)
            self._work.notify()
        return task.wait()

    def append(self, log: Log, draft: Draft) -> AppendResult:
        """Submit a block and wait until it is durable. Raises what `submit` and `PendingAppend.result` raise."""
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
            if isinstance(group[0], WriterTask):
                group[0].run()
                continue
            self._write(group)
            self.groups += 1
            self.blocks += len(group)
            self._measure(group)
            self._hand_back(group)

    def _measure(self, group: list[PendingAppend]) -> None:
        self._meter.groups.add(sum(append.draft.count for append in group))
        self._meter.group_bytes += sum(len(append.draft.data) for append in group)

    def _hand_back(self, group: list[PendingAppend]) -> None:
        try:
            self._deliver(group)
        except Exception:  # an error in `deliver` must not end the writer thread
            _LOG.exception("unhandled error in delivering the outcomes of %d written blocks", len(group))

    def _gather(self) -> list[PendingAppend]:
        """Wait for queued blocks and take as many as make a group. Return an empty list when the writer is closed and
        the queue is empty."""
        with self._lock:
            while not self._queue:
                if self._closing:
                    return []
                self._work.wait()
            group: list[PendingAppend] = [self._queue.popleft()]
            size = len(group[0].draft.data)
            while self._queue and self._may_join(group[0], size):
                append = self._queue.popleft()
                size += len(append.draft.data)
                group.append(append)
            self._queued_bytes -= size
            self._room.notify_all()
            return group

    def _may_join(self, first: PendingAppend, size: int) -> bool:
        following = self._queue[0]
        if isinstance(first, WriterTask) or isinstance(following, WriterTask):
            return False
        return size + len(following.draft.data) <= self._limits.group_bytes_max

    def _write(self, group: list[PendingAppend]) -> None:
        by_log: dict[Log, list[PendingAppend]] = {}
        for append in group:
            assert append.log is not None, "writer tasks are not written"  # noqa: S101 - a bug here, not bad input
            by_log.setdefault(append.log, []).append(append)
        run = map if self._helpers is None or len(by_log) == 1 else self._helpers.map
        # Write every log before the files of any may be closed.
        for log in list(run(_append, by_log, by_log.values())):
            self._limit_open_files(log)

    def _limit_open_files(self, log: Log) -> None:
        """Record that `log` has open files. If more than `open_logs_max` logs have, close those of the least recently
        used."""
        self._open_logs[log] = None
        self._open_logs.move_to_end(log)
        if len(self._open_logs) > self._limits.open_logs_max:
            self._open_logs.popitem(last=False)[0].close_files()

    def close(self) -> None:
        """Refuse new blocks, finish what is queued, end the thread. Idempotent."""
        with self._lock:
            self._closing = True
            self._work.notify_all()
            self._room.notify_all()
        self._thread.join()
        if self._helpers is not None:
            self._helpers.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _append(log: Log, appends: list[PendingAppend]) -> Log:
    """Append one log's part of a group, set the outcome of each block, and return the log."""
    try:
        outcomes = log.append_group([append.draft for append in appends])
    except Exception as error:  # an unexpected error must not leave callers waiting for ever
        outcomes = [StorageFailed(f"{log.path}: {type(error).__name__}: {error}")] * len(appends)
    for append, outcome in zip(appends, outcomes, strict=True):
        append.outcome = outcome
    return log
