"""Messages exported, imported, copied, replayed or compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jobs.transfer.transfer import copy as copy
    from penstock.spark.jobs.transfer.transfer import export as export
    from penstock.spark.jobs.transfer.transfer import import_file as import_file

__all__ = ["copy", "export", "import_file"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: workers need only the tasks of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.spark.jobs.transfer import transfer

    return getattr(transfer, name)
