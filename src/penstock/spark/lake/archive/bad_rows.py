"""The summary of messages that did not decode: their partitions and offsets, and the most frequent reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

REASONS_MAX: Final = 100
"""Most reasons that are counted separately. There is a limit because a reason may quote the payload: then each message
may have a reason of its own."""
REASONS_SHOWN: Final = 3


@dataclass(slots=True)
class BadRows:
    """The offsets and the reasons of a table's bad rows: messages whose payload did not decode. Workers send it to the
    driver as JSON."""

    places: dict[str, list[int]] = field(default_factory=dict)
    """Offsets of the first and the last bad message of each partition (`TOPIC[N]`)."""
    reasons: dict[str, int] = field(default_factory=dict)
    others: int = 0
    """Rows whose reason is not counted separately."""

    @classmethod
    def of_json(cls, said: Mapping[str, Any] | None) -> BadRows:
        return cls(**said) if said else cls()

    def add_rows(self, batch: pa.RecordBatch) -> None:
        """Count rows that were written to a bad-rows table. All rows of `batch` must be of one partition."""
        if not batch.num_rows:
            return
        edges = pc.min_max(batch.column("_offset")).as_py()
        self._extend_range(f"{batch.column('_topic')[0]}[{batch.column('_partition')[0]}]", edges["min"], edges["max"])
        for counted in pc.value_counts(batch.column("_reason")).to_pylist():
            self._count_reason(counted["values"], counted["counts"])

    def add(self, other: BadRows) -> None:
        for partition, (first, last) in other.places.items():
            self._extend_range(partition, first, last)
        for reason, count in other.reasons.items():
            self._count_reason(reason, count)
        self.others += other.others

    def _extend_range(self, partition: str, first: int, last: int) -> None:
        known = self.places.get(partition, [first, last])
        self.places[partition] = [min(first, known[0]), max(last, known[1])]

    def _count_reason(self, reason: str, count: int) -> None:
        if reason in self.reasons or len(self.reasons) < REASONS_MAX:
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        else:
            self.others += count

    def top(self) -> list[tuple[str, int]]:
        """Return the three most frequent reasons with their counts."""
        return Counter(self.reasons).most_common(REASONS_SHOWN)

    def as_dict(self) -> dict[str, Any]:
        """Return the offsets and the most frequent reasons, for people and scripts."""
        return {"places": self.places, "reasons": dict(self.top())}
