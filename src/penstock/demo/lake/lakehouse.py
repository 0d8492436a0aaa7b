"""The lakehouse of the demo: a Spark session, which starts while events are published, the archive into Delta tables,
and the audit.

Spark is called in a thread of its own, while the main thread waits. So Ctrl-C interrupts the waiting, and not a call
into the JVM, which would be left in disorder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from penstock.core.names import TopicName
from penstock.demo.base.interrupts import deferred_interrupts
from penstock.demo.base.orders import TOPIC
from penstock.demo.base.screen import Bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_TOPIC: Final = TopicName.parse(TOPIC)


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    orders: int
    dead_letters: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AuditSummary:
    messages: int
    """Messages of the log, every checksum of which was verified."""
    compared: int
    """Messages of the lake, compared with the log."""
    findings: int
    first: str
    """The first finding, as a sentence."""


class Lakehouse:
    """The lake of the demo and its Spark session, to be used with `with`. Spark starts in the background when that
    begins."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._data = data
        self.lake = folder / "lake"
        self.page = folder / "audit.html"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="demo-spark")
        self._session: Future[SparkSession] | None = None

    def __enter__(self) -> Self:
        self._session = self._pool.submit(_start)
        return self

    def __exit__(self, *_exception: object) -> None:
        """End the Spark session; a job that is running fails."""
        with deferred_interrupts():
            with suppress(Exception):  # it did not start: `run` has raised the error
                if self._session is not None:
                    self._session.result().stop()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, job: Callable[[SparkSession], _T]) -> _T:
        """Run a job with the session. Raises the error of Spark's start, or of the job."""
        assert self._session is not None  # noqa: S101 - it is used with `with`
        session = self._session.result()
        return self._pool.submit(job, session).result()

    def archive(self) -> ArchiveSummary:
        """Archive every topic into its table, up to its present end."""
        from penstock.spark.files.location import Location
        from penstock.spark.lake.archive.run import archive
        from penstock.spark.lake.tables.names import table_of

        location = Location.parse(path=str(self._data))
        report = self.run(lambda spark: archive(spark, location, warehouse=str(self.lake), once=True))
        orders, letters = (report.tables.get(table_of(each)) for each in (_TOPIC, _TOPIC.dead_letters))
        tables = report.tables.values()
        return ArchiveSummary(
            orders=0 if orders is None else orders.rows,
            dead_letters=0 if letters is None else letters.rows,
            files=sum(table.files for table in tables),
            bytes=sum(each.bytes for each in tables),
        )

    def audit(self, bar: Bar) -> AuditSummary:
        """Verify every checksum of the log, compare every message with the lake, and write the report to `page` as
        HTML."""
        from penstock.spark.files.location import Location
        from penstock.spark.jobs.audit.archive_side import Warehouse
        from penstock.spark.jobs.audit.report.fields import as_dict
        from penstock.spark.jobs.audit.report.page import page
        from penstock.spark.jobs.audit.run import AuditRequest, audit

        location, wanted = Location.parse(path=str(self._data)), AuditRequest(against=Warehouse(str(self.lake)))

        def stage(_what: str, done: int, total: int) -> None:
            bar.set(done, total)

        report = as_dict(self.run(lambda spark: audit(spark, location, wanted, stage=stage)))
        self.page.write_text(page(report), encoding="utf-8")
        return audit_summary(report)


def audit_summary(report: dict[str, Any]) -> AuditSummary:
    """Return the summary of an audit's report."""
    parts = [part["archive"] for topic in report["topics"] for part in topic["partitions"]]
    shown = report["findings"]["told"]
    return AuditSummary(
        messages=report["summary"]["messages"],
        compared=sum(part["messages"] for part in parts if part),
        findings=report["findings"]["total"],
        first=str(shown[0]["what"]) if shown else "",
    )


def _start() -> SparkSession:
    from penstock.spark.runtime.session import session

    # Errors are raised; broken-off work of Ctrl-C would fill the screen.
    os.environ.setdefault("PENSTOCK_SPARK_LOG", "off")
    return session("penstock demo", quick=True)
