"""Engines that run the write tasks of a batch: this process itself, or Spark with its workers.

Both take the same tasks and return the same results; no engine decides what a batch is, or when it begins and ends. The
caller who starts Spark imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from penstock.core.errors import InvalidRequest, PenstockError, StorageFailed
from penstock.spark.lake.archive.write_task import WriteResult, WriteTask, results_of, run_as_json, run_task
from penstock.spark.runtime.failures import penstock_errors

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"
ENGINES: Final = (AUTO, LOCAL, SPARK)

_CORES_UNKNOWN: Final = 8
"""Number of cores that is assumed for a Spark Connect server, which does not tell how many it has."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages and log bytes that wait to be archived."""

    messages: int = 0
    bytes: int = 0


class Engine(Protocol):
    """A runner of write tasks. Tasks only write files; the caller adds the files to tables after all tasks have
    succeeded."""

    @property
    def name(self) -> str: ...

    @property
    def cores(self) -> int:
        """Number of tasks that run at once."""
        ...

    def run(self, tasks: Sequence[WriteTask]) -> list[WriteResult]:
        """Run the tasks and return their results in the same order. A Penstock error of a task is raised unchanged;
        `StorageFailed` is raised if a library or the engine itself failed."""
        ...


class LocalEngine:
    """This process, which runs one task after another."""

    name: Final = LOCAL
    cores: Final = 1

    def run(self, tasks: Sequence[WriteTask]) -> list[WriteResult]:
        try:
            return [run_task(task) for task in tasks]
        except (PenstockError, OSError):
            raise
        except Exception as error:  # raised by Arrow or an object store
            raise StorageFailed(f"the files of a batch could not be written: {error}") from error


LOCAL_ENGINE: Final = LocalEngine()


class SparkEngine:
    """The Python workers of a Spark session, with one Spark task for each write task."""

    name: Final = SPARK

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = _context(spark)
        self._thread = ThreadPoolExecutor(1, "penstock-spark")

    @property
    def cores(self) -> int:
        return _CORES_UNKNOWN if self._context is None else int(self._context.defaultParallelism)

    def run(self, tasks: Sequence[WriteTask]) -> list[WriteResult]:
        """Run the tasks and return their results.

        The call into the JVM is made in a separate thread. So a second Ctrl-C interrupts only this thread, which waits;
        a call into the JVM cannot be interrupted cleanly.
        """
        return self._thread.submit(self._results, list(tasks)).result()

    def _results(self, tasks: list[WriteTask]) -> list[WriteResult]:
        if not tasks:
            return []
        with penstock_errors():
            texts = _by_frame(self._spark, tasks) if self._context is None else _by_tasks(self._context, tasks)
        return results_of([json.loads(text) for text in texts])


def _context(spark: SparkSession) -> SparkContext | None:
    """Return the session's context; None for Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def _by_tasks(context: SparkContext, tasks: list[WriteTask]) -> list[str]:
    """Run the write tasks as tasks of an RDD, and return their results as JSON texts. For a DataFrame Spark would plan
    a query first, and with few messages that takes longer than the work itself."""
    texts: list[str] = context.parallelize(tasks, len(tasks)).map(_run_as_text).collect()
    return texts


def _by_frame(spark: SparkSession, tasks: list[WriteTask]) -> list[str]:
    def write(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            texts = [_run_as_text(tasks[number]) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"result": texts})

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(write, "result string").collect()
    return [row[0] for row in rows]


def _run_as_text(task: WriteTask) -> str:
    """Run one write task in a worker and return its result as JSON text."""
    from penstock.spark.scan.read_tasks import freeze_gc

    freeze_gc()
    return json.dumps(run_as_json(task))


def check_engine(name: str) -> None:
    """Raise `InvalidRequest` for an unknown engine."""
    if name not in ENGINES:
        raise InvalidRequest(f"engine {name!r}: expected one of {', '.join(ENGINES)}", given=name)
