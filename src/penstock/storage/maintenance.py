"""The maintenance thread of an open data directory: it works beside the writer and delays no append.

It makes a round every few seconds, soon after a request, and once more at the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 2.0
"""The pause between two rounds: what a crash may leave unsaved, against one small transaction each."""
PAUSE_SECONDS: Final = 0.25
"""The pause between two requested rounds: segments of a few KiB roll a thousand times a second."""


class MaintenanceThread:
    """A thread that calls `look` again and again. `start` begins it; `close` ends it after a last round in the caller's
    thread."""

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
        """End the thread and make the last round. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._called.set()
        self._thread.join()
        self._round()
