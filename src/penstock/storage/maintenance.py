"""Rounds: a thread that looks after an open data directory, beside the one that writes to it.

What it does costs no append anything. It is done every few seconds, soon after somebody has called for it, and once
more at the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 2.0
"""Between two rounds: what a crash may leave unnoted, against one small transaction each."""
PAUSE_SECONDS: Final = 0.25
"""Between two rounds that were called for: segments of a few KiB roll a thousand times a second."""


class MaintenanceThread:
    """Begins with `start`; `close` ends it after a last round, in the thread of the caller."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._called = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-rounds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_round(self) -> None:
        """Have the next round soon. Returns at once."""
        self._called.set()

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            self._called.wait(EVERY_SECONDS)
            self._called.clear()
            if not self._ended.is_set():
                self._round()

    def _round(self) -> None:
        try:
            self._look()
        except Exception:  # a defect in it must not end the rounds, nor keep the directory from being closed
            _LOG.exception("a round of the data directory failed")

    def close(self) -> None:
        """Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._called.set()
        self._thread.join()
        self._round()
