"""Metrics of the disk and the writer: how long syncs take, and how large groups are.

The writing threads count, once a sync and once a group; any thread reads. Files are touched only through `disk`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from penstock.storage.base.disk import OsDisk, OsFile

SYNC_SECONDS: Final = (0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bucket bounds in seconds: from a disk with a battery behind its cache to one that is about to fail."""

GROUP_MESSAGES: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)
"""Bucket bounds in messages of one group: from one caller that waits for each message to the largest possible group."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of the values up to each bound; `counts[-1]` is the number of all values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """Cumulative counts: of values up to `bounds[i]`, and of all values at the end."""
    total: float
    """The sum of all values."""

    @property
    def count(self) -> int:
        return self.counts[-1]

    def quantile(self, share: float) -> float | None:
        """Return the least bound at or below which this share of the values lies (0.5 is the median); None without
        values.

        Returns the last bound if the quantile is beyond all bounds.
        """
        if not self.count:
            return None
        bucket = bisect_left(self.counts, share * self.count)
        return self.bounds[min(bucket, len(self.bounds) - 1)]


class Histogram:
    """Counts of values by size. Several threads may add to it."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._turn = threading.Lock()

    def add(self, value: float) -> None:
        bucket = bisect_left(self._bounds, value)
        with self._turn:
            self._counts[bucket] += 1
            self._total += value

    def snapshot(self) -> Distribution:
        """Return the counts as they are now."""
        with self._turn:
            return Distribution(self._bounds, tuple(accumulate(self._counts)), self._total)


class StorageMeter:
    """The metrics of one data directory."""

    def __init__(self) -> None:
        self.syncs = Histogram(SYNC_SECONDS)
        self.sync_failures = 0
        self.groups = Histogram(GROUP_MESSAGES)
        self.group_bytes = 0

    def totals(self) -> dict[str, float]:
        """Return totals since the directory was opened, by name, for display to people."""
        syncs, groups = self.syncs.snapshot(), self.groups.snapshot()
        return {
            "storage.sync.count": syncs.count,
            "storage.sync.seconds": syncs.total,
            "storage.sync.seconds.p99": syncs.quantile(0.99) or 0.0,
            "storage.group.count": groups.count,
            "storage.group.messages": groups.total,
        }


class MeteredDisk(OsDisk):
    """The operating system's file system, with every sync timed."""

    def __init__(self, meter: StorageMeter) -> None:
        self._meter = meter

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> OsFile:
        opened = super().open(path, write=write, create=create)
        return _MeteredFile(opened.take(), self._meter) if write else opened


class _MeteredFile(OsFile):
    def __init__(self, descriptor: int, meter: StorageMeter) -> None:
        super().__init__(descriptor)
        self._meter = meter

    def sync(self) -> None:
        began = time.perf_counter()
        try:
            super().sync()
        except OSError:
            self._meter.sync_failures += 1
            raise
        self._meter.syncs.add(time.perf_counter() - began)
