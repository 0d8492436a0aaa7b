"""Publishing of DataFrames for Penstock's own jobs, which need the outcome; Spark's own writer does not return it.

The tasks do the same work. An error caused by a row is the task's result, and the driver raises it unchanged. An error
that a retry may cure fails the task, and Spark repeats it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.runtime.failures import penstock_errors
from penstock.spark.sink.columns import check_kinds
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.publisher import connect
from penstock.spark.sink.staged_commit import commit
from penstock.spark.sink.tasks import TaskResult, write_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.client.sync import Client

Progress = Callable[[int], None]
"""A function that is called with the approximate number of rows published so far."""

_LOOK_SECONDS: Final = 0.5
_RESULT: Final = "written binary"


def publish(
    rows: DataFrame, options: SinkOptions, identity: WriteIdentity, *, progress: Progress | None = None
) -> WriteCounts:
    """Publish all rows and return their counts. The rows are on disk on return.

    Raises `InvalidRequest` for wrong columns, the error that kept a row from being read or published, and
    `StorageFailed` if Spark failed.
    """
    check_kinds({field.name: field.dataType.simpleString() for field in rows.schema.fields}, options)
    with _watching_growth(options, progress), penstock_errors():
        found = rows.mapInArrow(PublishTask(options, identity), _RESULT).collect()
    outcomes = [pickle.loads(row["written"]) for row in found]  # noqa: S301 - our own, from our tasks
    failed = [outcome for outcome in outcomes if isinstance(outcome, PenstockError)]
    if failed:
        raise failed[0]
    if not options.staged:
        return sum((each.tally for each in outcomes), WriteCounts())
    return commit(options, identity, [each.file for each in outcomes if each.file is not None], progress=progress)


class PublishTask:
    """The function that a worker runs: publishes the rows of one partition and returns the outcome."""

    def __init__(self, options: SinkOptions, identity: WriteIdentity) -> None:
        self._options = options
        self._identity = identity

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        yield pa.record_batch({"written": [pickle.dumps(self._outcome(partition, batches))]})

    def _outcome(self, partition: int, batches: Iterator[pa.RecordBatch]) -> TaskResult | PenstockError:
        try:
            return write_task(self._options, self._identity, partition, batches)
        except PenstockError as error:
            if error.retriable:
                raise
            return error


@contextmanager
def _watching_growth(options: SinkOptions, progress: Progress | None) -> Iterator[None]:
    """Report the growth of the topic to `progress` twice a second; messages of other producers are counted, too."""
    if progress is None or options.broker is None or options.topic is None or options.staged:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(options, progress, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(options: SinkOptions, progress: Progress, ended: threading.Event) -> None:
    try:
        with connect(options) as client:
            before = _topic_length(client, options.topic)
            while not ended.wait(_LOOK_SECONDS):
                progress(_topic_length(client, options.topic) - before)
    except PenstockError:
        return  # the tasks report the error


def _topic_length(client: Client, topic: str | None) -> int:
    """Return the number of messages the topic was ever given; 0 if the broker cannot tell, as for a topic that is
    missing."""
    try:
        facts: dict[str, Any] = client.ask("system.topic.describe", {"topic": topic})
    except PenstockError:
        return 0
    return sum(int(each["next_offset"]) for each in facts["logs"])
