"""The command line. Commands parse their options, call the packages that do the work, and print the results."""

from __future__ import annotations

import gc
import signal
import sys
from io import TextIOWrapper
from types import FrameType

from penstock.cli.exit_codes import EXIT_INTERRUPTED, EXIT_TERMINATED
from penstock.cli.imports import importing


def main() -> None:
    """Run the `penstock` command, and exit with its exit code."""
    # SIGTERM unwinds like Ctrl-C: open logs are closed in order, temporary files and child processes go.
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _report_unless_hung_up
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # a message may hold characters that this terminal cannot show
    try:
        with importing():
            from penstock.cli.app import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        gc.freeze()  # or the interpreter would search everything that was ever imported for garbage before it ends


def _report_unless_hung_up(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python cannot raise, such as one in a finalizer, unless it says that a reader has gone
    away.

    Since 3.13 Python reports every file that could not be flushed when it was closed. This happens at the end of a
    Spark session, and when a reader such as `head` ends before us. No data is lost, so nothing is reported.
    """
    if not isinstance(unraisable.exc_value, BrokenPipeError | ConnectionResetError):
        sys.__unraisablehook__(unraisable)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)
