"""Ctrl-C and SIGTERM at the right moment: not while a process is being started, nor while things are put away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Within this they wait; the first that came is raised behind it. In the middle of starting a process, it would
    leave that process to nobody."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's affair
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def final_interrupt() -> Iterator[None]:
    """Once this was interrupted and has put everything away, only the end of the process is left. Whoever presses
    Ctrl-C again need not see in the middle of what that came."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
