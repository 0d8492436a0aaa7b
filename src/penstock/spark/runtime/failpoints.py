"""Failpoints: named places in the code where a crash test can kill the process. Without a test each costs one
comparison.

`PENSTOCK_FAILPOINT=before-commit` kills at the first visit of that place, `before-commit:3` at the third. The process
gets SIGKILL, as from outside: nothing is flushed, nothing is closed, no handler runs.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "PENSTOCK_FAILPOINT"

FAILPOINTS: Final = (
    "batch-started",
    "table-ready",
    "files-written",
    "plan-written",
    "before-commit",
    "committed-before-return",
    "between-tables",
    "after-commit",
    "progress-reported",
    "batch-noted",
)
"""Names of the failpoints: the steps of an archive's batch, in order."""

_armed = ""
_visits_left = 0


def arm(text: str) -> None:
    """Choose where this process is killed: `PLACE` or `PLACE:VISIT`. An empty text means nowhere."""
    global _armed, _visits_left
    _armed, _, count = text.partition(":")
    _visits_left = int(count) if count.isdigit() else 1


def reach(name: str) -> None:
    """Kill this process with SIGKILL if it was armed for this failpoint and this is the chosen visit."""
    if name != _armed:
        return
    global _visits_left
    _visits_left -= 1
    if _visits_left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
