"""Histograms of sizes and durations. All have the same buckets, so that any two can be added.

Each value below 64 has a bucket of its own. Above, each range from a power of two to the next has 64 buckets, so that a
quantile is off by at most one part in 128. The kernel `tally_kernels.count_values` counts in the same buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from penstock.record.block import Longs
from penstock.record.kernels.tally_kernels import BUCKETS, FINE, VALUE_BITS, count_values


def bucket_range(bucket: int) -> tuple[int, int]:
    """Return the least value of a bucket, and the least value above it."""
    if bucket < FINE:
        return bucket, bucket + 1
    shift, fraction = divmod(bucket, FINE)
    return (FINE + fraction) << (shift - 1), (FINE + fraction + 1) << (shift - 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values by bucket, and the exact smallest and largest value. An empty histogram has no buckets, and 0
    for both."""

    counts: Mapping[int, int] = field(default_factory=dict)
    smallest: int = 0
    largest: int = 0

    @classmethod
    def of(cls, values: Longs) -> Histogram:
        if not values.size:
            return NO_VALUES
        buckets = np.zeros(BUCKETS, dtype=np.int64)
        count_values(np.ascontiguousarray(values), buckets)
        return cls.counted(buckets, int(values.min()), int(values.max()))

    @classmethod
    def counted(cls, buckets: Longs, smallest: int, largest: int) -> Histogram:
        """Return a histogram made from an array with the count of every bucket."""
        used = np.flatnonzero(buckets)
        if not used.size:
            return NO_VALUES
        return cls(dict(zip(used.tolist(), buckets[used].tolist(), strict=True)), smallest, largest)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __add__(self, other: Histogram) -> Histogram:
        if not self.counts or not other.counts:
            return self if self.counts else other
        counts = add_counts(self.counts, other.counts)
        return Histogram(counts, min(self.smallest, other.smallest), max(self.largest, other.largest))

    def quantile(self, share: float) -> int | None:
        """Return the value below which about this share (0 to 1) of the values lies; None if the histogram is empty."""
        count = len(self)
        if not count:
            return None
        target, seen = share * count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= target:
                low, stop = bucket_range(bucket)
                return min(max((low + stop - 1) // 2, self.smallest), self.largest)
        return self.largest

    def doublings(self) -> list[tuple[int, int, int]]:
        """Return the counts in coarse steps, from one power of two to the next: (from, up to, count). Steps without
        values between others are included."""
        by_step: dict[int, int] = {}
        for bucket, count in self.counts.items():
            step = bucket_range(bucket)[0].bit_length()
            by_step[step] = by_step.get(step, 0) + count
        steps = range(min(by_step), min(max(by_step), VALUE_BITS) + 1) if by_step else range(0)
        return [(1 << step >> 1, 1 << step, by_step.get(step, 0)) for step in steps]

    def as_dict(self) -> dict[str, Any]:
        """Return the histogram as the fields of a report."""
        return {
            "count": len(self),
            "min": self.smallest if self.counts else None,
            "median": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "max": self.largest if self.counts else None,
            "buckets": [{"from": low, "to": stop, "count": count} for low, stop, count in self.doublings()],
        }


NO_VALUES: Final = Histogram()


def add_counts(left: Mapping[Any, int], right: Mapping[Any, int]) -> dict[Any, int]:
    """Return both mappings as one; counts of keys that are in both are added."""
    merged = dict(left)
    for key, count in right.items():
        merged[key] = merged.get(key, 0) + count
    return merged


def add_histograms(histograms: Iterable[Histogram]) -> Histogram:
    histogram_sum = NO_VALUES
    for histogram in histograms:
        histogram_sum += histogram
    return histogram_sum
