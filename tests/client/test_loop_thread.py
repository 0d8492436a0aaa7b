"""Threads for callbacks: each job gets one, even if others never end."""

from __future__ import annotations

import inspect
import threading
from functools import partial

import pytest

from penstock.client import loop_thread
from penstock.client.loop_thread import CallbackThreads, LoopThread
from penstock.client.wire.protocol import Message

NOTHING = Message.__new__(Message)


def waits(held: threading.Event, _message: Message) -> bool:
    return held.wait(30)


def gives(value: int, _message: Message) -> int:
    return value


def test_work_behind_work_that_hangs_is_done() -> None:
    workers = CallbackThreads()
    for _ in range(500):
        held = threading.Event()
        hangs = workers.submit(partial(waits, held), NOTHING)
        assert workers.submit(partial(gives, 7), NOTHING).result(20) == 7
        held.set()
        assert hangs.result(20)
    assert workers._count <= 4


def test_what_is_too_much_waits_and_threads_go_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_WORKERS_MAX", 2)
    monkeypatch.setattr(loop_thread, "_IDLE_SECONDS", 0.01)
    workers = CallbackThreads()
    for _ in range(20):
        held = threading.Event()
        waiting = [workers.submit(partial(waits, held), NOTHING) for _ in range(2)]
        more = [workers.submit(partial(gives, each), NOTHING) for each in range(5)]
        assert not any(each.done() for each in more)
        held.set()
        assert [each.result(20) for each in more] == list(range(5))
        assert all(each.result(20) for each in waiting)
    until = threading.Event()
    for _ in range(1000):
        if workers._count == 0:
            break
        until.wait(0.01)
    assert (workers._count, workers._idle, workers._unclaimed) == (0, 0, 0)


def test_what_ctrl_c_keeps_from_beginning_leaves_no_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        """Never start."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    loop, never = LoopThread(), work()
    with monkeypatch.context() as now:
        now.setattr(loop._loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(never)
    assert inspect.getcoroutinestate(never) == inspect.CORO_CLOSED
    loop.stop()
