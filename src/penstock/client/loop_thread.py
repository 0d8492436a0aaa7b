"""The threads of the blocking client: one runs the event loop, and a pool runs callbacks and handlers."""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.client.wire.protocol import Message
from penstock.core.errors import ServiceUnavailable

_T = TypeVar("_T")
_WORKERS_MAX: Final = 64
_IDLE_SECONDS: Final = 10.0


class CallbackThreads:
    """A pool of up to 64 daemon threads for callbacks and handlers, started on demand. Daemon threads do not keep the
    program alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        """The number of threads that wait for a job and have not been assigned one."""

        self._unclaimed = 0
        """The number of queued jobs that no thread was free for when they were submitted, because the pool had its
        largest size."""

        self._count = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[Message], _T], message: Message) -> Future[_T]:
        done: Future[_T] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(function(message))
            except BaseException as error:
                done.set_exception(error)

        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._count < _WORKERS_MAX:
                self._count += 1
                threading.Thread(target=self._run, name="penstock-worker", daemon=True).start()
            else:
                self._unclaimed += 1
        self._work.put(work)
        return done

    def _run(self) -> None:
        """Run jobs until there has been none for ten seconds."""
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._leaves():
                    return
                continue
            work()
            with self._lock:
                if self._unclaimed:
                    self._unclaimed -= 1
                else:
                    self._idle += 1

    def _leaves(self) -> bool:
        """Remove this thread from the pool and return True; return False if a queued job is assigned to it."""
        with self._lock:
            if not self._idle:
                return False
            self._idle -= 1
            self._count -= 1
            return True


class LoopThread:
    """An event loop that runs in a daemon thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.workers = CallbackThreads()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Run a coroutine in the loop and return its result. Raises `TimeoutError` after `timeout` seconds; that, and
        Ctrl-C, cancel the coroutine. Raises `ServiceUnavailable` if the client is closed or belongs to another
        process."""
        if self._loop.is_closed() or os.getpid() != self._process:
            work.close()
            gone = "is closed" if self._loop.is_closed() else "was made in another process: each needs its own"
            raise ServiceUnavailable(f"the client {gone}")
        future = self._begun(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _begun(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Schedule a coroutine in the loop's thread. If Ctrl-C interrupts this before it is scheduled, close the
        coroutine, since it will never run."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call in the loop's thread, without waiting for it. Raises `ServiceUnavailable` if the client is
        closed."""
        if self._loop.is_closed():
            raise ServiceUnavailable("the client is closed")
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
