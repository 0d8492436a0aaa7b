"""The thread for regular work on an open data directory, beside the writer; it delays no append.

It makes a round every two seconds, soon after a request, and once more when it is closed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 2.0
"""The longest pause between two rounds: a crash loses at most this much, and a round costs one small transaction."""
PAUSE_SECONDS: Final = 0.25
"""The shortest pause between two rounds: with segments of a few KiB, a thousand requests a second may come."""


class MaintenanceThread:
    """A thread that calls `look` in each round. `close` ends it, and calls `look` once more in the caller's thread."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._called = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-rounds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_round(self) -> None:
        """Ask for a round soon. Returns at once."""
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
        except Exception:  # a failed round must not end the thread, nor keep the directory open
            _LOG.exception("unhandled error in a maintenance round of the data directory")

    def close(self) -> None:
        """End the thread, then make the last round in the caller's thread. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._called.set()
        self._thread.join()
        self._round()
