"""DataFrames of a pipeline's sources and steps. No data is read: Spark looks at names, columns and types alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError
from penstock.spark.pipeline.file import step_graph
from penstock.spark.pipeline.file.model import (
    FromFormat,
    FromTable,
    FromTopics,
    Pipeline,
    Source,
    Sql,
    Step,
    TableAt,
    Watermark,
)
from penstock.spark.pipeline.run import functions
from penstock.spark.runtime.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake import LakeTable


_SPARKS_ERRORS: Final = logging.getLogger("SQLQueryContextLogger")


class Frames:
    """DataFrames by name, and a problem for each that could not be made."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.by_name: dict[str, DataFrame] = {}
        self.problems: list[str] = []

    def build(self, pipeline: Pipeline, *, unused: bool = False) -> Frames:
        """Build the DataFrames that the sinks need, with `unused` all others, too, and return this object.

        A DataFrame that cannot be built raises nothing: it is missing in `by_name`, and `problems` has the reason.
        Steps that need it are left out.
        """
        wanted = step_graph.used(pipeline.steps, pipeline.sinks)
        with _views(self._spark) as show:
            for source in pipeline.sources:
                if unused or source.name in wanted:
                    self._try_add(source, "sources", partial(read, self._spark, source), show)
            for step in pipeline.steps:
                if (unused or step.name in wanted) and all(name in self.by_name for name in step.inputs):
                    self._try_add(step, "steps", partial(self._step, step), show)
        return self

    def _try_add(
        self, each: Source | Step, part: str, make: Callable[[], DataFrame], show: Callable[[str, DataFrame], None]
    ) -> None:
        from pyspark.errors import PySparkException

        _SPARKS_ERRORS.setLevel(logging.CRITICAL)  # `problems` has the same errors, in fewer words
        try:
            frame = _with_watermark(make(), each.watermark)
            show(each.name, frame)
            self.by_name[each.name] = frame
        except PenstockError as error:
            self.problems.append(f"[{part}.{each.name}]: {error.message}")
        except PySparkException as error:
            self.problems.append(f"[{part}.{each.name}]: {reason(error)}")

    def _step(self, step: Step) -> DataFrame:
        if isinstance(step.by, Sql):
            return self._spark.sql(step.by.text)
        return functions.call(step.by, [self.by_name[name] for name in step.inputs])


@contextmanager
def _views(spark: SparkSession) -> Iterator[Callable[[str, DataFrame], None]]:
    """Provide a function that registers a DataFrame as a view, so that SQL finds it by name. The views are dropped at
    the end.

    Plans that were made from views stay valid without them.
    """
    shown: list[str] = []

    def show(name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        shown.append(name)

    try:
        yield show
    finally:
        for name in shown:
            spark.catalog.dropTempView(name)


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None or not frame.isStreaming:
        return frame
    return frame.withWatermark(watermark.column, f"{watermark.delay_ms} milliseconds")


def read(spark: SparkSession, source: Source) -> DataFrame:
    """Return a source's DataFrame. Raises errors of Spark, the lake or the penstock source."""
    match source.of:
        case FromTopics(options=options):
            return _load(spark, source, FromFormat(format="penstock", options=options))
        case FromTable(table=table):
            from penstock.spark.lake.frames import read_frame

            return read_frame(spark, open_lake(table))
        case FromFormat():
            return _load(spark, source, source.of)


def _load(spark: SparkSession, source: Source, of: FromFormat) -> DataFrame:
    if source.streaming:
        stream = spark.readStream.format(of.format).options(**dict(of.options))
        stream = stream if of.schema is None else stream.schema(of.schema)
        return stream.load(of.path)
    batch = spark.read.format(of.format).options(**dict(of.options))
    batch = batch if of.schema is None else batch.schema(of.schema)
    return batch.load(of.path)


def open_lake(table: TableAt) -> LakeTable:
    from penstock.spark.lake import open_table

    return open_table(
        table.kind.value,
        table.warehouse,
        table.name,
        storage_options=dict(table.storage),
        catalog=dict(table.catalog),
    )
