"""Orders to hourly revenue: every order is in its hour, but those that came too late, which are counted."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples.revenue.generate import Order, order, write
from tests.examples.kit import copied

from penstock.spark.pipeline.file.parsing import load
from penstock.spark.pipeline.run.run import Result, State, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR, DELAY, BATCH = timedelta(hours=1), timedelta(hours=2), 2000
Hours = dict[tuple[datetime, str], tuple[int, int]]
"""Cents and orders, by hour and product."""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    return copied("revenue", tmp_path)


def at(given: Order) -> datetime:
    return datetime.strptime(given.at, "%Y-%m-%dT%H:%M:%S%z")


class Plain:
    """The same as Spark does, in a few lines: batches, a watermark, windows."""

    def __init__(self) -> None:
        self.watermark = self.before = datetime(1970, 1, 1, tzinfo=UTC)
        """The watermark, and that of the batch before: an hour is closed by the one, and a row is late by the other."""
        self.open: Hours = defaultdict(lambda: (0, 0))
        self.final: Hours = {}
        self.late = 0

    def batch(self, orders: list[Order]) -> None:
        for each in orders:
            hour = at(each).replace(minute=0, second=0)
            if hour + HOUR <= self.before:
                self.late += 1
            else:
                cents, count = self.open[hour, each.product]
                self.open[hour, each.product] = (cents + each.cents, count + 1)
        self._close()
        latest = max(at(each) for each in orders)
        self.before, self.watermark = self.watermark, max(self.watermark, latest - DELAY)

    def run(self, first: int, count: int) -> None:
        for start in range(first, first + count, BATCH):
            self.batch([order(number) for number in range(start, min(start + BATCH, first + count))])
        self._close()  # a batch without rows, because the watermark has moved
        self.before = self.watermark

    def _close(self) -> None:
        for key in [key for key in self.open if key[0] + HOUR <= self.watermark]:
            self.final[key] = self.open.pop(key)


def once(spark: SparkSession, example: Path) -> Result:
    pipeline = load(example / "revenue.toml", {})
    (result,) = run(spark, pipeline, once=True, say=lambda _: None, stop=threading.Event())
    assert result.failure is None
    assert result.state is State.DONE
    return result


def table(example: Path) -> Hours:
    import deltalake

    rows: list[dict[str, Any]] = (
        deltalake.DeltaTable(example / "lake/default/revenue_hourly").to_pyarrow_table().to_pylist()
    )
    found = {(row["hour"], row["product"]): (round(100 * row["revenue"]), row["orders"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_table_has_every_final_hour_once_over_two_runs(spark: SparkSession, example: Path) -> None:
    plain = Plain()
    write(example / "data", 0, 6_000)
    first = once(spark, example)
    plain.run(0, 6_000)
    assert table(example) == plain.final
    write(example / "data", 6_000, 4_500)
    second = once(spark, example)
    plain.run(6_000, 4_500)
    assert table(example) == plain.final
    assert (first.late or 0) + (second.late or 0) == plain.late > 0
    assert (first.rows_in, second.rows_in) == (6_000, 4_500)


def test_orders_are_the_same_every_time() -> None:
    assert order(7) == order(7)
    assert len({order(number).at for number in range(1000)}) > 900
