"""The worker's part of the audit: slices of the log in, partition summaries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.core.errors import TopicNotSupported
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.jobs.audit.partition_summary import Losses, PartitionSummary
from penstock.spark.jobs.audit.scan_range import dropped_by_retention, scan_range
from penstock.spark.jobs.audit.tally import NOT_ARCHIVED, ArchivedRange, ConformanceCheck, RangeTally, TimeSpans
from penstock.spark.scan.slices import Slice, open_data, view_within

PartitionKey = tuple[str, int]
"""A topic's full name, and a partition."""


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Slices for one worker, mostly neighbours, and the checks to make in them. Can be pickled."""

    slices: tuple[Slice, ...]
    spans: TimeSpans
    archived: Mapping[PartitionKey, ArchivedRange] = field(default_factory=dict)
    schemas: RegistryLocation | None = None
    """Registry with the schemas against which payloads are checked. With None, payloads are not checked."""


def scan_slices(task: AuditTask) -> list[tuple[PartitionKey, PartitionSummary]]:
    """Scan the slices of a task and return their summaries. Summaries of adjacent ranges of a partition are added into
    one. Runs in a worker."""
    return merge_summaries(
        ((slice_.topic, slice_.partition), _scan_slice(slice_, task)) for slice_ in join_slices(task.slices)
    )


def join_slices(slices: Iterable[Slice]) -> list[Slice]:
    """Return the slices with neighbours of one partition joined: opening the files for each slice takes time."""
    merged: list[Slice] = []
    for slice_ in slices:
        last, begin = merged[-1] if merged else None, (slice_.topic, slice_.partition, slice_.start)
        if last is not None and (last.topic, last.partition, last.stop) == begin:
            merged[-1] = replace(last, stop=slice_.stop, bytes=last.bytes + slice_.bytes)
        else:
            merged.append(slice_)
    return merged


def merge_summaries(
    parts: Iterable[tuple[PartitionKey, PartitionSummary]],
) -> list[tuple[PartitionKey, PartitionSummary]]:
    """Return the summaries, in the same order, with each added to the one before if it continues that one's range."""
    merged: list[tuple[PartitionKey, PartitionSummary]] = []
    for key, summary in parts:
        if merged and merged[-1][0] == key and merged[-1][1].stop == summary.start:
            merged[-1] = key, merged[-1][1] + summary
        else:
            merged.append((key, summary))
    return merged


def _scan_slice(slice_: Slice, task: AuditTask) -> PartitionSummary:
    data = open_data(slice_.location)
    try:
        view = view_within(data, slice_.topic, slice_.partition, slice_.start, slice_.stop)
    except TopicNotSupported:  # deleted while the job runs
        return PartitionSummary(
            start=slice_.start, stop=slice_.stop, losses=Losses.of(dropped_by_retention(slice_.start, slice_.stop))
        )
    archived = task.archived.get((slice_.topic, slice_.partition), NOT_ARCHIVED)
    tally = RangeTally(slice_.start, slice_.stop, task.spans, archived, _conformance_check(task.schemas, slice_.topic))
    return tally.take(scan_range(data.disk, view, slice_.start, slice_.stop)).result()


def _conformance_check(registry: RegistryLocation | None, topic: str) -> ConformanceCheck | None:
    return None if registry is None else _conformance(registry, topic)


@lru_cache(maxsize=64)
def _conformance(registry: RegistryLocation, topic: str) -> ConformanceCheck:
    # Imported only if needed: it imports all schema languages.
    from penstock.spark.jobs.audit.conformance import Conformance

    return Conformance(registry, topic)


def batches_within(archived: ArchivedRange, start: int, stop: int) -> ArchivedRange:
    """Return the same range, with only those batches that have offsets between `start` and `stop`."""
    return replace(archived, batches=tuple(batch for batch in archived.batches if batch[0] < stop and batch[1] > start))
