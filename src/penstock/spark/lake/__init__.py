"""Lake: tables of a lakehouse (Delta, Iceberg, plain Parquet) behind one seam, and topics archived into them.

Files are written with pyarrow wherever the rows are; one process commits them. Spark comes in only where a DataFrame
does, or much is to be done (`frames`, `engines`): tables, files, their upkeep and an archive need no JVM.
"""

from __future__ import annotations

from penstock.spark.lake.tables.table import AlreadyCommitted, CommitMarker, Committed, DataFile, LakeTable, OffsetRange
from penstock.spark.lake.tables.table_factory import TABLE_FORMATS, open_table, table_names

__all__ = [
    "TABLE_FORMATS",
    "AlreadyCommitted",
    "CommitMarker",
    "Committed",
    "DataFile",
    "LakeTable",
    "OffsetRange",
    "open_table",
    "table_names",
]
