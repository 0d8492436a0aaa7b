"""Dead letters: list them, send them back to their topic, or drop them. The broker does the work.

Listing asks the broker for one page after another, a redrive or a drop for one round after another. Finished rounds are
durable: a redrive that is interrupted and started again neither loses nor repeats a letter. Letters that arrive after
the start, such as a message that was sent back and failed again, are not included.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from penstock.client.consume.message_preview import is_cut, record_of
from penstock.core.dead_letter_attributes import REDRIVE, REDRIVES_MAX, topic_and_dead_letter_topic
from penstock.core.errors import error_from_dict
from penstock.core.names import TopicName

if TYPE_CHECKING:
    from penstock.client.wire.asks import Asks
    from penstock.record.message import Message, Record

_PAGE: Final = 1_000
_PREVIEW_BYTES: Final = 64 * 1024
_SCAN: Final = 100_000
"""The largest values that the broker allows in one request: letters in the answer (`_PAGE`), bytes of each payload
(`_PREVIEW_BYTES`), letters that it looks at (`_SCAN`)."""
_ROUND: Final = 256
"""The most letters sent back in one round. It bounds how many have an unknown outcome if a round is interrupted."""
_DROPPED: Final = 10_000
"""The most letters dropped in one round."""
_REFUSALS_MAX: Final = 10
"""The most refusals that are remembered: as many as the broker lists for one round. The others appear in a later
redrive, once the cause of these is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """A filter of dead letters: `type` and `reason` are glob patterns, `subscription` is a name. A letter must match
    each one that is set."""

    type: str | None = None
    reason: str | None = None
    subscription: str | None = None

    def fields(self) -> dict[str, str]:
        filters = {"type": self.type, "reason": self.reason, "subscription": self.subscription}
        return {name: text for name, text in filters.items() if text is not None}


class Letter:
    """A dead letter: its position, its origin, why delivery failed, and, fetched on demand, its message."""

    def __init__(self, client: Asks, topic: TopicName, entry: dict[str, Any]) -> None:
        self.partition: int = entry["partition"]
        self.offset: int = entry["offset"]
        self.original_topic: str = entry["original_topic"]
        """The topic that the message was published to, without the partition; empty if the letter does not name it."""

        self.original_offset: str = entry["original_offset"]
        self.subscription: str = entry["subscription"]
        self.reason: str = entry["reason"]
        self.attempts: str = entry["attempts"]
        self.redrives: int = entry["redrives"]
        """The number of times that this letter was sent back before."""

        self.verdict: str = entry["verdict"]
        """The outcome that a redrive would have for this letter: sending it back, or the reason for which it would be
        left."""

        self._client = client
        self._topic = topic
        self._entry = entry

    @property
    def message(self) -> Message:
        return self.record.message

    @cached_property
    def record(self) -> Record:
        """The complete record as it is in the log. If the entry has only part of it, the rest is fetched from the
        broker at the first access."""
        if not is_cut(self._entry):
            return record_of(self._entry)
        fields = {"topic": str(self._topic), "partition": self.partition, "offset": self.offset}
        entry = self._client.ask("system.deadletter.get", fields)
        if entry.get("payload_cut"):
            entry.pop("payload", None)
            entry["payload_base64"] = b64encode(self._payload(fields)).decode()
        return record_of(entry)

    def _payload(self, fields: dict[str, Any]) -> bytes:
        payload, size = bytearray(), 1
        while len(payload) < size:
            answer = self._client.ask("system.deadletter.get", fields | {"payload_from": len(payload)})
            payload += b64decode(answer["payload_base64"])
            size = answer["payload_bytes"]
        return bytes(payload)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A letter that its topic refuses to take back, with the code and the message of the error."""

    partition: int
    offset: int
    code: str
    message: str


@dataclass(slots=True)
class Progress:
    """Counts of dead letters by what happened to them in a redrive or a drop."""

    redriven: int = 0
    repeated: int = 0
    """Redriven letters that an earlier, interrupted redrive had sent back already, but not acknowledged."""

    too_often: int = 0
    strangers: int = 0
    refused: int = 0
    """Letters that were left because the topic's schema policy, or a limit, refuses them."""

    refusals: list[Refusal] = field(default_factory=list)
    """The first ten of the refused letters, with reasons."""

    dropped: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        for name in ("redriven", "repeated", "too_often", "strangers", "refused", "dropped"):
            setattr(self, name, getattr(self, name) + answer.get(name, 0))
        room = _REFUSALS_MAX - len(self.refusals)
        self.refusals += (Refusal(**refusal) for refusal in answer.get("refusals", [])[:room])


@dataclass(frozen=True, slots=True)
class Found:
    """The number of dead letters that matched a filter, and `until`, the position before which all of them are."""

    which: Which
    count: int
    until: str


class DeadLetters:
    """The dead letters of one topic, which may be named by its own name or that of its dead letter topic.

    Every method that asks the broker raises `TopicNotSupported` if the topic never had any dead letters.
    """

    def __init__(self, client: Asks, topic: str) -> None:
        self.original, self.topic = topic_and_dead_letter_topic(TopicName.parse(topic))
        self.progress = Progress()
        self._client = client

    def _ask(self, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        return self._client.ask(f"system.deadletter.{what}", {"topic": str(self.original)} | fields)

    # reading

    def letters(self, which: Which, limit: int | None = None, *, redrives_max: int = REDRIVES_MAX) -> Iterator[Letter]:
        """Iterate over the matching letters that are not sent back or dropped yet, oldest first; at most `limit` of
        them.

        Letters that arrive after the start are not included. `redrives_max` is only used for the verdicts.
        """
        fields = which.fields() | {"preview_bytes": _PREVIEW_BYTES, "redrives_max": redrives_max}
        for page in self._pages(fields, limit):
            for entry in page["messages"]:
                yield Letter(self._client, self.original, entry)

    def _pages(self, fields: dict[str, Any], limit: int | None) -> Iterator[dict[str, Any]]:
        seen = 0
        resume: dict[str, str] = {}
        while limit is None or seen < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - seen)
            page = self._ask("browse", fields | resume | {"limit": room, "scan": _SCAN})
            seen += page["matched"]
            yield page
            if page["end"]:
                return
            resume = _following(page, resume)

    def find(self, which: Which, limit: int | None = None) -> Found:
        """Count the letters that match, and record where they end: pass the result to `drop`, which then leaves newer
        ones."""
        found = Found(which, 0, "")
        for page in self._pages(which.fields() | {"preview_bytes": 0}, limit):
            found = replace(found, count=found.count + page["matched"], until=page["resume"])
        return found

    def plan(self, which: Which, *, redrives_max: int = REDRIVES_MAX, limit: int | None = None) -> Iterator[Letter]:
        """Iterate over the letters that match, with their verdicts. Stops once `limit` of them have the verdict to be
        sent back; nothing is sent."""
        able = 0
        for letter in self.letters(which, redrives_max=redrives_max):
            yield letter
            able += letter.verdict == REDRIVE
            if able == limit:
                return

    # redriving and dropping

    def redrive(
        self,
        which: Which,
        *,
        redrives_max: int = REDRIVES_MAX,
        limit: int | None = None,
        rate: int | None = None,
    ) -> Progress:
        """Send matching letters back to their topic, at most `limit` of them and at most `rate` per second; return the
        counts.

        Letters that the topic refuses are counted and left; the others go on. Letters that were sent back
        `redrives_max` times are left too. Raises the error that stopped it; `progress` then has the counts so far.
        """
        began, before = time.monotonic(), self.progress.redriven
        resume: dict[str, str] = {}
        at_once = _ROUND if rate is None else max(1, min(_ROUND, rate // 10))
        while (sent := self.progress.redriven - before) != limit:
            room = at_once if limit is None else min(at_once, limit - sent)
            answer = self._round(
                "redrive", which, resume | {"limit": room, "scan": _SCAN, "redrives_max": redrives_max}
            )
            if answer["end"]:
                break
            resume = _following(answer, resume)
            if rate is not None:
                time.sleep(max(0.0, began + (self.progress.redriven - before) / rate - time.monotonic()))
        return self.progress

    def drop(self, found: Found) -> Progress:
        """Acknowledge the letters that `find` found, without sending them back; return the counts. They stay in the log
        for as long as its retention says."""
        resume = {"until": found.until} if found.count else {}
        while resume:
            answer = self._round("drop", found.which, resume | {"limit": _DROPPED, "scan": _SCAN})
            resume = {} if answer["end"] else _following(answer, resume)
        return self.progress

    def _round(self, what: str, which: Which, fields: dict[str, Any]) -> dict[str, Any]:
        """Ask the broker for one round, add its counts to `progress`, and return the answer. If an error stopped the
        round, add the counts and then raise the error."""
        answer = self._ask(what, which.fields() | fields)
        self.progress.add(answer)
        if "stopped" in answer:
            raise error_from_dict(answer["stopped"])
        return answer


def listed(client: Asks) -> Iterator[dict[str, Any]]:
    """Iterate over the topics that have dead letters, in the order of their names, each with the number of letters that
    are left and of all letters."""
    fields: dict[str, str] = {}
    page: dict[str, Any] = {"truncated": True}
    while page.get("truncated"):
        page = client.ask("system.deadletter.list", fields)
        yield from page["dead_letters"]
        if not page["dead_letters"]:
            return
        fields = {"after": page["dead_letters"][-1]["topic"]}


def _following(answer: dict[str, Any], resume: dict[str, str]) -> dict[str, str]:
    """Return the fields for the next request: it goes on where `answer` ended, and stops at the end that the first
    request set."""
    return {"until": answer["until"]} | resume | {"resume": answer["resume"]}
