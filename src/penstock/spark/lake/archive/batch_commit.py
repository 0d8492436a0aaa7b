"""The driver's side of one archive batch, from slices to commits. An engine only runs the write tasks.

A batch is decided once: when its files are written, their list is saved in the checkpoint before the first table is
committed. However often the batch is repeated, the same files are committed, to each table separately; a table that has
the batch already reports so.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.core.errors import StorageFailed
from penstock.core.names import TopicName
from penstock.spark.decode.target import has_schemas, target_for
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.lake.archive.bad_rows import BadRows
from penstock.spark.lake.archive.checkpoint import Checkpoint
from penstock.spark.lake.archive.engines import LOCAL_ENGINE, Engine
from penstock.spark.lake.archive.write_task import Output, PayloadDecoding, QuarantinedOffsets, WriteResult, WriteTask
from penstock.spark.lake.tables.columns import BAD_COLUMNS, DAY_COLUMN, SYSTEM_COLUMNS, place_fields
from penstock.spark.lake.tables.compaction import file_layout_of
from penstock.spark.lake.tables.names import ALL_TOPICS_TABLE, bad_table_of, is_bad_table, table_of
from penstock.spark.lake.tables.table import (
    AlreadyCommitted,
    CommitMarker,
    DataFile,
    LakeTable,
    OffsetRange,
    wrong_owner,
)
from penstock.spark.lake.tables.table_factory import open_table
from penstock.spark.runtime.failpoints import reach
from penstock.spark.scan.slices import Slice, plan_slices

TASK_BYTES_MIN: Final = 16 << 20
TASK_BYTES_MAX: Final = 256 << 20
"""Most bytes of the log that one task reads. From that many it writes about one file of the usual size."""
_TASKS_PER_CORE: Final = 2
"""Tasks for each core, at least. Smaller tasks end closer together, so that no core waits long for the last one."""

RunTasks = Callable[[Sequence[WriteTask]], list[WriteResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The target of an archive: where the tables are, their format, and what goes into them."""

    warehouse: str
    table_format: str = "delta"
    one_table: bool = False
    registry: RegistryLocation | None = None
    """Location of the schemas by which payloads are decoded. With None, payloads are archived undecoded."""
    keep_values: bool = True
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    catalog: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    fail_on_data_loss: bool = True
    verify: bool = True

    def open(self, name: str) -> LakeTable:
        return open_table(
            self.table_format,
            self.warehouse,
            name,
            storage_options=dict(self.storage_options),
            catalog=dict(self.catalog) or None,
        )

    def table_of(self, topic: str) -> str:
        return ALL_TOPICS_TABLE if self.one_table else table_of(TopicName.parse(topic))


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The commit of one batch to one table, as the checkpoint saves it."""

    table: str
    files: tuple[DataFile, ...]
    ranges: tuple[OffsetRange, ...]
    gaps: bool = False
    before: bool = False
    why: BadRows | None = None
    """Offsets and reasons of the bad rows, if `table` is a bad-rows table; otherwise None or empty."""

    @classmethod
    def of_json(cls, saved: Mapping[str, Any]) -> TableCommit:
        files = tuple(DataFile(**file) for file in saved["files"])
        ranges, why = tuple(OffsetRange(*values) for values in saved["ranges"]), BadRows.of_json(saved.get("why"))
        return cls(saved["table"], files, ranges, saved["gaps"], saved["before"], why)


@dataclass(slots=True)
class TableReport:
    """Rows and files that went into one table."""

    rows: int = 0
    bad: int = 0
    files: int = 0
    bytes: int = 0
    why: BadRows = field(default_factory=BadRows)
    """Offsets and reasons of the bad rows."""

    def add(self, other: TableReport) -> None:
        self.rows += other.rows
        self.bad += other.bad
        self.why.add(other.why)
        self.files += other.files
        self.bytes += other.bytes


@dataclass(slots=True)
class BatchReport:
    """The result of one batch."""

    batch_id: int
    repeated: bool = False
    """True if an earlier run had written the files of this batch: they were committed, and nothing was written anew."""
    seconds: float = 0.0
    lost: int = 0
    tables: dict[str, TableReport] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.tables.values())


class BatchRunner:
    """Writes and commits the batches of one query: of one archive, or of its backfills."""

    def __init__(
        self,
        destination: Destination,
        checkpoint: Checkpoint,
        query_id: str,
        run: RunTasks = LOCAL_ENGINE.run,
        *,
        cores: int = 1,
        backfills: bool = False,
    ) -> None:
        """Create the runner. With `backfills` it neither checks nor changes the owners of tables, and its batches may
        lie in front of the offsets that the tables hold."""
        self._destination = destination
        self._checkpoint = checkpoint
        self._query_id = query_id
        self._run = run
        self._cores = cores
        self._backfills = backfills
        self._tables: dict[str, LakeTable] = {}

    def use_engine(self, engine: Engine) -> None:
        """Let `engine` run the tasks of all later batches."""
        self._run, self._cores = engine.run, engine.cores

    def table(self, name: str) -> LakeTable:
        if name not in self._tables:
            self._tables[name] = self._destination.open(name)
        return self._tables[name]

    def batch(self, batch_id: int, slices: Sequence[Slice], *, before: bool = False) -> BatchReport:
        """Write the files of one batch and commit them. On return each table has the batch, exactly once, even if an
        earlier call was interrupted. `before`: the batch lies in front of the offsets that the tables hold."""
        begun = time.monotonic()
        report = BatchReport(batch_id)
        reach("batch-started")
        commits = self._saved_commits(batch_id, _ranges(slices))
        report.repeated = commits is not None
        if commits is None:
            commits = self._write(batch_id, slices, report, before=before)
        return self._commit_all(batch_id, commits, report, begun)

    def finish(self, batch_id: int) -> BatchReport | None:
        """Commit a batch whose plan an earlier run saved, and return its report. Return None, and commit nothing, if
        there is no plan of this query or a file of it is gone."""
        commits = self._saved_commits(batch_id, None)
        report = BatchReport(batch_id, repeated=True)
        return None if commits is None else self._commit_all(batch_id, commits, report, time.monotonic())

    def _commit_all(self, batch_id: int, commits: list[TableCommit], report: BatchReport, begun: float) -> BatchReport:
        for commit in commits:
            self._commit(batch_id, commit, report)
            reach("between-tables")
        reach("after-commit")
        report.seconds = time.monotonic() - begun
        return report

    # the saved plan

    def _saved_commits(self, batch_id: int, ranges: Sequence[OffsetRange] | None) -> list[TableCommit] | None:
        """Return the commits that an earlier run planned for a batch. Return None if there is no such plan, if it is of
        another query or (with `ranges`) of other offsets, or if its files are gone."""
        plan = self._checkpoint.plan(batch_id)
        if plan is None or plan["query"] != self._query_id:
            return None
        if ranges is not None and plan["ranges"] != [list(offsets) for offsets in ranges]:
            return None
        commits = [TableCommit.of_json(saved) for saved in plan["parts"]]
        return commits if all(self._is_usable(batch_id, commit) for commit in commits) else None

    def _is_usable(self, batch_id: int, commit: TableCommit) -> bool:
        table = self.table(commit.table)
        if not table.exists():
            return False
        batch = table.table_state(self._query_id, []).batch
        if batch is not None and batch >= batch_id:
            return True
        return all(table.folder.size(file.path) == file.size for file in commit.files)

    def _write(
        self, batch_id: int, slices: Sequence[Slice], report: BatchReport, *, before: bool = False
    ) -> list[TableCommit]:
        tasks = list(self._write_tasks(batch_id, self.cut_for_cores(slices)))
        reach("table-ready")
        results = self._run(tasks)
        reach("files-written")
        quarantined = {task.table: task.quarantined for task in tasks}
        commits = _table_commits(results, quarantined, gaps=not self._destination.fail_on_data_loss, before=before)
        report.lost = sum(result.lost for result in results)
        ranges = [list(offsets) for offsets in _ranges(slices)]
        plan = {"query": self._query_id, "ranges": ranges, "parts": [asdict(commit) for commit in commits]}
        self._checkpoint.save(batch_id, plan)
        reach("plan-written")
        return commits

    def _commit(self, batch_id: int, commit: TableCommit, report: BatchReport) -> None:
        marker = CommitMarker(self._query_id, batch_id, commit.ranges, gaps=commit.gaps, before=commit.before)
        table = self.table(commit.table)
        outcome = table.commit(commit.files, marker)
        if isinstance(outcome, AlreadyCommitted):
            _check_covers(table, batch_id, commit)
        else:
            rows = sum(file.rows for file in commit.files)
            size = sum(file.size for file in commit.files)
            is_bad = is_bad_table(commit.table)
            main = commit.table.removesuffix(bad_table_of("")) if is_bad else commit.table
            added = TableReport(0 if is_bad else rows, rows if is_bad else 0, len(commit.files), size)
            added.why = commit.why or added.why
            report.tables.setdefault(main, TableReport()).add(added)

    # tables and write tasks

    def cut_for_cores(self, slices: Sequence[Slice]) -> list[Slice]:
        """Return slices of the same offsets, cut so small that all cores stay busy to the end. Slices whose offsets
        have holes are returned unchanged."""
        ranges = {(merged.topic, merged.partition): (merged.start, merged.stop) for merged in _ranges(slices)}
        if not slices or len(ranges) < len(_ranges(slices)):
            return list(slices)
        return plan_slices(slices[0].location, ranges, slice_bytes=self._task_bytes(slices))

    def _task_bytes(self, slices: Sequence[Slice]) -> int:
        """Return about how many log bytes a task gets. The number of tasks is a multiple of the number of cores, so
        that no core is idle in the last round."""
        total, turn = _total_bytes(slices), self._cores * TASK_BYTES_MAX
        tasks = self._cores * max(_TASKS_PER_CORE, -(-total // turn))
        return max(TASK_BYTES_MIN, -(-total // tasks))

    def _write_tasks(self, batch_id: int, slices: Sequence[Slice]) -> Iterator[WriteTask]:
        aim = self._task_bytes(slices)
        by_table: dict[str, list[Slice]] = defaultdict(list)
        for slice_ in slices:
            by_table[self._destination.table_of(slice_.topic)].append(slice_)
        number = 0
        for name, own_slices in by_table.items():
            output, typed = self._prepare_output(name, own_slices[0].topic)
            quarantined = tuple(self._quarantined(name, own_slices))
            for group in pack_slices(own_slices, aim):
                begin = f"{file_prefix(self._query_id, batch_id)}{number:05d}"
                yield WriteTask(
                    name,
                    output,
                    tuple(group),
                    begin,
                    typed,
                    self._destination.verify,
                    self._destination.fail_on_data_loss,
                    quarantined,
                )
                number += 1

    def _quarantined(self, name: str, slices: Sequence[Slice]) -> Iterator[QuarantinedOffsets]:
        """Yield the offsets that the bad-rows table already holds because an earlier run stopped between its commit and
        the main table's.

        Usually there are none: the bad-rows table is never ahead of the main table by more than one batch.
        """
        bad_table = self.table(bad_table_of(name))
        spans = bad_table.spans()
        for topic, partition, start, stop in _ranges(slices):
            span = spans.get((topic, partition))
            if span is not None and span.first < stop and start < span.next:
                low, high = max(start, span.first), min(stop, span.next)
                yield QuarantinedOffsets(
                    topic, partition, low, high, _offsets_in(bad_table, topic, partition, low, high)
                )

    def _prepare_output(self, name: str, topic: str) -> tuple[Output, PayloadDecoding | None]:
        """Create the table `name` and its bad-rows table if needed, and add all columns that the batch may need.

        Return where the files of the table go, and how payloads become columns; None if they stay as they are.
        """
        table = self._owned_table(name, SYSTEM_COLUMNS)
        registry = self._destination.registry
        if self._destination.one_table or registry is None:
            return _output_of(table), None
        schemas, topic_name = registry.open(), TopicName.parse(topic)
        if not has_schemas(schemas, topic_name, deleted=True):
            return _output_of(table), None
        target = target_for(schemas, topic_name, pick="merged", deleted=True)  # messages may name deleted schemas
        schema, mappings = place_fields(table.schema(), target.fields)
        table.evolve(schema)
        bad = self._owned_table(bad_table_of(name), BAD_COLUMNS)
        return _output_of(table), PayloadDecoding(
            target, registry, mappings, self._destination.keep_values, _output_of(bad)
        )

    def _owned_table(self, name: str, schema: pa.Schema) -> LakeTable:
        table = self.table(name)
        if self._backfills:
            table.create(schema, DAY_COLUMN)
            return table
        table.create(schema, DAY_COLUMN, owner=self._query_id)
        owner = table.owner()
        if owner is None:
            table.claim(self._query_id, seen=None)
        elif owner != self._query_id:
            raise wrong_owner(name, owner, self._query_id)
        return table

    # files left by a killed batch

    def sweep(self, names: Iterable[str]) -> int:
        """Delete files that a killed process left: those of this query's batches that were not committed and are not in
        a saved plan. Return how many were deleted.

        Call it only with the checkpoint locked, before the first batch: then no process writes such files. `names` are
        the tables to look at.
        """
        kept = self._planned_files()
        swept = 0
        for name in names:
            table = self.table(name)
            if table.exists():
                done = table.table_state(self._query_id, []).batch
                orphans = [path for path in self._files_after(table, -1 if done is None else done) if path not in kept]
                table.folder.delete(orphans)
                swept += len(orphans)
        return swept

    def _planned_files(self) -> set[str]:
        plans = [self._checkpoint.plan(number) or {} for number in self._checkpoint.plans()]
        return {file["path"] for plan in plans for commit in plan.get("parts", ()) for file in commit["files"]}

    def _files_after(self, table: LakeTable, done: int) -> Iterator[str]:
        """Yield the paths of this query's files in the table's folder whose batch number is greater than `done`."""
        start = file_prefix(self._query_id, 0).removesuffix("00000000-")
        for file in table.folder.list():
            _, match, rest = file.path.rpartition(start)
            if match and rest[:8].isdigit() and int(rest[:8]) > done:
                yield file.path


def file_prefix(query_id: str, batch_id: int) -> str:
    """Return the prefix of the names of a batch's files. By it alone `sweep` knows which query and batch wrote a
    file."""
    return f"archive-{query_id}-{batch_id:08d}-"


def _output_of(table: LakeTable) -> Output:
    return Output(table.folder, file_layout_of(table))


def _total_bytes(slices: Iterable[Slice]) -> int:
    return sum(slice_.bytes for slice_ in slices)


def pack_slices(slices: Sequence[Slice], aim: int) -> Iterator[list[Slice]]:
    """Yield the slices, in order, in groups of at most `aim` log bytes. A slice that is larger is a group of its
    own."""
    group: list[Slice] = []
    for slice_ in slices:
        if group and _total_bytes(group) + slice_.bytes > aim:
            yield group
            group = []
        group.append(slice_)
    if group:
        yield group


def _ranges(slices: Sequence[Slice]) -> list[OffsetRange]:
    return merge_ranges(OffsetRange(slice_.topic, slice_.partition, slice_.start, slice_.stop) for slice_ in slices)


def merge_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges sorted, with ranges of one partition joined where one ends at the offset where the next
    begins."""
    merged: list[OffsetRange] = []
    for following in sorted(ranges):
        if merged and merged[-1][:2] == following[:2] and merged[-1].stop == following.start:
            merged[-1] = merged[-1]._replace(stop=following.stop)
        else:
            merged.append(following)
    return merged


def _offsets_in(table: LakeTable, topic: str, partition: int, start: int, stop: int) -> tuple[int, ...]:
    where = [("_topic", "=", topic), ("_partition", "=", partition), ("_offset", ">=", start), ("_offset", "<", stop)]
    return tuple(offset for batch in table.read(["_offset"], where) for offset in batch.column(0).to_pylist())


def _check_covers(table: LakeTable, batch_id: int, commit: TableCommit) -> None:
    """Raise `StorageFailed` if a table says that it has this batch, but lacks offsets that `commit` contains. Then the
    checkpoint is an old copy, or was changed."""
    spans = table.spans()
    for offsets in commit.ranges:
        span = spans.get((offsets.topic, offsets.partition))
        if span is None or offsets.start < span.first or offsets.stop > span.next:
            raise StorageFailed(
                f"table {table.name} has batch {batch_id} already, but not offsets {offsets.start} to"
                f" {offsets.stop - 1} of {offsets.topic}[{offsets.partition}], which are in it now: the checkpoint is"
                " an old copy, or was changed. --take-over goes on where the tables end",
                table=table.name,
                topic=offsets.topic,
                partition=offsets.partition,
            )


def without_quarantined(ranges: Iterable[OffsetRange], quarantined: Sequence[QuarantinedOffsets]) -> list[OffsetRange]:
    """Return the ranges without the offsets of `quarantined`: for those the bad-rows table was committed already."""
    left = list(ranges)
    for known in quarantined:
        left = [rest for offsets in left for rest in _outside(offsets, known)]
    return left


def _outside(offsets: OffsetRange, known: QuarantinedOffsets) -> Iterator[OffsetRange]:
    if offsets[:2] != (known.topic, known.partition):
        yield offsets
        return
    before = offsets._replace(stop=min(offsets.stop, known.start))
    behind = offsets._replace(start=max(offsets.start, known.stop))
    yield from (rest for rest in (before, behind) if rest.start < rest.stop)


def _table_commits(
    results: Sequence[WriteResult], quarantined: Mapping[str, Sequence[QuarantinedOffsets]], *, gaps: bool, before: bool
) -> list[TableCommit]:
    """Return one commit for each table, made of the results of its tasks.

    A bad-rows table comes directly before its main table: once the main table has the batch, both have it.
    """
    by_table: dict[str, list[WriteResult]] = defaultdict(list)
    for result in results:
        by_table[result.table].append(result)
    commits = []
    for table, own_results in by_table.items():
        ranges = tuple(merge_ranges(span for result in own_results for span in result.ranges))
        bad = tuple(file for result in own_results for file in result.bad)
        if bad:
            new_ranges, why = tuple(without_quarantined(ranges, quarantined.get(table, ()))), BadRows()
            for result in own_results:
                why.add(result.why)
            commits.append(TableCommit(bad_table_of(table), bad, new_ranges, gaps=True, before=before, why=why))
        files = tuple(file for result in own_results for file in result.files)
        commits.append(TableCommit(table, files, ranges, gaps=gaps, before=before))
    return commits
