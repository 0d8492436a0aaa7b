"""The accumulator of lost or damaged messages. Workers leave such messages out; the driver learns their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.spark.runtime.classic import context
from penstock.spark.runtime.versions import spark_schema
from penstock.spark.scan.columns import COLUMNS
from penstock.spark.scan.filters import Filters
from penstock.spark.scan.read_tasks import freezing_gc
from penstock.spark.scan.slice_reader import LostRange, batches
from penstock.spark.scan.slices import Slice, open_data, plan_slices
from penstock.spark.source.batch_ranges import batch_ranges
from penstock.spark.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LostRanges = frozenset[tuple[str, int, int, int]]
"""Ranges of lost offsets, each with topic, partition, first offset and the offset behind the last."""


class LossAccumulator:
    """The lost offsets of a job, complete when the job is done. A repeated task, or a log that is read twice, adds the
    same offsets: each counts once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lost: Accumulator[LostRanges] = context(spark).accumulator(frozenset(), _UnionOfRanges())

    @property
    def count(self) -> int:
        return count_offsets(self._lost.value)

    def read_without_lost(self, given: Mapping[str, str]) -> DataFrame:
        """Return what Spark's source reads with these options, in all columns of the log. Messages that cannot be read
        are left out, and their offsets are added here when the DataFrame is computed."""
        options = ReadOptions.of(given, streaming=False)
        ranges = batch_ranges(open_data(options.location), options, options.where)
        slices = plan_slices(options.location, ranges)
        numbers = self._spark.range(0, len(slices), 1, max(1, len(slices)))
        return numbers.mapInArrow(_ReadSlices(slices, options.where, self._lost), spark_schema(COLUMNS))


class _UnionOfRanges(AccumulatorParam[LostRanges]):
    def zero(self, value: LostRanges) -> LostRanges:  # noqa: ARG002 - as Spark has it
        return frozenset()

    def addInPlace(self, value1: LostRanges, value2: LostRanges) -> LostRanges:  # noqa: N802
        return value1 | value2


class _ReadSlices:
    """The reading of slices in a worker."""

    def __init__(self, slices: Sequence[Slice], filters: Filters, ranges: Accumulator[LostRanges]) -> None:
        self._slices = slices
        self._filters = filters
        self._lost = ranges

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen = (self._slices[number] for batch in numbers for number in batch.column(0).to_pylist())
        return freezing_gc(batch for part in chosen for batch in self._messages(part))

    def _messages(self, slice_: Slice) -> Iterator[pa.RecordBatch]:
        readable = batches(slice_, COLUMNS.names, filters=self._filters, fail_on_data_loss=False, on_loss=self._lose)
        for batch in readable:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=COLUMNS)

    def _lose(self, loss: LostRange) -> None:
        self._lost.add(frozenset({(loss.topic, loss.partition, loss.start, loss.stop)}))


def count_offsets(ranges: LostRanges) -> int:
    """Return the number of offsets in the ranges. An offset in several ranges counts once."""
    count, last, reached = 0, ("", 0), 0
    for topic, partition, start, stop in sorted(ranges):
        if (topic, partition) != last:
            last, reached = (topic, partition), 0
        count += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return count
