"""Where the work of a job is done: on Spark's workers, or in this process."""

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
        """What the work makes of each task, in their order."""
        ...

    def find_duplicate_requests(self, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
        """Requests that are there more than once: the first of them, and how many."""
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
    """One task after another, without Spark: for logs that are smaller than Spark's start is long. Looking for repeated
    requests takes memory for each of them."""

    cores: int = 1

    def run(
        self,
        what: str,  # noqa: ARG002 - as others have it
        work: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress,
    ) -> list[_Result]:
        found = []
        for done, task in enumerate(tasks):
            progress(done, len(tasks))
            found.append(work(task))
        return found

    def find_duplicate_requests(self, suspects: Sequence[SuspectSlice]) -> tuple[list[DuplicateRequest], int]:
        return duplicate_requests.find_locally(suspects)
