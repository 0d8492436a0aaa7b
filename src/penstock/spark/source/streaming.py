"""The stream reader of the data source: Spark's calls, answered by a `Follower`.

Spark asks in a process of its own on the driver, one for the life of a query; `read` runs in the workers on another
copy. What a task has to know is therefore in the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.scan.slices import plan
from penstock.spark.source.asked import Reading
from penstock.spark.source.batch import Task, run
from penstock.spark.source.following import Follower
from penstock.spark.source.offsets import Offsets
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.progress import Progress

_LAST_WORD_SECONDS: Final = 10.0
"""Longer than a broker is waited for: only one who is slow to be reached is, and once."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, work: Reading) -> None:
        self._options = options
        self._work = work
        self._follower = Follower(options)
        self._progress: Progress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._follower.initial().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One bound is all that Spark takes: where both are given, the other is kept to here."""
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._follower.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadMaxRows):
            bytes_max = self._options.bytes_max
        self._report(start)
        found = self._follower.latest(Offsets.of_json(start), rows_max=rows_max, bytes_max=bytes_max).as_json()
        if found == start and self._progress is not None:
            self._progress.flush(_LAST_WORD_SECONDS)  # with availableNow this process may end at any moment
        return found

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._follower.newest().as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._follower.ranges(Offsets.of_json(start), Offsets.of_json(end))
        options = self._options
        slices = plan(options.location, ranges, slice_bytes=options.slice_bytes, slices_min=options.slices_min)
        return [Task(part, options.where) for part in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return run(self._work, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._report(end)

    def _report(self, done: dict[str, Any]) -> None:
        """Tell the broker how far all is done, where a subscription is asked for.

        That is where the next batch begins: Spark commits a batch only once there is another, the last one never.
        """
        options = self._options
        if options.subscription is None or options.broker is None:
            return
        if self._progress is None:
            self._progress = Progress(options.broker, options.subscription, dict(options.location.storage_options))
        marks = Offsets.of_json(done).marks
        self._progress.report({key: mark.offset for key, mark in marks.items()})

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()
