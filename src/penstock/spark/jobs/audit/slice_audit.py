"""The worker's part of the audit: slices of the log in, partition summaries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.core.errors import TopicNotSupported
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.jobs.audit.partition_summary import Losses, PartitionSummary
from penstock.spark.jobs.audit.scan_range import dropped, scan_range
from penstock.spark.jobs.audit.tally import NOT_ARCHIVED, ArchivedRange, ConformanceCheck, RangeTally, TimeSpans
from penstock.spark.scan.slices import Slice, open_data, view_within

PartitionKey = tuple[str, int]
"""A topic's full name, and a partition."""


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Neighbouring slices, and what to check in them. Can be pickled."""

    slices: tuple[Slice, ...]
    spans: TimeSpans
    archived: Mapping[PartitionKey, ArchivedRange] = field(default_factory=dict)
    schemas: RegistryLocation | None = None
    """Registry for checking payloads; None: payloads are not checked."""


def scan_slices(task: AuditTask) -> list[tuple[PartitionKey, PartitionSummary]]:
    """Return the summaries of the task's partitions, neighbours added."""
    return merge_summaries(((part.topic, part.partition), _scan_slice(part, task)) for part in join_slices(task.slices))


def join_slices(slices: Iterable[Slice]) -> list[Slice]:
    """Join neighbouring slices: slices are for distributing work, and each one costs a look at the files."""
    found: list[Slice] = []
    for part in slices:
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition, last.stop) == (part.topic, part.partition, part.start):
            found[-1] = replace(last, stop=part.stop, bytes=last.bytes + part.bytes)
        else:
            found.append(part)
    return found


def merge_summaries(
    parts: Iterable[tuple[PartitionKey, PartitionSummary]],
) -> list[tuple[PartitionKey, PartitionSummary]]:
    """Add neighbouring summaries of one partition, in the order they come in."""
    found: list[tuple[PartitionKey, PartitionSummary]] = []
    for key, part in parts:
        if found and found[-1][0] == key and found[-1][1].stop == part.start:
            found[-1] = key, found[-1][1] + part
        else:
            found.append((key, part))
    return found


def _scan_slice(part: Slice, task: AuditTask) -> PartitionSummary:
    data = open_data(part.location)
    try:
        view = view_within(data, part.topic, part.partition, part.start, part.stop)
    except TopicNotSupported:  # deleted while the job runs
        return PartitionSummary(start=part.start, stop=part.stop, losses=Losses.of(dropped(part.start, part.stop)))
    archived = task.archived.get((part.topic, part.partition), NOT_ARCHIVED)
    tally = RangeTally(part.start, part.stop, task.spans, archived, _conformance_check(task.schemas, part.topic))
    return tally.take(scan_range(data.disk, view, part.start, part.stop)).result()


def _conformance_check(registry: RegistryLocation | None, topic: str) -> ConformanceCheck | None:
    return None if registry is None else _conformance(registry, topic)


@lru_cache(maxsize=64)
def _conformance(registry: RegistryLocation, topic: str) -> ConformanceCheck:
    from penstock.spark.jobs.audit.conformance import (
        Conformance,
    )  # imports all schema languages: only if they are needed

    return Conformance(registry, topic)


def batches_within(archived: ArchivedRange, start: int, stop: int) -> ArchivedRange:
    """Return what a task needs to know of an archive: the batches of its own offsets."""
    return replace(archived, batches=tuple(each for each in archived.batches if each[0] < stop and each[1] > start))
