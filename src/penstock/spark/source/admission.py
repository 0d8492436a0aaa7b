"""Admission: the limit on the size of a stream's batch, for releases of Spark that support limits."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.source.streaming import Json, StreamReader


class LimitedReader(StreamReader, SupportsTriggerAvailableNow):
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's names, here and below
        """Return the limit on the rows or the bytes of a batch.

        Spark accepts a single limit. If both are configured, this one is on rows, and `latestOffset` applies the one on
        bytes.
        """
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._follower.freeze()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadMaxRows):
            bytes_max = self._options.bytes_max
        return self._next_offsets(start, rows_max=rows_max, bytes_max=bytes_max)

    def reportLatestOffset(self) -> Json:  # noqa: N802
        return self._follower.newest().as_json()
