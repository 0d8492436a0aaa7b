"""The lakehouse: one Spark session, started while others publish; the archive into a Delta table, and the audit.

Spark's work has a thread of its own. Ctrl-C then meets the main thread waiting, and not in the middle of a call into
the JVM, which cannot be left in order.
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
    """Of the log, every checksum of which was verified."""
    compared: int
    """Of the lake, held against the log."""
    findings: int
    first: str
    """What the first of them is."""


class Lakehouse:
    """Use it with `with`: Spark is there from then on, or soon."""

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
        """Whatever Spark is doing is broken off."""
        with deferred_interrupts():
            with suppress(Exception):  # it did not start: who wanted it was told
                if self._session is not None:
                    self._session.result().stop()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, job: Callable[[SparkSession], _T]) -> _T:
        """Raises why Spark did not start, or what the job raised."""
        assert self._session is not None  # noqa: S101 - it is used with `with`
        session = self._session.result()
        return self._pool.submit(job, session).result()

    def archive(self) -> ArchiveSummary:
        """All topics into tables, as far as there is something now."""
        from penstock.spark.files.location import Location
        from penstock.spark.lake.archive.run import archive
        from penstock.spark.lake.tables.names import table_of

        place = Location.parse(path=str(self._data))
        report = self.run(lambda spark: archive(spark, place, warehouse=str(self.lake), once=True))
        orders, letters = (report.tables.get(table_of(each)) for each in (_TOPIC, _TOPIC.dead_letters))
        tables = report.tables.values()
        return ArchiveSummary(
            orders=0 if orders is None else orders.rows,
            dead_letters=0 if letters is None else letters.rows,
            files=sum(each.files for each in tables),
            bytes=sum(each.bytes for each in tables),
        )

    def audit(self, bar: Bar) -> AuditSummary:
        """Every checksum of the log, and every message of it against the lake. The report is a page, too."""
        from penstock.spark.files.location import Location
        from penstock.spark.jobs.audit.archive_side import Warehouse
        from penstock.spark.jobs.audit.report.fields import as_dict
        from penstock.spark.jobs.audit.report.page import page
        from penstock.spark.jobs.audit.run import AuditRequest, audit

        place, wanted = Location.parse(path=str(self._data)), AuditRequest(against=Warehouse(str(self.lake)))

        def stage(_what: str, done: int, total: int) -> None:
            bar.set(done, total)

        report = as_dict(self.run(lambda spark: audit(spark, place, wanted, stage=stage)))
        self.page.write_text(page(report), encoding="utf-8")
        return audit_summary(report)


def audit_summary(report: dict[str, Any]) -> AuditSummary:
    """What counts, of an audit's report."""
    parts = [part["archive"] for topic in report["topics"] for part in topic["partitions"]]
    told = report["findings"]["told"]
    return AuditSummary(
        messages=report["summary"]["messages"],
        compared=sum(part["messages"] for part in parts if part),
        findings=report["findings"]["total"],
        first=str(told[0]["what"]) if told else "",
    )


def _start() -> SparkSession:
    from penstock.spark.runtime.session import session

    # What goes wrong is raised. What is broken off by Ctrl-C would fill the screen.
    os.environ.setdefault("PENSTOCK_SPARK_LOG", "off")
    return session("penstock demo", quick=True)
