"""Examples for tests: copied to a directory of their own, as a user has them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


def copied(name: str, to: Path) -> Path:
    """The example, without what it may have left behind in the checkout."""
    leave = shutil.ignore_patterns(
        "data", "lake", "checkpoints", "out", "storage", "warehouse", "metastore", "__pycache__"
    )
    return Path(shutil.copytree(EXAMPLES / name, to / name, ignore=leave))


def commands(readme: Path) -> str:
    """All that it tells to type."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", readme.read_text(), flags=re.MULTILINE | re.DOTALL))
