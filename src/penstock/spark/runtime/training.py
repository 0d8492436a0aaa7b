"""A run of common operations with Spark. The JVM that runs them writes an archive of the classes it has loaded.

Run as `python -m penstock.spark.runtime.training DIRECTORY` by `classes.train`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.spark.runtime.session import session
from penstock.storage.store import Store

_TOPIC = "training"


def main(folder: Path) -> None:
    data = folder / "data"
    with Store.open(data, create=True) as store:
        topic = TopicName.parse(_TOPIC)
        store.create_topic(topic)
        store.append(topic, Draft.of([Message(payload=b'{"n": 1}', key=b"k", type="t") for _ in range(1000)]))
    spark = session("training", master="local[2]", quick=True)
    options = {"path": str(data), "subscribe": _TOPIC}
    rows = spark.read.format("penstock").options(**options).load()
    rows.where("offset > 10").groupBy("type").count().collect()
    files = str(folder / "parquet")
    rows.selectExpr("offset", "cast(value as string) as text").write.parquet(files)
    spark.read.parquet(files).selectExpr("from_json(text, 'n int') as n").groupBy("n").count().toArrow()
    rows.select("offset").mapInArrow(_same, "offset long").count()
    spark.sparkContext.parallelize([1], 1).map(str).collect()  # as an archive runs its tasks
    stream = spark.readStream.format("penstock").options(**options).load()
    counts = stream.groupBy("type").count().writeStream.foreachBatch(_collect)
    query = counts.outputMode("complete").trigger(availableNow=True).option("checkpointLocation", str(folder / "check"))
    query.start().awaitTermination()
    spark.stop()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _collect(frame: DataFrame, _number: int) -> None:
    frame.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
