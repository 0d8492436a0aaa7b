"""Locations in a pipeline's file: relative to the file itself, unless they are addresses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_address(text: str) -> bool:
    """Return whether the text is the address of an object store, a broker or any other `scheme://`."""
    return _ADDRESS.match(text) is not None


def located(directory: Path, text: str) -> str:
    """Return an absolute path, or the address as it is."""
    return text if is_address(text) else str((directory / Path(text).expanduser()).absolute())
