"""The account: every event that was published, and its outcome, with sums that must add up. Pure.

A row is a sentence and two numbers that have to be equal. The demo fails if a pair is not; that is its purpose. Nothing
here measures or reads: counts come from the steps that observed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts that the steps observed."""

    published: int
    by_transport: Mapping[str, int]
    """Answered events by transport."""
    malformed: int
    """Published events that the schema must refuse."""
    poisoned: int
    """Published events that billing cannot process."""
    retried: int
    """Events sent twice on purpose."""

    acknowledged: int
    refused: int
    recognised: int
    """Events sent twice whose second answer named the first position."""
    answers_wrong: int

    acknowledged_before_kill: int
    missing_after_kill: int
    """Events acknowledged before the kill that are not at their position after it."""
    found_stored: int
    """Events sent again because the answer was lost with the broker, and found to be stored."""

    in_log: int
    log_missing: int
    """Acknowledged events that are not at their position in the log."""
    log_extra: int
    """Records that should not be there: stored more often than they should be, or never acknowledged."""

    billed: int
    dead_letters: int
    redriven: int

    archived: int
    archived_dead_letters: int
    audited: int
    """Messages of the lake that were compared with the log."""
    audit_findings: int

    revenue_cents: int
    expected_cents: int
    hours_wrong: int

    def as_dict(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A row of the account: a count, and the number that it must equal. That is None for a count with nothing to
    compare."""

    what: str
    count: int
    expected: int | None
    why: str = ""
    """The meaning of the expected number."""

    @property
    def holds(self) -> bool:
        return self.expected is None or self.count == self.expected

    def as_dict(self) -> dict[str, Any]:
        return {"what": self.what, "count": self.count, "expected": self.expected, "holds": self.holds}


def rows(counts: Counts) -> Iterator[AccountRow]:
    """Yield the rows in the order of the story."""
    yield from _published(counts)
    yield from _survived(counts)
    yield from _consumed(counts)
    yield from _archived(counts)


def _published(c: Counts) -> Iterator[AccountRow]:
    ways = " + ".join(f"{count:,} {way}" for way, count in c.by_transport.items())
    yield AccountRow("published", c.published, sum(c.by_transport.values()), ways)
    yield AccountRow("refused by the schema", c.refused, c.malformed, "the malformed")
    yield AccountRow("acknowledged", c.acknowledged, c.published - c.refused, "published - refused")
    yield AccountRow("sent twice and recognised", c.recognised, c.retried, "sent twice on purpose")
    yield AccountRow("answers that contradict others", c.answers_wrong, 0)


def _survived(c: Counts) -> Iterator[AccountRow]:
    yield AccountRow("acknowledged before SIGKILL", c.acknowledged_before_kill, None)
    yield AccountRow("of those missing after it", c.missing_after_kill, 0)
    yield AccountRow("found stored when sent again", c.found_stored, None)


def _consumed(c: Counts) -> Iterator[AccountRow]:
    yield AccountRow("dead letters", c.dead_letters, c.poisoned, "the poisoned")
    yield AccountRow("redriven", c.redriven, c.dead_letters, "the dead letters")
    yield AccountRow("billed", c.billed, c.acknowledged, "acknowledged")
    yield AccountRow("in the log", c.in_log, c.acknowledged + c.redriven, "acknowledged + redriven")
    yield AccountRow("acknowledged and not there", c.log_missing, 0)
    yield AccountRow("there twice, or never acknowledged", c.log_extra, 0)


def _archived(c: Counts) -> Iterator[AccountRow]:
    yield AccountRow("in the lake", c.archived, c.in_log, "in the log")
    yield AccountRow("in the lake, dead letters", c.archived_dead_letters, c.dead_letters, "the dead letters")
    yield AccountRow("audited: log = lake", c.audited, c.in_log + c.dead_letters, "in the log + the dead letters")
    yield AccountRow("findings of the audit", c.audit_findings, 0)
    yield AccountRow("revenue in cents", c.revenue_cents, c.expected_cents, "what was paid")
    yield AccountRow("hours whose revenue differs", c.hours_wrong, 0)
