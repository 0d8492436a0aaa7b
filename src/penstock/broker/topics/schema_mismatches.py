"""The log of schema mismatches: warnings about messages that were stored although they do not conform to their topic's
schemas.

A faulty client may repeat its fault a million times. So the first mismatch of a topic is logged at once, and then one
line for each interval in which there were more. Every message is counted in exactly one line.
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
    """The mismatches of one topic since the last line about it."""

    due_ms: int
    messages: int = 0
    first: str = ""


class MismatchLog:
    def __init__(self) -> None:
        self._tallies: dict[TopicState, _Tally] = {}
        """The tallies by topic, in the order in which their lines are due."""

    @property
    def due_ms(self) -> int | None:
        return next((tally.due_ms for tally in self._tallies.values()), None)

    def add(self, topic: TopicState, messages: int, reason: str, now_ms: int) -> None:
        """Count mismatches of a topic, or log them at once if it had none lately. `reason` is the fault of the first
        message."""
        tally = self._tallies.get(topic)
        if tally is None:
            _log_line(topic, messages, reason, "")
            self._tallies[topic] = _Tally(now_ms + EVERY_MS)
            return
        tally.first = tally.first or reason
        tally.messages += messages

    def tick(self, now_ms: int) -> None:
        """Log the topics whose interval is over. A topic without further mismatches is forgotten: its next one is
        logged at once."""
        for topic in [tallied for tallied, tally in self._tallies.items() if tally.due_ms <= now_ms]:
            if self.flush(topic):
                self._tallies[topic] = _Tally(now_ms + EVERY_MS)

    def flush(self, topic: TopicState) -> bool:
        """Log the mismatches of a topic that are counted but not logged yet, and forget the topic. Returns whether
        there were any."""
        tally = self._tallies.pop(topic, None)
        if tally is None or not tally.messages:
            return False
        _log_line(topic, tally.messages, tally.first, f" in the last {EVERY_MS // 1000} s")
        return True

    def close(self) -> None:
        """Log all mismatches that are not logged yet, as the broker stops."""
        for topic in list(self._tallies):
            self.flush(topic)


def _log_line(topic: TopicState, messages: int, reason: str, span: str) -> None:
    facts = {"topic": str(topic.name), "messages": messages, "reason": reason}
    many = "1 message" if messages == 1 else f"{messages} messages"
    _LOG.warning("%s of %s did not match its schemas%s; first: %s", many, topic.name, span, reason, extra=facts)
