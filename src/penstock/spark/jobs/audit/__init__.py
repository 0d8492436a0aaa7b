"""The audit: every record of a log is checked, and the log is compared with its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jobs.audit.run import AuditRequest as AuditRequest
    from penstock.spark.jobs.audit.run import audit as audit

__all__ = ["AuditRequest", "audit"]

_HOMES = {"AuditRequest": "AuditRequest", "Wanted": "AuditRequest", "audit": "audit"}
"""Public names of this package, and for each the name of the object in the module `run`. `Wanted` is the name of
`AuditRequest` in release 0.1."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: workers need only the tasks of this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.spark.jobs.audit import run

    return getattr(run, _HOMES[name])
