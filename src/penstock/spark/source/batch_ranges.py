"""Offset ranges of a batch read: the user's bounds for each partition, limited to the offsets that the log holds."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.errors import InvalidRequest
from penstock.spark.scan.filters import Filters
from penstock.spark.scan.slice_reader import LossCounter, LostRange, end_of_log, raise_loss
from penstock.spark.scan.slices import view_within
from penstock.spark.source.offsets import EARLIEST, LATEST, PartitionKey, ReadBound
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.topic_selection import PartitionLog, TopicSelection
from penstock.storage.inspect.data_reader import DataReader

OffsetSpan = tuple[int, int]


def batch_ranges(data: DataReader, options: ReadOptions, filters: Filters) -> dict[PartitionKey, OffsetSpan]:
    """Return the offsets to read as `(start, stop)`, without `stop`, of each selected partition that matches the
    filters.

    A partition with nothing to read has an empty range. Raises `TopicNotSupported` for a named topic that does not
    exist, `InvalidRequest` for bounds that name a partition which is not read, and `DataLoss` for offsets that the log
    does not hold. If the option `failOnDataLoss` is false, such offsets are logged instead and left out of the range.
    """
    logs = {
        key: PartitionLog(data, key, path)
        for key, path in TopicSelection(options.topics, options.pattern).find_logs(data).items()
    }
    for which, bounds in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        check_partitions_exist(which, bounds, logs)
    selected = {key: log for key, log in logs.items() if filters.matches_partition(*key)}
    return {key: _range(data, options, filters, log) for key, log in selected.items()}


def check_partitions_exist(which: str, bounds: ReadBound, logs: Mapping[PartitionKey, PartitionLog]) -> None:
    for topic, partition in bounds.by_partition:
        if (topic, partition) not in logs:
            there = ", ".join(f"{name} {number}" for name, number in list(logs)[:10]) or "none"
            raise InvalidRequest(
                f"{which} names partition {partition} of {topic}, which is not among the partitions read: {there}",
                option=which,
            )


def _range(data: DataReader, options: ReadOptions, filters: Filters, log: PartitionLog) -> OffsetSpan:
    first, following = log.offset_range()
    start = resolve_bound(options.starting, log, first, following, missing=first)
    stop = resolve_bound(options.ending, log, first, following, missing=following)
    lose = raise_loss if options.fail_on_data_loss else LossCounter()
    if start < first:
        lose(LostRange(*log.key, start, min(first, max(start, stop)), f"the log begins with offset {first} now"))
    if stop > following or start > following:
        lose(LostRange(*log.key, following, max(start, stop), end_of_log(following)))
    start, stop = min(max(start, first), following), min(stop, following)
    if start >= stop:
        return start, start
    return filters.clip(data.disk, view_within(data, *log.key, start, stop), start, stop)


def resolve_bound(bounds: ReadBound, log: PartitionLog, first: int, following: int, *, missing: int) -> int:
    """Return the offset that a bound of a read stands for in one partition.

    `first` is the first offset that the log holds, and `following` is the offset after its last message. If the bound
    lists offsets by partition and does not list this one, the offset `missing` is returned.
    """
    if bounds.time_ms is not None:
        return log.offset_at_time(bounds.time_ms)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(bounds.word or "", bounds.by_partition.get(log.key, missing))
    return {EARLIEST: first, LATEST: following}.get(word, word)
