"""The job `replay`: messages of a log or an archive, published again into a topic; each once, however often it is
started.

The request number of a message is its offset in the source plus 1, and each run, selection and partition has a producer
of its own. So a run that was interrupted or is started again continues behind what is stored, whatever Spark does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.core.names import TopicName
from penstock.spark.jobs.transfer.selection import Origin, Selection, select_messages
from penstock.spark.runtime.classic import context
from penstock.spark.sink.frames import Progress, publish
from penstock.spark.sink.identity import WriteIdentity
from penstock.spark.sink.options import RowNumbers, SinkOptions
from penstock.spark.sink.staging import single_use_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.spark.jobs.transfer.loss_accumulator import LossAccumulator

REPLAY_ATTRIBUTES: Final = (
    "x-replay-run",
    "x-replayed-topic",
    "x-replayed-partition",
    "x-replayed-offset",
    "x-replayed-time",
)
"""Attributes of a replayed message: the run, and its position in the source log."""

MESSAGE: Final = ("key", "value", "type", "attributes", "schema_id", "schema_version")
PACED_ORDER: Final = ("id", "producer_name", "request_id")
"""Columns by which messages are sorted that are published with a limited rate. Ids come first, not times: if the clock
stood still or was set back, many messages have the same time, but ids still rise, over all partitions."""

_TASKS_MAX: Final = 64
"""Most tasks that publish at the same time, each with a connection to the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """The result of a job that writes a topic."""

    run: str
    target: str
    rows: int
    """Number of messages that were selected: those published now and those published before."""
    published: int
    known: int
    """Number of messages that were not published now, because an earlier start of the same run had published them."""
    seconds: float
    lost: int = 0
    """Number of messages that could not be read and were left out."""


def replay(
    spark: SparkSession,
    origin: Origin,
    topics: Sequence[TopicName],
    target: SinkOptions,
    *,
    selection: Selection | None = None,
    run: str | None = None,
    mark: bool = True,
    skip_lost: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Publish the selected messages into `target.topic`, in the order of each partition; with `target.rows_per_second`
    at that pace, in the order of time.

    A message keeps its key, payload, type, attributes and schema; `mark` adds `REPLAY_ATTRIBUTES`. With the `run` of an
    earlier start, and the same selection, messages that it published are not published again. Raises `StorageFailed`
    if messages of a log cannot be read; with `skip_lost` they are left out and counted in the report instead.
    """
    chosen, name, losses = (
        selection or Selection(),
        run or new_run(),
        new_loss_accumulator(spark) if skip_lost else None,
    )
    rows = select_messages(spark, origin, topics, chosen, losses=losses)
    numbered = with_request_numbers(rows, topics, chosen, name, mark=mark)
    return with_loss_count(publish_numbered(numbered, target, name, progress=progress), losses)


def new_loss_accumulator(spark: SparkSession) -> LossAccumulator:
    from penstock.spark.jobs.transfer.loss_accumulator import LossAccumulator

    return LossAccumulator(spark)


def with_loss_count(report: PublishReport, losses: LossAccumulator | None) -> PublishReport:
    return report if losses is None else replace(report, lost=losses.count)


def new_run() -> str:
    return uuid.uuid4().hex


def with_request_numbers(
    rows: DataFrame, topics: Sequence[TopicName], selection: Selection, run: str, *, mark: bool, job: str = "replay"
) -> DataFrame:
    """Return the messages in the columns in which they are published again.

    `producer_name` is made of job, run, selection and partition; `request_id` is the offset plus 1. So the broker
    recognizes a message that the same run has published already. `id` is the old id, for sorting. With `mark`,
    `REPLAY_ATTRIBUTES` are added.
    """
    from pyspark.sql import functions as f

    names = {str(topic): f"{job}/{run}/{selection.digest(topic)}" for topic in topics}
    pairs = [f.lit(text) for pair in names.items() for text in pair]
    producer = f.concat(f.create_map(*pairs)[f.col("topic")], f.lit("/"), f.col("partition").cast("string"))
    attributes = _replay_attributes(run) if mark else f.col("attributes")
    return rows.select(
        *(name for name in MESSAGE if name != "attributes"),
        attributes.alias("attributes"),
        producer.alias("producer_name"),
        (f.col("offset") + 1).alias("request_id"),
        f.col("id"),
    )


def _replay_attributes(run: str) -> Column:
    """Return the attributes of each message with `REPLAY_ATTRIBUTES` of this run added. Those of an earlier replay are
    replaced."""
    from pyspark.sql import functions as f

    moment = f.date_format(f.to_utc_timestamp("timestamp", f.current_timezone()), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    values = (f.lit(run), f.col("topic"), f.col("partition").cast("string"), f.col("offset").cast("string"), moment)
    added = [part for name, value in zip(REPLAY_ATTRIBUTES, values, strict=True) for part in (f.lit(name), value)]
    own = f.coalesce(f.col("attributes"), f.expr("CAST(map() AS MAP<STRING, STRING>)"))
    return f.map_concat(f.map_filter(own, lambda name, _value: ~name.isin(*REPLAY_ATTRIBUTES)), f.create_map(*added))


def publish_numbered(
    rows: DataFrame, target: SinkOptions, run: str, *, progress: Progress | None = None
) -> PublishReport:
    """Publish messages under the `producer_name` and `request_id` that they have (see `with_request_numbers`), those of
    one producer in order. Messages that the topic has already are counted and not stored again."""
    began = time.monotonic()
    options = replace(target, numbers=RowNumbers.COLUMNS, run=run)
    # Request numbers skip stored messages, and a later start may have more: no start repeats this very write.
    identity = WriteIdentity(query=single_use_name(), batch=0)
    tally = publish(_ordered(rows, options), options, identity, progress=progress)
    return PublishReport(
        run=run,
        target=options.topic or "",
        rows=tally.rows,
        published=tally.rows - tally.stored_before,
        known=tally.stored_before,
        seconds=time.monotonic() - began,
    )


def _ordered(rows: DataFrame, options: SinkOptions) -> DataFrame:
    """Return the rows sorted for publishing. All rows of a producer are in one task, by request number. If the rate is
    limited, all rows are in one task, in the order of `PACED_ORDER`."""
    if options.rows_per_second is not None:
        return rows.repartition(1).sortWithinPartitions(*PACED_ORDER).drop("id")
    tasks = min(_TASKS_MAX, context(rows.sparkSession).defaultParallelism)
    return rows.drop("id").repartition(tasks, "producer_name").sortWithinPartitions("producer_name", "request_id")
