"""Message counts without Spark. Where offsets and the index are enough no messages are read; otherwise all are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.jobs.audit import inventory
from penstock.spark.jobs.audit.report.fields import time_text
from penstock.spark.jobs.audit.runners import LocalRunner
from penstock.spark.jobs.stats.groups import TIMES
from penstock.spark.jobs.stats.stats import parse_by, stats_with
from penstock.spark.scan.offset_counts import HOUR_MS, SLICE_BYTES, CountedRange, counted_ranges
from penstock.spark.scan.slice_reader import LossCounter
from penstock.spark.scan.slices import Slice, plan_slices

_INDEXED: Final = frozenset({"topic", "partition", "hour", "day"})
_DAY_MS: Final = 24 * HOUR_MS


def counts(
    path: str | None = None,
    topics: Sequence[str] = (),
    *,
    by: str = "topic",
    url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return how many messages there are, grouped as by `penstock stats`: a dict for each group, with the fields of
    `by` and `messages`. Without `topics`, all topics are counted.

    By topic and partition that takes milliseconds, by hour and day some reads for each hour, whatever the log's size: a
    damaged message counts, a missing segment does not and is logged. Any other grouping reads all messages, in this
    process, and leaves out damaged ones. Raises `InvalidRequest` or `TopicNotSupported` for what does not exist.
    """
    chosen = parse_by(by)
    location = Location.parse(path=path, url=url, storage_options=storage_options)
    names = [TopicName.parse(topic) for topic in topics]
    if not _INDEXED.issuperset(chosen):
        rows_read = stats_with(LocalRunner(), location, names, by=chosen).as_dicts()
        return [{name: row[name] for name in (*chosen, "messages")} for row in rows_read]
    counter: Counter[tuple[Any, ...]] = Counter()
    lose, hourly = LossCounter(), any(name in TIMES for name in chosen)
    for slice_ in _partitions(location, names):
        for run in counted_ranges(slice_, hourly=hourly, on_loss=lose):
            counter[tuple(_value(name, slice_, run) for name in chosen)] += run.count
    rows = sorted(counter.items(), key=lambda row: tuple((value is not None, value) for value in row[0]))
    return [dict(zip(chosen, map(_shown, chosen, group), strict=True)) | {"messages": count} for group, count in rows]


def _partitions(location: Location, names: Sequence[TopicName]) -> list[Slice]:
    data = location.open()
    ranges = {log.key: (log.start, log.next_offset) for log in inventory.take_inventory(data, names).logs}
    return plan_slices(location, ranges, slice_bytes=SLICE_BYTES, data=data)


def _value(name: str, slice_: Slice, run: CountedRange) -> str | int | None:
    match name:
        case "topic":
            return slice_.topic
        case "partition":
            return slice_.partition
        case "day" if run.hour_ms is not None:
            return run.hour_ms - run.hour_ms % _DAY_MS
        case _:
            return run.hour_ms


def _shown(name: str, value: Any) -> Any:
    return time_text(value) if name in TIMES and value is not None else value
