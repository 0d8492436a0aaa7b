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
"""The module that Spark runs in its Python process to push filters. If pushdown is switched off, Spark runs another
module."""


def reader_for(options: ReadOptions, schema: StructType) -> DataSourceReader:
    """Return the reader of a batch. It accepts Spark's filters only with the option `pushdown`, and only if Spark
    pushes now.

    By default Spark does not push filters to Python sources, and fails a query whose reader accepts them. The option
    `pushdown` is off by default for another reason: Spark 4.3 keeps the plan of the last filtered query in the loaded
    DataFrame and uses it for other queries of that DataFrame, which then miss rows. The option `where` has no such
    fault.

    Raises `InvalidRequest` for the option `pushdown` if this Spark cannot push filters, and for columns that do not
    exist.
    """
    if options.pushdown:
        FILTERS.require()
    made = PushingReader if options.pushdown and _is_pushing() else BatchReader
    return made(options, read_task_for(options, schema))


def _is_pushing() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(spec, "name", None) == _PUSHING


class SlicePartition(InputPartition):
    """An input partition of Spark: a slice and the filters for its rows. Spark pickles it and sends it to a worker."""

    def __init__(self, part: Slice, filters: Filters = NO_FILTERS) -> None:
        super().__init__(part)
        self.part = part
        self.filters = filters


def run(read_task: ReadTask, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in a worker.

    If a query has no partitions, Spark makes an empty one of its own class, which yields no rows here.
    """
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
    """A batch reader that accepts filters from Spark. It applies the filters that it can apply exactly, and returns the
    others, which Spark then applies itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._filters, left = translate(filters, self._options.where)
        return left
