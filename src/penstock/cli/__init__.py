"""The command line: commands parse, call and print; the work is done by the packages below."""

from __future__ import annotations

import gc
import signal
import sys
from io import TextIOWrapper
from types import FrameType

from penstock.cli.exit_codes import EXIT_INTERRUPTED, EXIT_TERMINATED
from penstock.cli.imports import importing


def main() -> None:
    """Run the `penstock` command."""
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
    """Report exceptions that cannot be raised, except for files and sockets whose other side has gone.

    Since 3.13 Python reports every file that could not be flushed and closed. There are some at the end of a session
    with Spark, and a reader such as `head` causes another: nothing is lost with them.
    """
    if not isinstance(unraisable.exc_value, BrokenPipeError | ConnectionResetError):
        sys.__unraisablehook__(unraisable)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)
