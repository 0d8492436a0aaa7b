"""The thread pool: runs work that may wait for the disk, and returns its outcome to the event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from penstock.broker.base.effects import RunInThread
from penstock.core.errors import PenstockError

_LOG: Final = logging.getLogger(__name__)
_READERS: Final = 2
"""The number of threads for reads: with more than one, a slow read for one subscription does not hold up all others."""


_Submission = tuple[RunInThread, Any]


class ThreadPool:
    """One thread that does the work on the catalog in the order of its submission, and a few threads that do reads."""

    def __init__(self, done: Callable[[RunInThread, Any, Any], None]) -> None:
        """Start the threads. For each piece of work, `done` is called in the event loop with the work, the submitter,
        and the outcome: a result, or a `PenstockError`."""
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._ordered: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._reading: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        queues = [("penstock-catalog", self._ordered), *[("penstock-reader", self._reading)] * _READERS]
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=name, daemon=True) for name, each in queues
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: RunInThread, by: Any = None) -> None:
        (self._reading if work.read_only else self._ordered).put((work, by))

    def _run(self, submissions: queue.SimpleQueue[_Submission | None]) -> None:
        while (submission := submissions.get()) is not None:
            work, by = submission
            outcome = _outcome(work)
            with suppress(RuntimeError):  # the event loop is closed: nobody waits for the outcome
                self._loop.call_soon_threadsafe(self._done, work, by, outcome)

    def close(self) -> None:
        """Wait for the work under way, and drop the work that has not begun: its sessions are closed already. Blocks
        until the threads have ended."""
        for waiting, threads in ((self._ordered, 1), (self._reading, _READERS)):
            with suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            for _ in range(threads):
                waiting.put(None)
        for thread in self._threads:
            thread.join()


def _name(function: Callable[..., Any]) -> str:
    """Return the function's name for the log, without its arguments, which may be payloads."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", type(function).__name__)


def _outcome(work: RunInThread) -> Any:
    try:
        return work.run()
    except PenstockError as error:
        return error
    except Exception as error:  # or else the session would wait for ever
        _LOG.exception("unhandled error in background work", extra={"work": _name(work.run)})
        return PenstockError(f"The broker failed: {type(error).__name__}")
