"""Cli: the commands. They parse, call, and print; what they do lives in the rooms below."""

from __future__ import annotations

import gc
import signal
import sys
from io import TextIOWrapper
from types import FrameType

from penstock.cli.exit_codes import EXIT_INTERRUPTED, EXIT_TERMINATED
from penstock.cli.imports import importing


def main() -> None:
    """The `penstock` command."""
    # As Ctrl-C does it: open logs are closed in order, temporary files and child processes go.
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _report_unless_hung_up
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a message may hold what this terminal cannot show
    try:
        with importing():
            from penstock.cli.app import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        gc.freeze()  # or the interpreter goes over all that was ever imported, in search of garbage, before it ends


def _report_unless_hung_up(unraisable: sys.UnraisableHookArgs) -> None:
    """Tell of what failed where nobody could be told, but for files and sockets whose other side has gone.

    Since 3.13 Python tells of each of those that could not be closed in order. At the end of a session with Spark
    there are some, and a reader such as `head` is another: no news, and nobody's loss.
    """
    if not isinstance(unraisable.exc_value, BrokenPipeError | ConnectionResetError):
        sys.__unraisablehook__(unraisable)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)
