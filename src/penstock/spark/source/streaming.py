"""The stream reader of the data source: answers Spark's calls with a `TopicFollower`.

Spark calls `read` in the workers, each on a copy of the reader, and the other methods in one Python process beside the
driver, which lives as long as the query. So everything that a task has to know is in its partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.spark.runtime.versions import LIMITS
from penstock.spark.scan.slices import plan_slices
from penstock.spark.source.batch import SlicePartition, run
from penstock.spark.source.follower import TopicFollower
from penstock.spark.source.offsets import Offsets
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.progress import ProgressReporter
from penstock.spark.source.read_schema import ReadTask

_LAST_WORD_SECONDS: Final = 10.0
"""The longest wait for the last report. A request to the broker fails after half of that time, so only a broker that
answers several requests slowly uses it up."""

Json = dict[str, Any]
"""Offsets, as Spark keeps them."""


def stream_reader(options: ReadOptions, read_task: ReadTask) -> DataSourceStreamReader:
    """Return the reader that this Spark can call. Raises `InvalidRequest` for limits where it does not support any."""
    if LIMITS.is_available:
        from penstock.spark.source.admission import LimitedReader

        return LimitedReader(options, read_task)
    if options.offsets_max is not None or options.bytes_max is not None:
        LIMITS.require()
    return WholeReader(options, read_task)


class StreamReader(DataSourceStreamReader):
    """The part of the reader that is the same for every release of Spark: where a query begins, what a batch reads, and
    the progress reports."""

    def __init__(self, options: ReadOptions, read_task: ReadTask) -> None:
        self._options = options
        self._read_task = read_task
        self._follower = TopicFollower(options)
        self._progress: ProgressReporter | None = None

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's names, here and below
        return self._follower.initial().as_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        ranges = self._follower.ranges(Offsets.of_json(start), Offsets.of_json(end))
        options = self._options
        slices = plan_slices(options.location, ranges, slice_bytes=options.slice_bytes, slices_min=options.slices_min)
        return [SlicePartition(part, options.where) for part in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return run(self._read_task, partition)

    def commit(self, end: Json) -> None:
        self._report(end)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _next_offsets(self, start: Json, *, rows_max: int | None = None, bytes_max: int | None = None) -> Json:
        """Return the offsets at which the batch that begins at `start` ends; `rows_max` and `bytes_max` limit the
        batch.

        Also reports `start` to the broker as the query's progress: everything before it has been processed.
        """
        self._report(start)
        found = self._follower.latest(Offsets.of_json(start), rows_max=rows_max, bytes_max=bytes_max).as_json()
        if found == start and self._progress is not None:
            self._progress.flush(_LAST_WORD_SECONDS)  # with availableNow this process may end at any moment
        return found

    def _report(self, done: Json) -> None:
        """Report to the broker that everything before `done` is processed, if a subscription is configured.

        The start of each batch is reported, not only what Spark commits: Spark commits a batch when the next one
        begins, and so never the last one.
        """
        options = self._options
        if options.subscription is None or options.broker is None:
            return
        if self._progress is None:
            self._progress = ProgressReporter(
                options.broker, options.subscription, dict(options.location.storage_options)
            )
        positions = Offsets.of_json(done).positions
        self._progress.report({key: position.offset for key, position in positions.items()})


class WholeReader(StreamReader):
    """A reader for a Spark that passes neither a start nor a limit to `latestOffset`. A batch is everything that is
    there.

    Without a start the reader learns the query's position from `partitions`: Spark calls that for the current batch
    before it asks for the next end, also after a restart. Before the first such call, a query is at its initial
    offsets.
    """

    def __init__(self, options: ReadOptions, read_task: ReadTask) -> None:
        super().__init__(options, read_task)
        self._initial: Json | None = None
        self._position: Json | None = None

    def initialOffset(self) -> Json:  # noqa: N802
        if self._initial is None:
            self._initial = super().initialOffset()
        return self._initial

    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802 - as Spark asked before 4.2
        self._position = self._next_offsets(self.initialOffset() if self._position is None else self._position)
        return self._position

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self._position = end
        return super().partitions(start, end)
