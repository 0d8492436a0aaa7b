"""The job `compact`: the latest message of every key, into a new topic or a table of the lake.

The latest message is the one with the highest id: ids rise with the offset in a partition and with time across
partitions. An empty payload is a tombstone: the key is deleted, and by default no message of it is written. Messages
without a key never replace each other: by default all of them are written.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.core.names import TopicName
from penstock.spark.jobs.transfer.replay import (
    PublishReport,
    new_loss_accumulator,
    new_run,
    publish_numbered,
    with_loss_count,
    with_request_numbers,
)
from penstock.spark.jobs.transfer.selection import Origin, Selection, select_messages
from penstock.spark.sink.frames import Progress
from penstock.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.lake.tables.table import LakeTable


class Tombstones(StrEnum):
    """The treatment of a key whose latest message has an empty payload."""

    DROP = "drop"
    """The key is left out of the result."""
    KEEP = "keep"
    """The tombstone is written, so that readers which already have the key learn that it was deleted."""


class Keyless(StrEnum):
    """The treatment of messages without a key."""

    KEEP = "keep"
    DROP = "drop"


def compact(
    spark: SparkSession,
    origin: Origin,
    topics: Sequence[TopicName],
    target: SinkOptions | LakeTable,
    *,
    selection: Selection | None = None,
    tombstones: Tombstones = Tombstones.DROP,
    keyless: Keyless = Keyless.KEEP,
    run: str | None = None,
    skip_lost: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Write the latest message of every key into a topic (`target.topic`) or a table, each once however often the `run`
    is started. Messages keep their key, payload, type, attributes and schema, and the order of their partition.

    If the log has grown since a run was interrupted, starting it again adds the newer messages behind the older ones,
    which stay.
    Raises `StorageFailed` if messages of a log cannot be read. With `skip_lost` they are left out and counted in the
    report instead.
    """
    chosen, name, losses = (
        selection or Selection(),
        run or new_run(),
        new_loss_accumulator(spark) if skip_lost else None,
    )
    messages = select_messages(spark, origin, topics, chosen, losses=losses)
    rows = latest_by_key(messages, tombstones=tombstones, keyless=keyless)
    if isinstance(target, SinkOptions):
        numbered = with_request_numbers(rows, topics, chosen, name, mark=False, job="compact")
        return with_loss_count(publish_numbered(numbered, target, name, progress=progress), losses)
    return with_loss_count(_into_table(rows, target, name), losses)


def latest_by_key(
    rows: DataFrame, *, tombstones: Tombstones = Tombstones.DROP, keyless: Keyless = Keyless.KEEP
) -> DataFrame:
    """Return the latest message of every key. `rows` are messages in the columns of the log, and so is the result."""
    from pyspark.sql import functions as f

    names = [name for name in rows.columns if name != "key"]
    keyed = rows.where(f.col("key").isNotNull()).groupBy("key")
    last = keyed.agg(f.max_by(f.struct(*names), f.col("id")).alias("last")).select("key", "last.*")
    if tombstones is Tombstones.DROP:
        last = last.where(f.octet_length("value") > 0)
    if keyless is Keyless.DROP:
        return last
    return last.unionByName(rows.where(f.col("key").isNull()).select("key", *names))


def _into_table(rows: DataFrame, table: LakeTable, run: str) -> PublishReport:
    """Write the messages into a table with the columns of an archive, so that it can be read and replayed as an archive
    is."""
    from penstock.spark.lake.frames import write_frame
    from penstock.spark.lake.tables.columns import DAY_COLUMN
    from penstock.spark.lake.tables.table import CommitMarker, Committed

    began, before = time.monotonic(), _rows(table) if table.exists() else 0
    outcome = write_frame(as_archive(rows), table, CommitMarker(query_id=run, batch_id=0), partition_by=DAY_COLUMN)
    added = _rows(table) - before
    known = 0 if isinstance(outcome, Committed) else before
    return PublishReport(
        run=run,
        target=table.name,
        rows=added + known,
        published=added,
        known=known,
        seconds=time.monotonic() - began,
    )


def _rows(table: LakeTable) -> int:
    return sum(file.rows for file in table.live())


def as_archive(rows: DataFrame) -> DataFrame:
    """Return messages in the columns of an archive (`_offset`, `_day` ...) instead of those of the log."""
    from pyspark.sql import functions as f

    from penstock.spark.lake.tables.columns import DAY_COLUMN, LOG_NAMES, SYSTEM_COLUMNS

    names = {**LOG_NAMES, "_topic": "topic", "_partition": "partition"}
    day = f.to_date("timestamp").alias(DAY_COLUMN)
    return rows.select(*(f.col(names[column]).alias(column) for column in SYSTEM_COLUMNS.names if column in names), day)
