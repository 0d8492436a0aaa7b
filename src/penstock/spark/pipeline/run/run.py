"""The run of a pipeline: starts its queries, reports every batch, and ends in order when it is stopped or a query
fails."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import NotOwner
from penstock.spark.pipeline.file.locations import is_address
from penstock.spark.pipeline.file.model import Mode, Pipeline, Sink
from penstock.spark.pipeline.file.parsing import PipelineInvalid
from penstock.spark.pipeline.file.subscription_names import sources_of
from penstock.spark.pipeline.run.checks import sink_problems
from penstock.spark.pipeline.run.frames import Frames
from penstock.spark.pipeline.run.progress import BatchReport, batch_report
from penstock.spark.pipeline.run.queries import ConsoleRows, start, write
from penstock.spark.runtime.classic import context
from penstock.spark.runtime.failures import Failure, failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GRACE_SECONDS: Final = 60.0
"""The time that a running batch has to end when the pipeline is stopped."""
_POLL_SECONDS: Final = 0.2
_LOCK: Final = ".lock"


class State(StrEnum):
    """The way in which a query ended: all data was processed, it was stopped, or it failed."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryStarted:
    query: str
    checkpoint: str


Event = QueryStarted | BatchReport | ConsoleRows
Say = Callable[[Event], None]


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a query. `failure` is set if it failed."""

    query: str
    state: State = State.DONE
    batches: int = 0
    rows_in: int = 0
    rows_out: int | None = None
    late: int | None = None
    ms: int = 0
    lag: int | None = None
    failure: Failure | None = None

    def add(self, batch: BatchReport) -> None:
        self.batches += 1
        self.rows_in += batch.rows_in
        self.rows_out = _plus(self.rows_out, batch.rows_out)
        self.late = _plus(self.late, batch.late)
        self.ms += batch.ms
        self.lag = batch.lag

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _plus(sum_: int | None, number: int | None) -> int | None:
    """Return the sum of known numbers; None without any."""
    return sum_ if number is None else (sum_ or 0) + number


@dataclass(slots=True)
class _RunningQuery:
    query: StreamingQuery
    result: Result
    last: int = -1
    """The last batch that was reported."""
    ending_after: int | None = None
    """The last batch that had been reported when the query was asked to end."""


@dataclass(slots=True)
class _PipelineRun:
    pipeline: Pipeline
    say: Say
    stop: threading.Event
    once: bool
    results: dict[str, Result]
    """Results by sink. When the queries are started again for a refresh, the same results are added to."""
    running: list[_RunningQuery] = field(default_factory=list)
    events: queue.SimpleQueue[ConsoleRows] = field(default_factory=queue.SimpleQueue)


def run(spark: SparkSession, pipeline: Pipeline, *, once: bool, say: Say, stop: threading.Event) -> list[Result]:
    """Run the query of each sink, and return their results when all have ended.

    They end when all data is processed (with `once`, or in the mode `batch`), when `stop` is set, or when one fails;
    the others then finish their running batch. `say` is called with each event. An error of Spark is not raised: the
    result has the failure.

    Raises `PipelineInvalid` before anything is started, `NotOwner` if another process runs this pipeline, and
    `InvalidRequest` for a session of Spark Connect.
    """
    context(spark)
    frames = _frames(spark, pipeline)
    results = {sink.name: Result(query=pipeline.query_name(sink)) for sink in pipeline.sinks}
    run = _PipelineRun(pipeline, say, stop, once, results)
    if pipeline.mode is Mode.BATCH:
        _run_batch(run, frames)
    else:
        with _lock_checkpoints(pipeline.checkpoints):
            while _run_round(run, frames):
                frames = _frames(spark, pipeline)
    return list(results.values())


def _frames(spark: SparkSession, pipeline: Pipeline) -> dict[str, DataFrame]:
    """Return the DataFrame of each sink, by name. Raises `PipelineInvalid`."""
    frames = _checked_frames(spark, pipeline)
    return {sink.name: _frame(spark, pipeline, sink, frames) for sink in pipeline.sinks}


def _frame(spark: SparkSession, pipeline: Pipeline, sink: Sink, frames: Frames) -> DataFrame:
    """Return the DataFrame of a sink.

    It is shared with other sinks, unless this sink reads a source under a subscription name of its own.
    """
    sources = tuple(sources_of(sink, pipeline.sources, pipeline.steps, pipeline.sinks))
    if sources != pipeline.sources:
        frames = _checked_frames(spark, replace(pipeline, sources=sources, sinks=(sink,)))
    return frames.by_name[sink.source]


def _checked_frames(spark: SparkSession, pipeline: Pipeline) -> Frames:
    frames = Frames(spark).build(pipeline)
    problems = [*frames.problems, *sink_problems(pipeline, frames)]
    if problems:
        raise PipelineInvalid(str(pipeline.file), [pipeline.secrets.hide(problem) for problem in problems])
    return frames


# streams


def _run_round(run: _PipelineRun, frames: Mapping[str, DataFrame]) -> bool:
    """Run all queries until they end. Return True if a refresh is due: then they are started again, to read sources
    that are no streams anew."""
    run.running = []
    try:
        for sink in run.pipeline.sinks:
            run.running.append(_start_query(run, sink, frames[sink.name]))
        again = _watch(run)
        _finish_batches(run)
    finally:
        for running in run.running:
            running.query.stop()
    return again and not any(result.failure for result in run.results.values())


def _start_query(run: _PipelineRun, sink: Sink, frame: DataFrame) -> _RunningQuery:
    query = start(run.pipeline, sink, frame, once=run.once, show=run.events.put)
    result = run.results[sink.name]
    result.state = State.DONE
    run.say(QueryStarted(result.query, sink.checkpoint))
    return _RunningQuery(query, result)


def _watch(run: _PipelineRun) -> bool:
    """Watch until all are done, one has failed, the run is stopped, or a refresh is due; return True for a refresh."""
    until = math.inf
    while not run.stop.is_set():
        active = [running for running in run.running if running.query.isActive]
        _report(run)
        failed = [running for running in run.running if _note_failure(running, run.pipeline)]
        if failed or not active:
            return False
        if until == math.inf and all(map(_has_looked, active)):
            until = _refresh_time(run)
        if time.monotonic() > until:
            return True
        run.stop.wait(_POLL_SECONDS)
    return False


def _refresh_time(run: _PipelineRun) -> float:
    if run.once or run.pipeline.refresh_ms is None:
        return math.inf
    return time.monotonic() + run.pipeline.refresh_ms / 1000


def _has_looked(running: _RunningQuery) -> bool:
    """Return whether a query has processed all data that was there, at least once.

    The time to the refresh is counted from then on. A start may take longer than the interval, and a query that is
    stopped while it starts would never come to its first batch.
    """
    return running.last >= 0 or str(running.query.status["message"]).startswith("Waiting")


def _finish_batches(run: _PipelineRun) -> None:
    """Let each query end its batch, for at most `GRACE_SECONDS`, and stop it. The next run repeats an unfinished
    batch."""
    ending = [running for running in run.running if running.query.isActive]
    for running in ending:
        running.result.state = State.STOPPED
        running.ending_after = running.last
    until = time.monotonic() + GRACE_SECONDS
    while ending and time.monotonic() < until:
        _report(run)
        for running in ending:
            if not _in_batch(running):
                running.query.stop()
        ending = [running for running in ending if running.query.isActive]
        time.sleep(_POLL_SECONDS / 4)
    for running in ending:
        running.query.stop()
    _report(run)
    for running in run.running:
        _note_failure(running, run.pipeline)


def _in_batch(running: _RunningQuery) -> bool:
    """Return whether the batch that ran when the end was requested still runs."""
    return bool(running.query.status["isTriggerActive"]) and running.last == running.ending_after


def _note_failure(running: _RunningQuery, pipeline: Pipeline) -> bool:
    """Return whether the query has failed; the reason is then in its result."""
    error = None if running.query.isActive else running.query.exception()
    if error is None:
        return False
    _fail(running.result, error, pipeline)
    return True


def _fail(result: Result, error: BaseException, pipeline: Pipeline) -> None:
    found = failure_of(error)
    result.state = State.FAILED
    result.failure = replace(found, reason=pipeline.secrets.hide(found.reason))


def _report(run: _PipelineRun) -> None:
    """Report every batch that finished since the last time, and rows for the console."""
    while not run.events.empty():
        run.say(run.events.get())
    for running in run.running:
        for report in running.query.recentProgress:
            batch = batch_report(report)
            if batch.batch > running.last and batch.ms:
                running.last = batch.batch
                running.result.add(batch)
                run.say(batch)


# batches


def _run_batch(run: _PipelineRun, frames: Mapping[str, DataFrame]) -> None:
    """Write one sink after the other. After a failed one, or when the run is stopped, the others are not written."""
    from pyspark.errors import PySparkException

    for sink in run.pipeline.sinks:
        result = run.results[sink.name]
        if run.stop.is_set() or any(result.failure for result in run.results.values()):
            result.state = State.STOPPED
            continue
        try:
            batch = _one_pass(run, sink, result.query, frames[sink.name])
        except PySparkException as error:
            _fail(result, error, run.pipeline)
        else:
            result.add(batch)
            run.say(batch)


def _one_pass(run: _PipelineRun, sink: Sink, query: str, frame: DataFrame) -> BatchReport:
    began = time.monotonic()
    rows = write(run.pipeline, sink, frame, run.say)
    ms = int(1000 * (time.monotonic() - began))
    return BatchReport(query=query, batch=0, rows_in=rows, rows_out=rows, ms=ms, lag=None)


# one at a time


@contextmanager
def _lock_checkpoints(checkpoints: str) -> Iterator[None]:
    """Lock the directory of the checkpoints for this process. Raises `NotOwner` if another process has locked it.

    A directory in an object store is not locked: there Spark itself notices a second process, some batches later.
    """
    if is_address(checkpoints):
        yield
        return
    import fcntl

    folder = Path(checkpoints)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotOwner(
                f"another process runs the pipeline whose checkpoints are in {checkpoints}: stop it first",
                checkpoints=checkpoints,
            ) from None
        yield
