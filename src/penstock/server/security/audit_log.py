"""The audit log: administrative actions and denials, as lines of JSON in the data directory, in a bounded number of
files.

The lines are written once a second. Repetitions within a second are one line with a count, so that a client that is
refused a thousand times neither fills the disk nor hides other entries. The log contains no secrets and no payloads.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.broker.access.policy import ANONYMOUS, UNKNOWN_PRINCIPAL, Decision, Origin, Outcome
from penstock.core.clock import iso_time
from penstock.core.limits import KIB, MIB

FILE: Final = "audit.jsonl"
FILE_BYTES_MAX: Final = 16 * MIB
"""The size at which the current file becomes `audit.1.jsonl`, the one before it `audit.2.jsonl`, and so on. A file has
some 60,000 lines."""

FILES_MAX: Final = 8
PENDING_MAX: Final = 1_000
"""The most different entries within one second. Of the entries beyond, only the number is written."""

REFUSED_MAX: Final = 100
"""The most refusals among these entries: so few that even an hour of them does not push older lines out of the
files."""

_TEXT_CHARS_MAX: Final = 512
_DROPPED: Final = Decision("", "", "", "dropped", Origin("", ""))
_BUFFER_BYTES: Final = 256 * KIB
_LOG: Final = logging.getLogger(__name__)


class AuditLog:
    """An append-only file of decisions. `note` adds an entry in memory and never fails, `take` returns the new entries
    as lines, and `write` stores lines."""

    def __init__(self, folder: Path, unix_ms: Callable[[], int]) -> None:
        self._path = folder / FILE
        self._unix_ms = unix_ms
        self._pending: dict[Decision, list[int]] = {}
        """The entries since the last `take`, each with the time of the first in milliseconds and their number."""

        self._refused = 0
        """The number of different refusals among these entries."""

        self._dropped = 0
        self._failed = False

    def note(self, decision: Decision) -> None:
        decision = _folded(decision)
        known = self._pending.get(decision)
        if known is not None:
            known[1] += 1
            return
        refused = decision.outcome != Outcome.ALLOWED
        if len(self._pending) >= PENDING_MAX or (refused and self._refused >= REFUSED_MAX):
            self._dropped += 1
            return
        self._pending[decision] = [self._unix_ms(), 1]
        self._refused += refused

    def take(self) -> bytes:
        """Return the entries noted since the last call, as lines of JSON. Call it in the same thread as `note`."""
        lines = [_line(decision, *facts) for decision, facts in self._pending.items()]
        if self._dropped:
            lines.append(_line(_DROPPED, self._unix_ms(), self._dropped))
        self._pending, self._refused, self._dropped = {}, 0, 0
        return b"".join(lines)

    def write(self, lines: bytes) -> None:
        """Append the lines to the file; they are durable on return. If the disk fails, nothing is raised: the lines are
        lost, an error is logged once, and later calls try again.

        May be called in any thread, one call at a time.
        """
        if not lines:
            return
        try:
            self._append(lines)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _LOG.error("the audit log cannot be written", extra={"error": str(error.strerror)})
            self._failed = True

    def _append(self, data: bytes) -> None:
        if _size(self._path) + len(data) > FILE_BYTES_MAX:
            self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest[:_BUFFER_BYTES]) :]
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        """Rename each file to the next number; the oldest file is deleted."""
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"audit.{number}.jsonl")


def _folded(decision: Decision) -> Decision:
    """Return the decision as it is noted. Refusals of anonymous clients lose the port of the address, so that those of
    one machine become one entry, however many connections it makes."""
    if decision.outcome == Outcome.ALLOWED or decision.principal not in (ANONYMOUS.name, UNKNOWN_PRINCIPAL):
        return decision
    host = decision.origin.address.rpartition(":")[0]
    return replace(decision, origin=Origin(decision.origin.surface, host))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _line(decision: Decision, unix_ms: int, count: int) -> bytes:
    fields: dict[str, Any] = {
        "time": iso_time(unix_ms),
        "principal": decision.principal[:_TEXT_CHARS_MAX],
        "operation": decision.operation,
        "resource": decision.resource[:_TEXT_CHARS_MAX],
        "outcome": decision.outcome,
        "surface": decision.origin.surface,
        "address": decision.origin.address,
    }
    if decision.origin.service:
        fields["service"] = decision.origin.service
    if decision.audited.action:
        fields["action"] = decision.audited.action
    if decision.audited.target:
        fields["target"] = dict(decision.audited.target)
    if decision.reason:
        fields["reason"] = decision.reason[:_TEXT_CHARS_MAX]
    if count > 1:
        fields["count"] = count
    return msgspec.json.encode(fields) + b"\n"
