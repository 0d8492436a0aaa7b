"""The work limit of a scan: how many bytes it may read and hash for each byte of the segment.

Without a limit, the author of a payload could make a search take very long: with thousands of forged record heads in
it, for instance, each of which claims to be large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.core.limits import MIB
from penstock.storage.base.disk import File

BUDGET_PER_BYTE: Final = 32
"""Bytes that may be read and hashed for each byte of a segment. About 12 are needed if every tenth sector is damaged
and the index is lost."""
BUDGET_BYTES_MIN: Final = 64 * MIB
"""The least budget, for small segments: enough to try one record of the largest size."""


class ScanBudget:
    """A count of the bytes read and hashed; when it reaches `limit`, a search gives up."""

    def __init__(self, size: int) -> None:
        self.limit = BUDGET_PER_BYTE * size + BUDGET_BYTES_MIN
        self.spent = 0

    def spend(self, count: int) -> None:
        self.spent += count

    @property
    def left(self) -> int:
        return max(0, self.limit - self.spent)

    @property
    def is_ample(self) -> bool:
        """True in the first eighth of the budget: attempts that rarely succeed are made only then."""
        return self.spent < self.limit // 8

    @property
    def free(self) -> int:
        """Bytes left of the first half of the budget, which may be spent on any candidate; the second half is for
        likely ones."""
        return max(0, self.limit // 2 - self.spent)


class CountedFile:
    """A file that passes the number of bytes of each read to `count`."""

    def __init__(self, file: File, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read_into(self, buffer: Any, position: int) -> int:
        count = self._file.read_into(buffer, position)
        self._count(count)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
