"""Cli: the commands. They parse, call, and print; what they do lives in the rooms below."""

from __future__ import annotations

import sys


def main() -> None:
    """The `penstock` command."""
    from penstock.cli.app import run

    sys.exit(run())
