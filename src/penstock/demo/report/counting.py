"""Counting: makes the account's numbers from the results of the steps and from the log on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.core.names import TopicName
from penstock.demo.base.ledger import Acknowledged, Ledger
from penstock.demo.base.orders import TOPIC, EventKind, Orders
from penstock.demo.broker.log_contents import LogContents, read_log
from penstock.demo.lake.lakehouse import ArchiveSummary, AuditSummary
from penstock.demo.lake.revenue import Revenue
from penstock.demo.report.account import Counts
from penstock.demo.traffic.traffic import KillReport

_TOPIC: Final = TopicName.parse(TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """The results of the demo's steps, from which the account is made."""

    by_transport: dict[str, int]
    killed: KillReport
    billed: int
    redriven: int
    archived: ArchiveSummary
    audited: AuditSummary
    revenue: Revenue


def count(orders: Orders, ledger: Ledger, seen: Observations, data: Path) -> Counts:
    acknowledged, expected = ledger.acknowledged(), orders.revenue()
    log = read_log(data, _TOPIC)
    return Counts(
        published=len(orders),
        by_transport=seen.by_transport,
        malformed=orders.count(EventKind.MALFORMED),
        poisoned=orders.count(EventKind.POISONED),
        retried=int(np.count_nonzero(orders.retried)),
        acknowledged=len(acknowledged),
        refused=len(ledger.refused),
        recognised=ledger.recognised,
        answers_wrong=ledger.wrong,
        acknowledged_before_kill=seen.killed.acknowledged,
        missing_after_kill=seen.killed.missing,
        found_stored=ledger.found_stored,
        in_log=len(log),
        log_missing=log.missing(acknowledged),
        log_extra=unexpected_records(log, acknowledged, orders),
        billed=seen.billed,
        dead_letters=len(read_log(data, _TOPIC.dead_letters)),
        redriven=seen.redriven,
        archived=seen.archived.orders,
        archived_dead_letters=seen.archived.dead_letters,
        audited=seen.audited.compared,
        audit_findings=seen.audited.findings,
        revenue_cents=int(seen.revenue.cents.sum()),
        expected_cents=int(expected.sum()),
        hours_wrong=seen.revenue.hours_wrong(expected),
    )


def unexpected_records(log: LogContents, acknowledged: Acknowledged, orders: Orders) -> int:
    """Return the number of records that should not be there.

    An event is there once if it was acknowledged, and once more if it was poisoned, since poisoned events are redriven.
    """
    allowed = np.zeros(len(orders), np.int64)
    allowed[acknowledged.numbers] = 1
    allowed[(allowed == 1) & (orders.kinds == EventKind.POISONED)] = 2
    times = log.times(len(orders))
    unknown = len(log) - int(times.sum()) + int(times[len(orders) :].sum())
    return unknown + int(np.maximum(times[: len(orders)] - allowed, 0).sum())
