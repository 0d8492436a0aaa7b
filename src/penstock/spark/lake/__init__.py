"""Lake: tables of a lakehouse (Delta, Iceberg, plain Parquet) behind one seam, and topics archived into them.

Files are written with pyarrow wherever the rows are; one process commits them. Spark comes in only where a DataFrame
does, or much is to be done (`frames`, `engines`): tables, files, their upkeep and an archive need no JVM.
"""

from __future__ import annotations

from penstock.spark.lake.tables.table import AlreadyThere, Committed, DataFile, LakeTable, Marker, Range
from penstock.spark.lake.tables.table_factory import KINDS, open_table, table_names

__all__ = [
    "KINDS",
    "AlreadyThere",
    "Committed",
    "DataFile",
    "LakeTable",
    "Marker",
    "Range",
    "open_table",
    "table_names",
]
