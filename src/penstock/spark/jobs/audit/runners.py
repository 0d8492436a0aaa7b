"""Where the work of a job is done: on Spark's workers, or in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.spark.jobs import worker_jobs
from penstock.spark.jobs.audit import duplicate_requests
from penstock.spark.jobs.audit.duplicate_requests import Asked
from penstock.spark.jobs.audit.findings import Repeated
from penstock.spark.jobs.worker_jobs import Progress
from penstock.spark.runtime.failures import ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Given = TypeVar("_Given")
_Got = TypeVar("_Got")


class Runner(Protocol):
    @property
    def cores(self) -> int: ...

    def run(self, what: str, work: Callable[[_Given], _Got], tasks: Sequence[_Given], progress: Progress) -> list[_Got]:
        """What the work makes of each task, in their order."""
        ...

    def repeated(self, questions: Sequence[Asked]) -> tuple[list[Repeated], int]:
        """Requests that are there more than once: the first of them, and how many."""
        ...


@dataclass(frozen=True, slots=True)
class OnSpark:
    spark: SparkSession

    @property
    def cores(self) -> int:
        return worker_jobs.cores(self.spark)

    def run(self, what: str, work: Callable[[_Given], _Got], tasks: Sequence[_Given], progress: Progress) -> list[_Got]:
        with ours():
            return worker_jobs.run(self.spark, work, tasks, what=what, progress=progress)

    def repeated(self, questions: Sequence[Asked]) -> tuple[list[Repeated], int]:
        with ours():
            return duplicate_requests.find(self.spark, questions)


@dataclass(frozen=True, slots=True)
class Here:
    """One task after another, without Spark: for logs that are smaller than Spark's start is long. Looking for repeated
    requests takes memory for each of them."""

    cores: int = 1

    def run(
        self,
        what: str,  # noqa: ARG002 - as others have it
        work: Callable[[_Given], _Got],
        tasks: Sequence[_Given],
        progress: Progress,
    ) -> list[_Got]:
        found = []
        for done, task in enumerate(tasks):
            progress(done, len(tasks))
            found.append(work(task))
        return found

    def repeated(self, questions: Sequence[Asked]) -> tuple[list[Repeated], int]:
        return duplicate_requests.find_here(questions)
