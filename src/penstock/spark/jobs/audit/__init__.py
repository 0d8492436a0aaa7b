"""The audit: every record of a log is checked, and the log is compared with its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.jobs.audit.run import AuditRequest as AuditRequest
    from penstock.spark.jobs.audit.run import audit as audit

__all__ = ["AuditRequest", "audit"]

_HOMES = {"AuditRequest": "AuditRequest", "Wanted": "AuditRequest", "audit": "audit"}
"""Public names, and what each is in `run`. `Wanted` is the name that release 0.1 documented."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use: workers import this package for its tasks alone."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.spark.jobs.audit import run

    return getattr(run, _HOMES[name])
