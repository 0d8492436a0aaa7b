"""The exact search for request numbers that a producer used more than once in a topic.

On Spark it is a shuffle, so only suspects are searched: producers whose numbers do not always rise within a partition.
While they rise, no number can occur twice in that partition. It may still occur in two partitions of a topic; that is
searched only on request.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import TopicNotSupported
from penstock.record import layout as at
from penstock.record.block import Block
from penstock.spark.jobs.audit.findings import DuplicateRequest
from penstock.spark.jobs.audit.partition_summary import SAMPLES_MAX, PartitionSummary
from penstock.spark.jobs.audit.scan_range import scan_range
from penstock.spark.jobs.audit.slice_audit import PartitionKey
from penstock.spark.jobs.worker_jobs import cores, group_by_bytes
from penstock.spark.runtime.classic import context
from penstock.spark.scan.slices import Slice, open_data, view_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS: Final = pa.schema(
    [
        ("topic", pa.int32()),
        ("producer_id", pa.int64()),
        ("request_id", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_SPARK_ROWS: Final = "topic int, producer_id long, request_id long, partition int, offset long"


@dataclass(frozen=True, slots=True)
class SuspectSlice:
    """A slice to search, the number of its topic (its position in the sorted topics), and the ids of the producers to
    search for. `producers=None` means all."""

    part: Slice
    topic: int
    producers: tuple[int, ...] | None


def suspect_slices(
    slices: Iterable[Slice], summaries: Mapping[PartitionKey, PartitionSummary], *, all_of_them: bool
) -> list[SuspectSlice]:
    """Return the slices to search. With `all_of_them` these are all slices, for all producers; otherwise the slices of
    partitions with producers whose request numbers do not always rise, for these producers."""
    topics = {topic: number for number, topic in enumerate(sorted({topic for topic, _ in summaries}))}
    suspects = {
        key: tuple(sorted(producer for producer, requests in summary.requests.items() if requests.breaks))
        for key, summary in summaries.items()
    }
    found = []
    for slice_ in slices:
        producers = None if all_of_them else suspects.get((slice_.topic, slice_.partition), ())
        if producers is None or producers:
            found.append(SuspectSlice(slice_, topics[slice_.topic], producers))
    return found


def find_on_spark(spark: SparkSession, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
    """Return the first `SAMPLES_MAX` duplicates, in the order of topic, producer and request number, and how many there
    are in all. Runs on Spark."""
    if not suspects:
        return [], 0
    from pyspark.sql import functions as f

    names = {suspect.topic: suspect.part.topic for suspect in suspects}
    tasks = group_by_bytes(suspects, lambda suspect: suspect.part.bytes, cores(spark))
    sent = context(spark).parallelize([(pickle.dumps(task),) for task in tasks], len(tasks))
    pairs = spark.createDataFrame(sent, "task binary").mapInArrow(_request_rows, _SPARK_ROWS)
    place = f.struct("partition", "offset")
    counted = pairs.groupBy("topic", "producer_id", "request_id").agg(
        f.count("*").alias("count"), f.min(place).alias("first"), f.max(place).alias("last")
    )
    twice = counted.where("count > 1").cache()
    try:
        rows = twice.orderBy("topic", "producer_id", "request_id").limit(SAMPLES_MAX).collect()
        return [_duplicate_of_row(names, row) for row in rows], len(rows) if len(rows) < SAMPLES_MAX else twice.count()
    finally:
        twice.unpersist()


def find_locally(suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
    """Return the same as `find_on_spark`, searched in this process."""
    places: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for suspect in suspects:
        for batch in requests_in(suspect):
            for row in batch.to_pylist():
                key = suspect.part.topic, row["producer_id"], row["request_id"]
                places.setdefault(key, []).append((row["partition"], row["offset"]))
    twice = sorted((key, sorted(positions)) for key, positions in places.items() if len(positions) > 1)
    listed = [
        DuplicateRequest(*key, len(positions), (positions[0], positions[-1])) for key, positions in twice[:SAMPLES_MAX]
    ]
    return listed, len(twice)


def _duplicate_of_row(names: Mapping[int, str], row: Any) -> DuplicateRequest:
    places = tuple((place["partition"], place["offset"]) for place in (row["first"], row["last"]))
    return DuplicateRequest(names[row["topic"]], row["producer_id"], row["request_id"], row["count"], places)


def _request_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for every message with a request number of the producers to search for. Runs in a worker."""
    for batch in batches:
        for row in batch.column("task"):
            for suspect in pickle.loads(row.as_py()):  # noqa: S301 - our own, from the driver
                yield from requests_in(suspect)


def requests_in(suspect: SuspectSlice) -> Iterator[pa.RecordBatch]:
    part = suspect.part
    data = open_data(part.location)
    try:
        view = view_within(data, part.topic, part.partition, part.start, part.stop)
    except TopicNotSupported:  # deleted while the job runs
        return
    for event in scan_range(data.disk, view, part.start, part.stop):
        if isinstance(event, Block):
            yield _rows(event, suspect)


def _rows(block: Block, suspect: SuspectSlice) -> pa.RecordBatch:
    producers, requests = block.columns[:, at.PRODUCER_ID], block.columns[:, at.REQUEST_ID]
    chosen = (producers != 0) & (requests != 0)
    if suspect.producers is not None:
        chosen &= np.isin(producers, suspect.producers)
    count = int(chosen.sum())
    arrays = [
        np.full(count, suspect.topic, dtype=np.int32),
        producers[chosen],
        requests[chosen],
        np.full(count, suspect.part.partition, dtype=np.int32),
        block.columns[chosen, at.OFFSET],
    ]
    return pa.RecordBatch.from_arrays([pa.array(array) for array in arrays], schema=_ROWS)
