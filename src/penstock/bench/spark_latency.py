"""The latency from the log to a Spark sink, compared with a micro-batch of Spark's own rate source."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.bench import Figure
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TOPIC: Final = TopicName.parse("bench.latency")
_EVERY_SECONDS: Final = 0.005
_WARM_SECONDS_MAX: Final = 4.0
_LOOK_SECONDS: Final = 0.05


def latencies(spark: SparkSession, folder: Path, *, seconds: float) -> Figure:
    """Measure the median time from append to sink, compared with the median duration of a micro-batch of Spark's rate
    source."""
    bare = _bare_ms(spark, folder / "bare", seconds)
    ours = _append_to_sink_ms(spark, folder, seconds)
    return Figure(
        name="append to sink, median",
        value=ours,
        unit="ms",
        reference="a micro-batch of the rate source",
        reference_value=bare,
        ratio=bare / ours,
    )


def _bare_ms(spark: SparkSession, checkpoint: Path, seconds: float) -> float:
    rate = spark.readStream.format("rate").option("rowsPerSecond", "200").load()
    query = rate.writeStream.foreachBatch(_collected).option("checkpointLocation", str(checkpoint)).start()
    try:
        _until(query, lambda: bool(_full(query)))
        time.sleep(_warm(seconds) + seconds)
        full = _full(query)
        spent: list[float] = [each["durationMs"]["triggerExecution"] for each in full[len(full) // 4 :]]
        return statistics.median(spent)
    finally:
        query.stop()


def _full(query: StreamingQuery) -> list[Any]:
    """Return the progress reports of recent batches that had rows."""
    return [each for each in query.recentProgress if each["numInputRows"]]


def _warm(seconds: float) -> float:
    return min(_WARM_SECONDS_MAX, seconds)


def _until(query: StreamingQuery, true: Callable[[], bool]) -> None:
    """Wait until a condition is true, without a time limit. Raises the error of the query if it fails."""
    while not true():
        if (failed := query.exception()) is not None:
            raise failed
        time.sleep(_LOOK_SECONDS)


def _collected(frame: DataFrame, _number: int) -> None:
    frame.collect()


def _append_to_sink_ms(spark: SparkSession, folder: Path, seconds: float) -> float:
    seen: list[float] = []

    def arrived(frame: DataFrame, _number: int) -> None:
        rows = frame.select("timestamp").toArrow().column(0).cast("int64").to_pylist()
        now_us = time.time() * 1e6
        seen.extend((now_us - row) / 1000 for row in rows)

    with Store.open(folder / "data", create=True) as store:
        store.create_topic(_TOPIC)
        options = {"path": str(folder / "data"), "subscribe": str(_TOPIC), "columns": "timestamp,value"}
        source: Any = spark.readStream.format("penstock").options(**options).load()
        query = source.writeStream.foreachBatch(arrived).option("checkpointLocation", str(folder / "ours")).start()
        stop = threading.Event()
        writer = threading.Thread(target=_append, args=(store, stop))
        writer.start()
        try:
            _until(query, lambda: bool(seen))
            time.sleep(_warm(seconds))
            seen.clear()
            time.sleep(seconds)
            _until(query, lambda: bool(seen))
        finally:
            stop.set()
            writer.join()
            query.stop()
    return statistics.median(seen)


def _append(store: Store, stop: threading.Event) -> None:
    draft = Draft.of_payloads([b"a message"])
    while not stop.wait(_EVERY_SECONDS):
        store.append(_TOPIC, draft)
