"""The lake: tables of a lakehouse (Delta, Iceberg, plain Parquet) behind one interface, and topics archived into them.

pyarrow writes files wherever the rows are; one process commits them. Spark is imported only for a DataFrame or for much
work (`frames`, `engines`): tables, files, their maintenance and an archive need no JVM.
"""

from __future__ import annotations

from typing import Any, Final

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

_FORMER: Final = {
    "AlreadyThere": AlreadyCommitted,
    "KINDS": TABLE_FORMATS,
    "Marker": CommitMarker,
    "Range": OffsetRange,
}
"""Names that release 0.1 had in this package, with the objects that they now stand for."""


def __getattr__(name: str) -> Any:
    """Return the object that release 0.1 called `name`. Raises `AttributeError` for any other name."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _FORMER[name]
