"""Clicks to sessions, with state in Python: a session ends when its visitor has not clicked for half an hour.

    python sessions.py --once

Plain PySpark: `penstock.spark.session` starts Spark, `format("penstock")` reads the topic, `transformWithState` keeps
an open session for every visitor, and a timer closes it. The state is in the checkpoint: a restart goes on with it.
"""

# The names of the processor's methods and of what they are given are Spark's.
# ruff: noqa: N802, N803, ARG002

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row

import penstock.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GAP: Final = timedelta(minutes=30)
CLICK: Final = "visitor string, page string, at timestamp"
SESSION: Final = "visitor string, start timestamp, end timestamp, clicks long, first_page string, last_page string"
_OPEN: Final = "start timestamp, end timestamp, clicks long, first_page string, last_page string"


class Sessions(StatefulProcessor):
    """Keeps the open session of each visitor, and gives it when it is over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", _OPEN)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The clicks of one visitor in this batch."""
        session = self._open.get() if self._open.exists() else None
        for click in sorted(rows, key=lambda row: row.at):
            if session is not None and click.at - session[1] > GAP:
                yield _closed(key, session)
                session = None
            session = _extended(session, click)
        if session is not None:
            self._open.update(session)
            self._wake(session[1] + GAP)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Nobody can click before the watermark any more: the session is over."""
        if self._open.exists():
            yield _closed(key, self._open.get())
            self._open.clear()

    def close(self) -> None:
        """Nothing is held beyond the state."""

    def _wake(self, at: datetime) -> None:
        """One timer for a visitor: the old one goes."""
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(int(at.timestamp() * 1000))


def _extended(session: Any, click: Row) -> tuple[Any, ...]:
    if session is None:
        return (click.at, click.at, 1, click.page, click.page)
    start, end, clicks, first_page, last_page = session
    if click.at < end:  # it came late, and still belongs here
        return (min(start, click.at), end, clicks + 1, first_page, last_page)
    return (start, click.at, clicks + 1, first_page, click.page)


def _closed(key: Any, session: Any) -> Row:
    start, end, clicks, first_page, last_page = session
    return Row(visitor=key[0], start=start, end=end, clicks=clicks, first_page=first_page, last_page=last_page)


def clicks(spark: SparkSession, data: Path) -> DataFrame:
    """The topic as a stream of typed rows."""
    read = spark.readStream.format("penstock").option("path", str(data)).option("subscribe", "clicks")
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2000).option("columns", "value")
    parsed = read.load().select(f.from_json(f.col("value").cast("string"), CLICK).alias("click"))
    return parsed.select("click.*").withWatermark("at", "10 minutes")


def sessions(stream: DataFrame) -> DataFrame:
    return stream.groupBy("visitor").transformWithState(
        statefulProcessor=Sessions(), outputStructType=SESSION, outputMode="append", timeMode="eventTime"
    )


def start(spark: SparkSession, data: Path, out: Path, *, once: bool) -> StreamingQuery:
    """Sessions as JSON lines below `out`; the checkpoint lies beside them."""
    writer = sessions(clicks(spark, data)).writeStream.format("json").outputMode("append").queryName("sessions")
    writer = writer.option("path", str(out / "sessions")).option("checkpointLocation", str(out / "checkpoint"))
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="2 seconds")).start()


def main() -> None:
    here = Path(__file__).parent
    options = argparse.ArgumentParser(description="Clicks to sessions, with state in Python.")
    options.add_argument("--data", type=Path, default=here / "data", help="the data directory")
    options.add_argument("--out", type=Path, default=here / "out", help="where sessions and checkpoint go")
    options.add_argument("--once", action="store_true", help="take what is there, then end")
    given = options.parse_args()
    spark = penstock.spark.session("sessions")
    try:
        start(spark, given.data, given.out, once=given.once).awaitTermination()
    except KeyboardInterrupt:
        pass
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
