"""Queries, one for each sink: started as a stream with its checkpoint and trigger, or written once in the mode
`batch`."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.errors import StorageFailed
from penstock.spark.lake.tables.table import AlreadyCommitted, CommitMarker, Committed
from penstock.spark.pipeline.file.model import Pipeline, Sink, ToConsole, ToFiles, ToTable, ToTopic
from penstock.spark.pipeline.run.encoding import messages
from penstock.spark.pipeline.run.frames import open_lake
from penstock.spark.pipeline.run.progress import ROWS_OUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True)
class ConsoleRows:
    """Rows of a batch for the console; `more` is True if there were others."""

    query: str
    batch: int
    columns: list[str]
    rows: list[list[Any]]
    more: bool


Show = Callable[[ConsoleRows], None]


def start(pipeline: Pipeline, sink: Sink, frame: DataFrame, *, once: bool, show: Show) -> StreamingQuery:
    """Start the query of a sink; it runs on return. With `once` it ends when the present data is written. `show` is
    called with rows for the console."""
    writer = _count_rows_out(_sink_rows(sink, frame)).writeStream.queryName(pipeline.query_name(sink))
    writer = writer.outputMode(sink.output.value).option("checkpointLocation", sink.checkpoint)
    writer = (
        writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{sink.trigger_ms} milliseconds")
    )
    return _with_destination(pipeline, sink, writer, show).start()


def _sink_rows(sink: Sink, frame: DataFrame) -> DataFrame:
    return messages(frame, sink.to) if isinstance(sink.to, ToTopic) else frame


def _count_rows_out(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.observe(ROWS_OUT, f.count(f.lit(1)).alias("rows"))


def _with_destination(pipeline: Pipeline, sink: Sink, writer: DataStreamWriter, show: Show) -> DataStreamWriter:
    match sink.to:
        case ToTopic(options=options):
            return writer.format("penstock").options(**dict(options))
        case ToFiles(path=path, format=form, partition_by=columns, options=options):
            parted = writer.partitionBy(*columns) if columns else writer
            return parted.format(form.value).options(**dict(options)).option("path", path)
        case ToTable():
            return writer.foreachBatch(_TableBatches(sink.to, sink.checkpoint))
        case ToConsole(rows=rows):
            return writer.foreachBatch(_ConsoleBatches(pipeline.query_name(sink), rows, show))


class _TableBatches:
    """A writer of batches into a lake table. A batch that the table has already is not written again: the table keeps
    the number of the last batch of every query."""

    def __init__(self, to: ToTable, checkpoint: str) -> None:
        self._with_destination = to
        self._checkpoint = checkpoint
        self._query_id: str | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self._query_id is None:
            self._query_id = query_id(frame, self._checkpoint)
        written = write_table(frame, self._with_destination, CommitMarker(self._query_id, batch_id))
        if isinstance(written, AlreadyCommitted):
            _compute(frame)


def _compute(frame: DataFrame) -> None:
    """Compute all rows and discard them. A batch that the table has already still has to restore the query's state."""
    frame.write.format("noop").mode("overwrite").save()


def write_table(frame: DataFrame, to: ToTable, marker: CommitMarker) -> Committed | AlreadyCommitted:
    from penstock.spark.lake.frames import write_frame

    return write_frame(frame, open_lake(to.table), marker, partition_by=to.partition_by)


def query_id(frame: DataFrame, checkpoint: str) -> str:
    """Return the id of the query that this batch belongs to: unique, and the same after every restart from the
    checkpoint.

    Raises `StorageFailed` if neither the checkpoint nor Spark tells it.
    """
    path = Path(checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query:
            return str(query)
        raise StorageFailed(f"{path} does not say which query it belongs to: {error}") from None


class _ConsoleBatches:
    def __init__(self, query: str, rows: int, show: Show) -> None:
        self._query = query
        self._rows = rows
        self._show = show

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        # Every row is computed before some are taken: Spark keeps state only where every row is asked for.
        kept = frame.persist()
        try:
            kept.count()
            self._show(console_rows(self._query, batch_id, frame.columns, kept.take(self._rows + 1), self._rows))
        finally:
            kept.unpersist()


def console_rows(query: str, batch: int, columns: list[str], found: list[Any], rows: int) -> ConsoleRows:
    kept = [[_readable(value) for value in row] for row in found[:rows]]
    return ConsoleRows(query, batch, columns, kept, len(found) > rows)


def _readable(value: Any) -> Any:
    """Return bytes as text, or in base64 if they are not UTF-8."""
    if not isinstance(value, bytes | bytearray):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


# ---- batches


def write(pipeline: Pipeline, sink: Sink, frame: DataFrame, show: Show) -> int:
    """Write all rows of a batch pipeline's sink now, and return their number."""
    if isinstance(sink.to, ToConsole):
        show(console_rows(pipeline.query_name(sink), 0, frame.columns, frame.take(sink.to.rows + 1), sink.to.rows))
        return frame.count()
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    # A new observation for each: waiting for one that was used before never ends.
    counted = Observation()
    _write(pipeline, sink, _sink_rows(sink, frame).observe(counted, f.count(f.lit(1)).alias("rows")))
    return int(counted.get["rows"])


def _write(pipeline: Pipeline, sink: Sink, content: DataFrame) -> None:
    match sink.to:
        case ToTopic(options=options):
            content.write.format("penstock").options(**dict(options)).mode("append").save()
        case ToFiles(path=path, format=form, partition_by=columns, options=options):
            writer = content.write.format(form.value).options(**dict(options)).mode("overwrite")
            (writer.partitionBy(*columns) if columns else writer).save(path)
        case ToTable():
            write_table(content, sink.to, CommitMarker(f"{pipeline.query_name(sink)}-{uuid.uuid4()}", 0))
