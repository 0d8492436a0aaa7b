"""The archive: topics copied into tables, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.lake.archive.run import archive as archive

__all__ = ["archive"]


def __getattr__(name: str) -> Any:
    """Import the function `archive` when it is first used: workers need only the tasks of this package."""
    if name != "archive":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.spark.lake.archive.run import archive

    return archive
