"""Routing: finds the topic, the producer and the number of each row from the options, the write's identity and the
row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.spark.sink import columns
from penstock.spark.sink.identity import WriteIdentity
from penstock.spark.sink.numbers import batch_of, number_of, numbered
from penstock.spark.sink.options import RowNumbers, SinkOptions


class ProducerRows(NamedTuple):
    """Rows of one topic and one producer, with their numbers. `before` is the number of rows of the task in earlier
    batches."""

    topic: str
    producer: str
    rows: pa.RecordBatch
    before: int


class Router:
    """A router for the rows of one task; with None as `partition`, for the rows of a whole batch.

    The rows of each topic are numbered from 0 in every task and every batch, unless columns of the rows have the
    numbers.
    """

    def __init__(self, options: SinkOptions, identity: WriteIdentity, partition: int | None) -> None:
        self._options = options
        self._batch = identity.batch
        self._producer = identity.producer(options.producer, partition)
        self._next: dict[str, int] = {}
        self._before = 0

    def split(self, batch: pa.RecordBatch) -> Iterator[ProducerRows]:
        """Yield the rows by topic and producer. Raises `InvalidRequest` for a row that cannot be published."""
        before, self._before = self._before, self._before + batch.num_rows
        if not batch.num_rows:
            return
        accepted = columns.accepted_columns(batch, self._options)
        columns.check_values(accepted, before)
        for topic, rows in columns.by_topic(accepted, self._options.topic, before):
            if self._options.numbers is RowNumbers.COLUMNS:
                yield from (ProducerRows(topic, name, own, before) for name, own in columns.by_producer(rows))
            else:
                yield ProducerRows(topic, self._producer, self._with_numbers(topic, rows), before)

    def _with_numbers(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        row = self._next.get(topic, 0)
        self._next[topic] = row + rows.num_rows
        number_of(self._batch, row + rows.num_rows - 1)  # raises if there is no number for the last row
        return numbered(rows, number_of(self._batch, row))

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows numbered so far, by topic."""
        return dict(self._next)


class RowSink(Protocol):
    """A destination of rows. `last` returns the highest number that it has of a producer, 0 if it has none."""

    def last(self, topic: str, producer: str) -> int: ...


def check_order(options: SinkOptions, identity: WriteIdentity, group: ProducerRows, target: RowSink) -> None:
    """Raise `InvalidRequest` if the target has rows of a later batch of the same stream already.

    Rows with numbers from columns are not checked: these numbers belong to no batch.
    """
    if identity.stream and options.numbers is RowNumbers.ROWS:
        last = target.last(group.topic, group.producer)
        identity.check_order(batch_of(last), f"{group.topic}, producer {group.producer}")
