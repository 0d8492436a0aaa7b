"""Findings: problems that an audit found, each with its place and a sentence. The functions here make them of summaries
and read nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.core.ids import format_id
from penstock.spark.jobs.audit.archive_side import (
    ArchivedRows,
    ComparisonScope,
    OffsetRun,
    TableHolding,
    missing_and_duplicate,
)
from penstock.spark.jobs.audit.inventory import LogSnapshot
from penstock.spark.jobs.audit.partition_summary import SAMPLES_MAX, Digest, Disorder, Nonconforming, PartitionSummary
from penstock.spark.jobs.audit.scan_range import IndexFault, LossKind, LostOffsets
from penstock.storage.log.segment import segment_name


class FindingKind(StrEnum):
    DAMAGED = "damaged"
    """Records whose bytes are damaged."""
    MISSING = "missing"
    """Offsets that no file holds."""
    NO_PARTITION = "no_partition"
    """A partition whose directory is gone."""
    ID_ORDER = "id_order"
    """An id that is not greater than the one before it."""
    DUPLICATE_ID = "duplicate_id"
    """An id that is the same as that of the record before."""
    DUPLICATE_REQUEST = "duplicate_request"
    """A producer's request number that occurs twice."""
    INDEX = "index"
    """Index entries that are lost or wrong. No message is lost; the next start of the broker repairs them."""
    UNKNOWN_SCHEMA = "unknown_schema"
    """Messages that name a schema which the registry does not know."""
    NONCONFORMING = "nonconforming"
    """Payloads that do not conform to the schema they name."""
    NOT_IN_ARCHIVE = "not_in_archive"
    """Messages that the archive's table should have according to its state, and does not have."""
    TWICE_IN_ARCHIVE = "twice_in_archive"
    """Messages that the archive has more than once."""
    ARCHIVE_DIFFERS = "archive_differs"
    """A day whose messages differ between log and archive, by count or by hash."""
    ARCHIVE_AHEAD = "archive_ahead"
    """Offsets of the archive that lie behind the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, described by `what`. `offset` is that of the first message concerned, `count` the number of
    messages. `segment` (a file name) and `position` (in bytes) say where damaged bytes are, if there are any."""

    kind: FindingKind
    topic: str
    partition: int | None
    what: str
    offset: int | None = None
    count: int = 1
    segment: str | None = None
    position: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "count": self.count,
            "segment": self.segment,
            "position": self.position,
            "what": self.what,
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings that are listed one by one, and the total number of each kind, which also counts findings that are
    not listed."""

    listed: tuple[Finding, ...] = ()
    totals: Mapping[FindingKind, int] | None = None

    @property
    def count(self) -> int:
        return sum((self.totals or {}).values())


def with_totals(findings: Iterable[Finding], uncounted: Mapping[FindingKind, int]) -> Findings:
    """Return the findings with their totals. `uncounted`: further findings of each kind, which are not in the list."""
    listed = tuple(findings)
    totals: dict[FindingKind, int] = {}
    for finding in listed:
        totals[finding.kind] = totals.get(finding.kind, 0) + 1
    for kind, more in uncounted.items():
        if more:
            totals[kind] = totals.get(kind, 0) + more
    return Findings(listed, dict(sorted(totals.items())))


# findings of the log alone


def log_findings(log: LogSnapshot, summary: PartitionSummary) -> list[Finding]:
    """Return the findings of one partition of the log, in the order of offsets. Of very many only the first are
    listed; `uncounted_in_log` counts the others."""
    listed = [
        *_findings_of(log, summary.losses.first, _lost),
        *_findings_of(log, summary.disorder.first, _disorder),
        *_findings_of(log, summary.nonconforming.first, _nonconforming),
        *_findings_of(log, summary.index_faults.values(), _index),
    ]
    return sorted(listed, key=lambda finding: (finding.offset or 0, finding.kind))


def uncounted_in_log(summary: PartitionSummary) -> dict[FindingKind, int]:
    """Return by kind how many findings of a partition `log_findings` does not list."""
    return {
        FindingKind.DAMAGED: summary.losses.runs - len(summary.losses.first),
        FindingKind.ID_ORDER: summary.disorder.count - len(summary.disorder.first),
        FindingKind.NONCONFORMING: summary.nonconforming.count - len(summary.nonconforming.first),
    }


def _findings_of(
    log: LogSnapshot, items: Iterable[Any], make: Callable[[LogSnapshot, Any], Finding | None]
) -> Iterator[Finding]:
    for item in items:
        finding = make(log, item)
        if finding is not None:
            yield finding


def _lost(log: LogSnapshot, lost: LostOffsets) -> Finding | None:
    """Return the finding for lost offsets. Return None if retention dropped the messages while the job ran, which is no
    fault."""
    if lost.kind is LossKind.DROPPED:
        return None
    if lost.kind is LossKind.MISSING:
        what = f"offsets {lost.start} to {lost.stop - 1} are missing: is a segment file gone?"
        return _finding(log, FindingKind.MISSING, lost.start, what, count=len(lost))
    what = lost.reason if len(lost) == 1 else f"{len(lost)} records lost: {lost.reason}"
    place = {"segment": segment_name(lost.base), "position": lost.position}
    return _finding(log, FindingKind.DAMAGED, lost.start, what, count=len(lost), **place)


def _disorder(log: LogSnapshot, item: Disorder) -> Finding:
    if item.is_duplicate:
        return _finding(
            log, FindingKind.DUPLICATE_ID, item.offset, f"the id {format_id(item.id)} is that of the record before it"
        )
    what = f"the id {format_id(item.id)} is not greater than {format_id(item.before)} before it"
    return _finding(log, FindingKind.ID_ORDER, item.offset, what)


def _nonconforming(log: LogSnapshot, item: Nonconforming) -> Finding:
    what = f"the payload is not what schema {item.schema_id} (version {item.schema_version}) says: {item.reason}"
    return _finding(log, FindingKind.NONCONFORMING, item.offset, what)


def _index(log: LogSnapshot, fault: IndexFault) -> Finding:
    what = f"{fault.count} index entries do not say where their records end (rebuildable)"
    if fault.header:
        what = "the index is missing or damaged (rebuildable)"
    return _finding(log, FindingKind.INDEX, fault.first, what, count=fault.count, segment=segment_name(fault.base))


def _finding(log: LogSnapshot, kind: FindingKind, offset: int | None, what: str, **place: Any) -> Finding:
    return Finding(kind=kind, topic=log.topic, partition=log.partition, offset=offset, what=what, **place)


def absent_partitions(keys: Iterable[tuple[str, int]]) -> list[Finding]:
    what = "the directory of the partition is not there"
    return [Finding(kind=FindingKind.NO_PARTITION, topic=key[0], partition=key[1], what=what, count=0) for key in keys]


def unknown_schema_findings(
    named: Mapping[str, Mapping[tuple[int, int], int]], unknown: Mapping[int, str]
) -> Iterator[Finding]:
    """Yield a finding for each topic and unknown schema. `named` has, by topic, the number of messages by schema id and
    version; `unknown` has the reason for each unknown schema id."""
    for topic, schemas in named.items():
        for (schema_id, version), count in sorted(schemas.items()):
            if schema_id in unknown:
                what = f"{count} messages name schema {schema_id} (version {version}): {unknown[schema_id]}"
                yield Finding(kind=FindingKind.UNKNOWN_SCHEMA, topic=topic, partition=None, what=what, count=count)


@dataclass(frozen=True, slots=True)
class DuplicateRequest:
    """A request number that one producer used more than once in a topic."""

    topic: str
    producer_id: int
    request_id: int
    count: int
    places: tuple[tuple[int, int], ...]
    """Partition and offset of the first and the last message with that number."""


def duplicate_request_findings(items: Sequence[DuplicateRequest]) -> Iterator[Finding]:
    for item in items:
        (partition, offset), *_ = item.places
        where = ", ".join(f"{place[0]}:{place[1]}" for place in item.places)
        what = f"request {item.request_id} of producer {item.producer_id} is there {item.count} times: at {where}"
        yield Finding(
            kind=FindingKind.DUPLICATE_REQUEST,
            topic=item.topic,
            partition=partition,
            offset=offset,
            count=item.count,
            what=what,
        )


# findings of the log compared with the archive


def archive_findings(
    log: LogSnapshot, summary: PartitionSummary, holding: TableHolding, scope: ComparisonScope, rows: ArchivedRows
) -> list[Finding]:
    """Return the differences between log and archive for one partition: offsets that the archive lacks, has twice, or
    has beyond the end of the log, and days whose messages differ."""
    listed: list[Finding] = []
    if holding.next > log.next_offset:
        what = (
            f"the archive {holding.table} goes up to offset {holding.next}, and the log ends at {log.next_offset}:"
            " was the topic made anew, or has the log lost its end?"
        )
        listed.append(
            _finding(log, FindingKind.ARCHIVE_AHEAD, log.next_offset, what, count=holding.next - log.next_offset)
        )
    if rows.cut:
        listed += _count_only(log, scope, rows)
    else:
        missing, twice = missing_and_duplicate(rows.runs, scope)
        listed += (_run(log, FindingKind.NOT_IN_ARCHIVE, run, _missing(log, run)) for run in missing[:SAMPLES_MAX])
        listed += (
            _run(log, FindingKind.TWICE_IN_ARCHIVE, run, "more than once in the archive") for run in twice[:SAMPLES_MAX]
        )
    listed += _days(log, summary.digests, rows.days)
    return listed


def _count_only(log: LogSnapshot, scope: ComparisonScope, rows: ArchivedRows) -> Iterator[Finding]:
    """Yield a finding if the archive has another number of messages than it should have of offsets that the log no
    longer has. Used if there are too many runs of offsets to name the offsets themselves."""
    more = rows.claimed - scope.beyond
    if more:
        what = f"of offsets that the log has no more the archive has {rows.claimed} messages, and should {scope.beyond}"
        kind = FindingKind.TWICE_IN_ARCHIVE if more > 0 else FindingKind.NOT_IN_ARCHIVE
        yield _finding(log, kind, None, what, count=abs(more))


def _missing(log: LogSnapshot, run: OffsetRun) -> str:
    if run[0] >= log.start:
        return "not in the archive"
    return (
        f"not in the archive, which should have them, and the log begins at {log.start}: lost, or left out with"
        " --allow-loss"
    )


def _run(log: LogSnapshot, kind: FindingKind, run: OffsetRun, what: str) -> Finding:
    start, stop = run
    offsets = f"offset {start} is" if stop - start == 1 else f"offsets {start} to {stop - 1} are"
    return _finding(log, kind, start, f"{offsets} {what}", count=stop - start)


_NOTHING: Final = Digest()


def _days(log: LogSnapshot, log_days: Mapping[int, Digest], archive_days: Mapping[int, Digest]) -> Iterator[Finding]:
    for day in sorted({*log_days, *archive_days}):
        here, there = log_days.get(day, _NOTHING), archive_days.get(day, _NOTHING)
        why = difference(here, there)
        if why is not None:
            what = f"{day_text(day)}: {why}"
            yield _finding(log, FindingKind.ARCHIVE_DIFFERS, None, what, count=max(1, abs(here.count - there.count)))


def difference(here: Digest, there: Digest) -> str | None:
    """Return a sentence about the worst difference between `here` (the log) and `there` (the archive) on a day; None if
    there is no difference."""
    if here.count != there.count:
        return f"the log has {here.count} messages, the archive {there.count}"
    if here.places != there.places:
        return f"{here.count} messages in both, and their ids and offsets are not the same"
    if here.fields != there.fields:
        return (
            f"{here.count} messages in both, and their keys, types, times, attributes, producers, requests or schemas"
            " are not the same"
        )
    return _payloads(here, there)


def _payloads(here: Digest, there: Digest) -> str | None:
    """Return a sentence about payloads that differ or are missing in the archive; None if all is well. An archive may
    leave out payloads that became columns (`--drop-values`), but no others."""
    if there.payload_lost:
        return (
            f"{there.payload_lost} of {here.count} messages have no payload in the archive, and no columns instead of"
            " it"
        )
    if there.without_payload not in (0, there.named - there.in_bad_table):
        return (
            f"{there.without_payload} of {there.named} messages that name a schema have no payload in the archive,"
            " and the others have: they cannot be compared. Was --drop-values given on that day?"
        )
    if here.plain != there.plain or (not there.without_payload and here.typed != there.typed):
        return f"{here.count} messages in both, and their payloads are not the same"
    return None


def day_text(day: int) -> str:
    """Return the date of the day with that number since 1970, or `day N` if there is no such date."""
    try:
        return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()
    except OverflowError:
        return f"day {day}"
