"""Workers: threads for what may wait for the disk. What comes of it returns to the event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.broker.base.effects import RunInThread
from penstock.core.errors import PenstockError

_LOG: Final = logging.getLogger(__name__)
_READERS: Final = 2
"""Enough that a cold read of one subscription does not hold up all others."""


_Submission = tuple[RunInThread, Any]


class ThreadPool:
    """One thread that does things in order, and a few that read."""

    def __init__(self, done: Callable[[RunInThread, Any, Any], None]) -> None:
        """`done` is told what came of each, and by whom it was asked for."""
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
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._done, work, by, outcome)

    def close(self) -> None:
        """Finish what is under way, and leave what has not begun: nobody would hear of it."""
        for waiting, threads in ((self._ordered, 1), (self._reading, _READERS)):
            with suppress(queue.Empty):
                while True:
                    waiting.get_nowait()
            for _ in range(threads):
                waiting.put(None)
        for thread in self._threads:
            thread.join()


def _outcome(work: RunInThread) -> Any:
    try:
        return work.run()
    except PenstockError as error:
        return error
    except Exception as error:  # a defect must not leave anybody waiting for ever
        _LOG.exception("a defect in the broker")
        return PenstockError(f"The broker failed: {type(error).__name__}")
