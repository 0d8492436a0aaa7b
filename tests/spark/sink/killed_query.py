"""A streaming query that is killed: `python -m tests.spark.sink.killed_query DATA CHECKPOINT TARGET TOPIC`.

It copies the topic `orders` of a data directory, a few thousand rows a batch, and ends when there are no more.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import penstock.spark


def copy(spark: SparkSession, data: str, checkpoint: str, target: str, topic: str) -> None:
    source = spark.readStream.format("penstock").option("path", data).option("subscribe", "orders")
    rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "4000")
    name, _, value = target.partition("=")
    query = (
        rows.option("minPartitions", "2")
        .load()
        .select("key", "value")
        .writeStream.format("penstock")
        .options(**{name: value, "topic": topic, "createPartitions": "2"})
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    copy(penstock.spark.session("killed", master="local[2]", memory="1g", quick=True), *sys.argv[1:])
