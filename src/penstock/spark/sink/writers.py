"""The sink as Spark calls it: `write` in the tasks, `commit` and `abort` in a Python process beside the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from penstock.core.errors import InvalidRequest
from penstock.spark.runtime.versions import ARROW_STREAMS, arrow_schema
from penstock.spark.sink.identity import WriteIdentity
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.staged_commit import commit, discard
from penstock.spark.sink.tasks import TaskResult, write_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_MAX: Final = 10_000
"""Rows of a batch, as many as Spark itself puts into one."""


def as_batches(rows: Iterable[tuple[Any, ...]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order as batches; no batch is empty."""
    kinds = arrow_schema(schema)
    waiting = iter(rows)
    while chunk := list(islice(waiting, ROWS_MAX)):
        columns = [[_value(value) for value in column] for column in zip(*chunk, strict=True)]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=kinds)


def _value(value: Any) -> Any:
    """Convert bytes and maps to the values that Arrow accepts."""
    match value:
        case bytearray():
            return bytes(value)
        case dict():
            return list(value.items())
        case _:
            return value


if TYPE_CHECKING or ARROW_STREAMS.is_available:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    DataSourceStreamArrowWriter = DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    written: TaskResult


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("penstock")`."""

    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options = options
        self._identity = WriteIdentity(query=query, batch=options.batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        return CommitMessage(write_task(self._options, self._identity, _task().partitionId(), iterator))

    def commit(self, messages: list[Any]) -> None:
        _commit(self._options, messages)

    def abort(self, messages: list[Any]) -> None:
        _abort(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("penstock")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> CommitMessage:
        """Publish or stage the rows of a task. Spark hands on record batches, or single rows if its release knows no
        others."""
        task = _task()
        batches: Iterator[pa.RecordBatch] = (
            iterator if ARROW_STREAMS.is_available else as_batches(iterator, self._schema)
        )
        return CommitMessage(write_task(self._options, self._identity(task), task.partitionId(), batches))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's own names
        _commit(self._options, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: ARG002, N803
        _abort(self._options, messages)

    def _identity(self, task: TaskContext) -> WriteIdentity:
        query = self._options.run or task.getLocalProperty(_QUERY_ID)
        batch = task.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise InvalidRequest("this task does not say which batch of which streaming query it belongs to")
        return WriteIdentity(query=query, batch=int(batch), stream=True)


def _task() -> TaskContext:
    found = TaskContext.get()
    if found is None:
        raise InvalidRequest("rows are published by the tasks of a Spark job, and this is none")
    return found


def _commit(options: SinkOptions, messages: list[Any]) -> None:
    written = _task_results(messages)
    if options.staged and written:
        commit(options, written[0].identity, [each.file for each in written if each.file is not None])


def _abort(options: SinkOptions, messages: list[Any]) -> None:
    """Delete the staged files. Rows that tasks published through a broker stay: the next attempt recognises them."""
    written = _task_results(messages)
    if options.staged and written:
        discard(options, written[0].identity, [each.file for each in written if each.file is not None])


def _task_results(messages: list[Any]) -> list[TaskResult]:
    """Return the results of the tasks that finished."""
    return [message.written for message in messages if isinstance(message, CommitMessage)]
