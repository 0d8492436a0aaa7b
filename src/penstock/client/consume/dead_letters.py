"""Dead letters: which are left, sending them back to where they came from, dropping them. The broker does it all.

Here it is asked to, page by page and round by round, each of which goes on where the one before it ended. What is done
is durable: whoever stops in between and comes again neither loses nor repeats a letter. What fails meanwhile, perhaps
once more, is not among those that are meant.
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
"""Letters in one answer, bytes of each payload, and letters looked at for it: the most that the broker allows."""
_ROUND: Final = 256
"""Letters sent back in one round, which the broker sends together: of no more is it unknown what became of them if
somebody stops it."""
_DROPPED: Final = 10_000
"""Letters dropped in one round."""
_REFUSALS_MAX: Final = 10
"""As many as one round tells of: whoever mends those goes on with the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which dead letters are meant: globs, and the name of a subscription. All that are given must match."""

    type: str | None = None
    reason: str | None = None
    subscription: str | None = None

    def fields(self) -> dict[str, str]:
        given = {"type": self.type, "reason": self.reason, "subscription": self.subscription}
        return {name: text for name, text in given.items() if text is not None}


class Letter:
    """One dead letter, and what it says of itself."""

    def __init__(self, client: Asks, topic: TopicName, entry: dict[str, Any]) -> None:
        self.partition: int = entry["partition"]
        self.offset: int = entry["offset"]
        self.original_topic: str = entry["original_topic"]
        """Without the partition; empty if it does not say."""

        self.original_offset: str = entry["original_offset"]
        self.subscription: str = entry["subscription"]
        self.reason: str = entry["reason"]
        self.attempts: str = entry["attempts"]
        self.redrives: int = entry["redrives"]
        """How often it was sent back before."""

        self.verdict: str = entry["verdict"]
        """What a redrive would do with it."""

        self._client = client
        self._topic = topic
        self._entry = entry

    @property
    def message(self) -> Message:
        return self.record.message

    @cached_property
    def record(self) -> Record:
        """The whole of it, as the log has it: if there is more to it than was shown, that is asked for now."""
        if not is_cut(self._entry):
            return record_of(self._entry)
        asked = {"topic": str(self._topic), "partition": self.partition, "offset": self.offset}
        found = self._client.ask("system.deadletter.get", asked)
        if found.get("payload_cut"):
            found.pop("payload", None)
            found["payload_base64"] = b64encode(self._payload(asked)).decode()
        return record_of(found)

    def _payload(self, asked: dict[str, Any]) -> bytes:
        payload, size = bytearray(), 1
        while len(payload) < size:
            answer = self._client.ask("system.deadletter.get", asked | {"payload_from": len(payload)})
            payload += b64decode(answer["payload_base64"])
            size = answer["payload_bytes"]
        return bytes(payload)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A letter that its topic does not take back, and why."""

    partition: int
    offset: int
    code: str
    message: str


@dataclass(slots=True)
class Progress:
    """What became of the dead letters that were looked at."""

    redriven: int = 0
    repeated: int = 0
    """Of those, how many an earlier redrive had sent, and not got to settle."""

    too_often: int = 0
    strangers: int = 0
    refused: int = 0
    """They are left: the topic's schema policy, or a limit, does not let them in."""

    refusals: list[Refusal] = field(default_factory=list)
    """Of those, the first ten."""

    dropped: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        for name in ("redriven", "repeated", "too_often", "strangers", "refused", "dropped"):
            setattr(self, name, getattr(self, name) + answer.get(name, 0))
        room = _REFUSALS_MAX - len(self.refusals)
        self.refusals += (Refusal(**each) for each in answer.get("refusals", [])[:room])


@dataclass(frozen=True, slots=True)
class Found:
    """Dead letters that were counted, and before which places they all lie."""

    which: Which
    count: int
    until: str


class DeadLetters:
    """Those of one topic, which may be named by them too. Asking raises `TopicNotSupported` if it never had any."""

    def __init__(self, client: Asks, topic: str) -> None:
        self.original, self.topic = topic_and_dead_letter_topic(TopicName.parse(topic))
        self.progress = Progress()
        self._client = client

    def _ask(self, what: str, fields: dict[str, Any]) -> dict[str, Any]:
        return self._client.ask(f"system.deadletter.{what}", {"topic": str(self.original)} | fields)

    # what is left

    def letters(self, which: Which, limit: int | None = None, *, redrives_max: int = REDRIVES_MAX) -> Iterator[Letter]:
        """Those that are left and match, oldest first. Those that come meanwhile are not among them."""
        asked = which.fields() | {"preview_bytes": _PREVIEW_BYTES, "redrives_max": redrives_max}
        for page in self._pages(asked, limit):
            for entry in page["messages"]:
                yield Letter(self._client, self.original, entry)

    def _pages(self, asked: dict[str, Any], limit: int | None) -> Iterator[dict[str, Any]]:
        seen = 0
        place: dict[str, str] = {}
        while limit is None or seen < limit:
            room = _PAGE if limit is None else min(_PAGE, limit - seen)
            page = self._ask("browse", asked | place | {"limit": room, "scan": _SCAN})
            seen += page["matched"]
            yield page
            if page["end"]:
                return
            place = _following(page, place)

    def find(self, which: Which, limit: int | None = None) -> Found:
        """How many match, and exactly which: `drop` takes no others."""
        found = Found(which, 0, "")
        for page in self._pages(which.fields() | {"preview_bytes": 0}, limit):
            found = replace(found, count=found.count + page["matched"], until=page["resume"])
        return found

    def plan(self, which: Which, *, redrives_max: int = REDRIVES_MAX, limit: int | None = None) -> Iterator[Letter]:
        """Each that matches, with its verdict; up to so many that would be sent back."""
        able = 0
        for letter in self.letters(which, redrives_max=redrives_max):
            yield letter
            able += letter.verdict == REDRIVE
            if able == limit:
                return

    # sending them back, dropping them

    def redrive(
        self,
        which: Which,
        *,
        redrives_max: int = REDRIVES_MAX,
        limit: int | None = None,
        rate: int | None = None,
    ) -> Progress:
        """Send them back, at most so many a second. Whatever stops it, `progress` says how far it came.

        Those that the topic refuses are counted and left; they do not keep the others.
        """
        began, before = time.monotonic(), self.progress.redriven
        place: dict[str, str] = {}
        at_once = _ROUND if rate is None else max(1, min(_ROUND, rate // 10))
        while (sent := self.progress.redriven - before) != limit:
            room = at_once if limit is None else min(at_once, limit - sent)
            done = self._round("redrive", which, place | {"limit": room, "scan": _SCAN, "redrives_max": redrives_max})
            if done["end"]:
                break
            place = _following(done, place)
            if rate is not None:
                time.sleep(max(0.0, began + (self.progress.redriven - before) / rate - time.monotonic()))
        return self.progress

    def drop(self, found: Found) -> Progress:
        """They are not left any more; they stay in the log for as long as its retention says."""
        place = {"until": found.until} if found.count else {}
        while place:
            done = self._round("drop", found.which, place | {"limit": _DROPPED, "scan": _SCAN})
            place = {} if done["end"] else _following(done, place)
        return self.progress

    def _round(self, what: str, which: Which, fields: dict[str, Any]) -> dict[str, Any]:
        """Raises what stopped it; what it had done by then is counted."""
        done = self._ask(what, which.fields() | fields)
        self.progress.add(done)
        if "stopped" in done:
            raise error_from_dict(done["stopped"])
        return done


def listed(client: Asks) -> Iterator[dict[str, Any]]:
    """Every topic that has dead letters, in the order of names: how many are left, and how many there are."""
    wanted: dict[str, str] = {}
    found: dict[str, Any] = {"truncated": True}
    while found.get("truncated"):
        found = client.ask("system.deadletter.list", wanted)
        yield from found["dead_letters"]
        if not found["dead_letters"]:
            return
        wanted = {"after": found["dead_letters"][-1]["topic"]}


def _following(answer: dict[str, Any], place: dict[str, str]) -> dict[str, str]:
    """Where the next is to go on, and where it is to end: where the first would have."""
    return {"until": answer["until"]} | place | {"resume": answer["resume"]}
