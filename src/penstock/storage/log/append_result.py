"""The result of an append, and what its acknowledgement promises."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from penstock.core.ids import IdRun
from penstock.core.offsets import Offset, OffsetRange


class Durability(StrEnum):
    """The moment at which an append is acknowledged."""

    SYNC = "sync"
    """An acknowledged message is on disk."""
    OS = "os"
    """An acknowledged message was handed to the operating system: a power cut loses what it has not written yet."""


class AppendResult(NamedTuple):
    """The place of an appended block: its first offset, its number of messages, and their ids. A named tuple, because
    one is made for every block, and it is cheap."""

    offset: Offset
    records: int
    first_ticks: int
    id_low: int
    stamped: memoryview
    """The records as they lie on disk, so that live readers need not read them back."""

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange.of(self.offset, self.offset + self.records)

    @property
    def ids(self) -> IdRun:
        return IdRun(self.first_ticks, self.records, self.id_low)

    @property
    def id(self) -> bytes:
        return self.ids[0]
