"""Statistics of logs: count, sizes and times of messages, by topic, type, producer, schema, hour.

Python workers read the slices and add up; the driver adds their sums. Only reads. Damaged messages are counted
separately.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit import inventory
from penstock.spark.jobs.audit.report.fields import time_text
from penstock.spark.jobs.audit.runners import JobRunner, SparkRunner
from penstock.spark.jobs.stats import groups
from penstock.spark.jobs.stats.groups import BY, TIMES, Group, MessageSums, StatsTask
from penstock.spark.jobs.worker_jobs import group_by_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StageProgress = Callable[[str, int, int], None]
_WHAT: Final = "counting"


@dataclass(frozen=True, slots=True)
class Stats:
    """The result: one row for each group, sorted by group. `lost` counts messages that could not be read, `seconds` is
    the time that it took."""

    by: tuple[str, ...]
    rows: tuple[tuple[Group, MessageSums], ...]
    lost: int
    seconds: float

    @property
    def count(self) -> int:
        return sum(sums.count for _, sums in self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return one dict for each group, with the values of the grouping fields, counts, sizes and times."""
        return [
            dict(zip(self.by, map(_shown, self.by, group), strict=True)) | _numbers(sums) for group, sums in self.rows
        ]


def parse_by(text: str) -> tuple[str, ...]:
    """Return the fields of a text such as `topic,hour`. Raises `InvalidRequest` for a field that cannot be grouped by,
    and for no field at all."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in BY]
    if unknown or not names:
        raise InvalidRequest(f"--by {text!r}: choose from {', '.join(BY)}, with commas between them", given=text)
    return names


def stats(
    spark: SparkSession,
    location: Location,
    topics: Sequence[TopicName] = (),
    *,
    by: Sequence[str] = ("topic",),
    stage: StageProgress = lambda _what, _done, _all: None,
) -> Stats:
    """Return the statistics of these topics, or of all, computed by Spark. `stage` is called with the progress.

    Raises `TopicNotSupported` for a topic that does not exist, `InvalidRequest` for an unknown field in `by` or if
    there are no topics.
    """
    return stats_with(SparkRunner(spark), location, topics, by=by, stage=stage)


def stats_with(
    runner: JobRunner,
    location: Location,
    topics: Sequence[TopicName] = (),
    *,
    by: Sequence[str] = ("topic",),
    stage: StageProgress = lambda _what, _done, _all: None,
) -> Stats:
    """Return the statistics, computed by any runner; see `stats`."""
    began = time.monotonic()
    chosen = parse_by(",".join(by))
    data = location.open()
    logs = inventory.take_inventory(data, topics).logs
    parts = group_by_bytes(inventory.slices(location, data, logs), lambda part: part.bytes, runner.cores)
    tasks = [StatsTask(tuple(part), chosen) for part in parts]
    whole = groups.add_totals(runner.run(_WHAT, groups.count, tasks, partial(stage, _WHAT)))
    rows = sorted(whole.groups.items(), key=lambda row: tuple((value is not None, value) for value in row[0]))
    return Stats(chosen, tuple(rows), whole.lost, time.monotonic() - began)


def _shown(name: str, value: object) -> object:
    return time_text(value) if name in TIMES and isinstance(value, int) else value


def _numbers(sums: MessageSums) -> dict[str, Any]:
    seconds = (sums.last_ms - sums.first_ms) / 1000
    return {
        "messages": sums.count,
        "bytes": sums.record_bytes,
        "size_min": sums.sizes.smallest,
        "size_median": sums.sizes.quantile(0.5),
        "size_max": sums.sizes.largest,
        "first_time": time_text(sums.first_ms),
        "last_time": time_text(sums.last_ms),
        "messages_per_second": round(sums.count / seconds, 3) if seconds else None,
        "bytes_per_second": round(sums.record_bytes / seconds, 3) if seconds else None,
    }
