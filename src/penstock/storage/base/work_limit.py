"""The work limit of a scan: bytes read and hashed for each byte of the segment.

The author of a payload decides what a search through it meets, such as thousands of forged record heads that claim to
be large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.core.limits import MIB
from penstock.storage.base.disk import File

BUDGET_PER_BYTE: Final = 32
"""Bytes read and hashed for each byte of a segment: about 12 are needed with every tenth sector damaged and the index
lost."""
BUDGET_BYTES_MIN: Final = 64 * MIB
"""The least budget, for small segments: enough to try one record of the largest size."""


class ScanBudget:
    """A count of the bytes spent; at `limit` a search gives up."""

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
        """True while attempts that rarely help may be tried too."""
        return self.spent < self.limit // 8

    @property
    def free(self) -> int:
        """Bytes to spend on anything possible; after them, only on what is likely."""
        return max(0, self.limit // 2 - self.spent)


class CountedFile:
    """A file that reports how many bytes have been read of it."""

    def __init__(self, file: File, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read_into(self, buffer: Any, position: int) -> int:
        count = self._file.read_into(buffer, position)
        self._count(count)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
