"""The data source `penstock` of Spark: topics as DataFrames, and rows into topics.

Spark imports this module in many processes, some of which only ask for the name: heavy modules are imported when they
are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.runtime import versions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class PenstockSource(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        """Keep the options. Raises `ServiceUnavailable` if this release of Spark is not supported.

        In a session that Penstock did not create, nothing has checked the release before.
        """
        versions.check()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns that the options choose. Raises `InvalidRequest`, with the name of the option, for a wrong
        option."""
        from penstock.spark.source.options import ReadOptions
        from penstock.spark.source.read_schema import read_task_for

        return versions.spark_schema(read_task_for(ReadOptions.of(self.options, streaming=None)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.source.batch import reader_for
        from penstock.spark.source.options import ReadOptions

        return reader_for(ReadOptions.of(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from penstock.spark.source.options import ReadOptions
        from penstock.spark.source.read_schema import read_task_for
        from penstock.spark.source.streaming import stream_reader

        options = ReadOptions.of(self.options, streaming=True)
        return stream_reader(options, read_task_for(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from penstock.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
