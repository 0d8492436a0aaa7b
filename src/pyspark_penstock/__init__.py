"""Makes `format("penstock")` known to any Spark session on a machine where Penstock is installed.

Spark looks for top-level packages named `pyspark_*`, imports each of them at the first look-up of a format, and takes
their `DefaultSource`: nothing heavy may come in here.
"""

from __future__ import annotations

from penstock.spark.source.data_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
