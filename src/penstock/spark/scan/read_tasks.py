"""Tasks that read a slice: the same for a batch, for a stream, and without Spark."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.scan import slice_reader
from penstock.spark.scan.columns import SLICE_COLUMNS
from penstock.spark.scan.filters import NO_FILTERS, Filters
from penstock.spark.scan.slices import Slice


@dataclass(frozen=True, slots=True)
class RecordTask:
    """The task that reads records; its batches have exactly this schema. Made on the driver, run in the workers: it
    pickles."""

    schema: pa.Schema
    verify: bool = True
    fail_on_data_loss: bool = True

    def run(self, part: Slice, filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
        found = slice_reader.batches(
            part,
            self.schema.names,
            verify=self.verify,
            filters=filters,
            fail_on_data_loss=self.fail_on_data_loss,
        )
        for batch in found:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class SliceListTask:
    """The task that returns its slice as one row, for jobs whose workers then read the slice themselves."""

    schema: pa.Schema = SLICE_COLUMNS

    def run(self, part: Slice, _filters: Filters = NO_FILTERS) -> Iterator[pa.RecordBatch]:
        values = [[part.topic], [part.partition], [part.start], [part.stop], [part.bytes]]
        arrays = [pa.array(value, field.type) for value, field in zip(values, SLICE_COLUMNS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


_frozen_modules = 0


def freeze_gc() -> None:
    """Exempt all present objects from garbage collection, if modules were imported since the last call.

    Workers call it after each batch, the first of which loads heavy modules and compiled code. Spark's daemon collects
    garbage after every task, and would otherwise visit all these objects each time, which takes as long as reading a
    million messages.
    """
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def freezing_gc(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, and freeze the objects that were needed to make them."""
    for batch in batches:
        freeze_gc()
        yield batch
    freeze_gc()
