"""The growth of Spark's cost with the log, and with nothing else: time in proportion, memory not at all.

The same jobs run over a small log and over one that is many times as large, in one session. Memory is read from the
system while they run: Python's processes by their resident memory, the JVM by the heap after a full collection.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from penstock.bench import Figure, best_seconds
from penstock.bench.spark import CORES, TOPIC, SampleLog, drain
from penstock.record.kernels import kernel_cache
from penstock.spark.jobs.audit.run import audit
from penstock.spark.lake.archive.run import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES: Final = 16
_ROUNDS: Final = 3
"""Rounds over the small log; the large one is its own repetition."""
_LOOK_SECONDS: Final = 0.05
_MIB: Final = 1 << 20
_HEAP: Final = "1g"
"""The heap, so small that a job which kept rows of the large log would fail."""


def measure(folder: Path, *, messages: int = 1_000_000) -> Iterator[Figure]:
    """Yield figures over `messages` and over sixteen times as many. Needs room for about a kilobyte for each of
    these."""
    from penstock.spark.runtime.session import session

    kernel_cache.load_all()
    small = SampleLog.make(folder / "small", messages)
    large = SampleLog.make(folder / "large", messages * TIMES, distinct=messages)
    spark = session("bench", master=f"local[{CORES}]", memory=_HEAP)
    try:
        for name, job in _jobs(spark, folder / "lake").items():
            yield from _compared(spark, name, job, small, large)
    finally:
        spark.stop()


Job = Callable[[SampleLog], object]


def _jobs(spark: SparkSession, warehouse: Path) -> dict[str, Job]:
    def archived(sample: SampleLog) -> None:
        shutil.rmtree(warehouse, ignore_errors=True)
        archive(spark, sample.location, [str(TOPIC)], warehouse=str(warehouse), once=True)

    return {
        "read": lambda sample: drain(sample.frame(spark)),
        "archive": archived,
        "audit": lambda sample: audit(spark, sample.location),
    }


def _compared(spark: SparkSession, name: str, job: Job, small: SampleLog, large: SampleLog) -> Iterator[Figure]:
    job(small)  # the first run warms the JVM and the workers
    before = _run(spark, job, small, _ROUNDS)
    after = _run(spark, job, large, 1)
    yield _figure(f"{name}, rate of {TIMES} times as many", "messages/s", after.rate, before.rate)
    yield _bounded(f"{name}, memory of Python's processes", after.python, before.python)
    yield _bounded(f"{name}, live heap of the JVM", after.heap, before.heap)


@dataclass(frozen=True, slots=True)
class _Cost:
    rate: float
    python: float
    heap: float


def _run(spark: SparkSession, job: Job, sample: SampleLog, rounds: int) -> _Cost:
    with MemoryWatch() as watched:
        seconds = best_seconds(lambda: job(sample), rounds=rounds)
    return _Cost(sample.messages / seconds, watched.peak / _MIB, _live_heap(spark) / _MIB)


def _live_heap(spark: SparkSession) -> float:
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]  # noqa: SLF001
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory())


def _figure(name: str, unit: str, value: float, reference: float) -> Figure:
    return Figure(
        name=name,
        value=value,
        unit=unit,
        reference="of the small log",
        reference_value=reference,
        ratio=value / reference,
    )


def _bounded(name: str, value: float, reference: float) -> Figure:
    """Return a figure of which less is better."""
    return Figure(
        name=name,
        value=value,
        unit="MiB",
        reference="of the small log",
        reference_value=reference,
        ratio=reference / value,
    )


class MemoryWatch:
    """A watch on memory: the most that a process (this one by default) and all below it had at once, without the
    JVM's."""

    def __init__(self, pid: int | None = None) -> None:
        self.peak = 0
        self._pid = os.getpid() if pid is None else pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.peak = max(self.peak, sum(map(_resident, _descendants(self._pid))))


def _descendants(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for each in found:  # the list grows meanwhile
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, _text(children).split())
    return found


def _resident(pid: int) -> int:
    """Return a process's own memory; pages shared with its parent are counted there."""
    if _text(Path(f"/proc/{pid}/comm")).strip() == "java":
        return 0
    lines = dict(line.partition(":")[::2] for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines())
    return 1024 * int(lines.get("Pss", "0").split()[0])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
