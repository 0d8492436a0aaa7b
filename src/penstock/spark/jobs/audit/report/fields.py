"""The fields of an audit's JSON report, stable for scripts and documented in docs/jobs.md. The page is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from penstock.core.clock import iso_time
from penstock.spark.jobs.audit.findings import day_text, difference
from penstock.spark.jobs.audit.partition_summary import Digest
from penstock.spark.jobs.audit.run import Audit, AuditedPartition, Comparison
from penstock.spark.jobs.audit.scan_range import LossKind
from penstock.spark.jobs.histogram import add_histograms

VERSION: Final = 1
"""Version of the fields. Adding one keeps the version; changing or removing one does not."""


def as_dict(audit: Audit) -> dict[str, Any]:
    topics = [_topic(topic, list(group)) for topic, group in groupby(audit.partitions, key=lambda each: each.log.topic)]
    return {
        "version": VERSION,
        "data": audit.data,
        "began": time_text(audit.began_ms),
        "seconds": round(audit.seconds, 3),
        "clean": audit.is_clean,
        "checked": _checked(audit),
        "summary": _summary(audit, topics),
        "topics": topics,
        "volume": _volume(audit),
        "findings": {
            "total": audit.found.count,
            "by_kind": {kind.value: count for kind, count in (audit.found.totals or {}).items()},
            "told": [finding.as_dict() for finding in audit.found.listed],
        },
        "notes": list(audit.notes),
    }


def time_text(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    try:
        return iso_time(unix_ms)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"


def _checked(audit: Audit) -> dict[str, Any]:
    against = audit.request.against
    return {
        "schemas": audit.request.schemas,
        "duplicates": "topic" if audit.request.duplicates else "partition",
        "archive": None if against is None else {"warehouse": against.uri, "format": against.table_format},
    }


def _summary(audit: Audit, topics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "topics": len(topics),
        "partitions": len(audit.partitions),
        "segments": sum(partition.log.segments for partition in audit.partitions),
        "messages": sum(partition.summary.records for partition in audit.partitions),
        "bytes": sum(partition.summary.record_bytes for partition in audit.partitions),
        "payload_bytes": sum(partition.summary.payload_bytes for partition in audit.partitions),
        "lost": sum(_lost(partition, LossKind.DAMAGED, LossKind.MISSING) for partition in audit.partitions),
        "findings": audit.found.count,
    }


def _lost(partition: AuditedPartition, *kinds: LossKind) -> int:
    return sum(partition.summary.losses.records.get(kind, 0) for kind in kinds)


def _topic(topic: str, partitions: Sequence[AuditedPartition]) -> dict[str, Any]:
    parts = [partition.summary for partition in partitions]
    latency = add_histograms(part.latency for part in parts)
    schemas: dict[tuple[int, int], int] = {}
    for part in parts:
        for key, count in part.schemas.items():
            schemas[key] = schemas.get(key, 0) + count
    return {
        "topic": topic,
        "messages": sum(part.records for part in parts),
        "bytes": sum(part.record_bytes for part in parts),
        "payload_bytes": sum(part.payload_bytes for part in parts),
        "first_time": time_text(_edge(min, (part.first_ms for part in parts))),
        "last_time": time_text(_edge(max, (part.last_ms for part in parts))),
        "sizes": add_histograms(part.sizes for part in parts).as_dict(),
        "latency_ms": latency.as_dict() if len(latency) else None,
        "schemas": [{"id": key[0], "version": key[1], "messages": count} for key, count in sorted(schemas.items())],
        "partitions": [_partition(partition) for partition in partitions],
    }


def _edge(choose: Any, times: Iterable[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return choose(known) if known else None


def _partition(partition: AuditedPartition) -> dict[str, Any]:
    log, part = partition.log, partition.summary
    return {
        "partition": log.partition,
        "first_offset": log.start,
        "next_offset": log.next_offset,
        "segments": log.segments,
        "messages": part.records,
        "bytes": part.record_bytes,
        "damaged": _lost(partition, LossKind.DAMAGED),
        "missing": _lost(partition, LossKind.MISSING),
        "dropped": _lost(partition, LossKind.DROPPED),
        "out_of_order": part.disorder.count,
        "nonconforming": part.nonconforming.count,
        "producers": len(part.requests),
        "quarantine": {"files": log.quarantined_files, "bytes": log.quarantined_bytes},
        "archive": None if partition.comparison is None else _archive(partition, partition.comparison),
    }


def _archive(partition: AuditedPartition, compared: Comparison) -> dict[str, Any]:
    days = sorted({*partition.summary.digests, *compared.rows.days})
    rows = [
        _day(day, partition.summary.digests.get(day, Digest()), compared.rows.days.get(day, Digest())) for day in days
    ]
    return {
        "table": compared.holding.table,
        "first_offset": compared.holding.first,
        "next_offset": compared.holding.next,
        "messages": compared.compared,
        "payloads": compared.has_payloads,
        "lag": compared.lag(partition.log),
        "recovered": compared.rows.recovered,
        "elsewhere": compared.rows.elsewhere,
        "equal": all(row["equal"] for row in rows),
        "days": rows,
    }


def _day(day: int, log: Digest, archive: Digest) -> dict[str, Any]:
    """Return the fields of one day. The hash is that of contents, or, if the archive keeps no payloads, that of places,
    which both sides have."""
    hashes = (log.places, archive.places) if archive.without_payload else (log.contents, archive.contents)
    fields = f"{log.fields:016x}", f"{archive.fields:016x}"
    return {
        "day": day_text(day),
        "log": {"messages": log.count, "hash": f"{hashes[0]:016x}", "fields": fields[0]},
        "archive": {"messages": archive.count, "hash": f"{hashes[1]:016x}", "fields": fields[1]},
        "equal": difference(log, archive) is None,
    }


def _volume(audit: Audit) -> dict[str, Any]:
    """Return messages and bytes by topic, for every time span that has messages."""
    volume: dict[tuple[int, str], tuple[int, int]] = {}
    for partition in audit.partitions:
        for span, (count, size) in partition.summary.volume.items():
            before = volume.get((span, partition.log.topic), (0, 0))
            volume[span, partition.log.topic] = before[0] + count, before[1] + size
    spans = audit.spans
    return {
        "since": time_text(spans.since_ms),
        "since_ms": spans.since_ms,
        "width_ms": spans.width_ms,
        "count": spans.count,
        "spans": [
            {"span": span, "topic": topic, "messages": count, "bytes": size}
            for (span, topic), (count, size) in sorted(volume.items())
        ],
    }
