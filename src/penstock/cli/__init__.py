"""Cli: the commands. They parse, call, and print; what they do lives in the rooms below."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def main() -> None:
    """The `penstock` command."""
    # As Ctrl-C does it: open logs are closed in order, temporary files and child processes go.
    signal.signal(signal.SIGTERM, _terminate)
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


@contextmanager
def importing() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: there is none, and a few hundred thousand objects to look through."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(EXIT_TERMINATED)
