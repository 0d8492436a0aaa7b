"""Spark: topics as DataFrames, the lakehouse, jobs and pipelines. Nothing here imports the broker or the server.

import penstock.spark

spark = penstock.spark.session()
orders = spark.read.format("penstock").option("path", "penstock-data").option("subscribe", "orders").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.runtime.daemon import end_quietly

if TYPE_CHECKING:
    from penstock.spark.decode import decode as decode
    from penstock.spark.jobs.stats.offset_stats import counts as counts
    from penstock.spark.runtime.session import session as session

__all__ = ["counts", "decode", "session"]


end_quietly()  # every worker that reads or writes topics imports this module


def __getattr__(name: str) -> Any:
    """Import `session`, `counts` or `decode` on first use: Python workers import this package often and need little of
    it."""
    if name == "session":
        from penstock.spark.runtime.session import session

        return session
    if name == "counts":
        from penstock.spark.jobs.stats.offset_stats import counts

        return counts
    if name == "decode":
        from penstock.spark.decode import decode

        return decode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
