"""Python steps of the pipeline: functions that make a DataFrame of DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(changes: DataFrame) -> DataFrame:
    """Of every customer the last message: keys are in one partition for ever, so the highest offset is the last."""
    newest_first = Window.partitionBy("key").orderBy(f.col("offset").desc())
    ranked = changes.withColumn("place", f.row_number().over(newest_first))
    return ranked.where("place = 1").select("customer", "name", "region")
