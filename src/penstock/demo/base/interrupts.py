"""Deferred interrupts: Ctrl-C and SIGTERM wait while a process is being started, and while things are cleaned up."""

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
    """Defer Ctrl-C and SIGTERM within this context; the first that came takes effect when the context ends.

    In the middle of starting a process, a signal would leave that process without an owner.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
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
    """Ignore Ctrl-C after an interrupt has cleaned up, since only the end of the process is left.

    A second Ctrl-C would only show the place where it struck.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
