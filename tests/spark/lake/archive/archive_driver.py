"""A separate driver that archives all messages in small batches: to be killed.

python -m tests.spark.lake.archive.archive_driver DATA LAKE FORMAT MASTER

MASTER is Spark's, or `none`: then this process does all the work.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import penstock.spark
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.run import archive

LOCAL = "none"


def archive_all(spark: SparkSession | None, data: str, lake: str, table_format: str) -> None:
    archive(
        spark,
        Location(data),
        warehouse=lake,
        table_format=table_format,
        once=True,
        batch_bytes=30_000,
        on_batch=lambda batch: print("batch", batch.batch_id, flush=True),
    )


if __name__ == "__main__":
    *arguments, master = sys.argv[1:]
    here = master == LOCAL
    archive_all(None if here else penstock.spark.session("archive", master=master, memory="1g", quick=True), *arguments)
