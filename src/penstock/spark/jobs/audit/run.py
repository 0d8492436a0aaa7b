"""The audit: every checksum, the order of ids, the density of offsets, duplicates, schemas; and the log against its
archive.

The driver cuts the logs into slices, Python workers scan them with the kernels and return summaries, and the driver
adds these up and checks the seams between them. The audit only reads; a broker may own the directory and keep writing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.files.location import Location
from penstock.spark.files.registry import RegistryLocation
from penstock.spark.jobs.audit import archive_side as archives
from penstock.spark.jobs.audit import duplicate_requests, findings, inventory, slice_audit
from penstock.spark.jobs.audit.archive_side import (
    NO_ROWS,
    ArchivedRows,
    ComparisonScope,
    FileTask,
    TableHolding,
    Warehouse,
)
from penstock.spark.jobs.audit.findings import Finding, FindingKind, Findings
from penstock.spark.jobs.audit.inventory import LogSnapshot
from penstock.spark.jobs.audit.partition_summary import PartitionSummary
from penstock.spark.jobs.audit.runners import JobRunner, SparkRunner
from penstock.spark.jobs.audit.scan_range import LossKind
from penstock.spark.jobs.audit.slice_audit import AuditTask, PartitionKey
from penstock.spark.jobs.audit.tally import ArchivedRange, TimeSpans
from penstock.spark.jobs.histogram import add_counts
from penstock.spark.jobs.worker_jobs import group_by_bytes
from penstock.spark.lake.tables.table import LakeTable
from penstock.spark.scan.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

StageProgress = Callable[[str, int, int], None]
"""Callback with the name of the current stage, its finished steps, and all of its steps."""

FINDINGS_MAX: Final = 10_000
"""Findings listed in a report; more are counted by kind."""


def _no_progress(_what: str, _done: int, _all: int) -> None:
    """Do nothing: the default callback of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A partition of the log compared with its archive."""

    holding: TableHolding
    scope: ComparisonScope
    rows: ArchivedRows

    @property
    def compared(self) -> int:
        """Number of messages of the archive that were compared with the log."""
        return sum(digest.count for digest in self.rows.days.values())

    @property
    def has_payloads(self) -> bool:
        """True if all payloads were compared; False if the archive lacks some, so that only their other fields were."""
        return not any(digest.without_payload for digest in self.rows.days.values())

    def lag(self, log: LogSnapshot) -> int:
        """Return how many messages wait to be archived."""
        return max(0, log.next_offset - max(self.holding.next, log.start))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPartition:
    """A partition with the audit's results."""

    log: LogSnapshot
    summary: PartitionSummary
    comparison: Comparison | None = None

    @property
    def is_comparable(self) -> bool:
        """True if all losses of the log are listed. Then all other messages must be the same in the archive. If there
        are too many losses to be listed, log and archive are not compared."""
        return self.summary.losses.runs <= len(self.summary.losses.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """The options of an audit."""

    topics: tuple[TopicName, ...] = ()
    """Topics to audit; empty: all."""
    against: Warehouse | None = None
    schemas: bool = False
    """True to check every payload against the schema it names."""
    registry: str | None = None
    duplicates: bool = False
    """True to look for request numbers that occur twice in a topic; otherwise only within each partition."""


ALL: Final = AuditRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit. `seconds` is how long it took, without the start of Spark."""

    data: str
    began_ms: int
    seconds: float
    partitions: tuple[AuditedPartition, ...]
    spans: TimeSpans
    found: Findings
    notes: tuple[str, ...] = ()
    request: AuditRequest = ALL

    @property
    def is_clean(self) -> bool:
        return not self.found.count


def audit(
    spark: SparkSession, location: Location, request: AuditRequest = ALL, *, stage: StageProgress = _no_progress
) -> Audit:
    """Audit the logs on Spark and return the result. `stage` is called with the progress.

    Damage is a finding in the result, not an error. Raises `TopicNotSupported` for a topic that does not exist,
    `InvalidRequest` if there are no topics, no registry, or no table to compare with.
    """
    return audit_with(SparkRunner(spark), location, request, stage=stage)


def audit_with(
    runner: JobRunner, location: Location, request: AuditRequest = ALL, *, stage: StageProgress = _no_progress
) -> Audit:
    """Do the same as `audit` with any runner: on Spark or in this process."""
    began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
    run = _AuditRun(runner, location, request, stage)
    partitions = run.partitions()
    found = run.found(partitions)
    return Audit(
        data=location.uri,
        began_ms=began_ms,
        seconds=time.monotonic() - began,
        partitions=partitions,
        spans=run.spans,
        found=found,
        notes=tuple(run.notes(partitions)),
        request=request,
    )


class _AuditRun:
    """One run of an audit. The constructor looks at the logs and tables and plans the slices; then `partitions`,
    `found` and `notes` are called in this order."""

    def __init__(self, runner: JobRunner, location: Location, request: AuditRequest, stage: StageProgress) -> None:
        self._runner = runner
        self._request = request
        self._stage = stage
        self._registry = RegistryLocation(location, request.registry)
        if request.schemas or request.registry:
            self._registry.open()  # raises here, and not in a worker, if there is no registry
        data = location.open()
        taken = inventory.take_inventory(data, request.topics, progress=partial(stage, "looking at the logs"))
        self._logs, self._absent = taken.logs, taken.absent
        self.spans = inventory.time_spans(self._logs)
        self._slices = inventory.slices(location, data, self._logs)
        topics = dict.fromkeys(log.topic for log in self._logs)
        self._tables = request.against.tables(topics) if request.against else {}
        self._holdings = _holdings(self._tables)

    def partitions(self) -> tuple[AuditedPartition, ...]:
        """Scan all logs, read the archive's tables if there are any, and return the results of each partition."""
        archived = {
            log.key: self._holdings[log.key].overlap_with(log.start, log.next_offset)
            for log in self._logs
            if log.key in self._holdings
        }
        summaries = self._scan(archived)
        scopes = {key: _scope(range_, summaries.get(key), self._holdings[key]) for key, range_ in archived.items()}
        rows = self._read_archive(scopes)
        return tuple(
            AuditedPartition(
                log=log,
                summary=summaries.get(log.key, _empty_summary(log)),
                comparison=self._comparison(log, scopes, rows),
            )
            for log in self._logs
        )

    def _scan(self, archived: Mapping[PartitionKey, ArchivedRange]) -> dict[PartitionKey, PartitionSummary]:
        groups = group_by_bytes(self._slices, lambda slice_: slice_.bytes, self._runner.cores)
        schemas = self._registry if self._request.schemas else None
        tasks = [AuditTask(tuple(group), self.spans, _archived_of_task(group, archived), schemas) for group in groups]
        results = self._run("scanning the log", slice_audit.scan_slices, tasks)
        return dict(slice_audit.merge_summaries(summary for result in results for summary in result))

    def _read_archive(self, scopes: Mapping[PartitionKey, ComparisonScope]) -> dict[PartitionKey, ArchivedRows]:
        if self._request.against is None:
            return {}
        tasks: list[FileTask] = []
        own = {table.name for table in self._tables.values()}
        for table in archives.tables_of_topics(self._request.against, self._tables):
            groups = group_by_bytes(table.live(), lambda file: file.size, self._runner.cores)
            in_bad_table = table.name not in own
            tasks += (FileTask(table.folder, tuple(group), scopes, in_bad_table) for group in groups)
        by_partition: dict[PartitionKey, ArchivedRows] = {}
        for result in self._run("reading the archive", archives.read_files, tasks):
            for key, rows in result.items():
                by_partition[key] = by_partition.get(key, NO_ROWS) + rows
        return {key: archives.merge_runs(rows) for key, rows in by_partition.items()}

    def _run(self, what: str, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
        return self._runner.run(what, work, tasks, partial(self._stage, what))

    def _comparison(
        self,
        log: LogSnapshot,
        scopes: Mapping[PartitionKey, ComparisonScope],
        rows: Mapping[PartitionKey, ArchivedRows],
    ) -> Comparison | None:
        if log.key not in scopes:
            return None
        return Comparison(holding=self._holdings[log.key], scope=scopes[log.key], rows=rows.get(log.key, NO_ROWS))

    def found(self, partitions: Sequence[AuditedPartition]) -> Findings:
        """Return the findings of all partitions. The first `FINDINGS_MAX` are listed, all are counted by kind."""
        listed = findings.absent_partitions(self._absent)
        uncounted: dict[FindingKind, int] = {}
        for partition in partitions:
            listed += findings.log_findings(partition.log, partition.summary)
            uncounted = add_counts(uncounted, findings.uncounted_in_log(partition.summary))
            if partition.comparison is not None and partition.is_comparable:
                compared = partition.comparison
                listed += findings.archive_findings(
                    partition.log, partition.summary, compared.holding, compared.scope, compared.rows
                )
        listed += self._unknown_schemas(partitions)
        twice, count = self._duplicate_requests(partitions)
        listed += twice
        uncounted[FindingKind.DUPLICATE_REQUEST] = count - len(twice)
        for extra in listed[FINDINGS_MAX:]:
            uncounted[extra.kind] = uncounted.get(extra.kind, 0) + 1
        return findings.with_totals(listed[:FINDINGS_MAX], uncounted)

    def _duplicate_requests(self, partitions: Sequence[AuditedPartition]) -> tuple[list[Finding], int]:
        summaries = {partition.log.key: partition.summary for partition in partitions}
        suspects = duplicate_requests.suspect_slices(self._slices, summaries, all_of_them=self._request.duplicates)
        if suspects:
            self._stage("looking for requests that are there twice", 0, 1)
        twice, count = self._runner.find_duplicate_requests(suspects)
        return list(findings.duplicate_request_findings(twice)), count

    def _unknown_schemas(self, partitions: Sequence[AuditedPartition]) -> Iterator[Finding]:
        named: dict[str, dict[tuple[int, int], int]] = {}
        for partition in partitions:
            named[partition.log.topic] = add_counts(named.get(partition.log.topic, {}), partition.summary.schemas)
        ids = sorted({schema_id for schemas in named.values() for schema_id, _ in schemas})
        return findings.unknown_schema_findings(named, _unknown_ids(self._registry, ids))

    def notes(self, partitions: Sequence[AuditedPartition]) -> Iterator[str]:
        """Yield sentences about facts that are worth knowing but are no faults, such as the lag of the archive."""
        for partition in partitions:
            yield from _notes(partition, archive=self._request.against is not None)


def _holdings(tables: Mapping[str, LakeTable]) -> dict[PartitionKey, TableHolding]:
    """Return what the tables should hold, by topic and partition. `tables` has the table of each topic; one that
    several topics share is read only once."""
    held = {
        name: archives.table_holdings(table) for name, table in {table.name: table for table in tables.values()}.items()
    }
    return {key: each for topic, table in tables.items() for key, each in held[table.name].items() if key[0] == topic}


def _archived_of_task(
    group: Sequence[Slice], archived: Mapping[PartitionKey, ArchivedRange]
) -> dict[PartitionKey, ArchivedRange]:
    """Return the offsets and batches of the archive that concern the slices of one task, by partition."""
    ranges: dict[PartitionKey, tuple[int, int]] = {}
    for slice_ in group:
        key = slice_.topic, slice_.partition
        ranges[key] = ranges.get(key, (slice_.start, 0))[0], slice_.stop
    return {key: slice_audit.batches_within(archived[key], *ends) for key, ends in ranges.items() if key in archived}


def _scope(archived: ArchivedRange, summary: PartitionSummary | None, holding: TableHolding) -> ComparisonScope:
    lost = () if summary is None else tuple((run.start, run.stop) for run in summary.losses.first)
    return ComparisonScope(archived.start, archived.stop, lost, (holding.first, holding.next))


def _empty_summary(log: LogSnapshot) -> PartitionSummary:
    """Return the summary of a log that has no slices to scan, because it has no messages."""
    return PartitionSummary(start=log.start, stop=log.next_offset)


def _unknown_ids(registry: RegistryLocation, ids: Sequence[int]) -> dict[int, str]:
    """Return the error message for each of the schema ids that the registry does not know. Empty if there is no
    registry."""
    unknown: dict[int, str] = {}
    if not ids:
        return unknown
    try:
        schemas = registry.open()
    except InvalidRequest:
        return unknown
    for schema_id in ids:
        try:
            schemas.schema(schema_id)
        except InvalidRequest as error:
            unknown[schema_id] = error.message
    return unknown


def _notes(partition: AuditedPartition, *, archive: bool) -> Iterator[str]:
    log, summary, comparison = partition.log, partition.summary, partition.comparison
    name = f"{log.topic}[{log.partition}]"
    dropped = summary.losses.records.get(LossKind.DROPPED, 0)
    if dropped:
        yield f"{name}: {dropped} messages were dropped by retention while the audit ran"
    if log.quarantined_files:
        yield f"{name}: quarantine holds {log.quarantined_files} files, {log.quarantined_bytes} bytes"
    if summary.producers_left_out:
        yield f"{name}: more producers than are followed; --duplicates looks at the requests of all"
    if comparison is not None and not partition.is_comparable:
        yield f"{name}: so much is damaged that it could not be compared with the archive"
    if archive and comparison is None and log.next_offset > log.start:
        yield f"{name}: not yet archived (lag {log.next_offset - log.start})"
    if comparison is not None and comparison.lag(log):
        yield f"{name}: not yet archived from offset {comparison.holding.next} on (lag {comparison.lag(log)})"
    if comparison is not None and comparison.rows.recovered:
        yield f"{name}: the archive has {comparison.rows.recovered} messages that the log has lost"
