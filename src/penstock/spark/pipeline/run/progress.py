"""Reports of a query's batches as numbers: rows in and out, time taken, lag. Pure.

They are made from Spark's progress reports. Rows out are counted by the query itself (`ROWS_OUT`), since few sinks of
Spark report them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.spark.source.offsets import Offsets, PartitionKey

ROWS_OUT: Final = "penstock_rows_out"
"""The name under which a query counts the rows that it hands to its sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A finished batch of a query. None stands for unknown."""

    query: str
    batch: int
    rows_in: int
    rows_out: int | None
    ms: int
    lag: int | None
    """Records that were in the topics when the batch was planned, and are in no batch yet."""
    watermark: str | None = None
    late: int | None = None
    """Rows that came behind the watermark and were left out."""
    state_rows: int | None = None

    @property
    def rows_in_second(self) -> float:
        return 1000 * self.rows_in / self.ms if self.ms else 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def batch_report(report: Mapping[str, Any]) -> BatchReport:
    """Return the report of a batch, made from one of Spark's progress reports."""
    sources = report.get("sources") or []
    return BatchReport(
        query=str(report.get("name") or report.get("id")),
        batch=int(report["batchId"]),
        rows_in=sum(max(0, int(source.get("numInputRows") or 0)) for source in sources),
        rows_out=_rows_out(report),
        ms=int((report.get("durationMs") or {}).get("triggerExecution") or report.get("batchDuration") or 0),
        lag=_sum([lag_of(source) for source in sources]),
        watermark=(report.get("eventTime") or {}).get("watermark"),
        late=_of_operators(report, "numRowsDroppedByWatermark"),
        state_rows=_of_operators(report, "numRowsTotal"),
    )


def _rows_out(report: Mapping[str, Any]) -> int | None:
    counted = (report.get("observedMetrics") or {}).get(ROWS_OUT)
    if counted is not None:
        return int(counted["rows"])
    taken = int((report.get("sink") or {}).get("numOutputRows", -1))
    return taken if taken >= 0 else None


def _of_operators(report: Mapping[str, Any], number: str) -> int | None:
    """Return the sum of a number over all stateful operators of a query; None if it has none."""
    operators = report.get("stateOperators") or []
    return sum(int(operator.get(number) or 0) for operator in operators) if operators else None


def _sum(numbers: list[int | None]) -> int | None:
    """Return the sum of the known numbers; None without any."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


# ---- lag


def lag_of(source: Mapping[str, Any]) -> int | None:
    """Return how many records were in the topics and not in a batch, when the batch was planned; None for sources that
    do not say."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, next_offset - end.get(partition, 0)) for partition, next_offset in latest.items())


def _offsets(report: Any) -> dict[PartitionKey, int] | None:
    """Return the next offset of every partition, if these are offsets of the penstock source."""
    try:
        offsets = json.loads(report) if isinstance(report, str) else report
        return {key: position.offset for key, position in Offsets.of_json(offsets).positions.items()}
    except (ValueError, PenstockError):
        return None
