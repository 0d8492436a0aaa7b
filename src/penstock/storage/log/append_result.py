"""The result of an append, and what its acknowledgement promises."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from penstock.core.ids import IdRun
from penstock.core.offsets import Offset, OffsetRange


class Durability(StrEnum):
    SYNC = "sync"
    """Acknowledged means on disk."""
    OS = "os"
    """Acknowledged means handed to the operating system: a power cut loses what it had not written yet."""


class AppendResult(NamedTuple):
    """Where a block now is: durable, from this offset on. A plain tuple, because one is made for every block."""

    offset: Offset
    records: int
    first_ticks: int
    id_low: int
    stamped: memoryview
    """The records as they lie on disk, for whoever waits for them: no need to read them back."""

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange.of(self.offset, self.offset + self.records)

    @property
    def ids(self) -> IdRun:
        return IdRun(self.first_ticks, self.records, self.id_low)

    @property
    def id(self) -> bytes:
        return self.ids[0]
