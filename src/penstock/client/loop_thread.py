"""Where the blocking client lives: an event loop in a thread of its own, and threads for callbacks and handlers."""

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
    """Threads for callbacks and handlers, as many as are needed up to a bound. None of them keeps the program alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        """Threads that wait, and for which no work is on its way."""

        self._unclaimed = 0
        """Work for which there was no thread, and no room for another."""

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
        """Until there has been nothing to do for a while."""
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
        """Not while work is on its way to this thread."""
        with self._lock:
            if not self._idle:
                return False
            self._idle -= 1
            self._count -= 1
            return True


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.workers = CallbackThreads()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Its result. Ctrl-C, and a timeout, cancel it."""
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
        """On its way to the other thread. Ctrl-C before it is there, and nobody will ever run it."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()
            raise

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have it called soon; nobody waits for it."""
        if self._loop.is_closed():
            raise ServiceUnavailable("the client is closed")
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
