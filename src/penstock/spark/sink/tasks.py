"""The work of a sink task: publish the rows, or stage them for the driver to publish. Spark is not imported here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.errors import InvalidRequest
from penstock.spark.sink import columns
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.numbers import batch_of, row_of
from penstock.spark.sink.options import RowNumbers, RowOrder, SinkOptions
from penstock.spark.sink.ordering import by_content
from penstock.spark.sink.publisher import Publisher
from penstock.spark.sink.routing import Router, check_order
from penstock.spark.sink.staging import StagedFile, Staging


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result that a task reports to the driver."""

    identity: WriteIdentity
    partition: int
    tally: WriteCounts
    file: StagedFile | None = None
    """The staged file whose rows are to be published."""


def write_task(
    options: SinkOptions, identity: WriteIdentity, partition: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult:
    """Write the rows of a task; on return they are on disk: in the topics, or in a staged file.

    Raises the error that keeps a row from being published, with the row's number in the task where it is known.
    """
    rows: Iterable[pa.RecordBatch] = (columns.accepted_columns(batch, options) for batch in batches)
    if options.order is RowOrder.CONTENT:
        rows = by_content(rows)
    if options.staging is None:
        return TaskResult(identity, partition, _publish(options, identity, partition, rows))
    file = Staging(options.staging, identity.query).stage(identity.batch, partition, _check_rows(rows))
    return TaskResult(identity, partition, WriteCounts(file.rows), file)


def _publish(
    options: SinkOptions, identity: WriteIdentity, partition: int, rows: Iterable[pa.RecordBatch]
) -> WriteCounts:
    router = Router(options, identity, partition)
    with Publisher(options) as publisher:
        for batch in rows:
            for group in router.split(batch):
                check_order(options, identity, group, publisher)
                publisher.append(group)
        if options.numbers is RowNumbers.ROWS:
            _check_complete(publisher, router, identity)
        publisher.finish()
        return publisher.tally


def _check_complete(publisher: Publisher, router: Router, identity: WriteIdentity) -> None:
    """Raise `InvalidRequest` if an earlier attempt of this batch published more rows than this one has.

    The query then gives different rows each time, and it is unknown which of them are stored.
    """
    counts = router.counts
    for (topic, _), sequence in publisher.sequences.items():
        if batch_of(sequence.last) == identity.batch and row_of(sequence.last) >= counts[topic]:
            raise InvalidRequest(
                f"{sequence}: batch {identity.batch} had more than {row_of(sequence.last)} rows when it was published"
                f" before, and now has {counts[topic]}: a query whose rows differ when it is repeated is published once"
                " only with the option staging",
                option="staging",
            )


def _check_rows(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    before = 0
    for batch in rows:
        columns.check_values(batch, before)
        before += batch.num_rows
        yield batch
