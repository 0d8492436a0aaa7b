"""The broker's counters: totals since the start, and rates, which are the counts of the last whole second."""

from __future__ import annotations

from typing import Final

from penstock.protocol.actions import Action

COUNTED: Final = (Action.PUBLISH, Action.REQUEST, Action.RESPONSE)
_COUNTERS: Final = (
    "router.message",
    "router.message.error",
    "router.publish",
    "router.publish.dropped",
    "router.publish.error",
    "router.request",
    "router.request.dropped",
    "router.request.error",
    "router.request.timeout",
    "router.response",
    "router.response.error",
)
"""Counters shown as `router.message.count` and `router.message.rate`; those of errors as
`router.message.count.error`."""

_RATES: Final = ("registry.discovery", "registry.registration", "registry.unregistration")
_TOTALS: Final = (
    "connection.connected",
    "connection.disconnected",
    "connection.failed",
    "connection.rejected",
    "flood.ended",
    "http.events.published",
    "http.events.refused",
    "http.events.sent",
    "http.streams.closed",
    "http.streams.opened",
    "live.delivered",
    "retention.segments",
    "schema.refused",
    "schema.warned",
)


class Metrics:
    """Counters by name. Only names declared in this module exist: `add` and `count` raise `KeyError` for others."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys((*_COUNTERS, *_RATES, *_TOTALS), 0)
        self._before = dict(self._counts)
        self._rates = dict.fromkeys(self._counts, 0)
        self.bytes = 0
        self.bytes_largest = 0

    def add(self, name: str, count: int = 1) -> None:
        self._counts[name] += count

    def count_error(self, action: Action) -> None:
        """Count an error of an action. Ignored for actions that have no error counter."""
        if action in COUNTED:
            self.add(f"router.{action.value}.error")

    def count(self, name: str) -> int:
        return self._counts[name]

    def counts(self) -> dict[str, int]:
        """Return all totals by name."""
        return dict(self._counts)

    def add_messages(self, messages: int, size: int, largest: int) -> None:
        self._counts["router.message"] += messages
        self.bytes += size
        self.bytes_largest = max(self.bytes_largest, largest)

    def second_passed(self) -> None:
        for name, count in self._counts.items():
            self._rates[name] = count - self._before[name]
        self._before = dict(self._counts)

    def to_dict(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for name in _COUNTERS:
            values[_spelled(name, "count")] = self._counts[name]
            values[_spelled(name, "rate")] = self._rates[name]
        messages = self._counts["router.message"]
        values["router.message.size.avg"] = self.bytes / messages if messages else 0
        values["router.message.size.max"] = self.bytes_largest
        values |= {f"{name}.rate": self._rates[name] for name in _RATES}
        for name in _TOTALS:
            values[f"{name}.rate"] = self._rates[name]
            values[f"{name}.total"] = self._counts[name]
        return values


def _spelled(name: str, what: str) -> str:
    """Return the name under which a value is shown: `what` stands before the last part, so that
    `router.publish.dropped` becomes `router.publish.count.dropped`."""
    room, message, *kind = name.split(".")
    return ".".join((room, message, what, *kind))
