"""Runners of a job's work: Spark's workers, or this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.spark.jobs import worker_jobs
from penstock.spark.jobs.audit import duplicate_requests
from penstock.spark.jobs.audit.duplicate_requests import SuspectSlice
from penstock.spark.jobs.audit.findings import DuplicateRequest
from penstock.spark.jobs.worker_jobs import Progress
from penstock.spark.runtime.failures import penstock_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class JobRunner(Protocol):
    @property
    def cores(self) -> int: ...

    def run(
        self, what: str, work: Callable[[_Task], _Result], tasks: Sequence[_Task], progress: Progress
    ) -> list[_Result]:
        """Call `work` for each task and return the results in the order of tasks. `what` names the work for people."""
        ...

    def find_duplicate_requests(self, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
        """Return the first request numbers that occur more than once, and how many there are in all."""
        ...


@dataclass(frozen=True, slots=True)
class SparkRunner:
    spark: SparkSession

    @property
    def cores(self) -> int:
        return worker_jobs.cores(self.spark)

    def run(
        self, what: str, work: Callable[[_Task], _Result], tasks: Sequence[_Task], progress: Progress
    ) -> list[_Result]:
        with penstock_errors():
            return worker_jobs.run(self.spark, work, tasks, what=what, progress=progress)

    def find_duplicate_requests(self, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
        with penstock_errors():
            return duplicate_requests.find_on_spark(self.spark, suspects)


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """A runner in this process, one task after another: for logs that take less time than the start of Spark. Its
    search for duplicate requests takes memory for each request."""

    cores: int = 1

    def run(
        self,
        what: str,  # noqa: ARG002 - as others have it
        work: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress,
    ) -> list[_Result]:
        results = []
        for done, task in enumerate(tasks):
            progress(done, len(tasks))
            results.append(work(task))
        return results

    def find_duplicate_requests(self, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
        return duplicate_requests.find_locally(suspects)
