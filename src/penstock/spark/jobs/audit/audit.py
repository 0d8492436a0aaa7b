"""The audit: every checksum, the order of ids, the density of offsets, duplicates, schemas; and log against archive.

The driver cuts the logs into slices, Python workers scan them with the kernels and send back what they know, and the
driver adds that up and looks at the seams. Reads only; a broker may own the directory and go on writing.
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
from penstock.spark.files.registry import RegistryAt
from penstock.spark.jobs.audit import archive_side as archives
from penstock.spark.jobs.audit import duplicate_requests, findings, inventory, slice_audit
from penstock.spark.jobs.audit.archive_side import NO_ROWS, FileTask, Holding, Rows, Scope, Warehouse
from penstock.spark.jobs.audit.findings import Finding, Found, Kind
from penstock.spark.jobs.audit.inventory import Log
from penstock.spark.jobs.audit.partition_summary import Partial
from penstock.spark.jobs.audit.runners import OnSpark, Runner
from penstock.spark.jobs.audit.scan_range import Loss
from penstock.spark.jobs.audit.slice_audit import Key, Task
from penstock.spark.jobs.audit.tally import Archived, Spans
from penstock.spark.jobs.histogram import summed
from penstock.spark.jobs.worker_jobs import grouped
from penstock.spark.lake.tables.table import LakeTable
from penstock.spark.scan.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Given = TypeVar("_Given")
_Got = TypeVar("_Got")

Stage = Callable[[str, int, int], None]
"""Told what is being done, how many steps of it are done, and of how many."""

FINDINGS_MAX: Final = 10_000
"""Findings in a report; more are counted by kind."""


def _silent(_what: str, _done: int, _all: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One partition of the log beside its archive."""

    holding: Holding
    scope: Scope
    rows: Rows

    @property
    def compared(self) -> int:
        """Messages of the archive that were held against the log."""
        return sum(digest.count for digest in self.rows.days.values())

    @property
    def has_payloads(self) -> bool:
        """Whether all payloads were compared, too, and not only the other fields."""
        return not any(digest.bare for digest in self.rows.days.values())

    def lag(self, log: Log) -> int:
        """Messages that wait to be archived."""
        return max(0, log.next_offset - max(self.holding.next, log.start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One partition, and what is known of it now."""

    log: Log
    part: Partial
    comparison: Comparison | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether all that the log has lost is known, one by one: then the rest must be the same in the archive."""
        return self.part.losses.runs <= len(self.part.losses.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an audit looks at besides the log itself."""

    topics: tuple[TopicName, ...] = ()
    """None: all."""
    against: Warehouse | None = None
    schemas: bool = False
    """Hold every payload against the schema it names."""
    registry: str | None = None
    duplicates: bool = False
    """Look for request numbers that are there twice in the whole of a topic, and not only within its partitions."""


ALL: Final = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found. `seconds` is how long it took, without the start of Spark."""

    data: str
    began_ms: int
    seconds: float
    partitions: tuple[Audited, ...]
    spans: Spans
    found: Found
    notes: tuple[str, ...] = ()
    wanted: Wanted = ALL

    @property
    def is_clean(self) -> bool:
        return not self.found.count


def audit(spark: SparkSession, location: Location, wanted: Wanted = ALL, *, stage: Stage = _silent) -> Audit:
    """Raises `InvalidRequest` or `TopicNotSupported` for what cannot be looked at. Damage is a finding, no error."""
    return audit_with(OnSpark(spark), location, wanted, stage=stage)


def audit_with(runner: Runner, location: Location, wanted: Wanted = ALL, *, stage: Stage = _silent) -> Audit:
    """The same, wherever the work is done."""
    began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
    job = _Job(runner, location, wanted, stage)
    partitions = job.partitions()
    found = job.found(partitions)
    return Audit(
        data=location.uri,
        began_ms=began_ms,
        seconds=time.monotonic() - began,
        partitions=partitions,
        spans=job.spans,
        found=found,
        notes=tuple(job.notes(partitions)),
        wanted=wanted,
    )


class _Job:
    """One audit: what there is, found when it is made; then the steps, in order."""

    def __init__(self, runner: Runner, location: Location, wanted: Wanted, stage: Stage) -> None:
        self._runner = runner
        self._wanted = wanted
        self._stage = stage
        self._registry = RegistryAt(location, wanted.registry)
        if wanted.schemas or wanted.registry:
            self._registry.open()  # raises here, and not in a worker, if there is none
        data = location.open()
        there = inventory.find(data, wanted.topics, progress=partial(stage, "looking at the logs"))
        self._logs, self._absent = there.logs, there.absent
        self.spans = inventory.spans_of(self._logs)
        self._slices = inventory.slices(location, data, self._logs)
        topics = dict.fromkeys(log.topic for log in self._logs)
        self._tables = wanted.against.tables(topics) if wanted.against else {}
        self._holdings = _holdings(self._tables)

    def partitions(self) -> tuple[Audited, ...]:
        """Every log scanned, and beside its archive where there is one."""
        beside = {
            log.key: self._holdings[log.key].beside(log.start, log.next_offset)
            for log in self._logs
            if log.key in self._holdings
        }
        parts = self._scan(beside)
        scopes = {key: _scope(each, parts.get(key), self._holdings[key]) for key, each in beside.items()}
        rows = self._read_archive(scopes)
        return tuple(
            Audited(log=log, part=parts.get(log.key, _nothing(log)), comparison=self._comparison(log, scopes, rows))
            for log in self._logs
        )

    def _scan(self, beside: Mapping[Key, Archived]) -> dict[Key, Partial]:
        groups = grouped(self._slices, lambda part: part.bytes, self._runner.cores)
        schemas = self._registry if self._wanted.schemas else None
        tasks = [Task(tuple(group), self.spans, _needed(group, beside), schemas) for group in groups]
        results = self._run("scanning the log", slice_audit.scan, tasks)
        return dict(slice_audit.merged(each for result in results for each in result))

    def _read_archive(self, scopes: Mapping[Key, Scope]) -> dict[Key, Rows]:
        if self._wanted.against is None:
            return {}
        tasks: list[FileTask] = []
        own = {table.name for table in self._tables.values()}
        for table in archives.companions(self._wanted.against, self._tables):
            groups = grouped(table.live_files(), lambda file: file.size, self._runner.cores)
            aside = table.name not in own
            tasks += (FileTask(table.folder, tuple(group), scopes, aside) for group in groups)
        found: dict[Key, Rows] = {}
        for result in self._run("reading the archive", archives.read, tasks):
            for key, rows in result.items():
                found[key] = found.get(key, NO_ROWS) + rows
        return {key: archives.joined(rows) for key, rows in found.items()}

    def _run(self, what: str, work: Callable[[_Given], _Got], tasks: Sequence[_Given]) -> list[_Got]:
        return self._runner.run(what, work, tasks, partial(self._stage, what))

    def _comparison(self, log: Log, scopes: Mapping[Key, Scope], rows: Mapping[Key, Rows]) -> Comparison | None:
        if log.key not in scopes:
            return None
        return Comparison(holding=self._holdings[log.key], scope=scopes[log.key], rows=rows.get(log.key, NO_ROWS))

    def found(self, partitions: Sequence[Audited]) -> Found:
        """All that is wrong, told or counted."""
        told = findings.absent(self._absent)
        uncounted: dict[Kind, int] = {}
        for each in partitions:
            told += findings.of_log(each.log, each.part)
            uncounted = summed(uncounted, findings.more_of_log(each.part))
            if each.comparison is not None and each.is_comparable:
                compared = each.comparison
                told += findings.of_archive(each.log, each.part, compared.holding, compared.scope, compared.rows)
        told += self._unknown_schemas(partitions)
        twice, count = self._repeated(partitions)
        told += twice
        uncounted[Kind.DUPLICATE_REQUEST] = count - len(twice)
        for extra in told[FINDINGS_MAX:]:
            uncounted[extra.kind] = uncounted.get(extra.kind, 0) + 1
        return findings.total(told[:FINDINGS_MAX], uncounted)

    def _repeated(self, partitions: Sequence[Audited]) -> tuple[list[Finding], int]:
        parts = {each.log.key: each.part for each in partitions}
        questions = duplicate_requests.asked(self._slices, parts, all_of_them=self._wanted.duplicates)
        if questions:
            self._stage("looking for requests that are there twice", 0, 1)
        twice, count = self._runner.repeated(questions)
        return list(findings.repeated(twice)), count

    def _unknown_schemas(self, partitions: Sequence[Audited]) -> Iterator[Finding]:
        named: dict[str, dict[tuple[int, int], int]] = {}
        for each in partitions:
            named[each.log.topic] = summed(named.get(each.log.topic, {}), each.part.schemas)
        ids = sorted({schema_id for schemas in named.values() for schema_id, _ in schemas})
        return findings.unknown_schemas(named, _unknown(self._registry, ids))

    def notes(self, partitions: Sequence[Audited]) -> Iterator[str]:
        """What is worth knowing and no finding."""
        for each in partitions:
            yield from _notes(each, archive=self._wanted.against is not None)


def _holdings(tables: Mapping[str, LakeTable]) -> dict[Key, Holding]:
    """By partition, of these topics. A table of all topics is asked once."""
    held = {name: archives.holdings(table) for name, table in {each.name: each for each in tables.values()}.items()}
    return {key: each for topic, table in tables.items() for key, each in held[table.name].items() if key[0] == topic}


def _needed(group: Sequence[Slice], beside: Mapping[Key, Archived]) -> dict[Key, Archived]:
    """What a task has to know of the archive."""
    ranges: dict[Key, tuple[int, int]] = {}
    for part in group:
        key = part.topic, part.partition
        ranges[key] = ranges.get(key, (part.start, 0))[0], part.stop
    return {key: slice_audit.within(beside[key], *ends) for key, ends in ranges.items() if key in beside}


def _scope(archived: Archived, part: Partial | None, holding: Holding) -> Scope:
    lost = () if part is None else tuple((each.start, each.stop) for each in part.losses.first)
    return Scope(archived.start, archived.stop, lost, (holding.first, holding.next))


def _nothing(log: Log) -> Partial:
    """Of a log that is empty."""
    return Partial(start=log.start, stop=log.next_offset)


def _unknown(registry: RegistryAt, ids: Sequence[int]) -> dict[int, str]:
    """Why these ids mean nothing; nothing is said of them where there is no registry to ask."""
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


def _notes(each: Audited, *, archive: bool) -> Iterator[str]:
    log, part = each.log, each.part
    name = f"{log.topic}[{log.partition}]"
    dropped = part.losses.records.get(Loss.DROPPED, 0)
    if dropped:
        yield f"{name}: {dropped} messages were dropped by retention while the audit ran"
    if log.quarantined_files:
        yield f"{name}: quarantine holds {log.quarantined_files} files, {log.quarantined_bytes} bytes"
    if part.producers_left_out:
        yield f"{name}: more producers than are followed; --duplicates looks at the requests of all"
    if each.comparison is not None and not each.is_comparable:
        yield f"{name}: so much is damaged that it could not be compared with the archive"
    if archive and each.comparison is None and log.next_offset > log.start:
        yield f"{name}: not yet archived (lag {log.next_offset - log.start})"
    if each.comparison is not None and each.comparison.lag(log):
        yield f"{name}: not yet archived from offset {each.comparison.holding.next} on (lag {each.comparison.lag(log)})"
    if each.comparison is not None and each.comparison.rows.recovered:
        yield f"{name}: the archive has {each.comparison.rows.recovered} messages that the log has lost"
