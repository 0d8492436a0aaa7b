"""Exit codes of all commands, explained in docs/commands.md."""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FINDINGS: Final = 1
"""The command did its work, and found a problem."""
EXIT_COULD_NOT: Final = 2
"""The command could not do its work; standard error has the reason."""
EXIT_MISSING: Final = 3
"""Messages are lost or damaged, so the result is incomplete."""
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143
