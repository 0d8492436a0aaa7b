"""The backfill: past messages added to archive tables, usually in front of what the tables hold already. A running
archive is not disturbed.

A table holds one span of offsets of a partition, without holes. A backfill extends that span at its beginning, batch by
batch from the newest part to the oldest; where the table has nothing yet, or no archive owns it, at the end. Offsets
that the table has already are left out, so a backfill may be repeated, and continues where it was interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import InvalidRequest, NotOwner, OffsetOutOfRange
from penstock.core.names import TopicName
from penstock.core.positions import Position
from penstock.spark.files.location import Location
from penstock.spark.lake.archive.batch_commit import BatchReport, BatchRunner, Destination, pack_slices
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE, Backlog, Engine, SparkEngine
from penstock.spark.lake.archive.run import (
    BATCH_BYTES,
    SLICE_BYTES,
    ArchiveReport,
    check_formats,
    checkpoint_of,
    find_logs,
)
from penstock.spark.lake.tables.names import bad_table_of
from penstock.spark.lake.tables.table import LakeTable, OffsetSpan, TopicPartition
from penstock.spark.scan.slices import Slice, plan_slices
from penstock.storage.inspect.data_reader import DataReader, TopicReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BackfillRange(NamedTuple):
    """Offsets of one partition to add: `start` up to, but not including, `stop`. `before` is True if they are added in
    front of the table's first offset, False if behind its last."""

    source: TopicPartition
    start: int
    stop: int
    before: bool


def backfill_ranges(
    source: TopicPartition, start: int, stop: int, span: OffsetSpan | None, owner: str | None
) -> Iterator[BackfillRange]:
    """Yield the parts of the offsets `start` to `stop` that a table lacks.

    `span` is what the table holds of the partition, None if it holds nothing; `owner` is the archive that extends the
    table. Raises `InvalidRequest` if a hole would be left between the range and the span, `NotOwner` if the table has
    an owner and offsets behind the span are to be added: only the owner may add those.
    """
    if start >= stop:
        return
    where = f"{source[0]}[{source[1]}]"
    if span is None:
        _check_owner(where, owner)
        yield BackfillRange(source, start, stop, before=False)
        return
    if stop < span.first or start > span.next:
        raise InvalidRequest(
            f"the table has offsets {span.first} to {span.next - 1} of {where}, and the backfill {start} to {stop - 1}:"
            " a hole would be left between them; widen the range until they join"
        )
    if start < span.first:
        yield BackfillRange(source, start, span.first, before=True)
    if stop > span.next:
        _check_owner(where, owner)
        yield BackfillRange(source, span.next, stop, before=False)


def _check_owner(where: str, owner: str | None) -> None:
    if owner is not None:
        raise NotOwner(
            f"what comes after the archived part of {where} is for the query {owner} to archive: end the range before"
            " it, or run that archive",
            owner=owner,
        )


def backfill_checkpoint(warehouse: str, name: str, given: str | None) -> Path:
    """Return the directory for the checkpoint of backfills: a running archive may hold the lock of its own.

    `name` is the name of the archive, `given` the archive's checkpoint directory, or None for the default one.
    """
    if given is None:
        return checkpoint_of(warehouse, f"{name}-backfill", None)
    return checkpoint_of(warehouse, name, given) / "backfill"


def backfill(
    spark: SparkSession | None,
    location: Location,
    topics: Sequence[str],
    destination: Destination,
    checkpoint: Checkpoint,
    *,
    start: Position,
    stop: Position | None = None,
    batch_bytes: int = BATCH_BYTES,
    on_batch: Callable[[BatchReport], None] | None = None,
) -> ArchiveReport:
    """Archive the messages of topics from `start` up to `stop`, except those that the tables already have. With
    `stop=None`, go on to the end of each log.

    `checkpoint` is locked, and is the backfill's own. Without `spark` this process does the work. Raises what
    `backfill_ranges` does.
    """
    engine = LOCAL_ENGINE if spark is None else SparkEngine(spark)
    return BackfillRun(location, topics, destination, checkpoint, start, stop).run(
        engine, batch_bytes=batch_bytes, on_batch=on_batch
    )


@contextmanager
def open_backfill(
    location: Location,
    topics: Sequence[str],
    destination: Destination,
    checkpoint: Path,
    start: Position,
    stop: Position | None = None,
) -> Iterator[BackfillRun]:
    """Lock the checkpoint and yield a backfill that is ready to run.

    Raises `InvalidRequest` if a table has another format or the checkpoint belongs to other settings, `NotOwner` if
    another process holds the checkpoint.
    """
    check_formats(destination, find_logs(location, topics))
    with Checkpoint(checkpoint) as locked:
        yield BackfillRun(location, topics, destination, locked, start, stop)


class BackfillRun:
    """One run of a backfill. It plans and commits; the engine given to `run` writes the files."""

    def __init__(
        self,
        location: Location,
        topics: Sequence[str],
        destination: Destination,
        checkpoint: Checkpoint,
        start: Position,
        stop: Position | None = None,
    ) -> None:
        self._location = location
        self._topics = [TopicName.parse(topic) for topic in topics]
        self._destination = destination
        self._checkpoint = checkpoint
        self._start, self._stop = start, stop
        checkpoint.check_settings(
            {
                "location": location.uri,
                "warehouse": destination.warehouse,
                "kind": destination.table_format,
                "backfill": True,
            }
        )
        self._query_id = checkpoint.query_id()
        self._batch_runner = BatchRunner(destination, checkpoint, self._query_id, backfills=True)

    def backlog(self) -> Backlog:
        """Return how much there is to add. Raises what `backfill_ranges` does."""
        data = self._location.open()
        slices = [
            slice_
            for missing in self._ranges(data)
            for slice_ in plan_slices(self._location, {missing.source: (missing.start, missing.stop)}, data=data)
        ]
        return Backlog(sum(slice_.stop - slice_.start for slice_ in slices), sum(slice_.bytes for slice_ in slices))

    def run(
        self,
        engine: Engine,
        stop: threading.Event | None = None,
        *,
        batch_bytes: int = BATCH_BYTES,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> ArchiveReport:
        """Add the missing ranges batch by batch, and return the totals. If `stop` is set, the run ends after the
        current batch. A batch for which an interrupted run had written all files is committed first."""
        begun = time.monotonic()
        report = ArchiveReport(self._query_id, engine.name)
        self._batch_runner.use_engine(engine)
        last = max(self._checkpoint.plans(), default=-1)
        self._batch_runner.finish(last)  # a batch that was interrupted
        data = self._location.open()
        report.swept = self._batch_runner.sweep(self._names(data))
        for number, (slices, before) in enumerate(self._batches(data, batch_bytes), last + 1):
            if stop is not None and stop.is_set():
                break
            batch = self._batch_runner.batch(number, slices, before=before)
            report.add(batch)
            if on_batch is not None:
                on_batch(batch)
        report.seconds = time.monotonic() - begun
        return report

    def _batches(self, data: DataReader, batch_bytes: int) -> Iterator[tuple[list[Slice], bool]]:
        """Yield the slices of each batch, and True if the batch lies in front of the table's span, False if behind."""
        for missing in list(self._ranges(data)):
            yield from ((slices, missing.before) for slices in self._batches_of(data, missing, batch_bytes))

    def _topic_readers(self, data: DataReader) -> list[TopicReader]:
        return [data.topic(name) for name in self._topics] if self._topics else data.topics()

    def _names(self, data: DataReader) -> list[str]:
        own = {self._destination.table_of(str(topic.name)) for topic in self._topic_readers(data)}
        return [name for main in sorted(own) for name in (main, bad_table_of(main))]

    def _ranges(self, data: DataReader) -> Iterator[BackfillRange]:
        for topic in self._topic_readers(data):
            table = self._batch_runner.table(self._destination.table_of(str(topic.name)))
            spans, owner = _spans_and_owner(table)
            for partition in topic.logs:
                source = (str(topic.name), partition)
                low, high = _bounds(data, topic.name, partition, self._start, self._stop)
                yield from backfill_ranges(source, low, high, spans.get(source), owner)

    def _batches_of(self, data: DataReader, missing: BackfillRange, batch_bytes: int) -> Iterator[list[Slice]]:
        """Cut a range into batches of about `batch_bytes`, in the order in which they must be committed.

        Each batch must touch the offsets that the table has by then. So a range in front of the span is added
        backwards, its last batch first.
        """
        ranges, aim = {missing.source: (missing.start, missing.stop)}, min(SLICE_BYTES, batch_bytes)
        slices = plan_slices(self._location, ranges, slice_bytes=aim, data=data)
        batches = list(pack_slices(slices, batch_bytes))
        return reversed(batches) if missing.before else iter(batches)


def _spans_and_owner(table: LakeTable) -> tuple[dict[TopicPartition, OffsetSpan], str | None]:
    return (table.spans(), table.owner()) if table.exists() else ({}, None)


def _bounds(
    data: DataReader, name: TopicName, partition: int, start: Position, stop: Position | None
) -> tuple[int, int]:
    log = data.topic(name).partition(partition)
    first, after = int(log.view.first_offset), int(log.view.next_offset)
    low = _clamped_offset(lambda: int(log.offset_of(start)), first, after)
    high = after if stop is None else _clamped_offset(lambda: int(log.offset_of(stop)), first, after)
    return low, high


def _clamped_offset(look: Callable[[], int], first: int, after: int) -> int:
    """Return the offset that `look` finds, limited to `first` up to `after`, the log's first and next offset."""
    try:
        return min(max(look(), first), after)
    except OffsetOutOfRange as error:
        offset = error.details.get("offset")
        return first if isinstance(offset, int) and offset < first else after
