"""Health checks: the conditions of being alive and of being ready, by name, each with the reason if it is not met."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from penstock.broker.broker import Broker
from penstock.core.errors import ServiceUnavailable, VerbatimDetails
from penstock.storage.store import Store

_LOG: Final = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 5.0
"""The seconds between two checks, far less than the time after which operators should be alerted."""
_NAMED_MAX: Final = 3
"""The most logs that a reason names: the others have most likely failed for the same reason."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A condition and its state."""

    name: str
    ok: bool
    reason: str | None = None
    """The reason why it is not met. The condition `data` is always met; its reason tells which data is gone."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of being alive, or of being ready."""

    status: str
    checks: tuple[Check, ...]

    def check(self) -> Health:
        """Return self, or raise `ServiceUnavailable` with the conditions that are not met."""
        failed = [check for check in self.checks if not check.ok]
        if failed:
            why = "; ".join(f"{check.name}: {check.reason}" for check in failed)
            raise ServiceUnavailable(
                f"{self.status}: {why}", checks=VerbatimDetails(map(msgspec.to_builtins, self.checks))
            )
        return self


class ListenerStatus(Protocol):
    def is_serving(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConditions:
    """The parts of the broker that the conditions are about, and the checks of them."""

    store: Store
    listeners: Mapping[str, ListenerStatus]
    """The configured listeners, by name."""
    is_stopping: Callable[[], bool]

    def alive(self) -> Health:
        """Check that the writer thread runs: without it no message is stored any more. There is no check of the event
        loop, since it must run to answer at all."""
        return _health("alive", "not alive", self._writer())

    def ready(self, failed: Sequence[str]) -> Health:
        """Check all conditions of being ready. `failed` has the reasons why logs take no appends. Blocks while it asks
        the disk, so call it in a thread."""
        checks = (_log(failed), self._catalog(), self._writer(), self._listeners(), self._disk(), self._data())
        return _health("ready", "not ready", *checks)

    def _catalog(self) -> Check:
        failure = self.store.catalog.failure
        return Check(name="catalog", ok=failure is None, reason=None if failure is None else failure.message)

    def _writer(self) -> Check:
        ok = self.store.writer.is_alive or self.is_stopping()
        return Check(name="writer", ok=ok, reason=None if ok else "the thread that writes the log has ended: restart")

    def _listeners(self) -> Check:
        if self.is_stopping():
            return Check(name="listeners", ok=False, reason="the broker is stopping")
        closed = sorted(name for name, listener in self.listeners.items() if not listener.is_serving())
        reason = f"not listening: {', '.join(closed)}" if closed else None
        return Check(name="listeners", ok=not closed, reason=reason)

    def _disk(self) -> Check:
        reserve = self.store.reserve_bytes
        try:
            free = self.store.free_bytes()
        except OSError as error:
            return Check(name="disk", ok=False, reason=f"{self.store.root} cannot be asked: {error.strerror}")
        if free < reserve:
            return Check(
                name="disk", ok=False, reason=f"{free} bytes are free, and the reserve is {reserve}: make room"
            )
        lacking = [str(log.path) for log in self.store.logs if log.lacks_room(free)]
        if not lacking:
            return Check(name="disk", ok=True)
        what = f"no room for the next segment of {_named(lacking, ', ')}"
        reason = f"{what}: {free} bytes are free, and the reserve is {reserve}: make room"
        return Check(name="disk", ok=False, reason=reason)

    def _data(self) -> Check:
        """Report missing segment files in the reason. The condition counts as met all the same: the broker serves
        the messages that are left, and neither a restart nor moving clients to another broker would bring the files
        back."""
        gaps = [gaps for log in self.store.logs if (gaps := log.missing)]
        if not gaps:
            return Check(name="data", ok=True)
        messages = sum(len(gap) for gaps_of_log in gaps for gap in gaps_of_log)
        what = f"segment files are gone: {messages} messages of {len(gaps)} logs are missing"
        return Check(name="data", ok=True, reason=f"{what}; the log and `penstock topic describe` say which")


def append_failures(broker: Broker) -> list[str]:
    """Return the reason of each log that takes no appends any more; an empty list if all logs do."""
    topics = () if broker.durable is None else broker.durable.topics
    return [log.failure.message for topic in topics for log in topic.logs if log.failure is not None]


async def watch_health(conditions: HealthConditions, broker: Broker) -> None:
    """Check all conditions every few seconds until cancelled. Writes a log line when a condition is no longer met, and
    when it is met again."""
    unmet: dict[str, str | None] = {}
    while True:
        health = await asyncio.to_thread(conditions.ready, append_failures(broker))
        now = {check.name: check.reason for check in health.checks if not check.ok}
        for name in now.keys() - unmet.keys():
            _LOG.error("not ready", extra={"check": name, "reason": now[name]})
        for name in unmet.keys() - now.keys():
            _LOG.info("ready again", extra={"check": name})
        unmet = now
        await asyncio.sleep(_LOOK_SECONDS)


def _log(failed: Sequence[str]) -> Check:
    """Check that all logs take appends. It need not ask whether recovery is complete: nothing listens before that."""
    if not failed:
        return Check(name="log", ok=True)
    return Check(name="log", ok=False, reason=_named(failed, "; "))


def _named(names: Sequence[str], between: str) -> str:
    more = [f"and {len(names) - _NAMED_MAX} more"] if len(names) > _NAMED_MAX else []
    return between.join([*names[:_NAMED_MAX], *more])


def _health(good: str, bad: str, *checks: Check) -> Health:
    return Health(status=good if all(check.ok for check in checks) else bad, checks=checks)
