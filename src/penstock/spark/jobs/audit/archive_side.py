"""The archive's side of an audit: the rows of its tables for each partition, counted and hashed as the log is.

The driver reads the tables' states; the workers read the files themselves, only the columns that are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.record.block import Bools, Longs
from penstock.spark.jobs.audit.digests import FIELDS, Days, add_days, days_of_rows
from penstock.spark.jobs.audit.slice_audit import PartitionKey
from penstock.spark.jobs.audit.tally import ArchivedRange
from penstock.spark.lake.tables.columns import LOG_NAMES
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import ALL_TOPICS_TABLE, bad_table_of, table_of
from penstock.spark.lake.tables.table import DataFile, LakeTable
from penstock.spark.lake.tables.table_factory import open_table, table_names

COLUMNS: Final = ("_topic", "_partition", *(name for name, source in LOG_NAMES.items() if source in (*FIELDS, "value")))
RUNS_MAX: Final = 10_000
"""Most runs of consecutive offsets that are kept of one partition. Usually there are a few. If there are more, the
first ones are kept and `ArchivedRows.cut` is set."""

OffsetRun = tuple[int, int]
"""Consecutive offsets: the first one, and the offset behind the last."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The location of an archive. Can be pickled."""

    uri: str
    table_format: str = "delta"
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    catalog: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def tables(self, topics: Iterable[str]) -> dict[str, LakeTable]:
        """Return by topic the table that has its messages: its own, or else the table of all topics. Topics without a
        table are left out. Raises `InvalidRequest` if no topic has a table."""
        existing = set(
            table_names(self.table_format, self.uri, storage_options=dict(self.storage_options), catalog=self._catalog)
        )
        tables: dict[str, LakeTable] = {}
        for topic in topics:
            name = table_of(TopicName.parse(topic))
            chosen = name if name in existing else ALL_TOPICS_TABLE if ALL_TOPICS_TABLE in existing else None
            if chosen is not None:
                tables[topic] = self.table(chosen)
        if not tables:
            raise InvalidRequest(
                f"--against {self.uri}: no {self.table_format} table of these topics is there; `penstock archive` makes"
                f" them, and --format says what they are"
            )
        return tables

    def table(self, name: str) -> LakeTable:
        options = dict(self.storage_options)
        return open_table(self.table_format, self.uri, name, storage_options=options, catalog=self._catalog)

    @property
    def _catalog(self) -> dict[str, str] | None:
        return dict(self.catalog) or None


@dataclass(frozen=True, slots=True)
class TableHolding:
    """The offsets `first` to `next` of one partition that a table should hold, according to its state. No file was read
    for this."""

    table: str
    first: int
    next: int
    batches: tuple[tuple[int, int, int], ...] = ()
    """First offset, next offset and commit time (Unix ms) of each batch, in the order of offsets."""

    def overlap_with(self, start: int, next_offset: int) -> ArchivedRange:
        """Return the part of these offsets that lies in the log's range `start` to `next_offset`."""
        low = max(self.first, start)
        return ArchivedRange(low, max(low, min(self.next, next_offset)), self.batches)


def table_holdings(table: LakeTable) -> dict[PartitionKey, TableHolding]:
    """Return what the table should hold of each partition, according to its state. A batch that was committed twice, as
    after a restore, counts once, with the time of its first commit."""
    committed: dict[PartitionKey, list[tuple[int, int, int]]] = {}
    for when, marker in table.commit_history():
        for offsets in marker.ranges:
            if offsets.start < offsets.stop:
                committed.setdefault((offsets.topic, offsets.partition), []).append((offsets.start, offsets.stop, when))
    return {
        key: TableHolding(table.name, span.first, span.next, tuple(_without_overlaps(committed.get(key, ()))))
        for key, span in table.spans().items()
    }


def _without_overlaps(batches: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the batches sorted by first offset, each without the offsets that batches before it have."""
    covered = 0
    for start, stop, when in sorted(batches):
        if stop > covered:
            yield max(start, covered), stop, when
            covered = stop


@dataclass(frozen=True, slots=True)
class ComparisonScope:
    """The offsets `start` to `stop` of a partition that are compared, except those in `lost`, which the log has
    lost."""

    start: int
    stop: int
    lost: tuple[OffsetRun, ...] = ()
    claimed: OffsetRun | None = None
    """All offsets that the table should hold according to its state, also where the log has no messages any more. None
    of them may be missing in the table. Without a value: `start` to `stop`."""

    @property
    def whole(self) -> OffsetRun:
        return self.claimed or (self.start, self.stop)

    @property
    def beyond(self) -> int:
        """Number of messages that the table should have outside of `start` to `stop`."""
        first, after = self.whole
        return max(0, after - first - max(0, self.stop - self.start))


@dataclass(frozen=True, slots=True)
class FileTask:
    """Files of one table, for one worker."""

    folder: Folder
    files: tuple[DataFile, ...]
    scopes: Mapping[PartitionKey, ComparisonScope]
    in_bad_table: bool = False
    """True if the files are of a bad-rows table."""


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """The rows that files have of one partition."""

    days: Days = field(default_factory=dict)
    runs: tuple[OffsetRun, ...] = ()
    """Runs of consecutive offsets, in any order. An offset that is in two runs exists twice in the table."""
    cut: bool = False
    """True if there were more than `RUNS_MAX` runs, so that `runs` is not complete."""
    elsewhere: int = 0
    """Number of rows that are not compared, because their offsets are outside of the log's range; mostly retention has
    dropped them there."""
    claimed: int = 0
    """Number of those rows of `elsewhere` that the table should hold according to its state."""
    recovered: int = 0
    """Number of rows whose messages the log has lost."""

    def __add__(self, other: ArchivedRows) -> ArchivedRows:
        days = dict(self.days)
        add_days(days, other.days)
        return ArchivedRows(
            days,
            self.runs + other.runs,
            self.cut or other.cut,
            self.elsewhere + other.elsewhere,
            self.claimed + other.claimed,
            self.recovered + other.recovered,
        )


def read_files(task: FileTask) -> dict[PartitionKey, ArchivedRows]:
    """Return counts, hashes and runs of offsets of the rows in a task's files, by partition. Partitions without a scope
    in the task are left out. Runs in a worker."""
    by_partition: dict[PartitionKey, ArchivedRows] = {}
    for file in task.files:
        for batch in _batches(task.folder, file):
            for key, rows in _by_partition(batch):
                if key in task.scopes:
                    by_partition[key] = _limit_runs(
                        by_partition.get(key, NO_ROWS)
                        + _compare_rows(rows, task.scopes[key], in_bad_table=task.in_bad_table)
                    )
    return {key: merge_runs(rows) for key, rows in by_partition.items()}


def _limit_runs(rows: ArchivedRows) -> ArchivedRows:
    return rows if len(rows.runs) <= 2 * RUNS_MAX else merge_runs(rows)


def _batches(folder: Folder, file: DataFile) -> Iterator[pa.RecordBatch]:
    with folder.open(file.path) as source, pq.ParquetFile(source, memory_map=False) as parquet:
        yield from parquet.iter_batches(batch_size=1 << 16, columns=list(COLUMNS))


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """Yield the rows of a batch by topic and partition. Most batches have rows of only one partition."""
    topics, partitions = batch.column("_topic"), batch.column("_partition")
    pairs = pa.table([topics, partitions], names=["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    keys = [(row["topic"], row["partition"]) for row in pairs.to_pylist()]
    for topic, partition in keys:
        if len(keys) == 1:
            yield (topic, partition), batch
        else:
            yield (topic, partition), batch.filter(pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition)))


def _compare_rows(batch: pa.RecordBatch, scope: ComparisonScope, *, in_bad_table: bool) -> ArchivedRows:
    offsets = batch.column("_offset").to_numpy(zero_copy_only=False)
    compared = (offsets >= scope.start) & (offsets < scope.stop)
    outside = ~compared & (offsets >= scope.whole[0]) & (offsets < scope.whole[1])
    elsewhere = len(offsets) - int(compared.sum())
    lost = compared & _inside(offsets, scope.lost)
    compared &= ~lost
    if not compared.all():
        batch = batch.filter(pa.array(compared))
    return ArchivedRows(
        days_of_rows(_as_read(batch), in_bad_table=in_bad_table),
        tuple(_runs(offsets[compared | outside])),
        elsewhere=elsewhere,
        claimed=int(outside.sum()),
        recovered=int(lost.sum()),
    )


def _as_read(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rename the columns to their names in the log."""
    return batch.rename_columns([LOG_NAMES.get(name, name) for name in batch.schema.names])


def _inside(offsets: Longs, runs: Sequence[OffsetRun]) -> Bools:
    """Return True for each offset that lies in one of the runs, else False. The runs must be sorted."""
    if not runs:
        return np.zeros(len(offsets), dtype=np.bool_)
    starts, stops = np.array(runs, dtype=np.int64).T
    candidate = np.searchsorted(starts, offsets, side="right") - 1
    inside: Bools = (candidate >= 0) & (offsets < stops[candidate])
    return inside


def _runs(offsets: Longs) -> Iterator[OffsetRun]:
    """Yield runs that together contain the offsets. An offset that occurs twice is in two runs."""
    if not len(offsets):
        return
    ordered = np.sort(offsets)
    edges = np.flatnonzero(np.diff(ordered) != 1) + 1
    for start, stop in pairwise([0, *edges.tolist(), len(ordered)]):
        yield int(ordered[start]), int(ordered[stop - 1]) + 1


def merge_runs(rows: ArchivedRows) -> ArchivedRows:
    """Return the same rows with adjacent runs joined. If more than `RUNS_MAX` remain, only the first ones are kept and
    `cut` is set."""
    merged: list[OffsetRun] = []
    for start, stop in sorted(rows.runs):
        if merged and merged[-1][1] == start:
            merged[-1] = merged[-1][0], stop
        else:
            merged.append((start, stop))
    return replace(rows, runs=tuple(merged[:RUNS_MAX]), cut=rows.cut or len(merged) > RUNS_MAX)


NO_ROWS: Final = ArchivedRows()


def missing_and_duplicate(runs: Iterable[OffsetRun], scope: ComparisonScope) -> tuple[list[OffsetRun], list[OffsetRun]]:
    """Return two lists of runs: the offsets of `scope.whole` that the table lacks, and those that it has more than
    once. Offsets that the log has lost do not count as lacking."""
    missing: list[OffsetRun] = []
    twice: list[OffsetRun] = []
    covered, end = scope.whole
    lost = (run for run in scope.lost if run[1] > scope.start and run[0] < scope.stop)
    for start, stop in sorted([*runs, *lost]):
        if start > covered:
            missing.append((covered, start))
        elif start < covered:
            again = start, min(stop, covered)
            if twice and twice[-1][1] == start:  # neighbouring messages, each of them twice
                again = twice.pop()[0], again[1]
            twice.append(again)
        covered = max(covered, stop)
    if covered < end:
        missing.append((covered, end))
    return missing, twice


def tables_of_topics(warehouse: Warehouse, tables: Mapping[str, LakeTable]) -> list[LakeTable]:
    """Return the tables of these topics without repetition: first the main tables, then the bad-rows tables that
    exist. `tables` has the main table of each topic."""
    named: dict[str, LakeTable] = {table.name: table for table in tables.values()}
    overlap_with = (warehouse.table(bad_table_of(name)) for name in list(named))
    return [*named.values(), *(table for table in overlap_with if table.exists())]
