"""Signal handling for commands that run until they are stopped. The first Ctrl-C or SIGTERM ends the command in order,
the second one at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from penstock.cli.exit_codes import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED


class StopRequest:
    """A signal handler that records the signal by which a command was asked to stop."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.requested.is_set():
            raise KeyboardInterrupt
        self._number = number
        self.requested.set()
        sys.stderr.write("penstock: stopping when the batch that is running is done; again, to stop now\n")

    @property
    def exit_code(self) -> int:
        if self._number is None:
            return EXIT_OK
        return EXIT_TERMINATED if self._number == signal.SIGTERM else EXIT_INTERRUPTED


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handle Ctrl-C and SIGTERM in the context; yield the record of signals.

    Enter it after the Spark session has started. PySpark sets a handler for Ctrl-C that would interrupt the current
    batch; this handler must replace that one.
    """
    stop = StopRequest()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
