"""The log of schema mismatches: warnings about messages that were stored although their topic's schemas do not match.

A faulty client repeats its fault a million times, so there is one line at once, and then one for every interval in
which there were more. Every message is counted in exactly one line.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from penstock.broker.topics.topics import TopicState

EVERY_MS: Final = 10_000
"""Interval between two lines about one topic."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tally:
    """Mismatches of one topic since its last line."""

    due_ms: int
    messages: int = 0
    first: str = ""


class MismatchLog:
    def __init__(self) -> None:
        self._tallies: dict[TopicState, _Tally] = {}
        """Tallies in the order in which they are due: all wait equally long."""

    @property
    def due_ms(self) -> int | None:
        return next((tally.due_ms for tally in self._tallies.values()), None)

    def add(self, topic: TopicState, messages: int, reason: str, now_ms: int) -> None:
        """Count mismatches; `reason` is that of the first message."""
        tally = self._tallies.get(topic)
        if tally is None:
            _log_line(topic, messages, reason, "")
            self._tallies[topic] = _Tally(now_ms + EVERY_MS)
            return
        tally.first = tally.first or reason
        tally.messages += messages

    def tick(self, now_ms: int) -> None:
        """Log every interval that is over; a topic without new mismatches is forgotten."""
        for topic in [tallied for tallied, tally in self._tallies.items() if tally.due_ms <= now_ms]:
            if self.flush(topic):
                self._tallies[topic] = _Tally(now_ms + EVERY_MS)

    def flush(self, topic: TopicState) -> bool:
        """Log the mismatches of a topic since its last line, and forget it; return whether there were any."""
        tally = self._tallies.pop(topic, None)
        if tally is None or not tally.messages:
            return False
        _log_line(topic, tally.messages, tally.first, f" in the last {EVERY_MS // 1000} s")
        return True

    def close(self) -> None:
        """Log all remaining mismatches before the broker stops."""
        for topic in list(self._tallies):
            self.flush(topic)


def _log_line(topic: TopicState, messages: int, reason: str, span: str) -> None:
    facts = {"topic": str(topic.name), "messages": messages, "reason": reason}
    many = "1 message" if messages == 1 else f"{messages} messages"
    _LOG.warning("%s of %s did not match its schemas%s; first: %s", many, topic.name, span, reason, extra=facts)
