"""The topic as a streaming table. `penstock` is found by its name: nothing has to be registered."""

from __future__ import annotations

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

DATA = Path(__file__).parents[1] / "data"


@dp.table
def orders() -> DataFrame:
    """Every order once, however often the pipeline is run."""
    spark = SparkSession.active()
    read = spark.readStream.format("penstock").option("path", str(DATA)).option("subscribe", "orders")
    records = read.option("startingOffsets", "earliest").option("columns", "value,offset,timestamp").load()
    typed = f.from_json(f.col("value").cast("string"), "id long, product string, cents long").alias("o")
    return records.select("offset", "timestamp", typed).select("o.*", "offset", "timestamp")
