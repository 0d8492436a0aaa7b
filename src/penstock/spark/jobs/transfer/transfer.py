"""Import, export and copy: topics into files that other tools read, and back; or from one data directory to another.

Spark is not needed here: the log's own kernels and pyarrow are done before a JVM has started. A message that is
imported or copied gets a new id, offset and time; an exported file has the original ones.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.positions import AtId, AtOffset, AtTime, Position
from penstock.spark.files.location import Location
from penstock.spark.jobs.transfer.file_formats import FileFormat, read, writer_of
from penstock.spark.jobs.transfer.replay import PublishReport
from penstock.spark.jobs.transfer.selection import Selection
from penstock.spark.scan import slice_reader
from penstock.spark.scan.columns import COLUMNS, BatchBuilder
from penstock.spark.scan.filters import Filters, NumberFilter
from penstock.spark.scan.slices import Slice, plan_slices, view_within
from penstock.spark.sink.columns import MESSAGE
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.loader import Loader
from penstock.spark.sink.numbers import with_numbers
from penstock.spark.sink.options import RowNumbers, SinkOptions
from penstock.spark.sink.publisher import connect, ensure_topic
from penstock.spark.sink.routing import Router
from penstock.spark.sink.staged_commit import open_destination
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store

Progress = Callable[[int, int | None], None]
"""Callback with the number of finished messages, and of all messages if known."""

_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of an export."""

    path: str
    format: str
    topics: tuple[str, ...]
    rows: int
    lost: int
    """Number of messages that could not be read and were left out."""
    bytes: int
    seconds: float


def export(
    location: Location,
    topics: Sequence[TopicName],
    output: Path,
    kind: FileFormat,
    *,
    selection: Selection | None = None,
    skip_lost: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write messages into a file, topic by topic and partition by partition, in order. The messages go into
    `OUTPUT.part`, which replaces `output` once it is complete and is deleted after an error.

    Raises `DataLoss` if messages cannot be read. With `skip_lost` they are left out and counted in the report instead.
    Raises `InvalidRequest` for a selection with `where`, which needs Spark.
    """
    began, rows, losses = time.monotonic(), 0, slice_reader.LossCounter()
    chosen = _without_sql(selection)
    slices = _slices(location, topics, chosen)
    total = sum(slice_.stop - slice_.start for slice_ in slices)
    part = output.with_name(f"{output.name}.part")
    try:
        writer = writer_of(kind, part)
        try:
            for batch, done in _read(slices, chosen, losses if skip_lost else slice_reader.raise_loss):
                writer.write(batch)
                rows += batch.num_rows
                _report_progress(progress, done, total)
        finally:
            writer.close()
        part.replace(output)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise
    return ExportReport(
        path=str(output),
        format=kind.value,
        topics=tuple(map(str, topics)),
        rows=rows,
        lost=losses.count,
        bytes=output.stat().st_size,
        seconds=time.monotonic() - began,
    )


def import_file(
    file: Path,
    kind: FileFormat,
    target: SinkOptions,
    *,
    run: str | None = None,
    keep_partitions: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Publish the messages of a file into `target.topic`, or each into the topic that it names.

    The request number of a message is its position in the file. So with the `run` of an earlier import of the same
    file, messages that were stored then are not stored again. `keep_partitions` is for a target directory: a message
    goes to the partition that the file names. Raises `InvalidRequest` for `keep_partitions` with a broker.
    """
    _check_keeping(target, keep_partitions)
    batches = read(kind, file, (*MESSAGE, "topic", *(("partition",) if keep_partitions else ())))
    options = replace(target, producer="import", numbers=RowNumbers.ROWS)
    return _publish_batches(batches, options, run or uuid.uuid4().hex, None, progress)


def copy(
    location: Location,
    topics: Sequence[TopicName],
    target: SinkOptions,
    *,
    selection: Selection | None = None,
    run: str | None = None,
    skip_lost: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Copy messages of one data directory into another, or into a broker, under the same topic names; with
    `target.topic` all into that one. Missing topics are created with as many partitions.

    The request number of a message is its old offset plus 1. So with the `run` of an earlier copy, messages that were
    stored then are not stored again. In a directory a message goes to its old partition, unless `target.topic` is set.
    Raises `DataLoss` if messages cannot be read; with `skip_lost` they are left out and counted instead. Raises
    `InvalidRequest` for a selection with `where`, which needs Spark.
    """
    chosen, name, losses = _without_sql(selection), run or uuid.uuid4().hex, slice_reader.LossCounter()
    data = location.open()
    slices = _slices(location, topics, chosen)
    _create_topics(data, topics, target)
    options = replace(target, producer="copy", numbers=RowNumbers.COLUMNS)
    placed = options.path is not None and options.topic is None
    selected = _read(slices, chosen, losses if skip_lost else slice_reader.raise_loss)
    batches = (_numbered(batch, chosen, name, placed=placed) for batch, _ in selected)
    total = sum(slice_.stop - slice_.start for slice_ in slices)
    return replace(_publish_batches(batches, options, name, total, progress), lost=losses.count)


def _check_keeping(target: SinkOptions, keep_partitions: bool) -> None:
    if keep_partitions and target.path is None:
        raise InvalidRequest("a broker chooses the partition by the key: partitions are kept only into a directory")


def _publish_batches(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, run: str, total: int | None, progress: Progress | None
) -> PublishReport:
    began = time.monotonic()
    router = Router(options, WriteIdentity(query=run, batch=0), None)
    with open_destination(options) as target:
        for batch in batches:
            for share in router.split(batch):
                if isinstance(target, Loader):
                    target.check(share.topic, share.rows)
                target.append(share)
            _report_progress(progress, target.tally.rows, total)
        target.finish()
        tally = target.tally
    return _report(run, options, tally, time.monotonic() - began)


def _report(run: str, options: SinkOptions, tally: WriteCounts, seconds: float) -> PublishReport:
    return PublishReport(
        run=run,
        target=options.topic or str(options.path or options.broker),
        rows=tally.rows,
        published=tally.rows - tally.stored_before,
        known=tally.stored_before,
        seconds=seconds,
    )


def _numbered(batch: pa.RecordBatch, selection: Selection, run: str, *, placed: bool) -> pa.RecordBatch:
    """Return the rows of a batch with a producer's name and request numbers (offset plus 1), by which the target
    recognizes messages that it has already. All rows must be of one partition. With `placed` they keep it."""
    topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
    name = f"copy/{run}/{selection.digest(TopicName.parse(topic))}/{partition}"
    selected = batch.select([*MESSAGE, "topic", *(("partition",) if placed else ())])
    named = selected.append_column("producer_name", pa.repeat(pa.scalar(name), batch.num_rows))
    return with_numbers(named, batch.column("offset").to_numpy() + np.int64(1))


def _create_topics(data: DataReader, topics: Sequence[TopicName], target: SinkOptions) -> None:
    partition_counts = {str(name): data.topic(name).partitions for name in topics}
    if target.topic is not None:
        partition_counts = {target.topic: target.create_partitions or 1}
    if target.path is not None:
        _create_in_directory(partition_counts, target.path)
        return
    with connect(target) as client:
        for name, partitions in partition_counts.items():
            ensure_topic(client, name, partitions)


def _create_in_directory(partition_counts: dict[str, int], path: Path) -> None:
    with Store.open(path, create=True) as store:
        existing = {topic.name for topic in store.catalog.list_topics()}
        for name, partitions in partition_counts.items():
            if TopicName.parse(name) not in existing:
                store.create_topic(TopicName.parse(name), partitions=partitions)


# reading


def _without_sql(selection: Selection | None) -> Selection:
    chosen = selection or Selection()
    if chosen.where is not None:
        raise InvalidRequest("a condition in SQL needs Spark: `penstock replay` takes one")
    return chosen


def _slices(location: Location, topics: Sequence[TopicName], selection: Selection) -> list[Slice]:
    """Return the slices of the topics' logs, as they are now, that may have selected messages."""
    data, filters = location.open(), _filters(selection)
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for name in topics:
        reader = data.topic(name)
        for number in reader.logs if selection.partition is None else (selection.partition,):
            view = reader.partition(number).view
            start, stop = int(view.first_offset), int(view.next_offset)
            clipped = filters.clip(data.disk, view_within(data, str(name), number, start, stop), start, stop)
            ranges[str(name), number] = clipped
    return plan_slices(location, ranges, data=data)


def _read(
    slices: Sequence[Slice],
    selection: Selection,
    on_loss: Callable[[slice_reader.LostRange], None] = slice_reader.raise_loss,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield batches of the selected messages with all columns, each with the number of messages read so far, including
    those that were not selected. `on_loss` is called for messages that cannot be read."""
    filters, done = _filters(selection), 0
    for slice_ in slices:
        maker = BatchBuilder(COLUMNS.names, slice_.topic, slice_.partition, rows_max=slice_reader.ROWS_MAX)
        for block in slice_reader.blocks(slice_, filters=filters, on_loss=on_loss):
            done += len(block)
            chosen = filters.select_rows(block)
            if selection.types or selection.keys:
                chosen = chosen.gather(chosen.matching(selection.types, selection.keys))
            if len(chosen):
                yield maker.batch(chosen), done


def _filters(selection: Selection) -> Filters:
    first, last = selection.positions()
    offset, timestamp, id_ = (
        NumberFilter(_number(first, kind), _number(last, kind)) for kind in (AtOffset, AtTime, AtId)
    )
    return Filters(offset=offset, timestamp=timestamp, id=id_)


def _number(place: Position | None, kind: type[Position]) -> int | None:
    """Return a position as the number that filters compare: an offset, a time in microseconds, or an id. Return None if
    the position is not of class `kind`."""
    if not isinstance(place, kind):
        return None
    match place:
        case AtOffset(offset):
            return int(offset)
        case AtTime(unix_ms):
            return unix_ms * _US_PER_MS
        case AtId(id_):
            return int.from_bytes(id_)
    return None


def _report_progress(progress: Progress | None, done: int, total: int | None) -> None:
    if progress is not None:
        progress(done, total)
