"""Where the file says that something lies: relative to the file itself, unless it is an address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_address(text: str) -> bool:
    """An object store's, a broker's or any other `scheme://`."""
    return _ADDRESS.match(text) is not None


def located(directory: Path, text: str) -> str:
    """An absolute path, or the address as it is."""
    return text if is_address(text) else str((directory / Path(text).expanduser()).absolute())
