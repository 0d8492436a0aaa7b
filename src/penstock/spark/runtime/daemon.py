"""Quiet ends of Spark's Python workers: PySpark's own code prints a page about a broken pipe for each idle worker that
is released."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
_LET_GO: Final = 1


def end_quietly() -> None:
    """Make this worker ignore the broken pipe by which the JVM releases it. Do nothing if this process was not forked
    by PySpark's daemon."""
    program: Any = sys.modules.get("__main__")
    if getattr(getattr(program, "__spec__", None), "name", None) == _DAEMON and not hasattr(program, "penstock"):
        program.worker = _quiet(program.worker)
        program.penstock = True


def _quiet(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    def run(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:  # the JVM has closed its end, which is how it releases a worker
            return _LET_GO

    return run
