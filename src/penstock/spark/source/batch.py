"""The batch reader of the data source, and its partitions. Spark pickles both and sends them to other processes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.runtime.versions import FILTERS
from penstock.spark.scan.filters import NO_FILTERS, Filters, translate
from penstock.spark.scan.read_tasks import freezing_gc
from penstock.spark.scan.slices import Slice, open_data, plan_slices
from penstock.spark.source.batch_ranges import batch_ranges
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.read_schema import ReadTask, read_task_for

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs where it has filters to push; with pushdown switched off it runs another one."""


def reader_for(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader for these options: one that takes filters only where Spark is pushing filters now.

    A reader that takes filters makes a query fail where the session does not push them, which is Spark's default. The
    user must ask for it as well: Spark 4.3 keeps the plan of the last filtered query in the DataFrame that was loaded,
    and uses it for others of the same DataFrame, which then miss rows. The option `where` has no such fault.
    """
    if options.pushdown:
        FILTERS.require()
    made = PushingReader if options.pushdown and _is_pushing() else BatchReader
    return made(options, read_task_for(options, schema))


def _is_pushing() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(spec, "name", None) == _PUSHING


class SlicePartition(InputPartition):
    """A slice and its filters: all that a worker has to know."""

    def __init__(self, part: Slice, filters: Filters = NO_FILTERS) -> None:
        super().__init__(part)
        self.part = part
        self.filters = filters


def run(read_task: ReadTask, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read a partition in a worker. Without data Spark asks for one partition of its own, which has no rows."""
    return (
        freezing_gc(read_task.run(partition.part, partition.filters))
        if isinstance(partition, SlicePartition)
        else iter(())
    )


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, read_task: ReadTask) -> None:
        self._options = options
        self._read_task = read_task
        self._filters = options.where

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        data = open_data(options.location)
        ranges = batch_ranges(data, options, self._filters)
        slices = plan_slices(
            options.location, ranges, slice_bytes=options.slice_bytes, slices_min=options.slices_min, data=data
        )
        return [SlicePartition(part, self._filters) for part in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return run(self._read_task, partition)


class PushingReader(BatchReader):
    """A reader that takes the filters it can apply exactly, and gives the others back."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._filters, left = translate(filters, self._options.where)
        return left
