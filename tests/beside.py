"""What lies beside the repository and is no part of it: public tables and recordings that tests hold themselves to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SHARED: Final = Path(__file__).resolve().parents[2] / "shared"


def files_beside(pattern: str, variable: str) -> list[Path]:
    """Those in `shared` beside the repository's own directory, or in the directory that the environment names."""
    folder, _, files = pattern.rpartition("/")
    return sorted(Path(os.environ.get(variable) or _SHARED / folder).glob(files))
