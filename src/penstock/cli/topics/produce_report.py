"""The summary of one `penstock produce`: how many messages are stored, their offsets, and messages that were
refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.output import many, on_one_line
from penstock.core.errors import PenstockError, SchemaRejected

if TYPE_CHECKING:
    from penstock.client.produce.receipts import Receipt
    from penstock.client.sync import Sent

_LAST_SECONDS: Final = 5.0
"""The time in seconds for which messages in flight are waited for after Ctrl-C."""
_NAMED_MAX: Final = 5
"""The most refused messages that the text names; `--json` has all."""


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Messages that are sent together, and the file and lines that they come from."""

    payloads: list[bytes]
    source: str
    first: int
    """The number of the line of the first message; 0 if a whole file is one message."""

    @property
    def last(self) -> int:
        """The number of the line of the last message."""
        return self.first + len(self.payloads) - 1

    def place(self, index: int) -> str:
        line = f"line {self.first + index}" if self.first else "the message"
        return line if self.source == "-" else f"{self.source}: {line}"

    def facts(self, index: int) -> dict[str, Any]:
        file = {} if self.source == "-" else {"file": self.source}
        return file | ({"line": self.first + index} if self.first else {})


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that the topic's schema policy refused."""

    group: MessageGroup
    index: int
    error: SchemaRejected

    def __str__(self) -> str:
        return f"{self.group.place(self.index)}: {on_one_line(self.error.message)}"

    def as_dict(self) -> dict[str, Any]:
        path = self.error.details.get("path")
        return self.group.facts(self.index) | {"message": self.error.message} | ({"path": path} if path else {})


@dataclass(slots=True)
class ProduceSummary:
    """The messages that are stored, and those that were refused."""

    topic: str
    places: dict[int, list[int]] = field(default_factory=dict)
    """The number of stored messages, their first offset and their last offset, by partition."""

    refused: list[RefusedMessage] = field(default_factory=list)
    """The refused messages. All are of one group, since sending ends after a group with refused messages."""

    pending: tuple[Sent, MessageGroup] | None = None

    @property
    def count(self) -> int:
        return sum(count for count, _, _ in self.places.values())

    def take(self, sent: Sent, group: MessageGroup, timeout: float | None = None) -> None:
        """Wait until the messages of a group are on disk, and count them. Raises the first error if some were not
        stored; the others are stored and counted."""
        self.pending = sent, group
        outcomes = sent.outcomes(timeout)
        self.pending = None
        for index, outcome in enumerate(outcomes):
            self._note(group, index, outcome)
        failed = [
            outcome
            for outcome in outcomes
            if isinstance(outcome, PenstockError) and not isinstance(outcome, SchemaRejected)
        ]
        if failed:
            raise failed[0]
        if self.refused:
            raise SchemaRejected(self._refusal())

    def _note(self, group: MessageGroup, index: int, outcome: Receipt | PenstockError) -> None:
        if isinstance(outcome, SchemaRejected):
            self.refused.append(RefusedMessage(group, index, outcome))
        elif not isinstance(outcome, PenstockError):
            count, first, last = self.places.get(outcome.partition, (0, outcome.offset, outcome.offset))
            self.places[outcome.partition] = [count + 1, min(first, outcome.offset), max(last, outcome.offset)]

    def _refusal(self) -> str:
        named = "; ".join(map(str, self.refused[:_NAMED_MAX]))
        more = f"; and {len(self.refused) - _NAMED_MAX:,} more" if len(self.refused) > _NAMED_MAX else ""
        return f"{many(len(self.refused), 'message')} refused: {named}{more}"

    def as_dict(self) -> dict[str, Any]:
        partitions = [
            {"partition": partition, "count": count, "first_offset": first, "last_offset": last}
            for partition, (count, first, last) in sorted(self.places.items())
        ]
        return {"topic": self.topic, "stored": self.count, "partitions": partitions} | self._refused_facts()

    def _refused_facts(self) -> dict[str, Any]:
        if not self.refused:
            return {}
        group = self.refused[0].group
        last = {"last_line": group.last} if group.first else {}
        return {"refused": [refused.as_dict() for refused in self.refused]} | last

    def text(self) -> str:
        if not self.places:
            return f"nothing stored in {self.topic}"
        where = [
            f"{f'partition {partition} ' if len(self.places) > 1 or partition else ''}{_offsets(first, last)}"
            for partition, (_, first, last) in sorted(self.places.items())
        ]
        return f"{many(self.count, 'message')} stored in {self.topic}: {', '.join(where)}"

    def text_of_failure(self) -> str:
        """Return the summary for an error. After a refusal it names the last line that was sent, since valid lines
        after the first refused one are stored."""
        if not self.refused:
            return f"before that: {self.text()}"
        group = self.refused[0].group
        return self.text() + (f"; nothing after line {group.last} was sent" if group.first else "")


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


@contextmanager
def summary_on_failure(summary: ProduceSummary) -> Iterator[None]:
    """If the context fails, add to the error how much is stored. If it is interrupted, wait up to five seconds for
    messages in flight, and print how much is stored."""
    try:
        yield
    except PenstockError as error:
        facts = error.details | summary.as_dict()
        raise type(error)(f"{error.message}; {summary.text_of_failure()}", **facts) from error
    except (KeyboardInterrupt, SystemExit):
        with suppress(PenstockError, TimeoutError):
            if summary.pending is not None:
                summary.take(*summary.pending, _LAST_SECONDS)
        refused = f", {len(summary.refused):,} refused" if summary.refused else ""
        unknown = "" if summary.pending is None else "; what was on its way may be stored or not"
        sys.stderr.write(f"penstock: interrupted: {summary.text()}{refused}{unknown}\n")
        raise
