"""Work in Spark's Python workers: a function is called there for each task, and its results come back to the driver.
The JVM only passes on pickled tasks and results; it handles no rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.spark.runtime.classic import context
from penstock.spark.scan.read_tasks import freeze_gc

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Weighed = TypeVar("_Weighed")

Progress = Callable[[int, int], None]
"""Callback with the number of finished tasks, and of all tasks."""

TASK_BYTES: Final = 256 << 20
"""Target size of a task in log bytes. That is some tenths of a second of work, and a task takes some milliseconds to
start."""
TASKS_PER_CORE: Final = 3
"""Least number of tasks for each core. With several small tasks, all cores finish at about the same time."""
TASKS_MAX: Final = 4096
"""Most tasks of one job. The limit bounds the number of results that the driver holds."""
_LOOK_SECONDS: Final = 0.2


def no_progress(_done: int, _all: int) -> None:
    """Do nothing: the default callback of progress."""


def run(
    spark: SparkSession,
    work: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    *,
    what: str,
    progress: Progress = no_progress,
) -> list[_Result]:
    """Call `work` for each task in Spark's workers and return the results in the order of tasks. Tasks and results are
    pickled; `work` must be a function of a module. `what` is the job's name in Spark.

    Raises what Spark raises for a failed task.
    """
    if not tasks:
        return []
    driver = context(spark)
    with _with_progress(driver, what, len(tasks), progress):
        results: list[_Result] = driver.parallelize(tasks, len(tasks)).map(WorkerCall(work)).collect()
    return results


class WorkerCall:
    """A callable for workers that calls `work`, then exempts the worker's present objects from garbage collection.
    Otherwise Spark's daemon would visit all of them after every task."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, task: Any) -> Any:
        result = self._work(task)
        freeze_gc()
        return result


@contextmanager
def _with_progress(context: SparkContext, what: str, count: int, progress: Progress) -> Iterator[None]:
    """Call `progress` several times a second while the block runs, with the number of finished tasks that Spark tells.
    If an error leaves the block, cancel its Spark jobs. `count` is the number of all tasks."""
    group, ended = f"penstock-{uuid.uuid4()}", threading.Event()
    context.setJobGroup(group, what, interruptOnCancel=True)
    progress(0, count)
    watcher = threading.Thread(target=_report_progress, args=(context, group, count, progress, ended), daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        watcher.join()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # as clearJobGroup does in Scala
    progress(count, count)


def _report_progress(context: SparkContext, group: str, count: int, progress: Progress, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    while not ended.wait(_LOOK_SECONDS):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        progress(min(done, count), count)


def group_by_bytes(items: Iterable[_Weighed], bytes_of: Callable[[_Weighed], int], cores: int) -> list[list[_Weighed]]:
    """Return the items in groups of neighbours with about equal bytes; no group is empty. If there are enough items,
    there are `TASKS_PER_CORE` groups for each core, or more so that each has about `TASK_BYTES`, at most
    `TASKS_MAX`."""
    waiting = list(items)
    total = sum(map(bytes_of, waiting))
    count = min(max(total // TASK_BYTES, cores * TASKS_PER_CORE), TASKS_MAX, max(1, len(waiting)))
    groups: list[list[_Weighed]] = [[] for _ in range(count)]
    grouped_bytes = 0
    for number, item in enumerate(waiting):
        group_number = grouped_bytes * count // total if total else number * count // len(waiting)
        groups[min(group_number, count - 1)].append(item)
        grouped_bytes += bytes_of(item)
    return [group for group in groups if group]


def cores(spark: SparkSession) -> int:
    return max(1, context(spark).defaultParallelism)
