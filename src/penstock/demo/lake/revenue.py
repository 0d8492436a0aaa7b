"""The revenue pipeline: SQL sums the revenue of each hour from the topic into a table, and the demo compares every
cent."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.core.errors import PenstockError
from penstock.demo.base.orders import BEGIN, HOURS, IntArray
from penstock.demo.lake.lakehouse import Lakehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: Final = "revenue_hourly"

PIPELINE: Final = Path(__file__).with_name("revenue.toml")


@dataclass(frozen=True, slots=True)
class Revenue:
    """Paid orders and their sum in cents, in arrays by hour since `BEGIN`."""

    orders: IntArray
    cents: IntArray

    def hours_wrong(self, expected: IntArray) -> int:
        return int(np.count_nonzero(self.cents != expected))


def run_pipeline(lakehouse: Lakehouse, file: Path) -> Revenue:
    """Run the pipeline; return the revenue of its table. Raises the error of a failed query."""
    shutil.copyfile(PIPELINE, file)
    lakehouse.run(lambda spark: _run(spark, file))
    return _read(lakehouse.lake)


def _run(spark: SparkSession, file: Path) -> None:
    from penstock.spark.pipeline.file.parsing import load
    from penstock.spark.pipeline.run.run import run

    for result in run(spark, load(file), once=True, say=lambda _event: None, stop=threading.Event()):
        if result.failure is not None:
            raise result.failure.error(f"query {result.query} failed")


def _read(lake: Path) -> Revenue:
    """Return the revenue in the table, read without Spark. Raises `PenstockError` for revenue at a time outside of the
    demo's hours."""
    from penstock.spark.lake import open_table

    orders, cents = np.zeros(HOURS, np.int64), np.zeros(HOURS, np.int64)
    for batch in open_table("delta", str(lake), TABLE).read(["hour", "orders", "cents"]):
        for row in batch.to_pylist():
            hour = _hour(row["hour"])
            orders[hour] += row["orders"]
            cents[hour] += row["cents"]
    return Revenue(orders, cents)


def _hour(time: datetime) -> int:
    hour = int((time - BEGIN).total_seconds()) // 3600
    if not 0 <= hour < HOURS:
        raise PenstockError(f"the pipeline found revenue at {time}, and no order was placed then")
    return hour
