"""System topics about dead letters: which topics have some, which are left, sending them back, dropping them.

What is left is what the subscription `redrive` of their topic has not settled. A letter that is sent back bears a
number made of its own offset, in the name of a producer that is nobody else, and is settled once that message is on
disk: whoever stops in between and comes again neither loses nor repeats one. Nobody else sends letters back: HTTP,
the client and `penstock dlq` ask for it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.admin.messages import FETCHED, Page, Where, fetch, page_of, parse_where, row_of, unless_deleted
from penstock.broker.admin.redrive import Drop, Redrive, Round, Treatment
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect
from penstock.broker.base.replies import listed
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.reads.message_filter import Sieve
from penstock.broker.reads.message_json import shown
from penstock.broker.reads.scan import Hit, Positions, Scan, Taken, check_kept, parse_token, token_of
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.topics.topics import TopicState
from penstock.core.dead_letter_attributes import (
    ATTEMPT,
    ORIGINAL_OFFSET,
    ORIGINAL_SUBSCRIPTION,
    REASON,
    REDRIVE_SUBSCRIPTION,
    REDRIVES_CEILING,
    REDRIVES_MAX,
    original_topic_of,
    redrive_count,
    redrive_verdict,
    topic_and_dead_letter_topic,
)
from penstock.core.errors import InvalidRequest, PenstockError, TopicNotSupported
from penstock.core.limits import LIST_ENTRIES_MAX
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName
from penstock.core.offset_set import OffsetSet
from penstock.record.rows import RecordRow, attributes_of
from penstock.storage.catalog.subscriptions import FILTER_CHARS_MAX

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

TREATED: Final = 1_000
TREATED_MAX: Final = 10_000
"""Letters sent back or dropped in one call: more of them go in several."""
_SAID_CHARS_MAX: Final = 1_024
"""Of each thing that a letter says of itself, in a list: the broker writes no more, and others may have."""
_WHICH: Final = ("type", "reason", "subscription")
_PLACES: Final = ("topic", "partition", "resume", "until", "scan", "limit")


# which


@dataclass(frozen=True, slots=True)
class Graves:
    """A topic and the stream of its dead letters."""

    original: TopicName
    letters: TopicState

    def left(self) -> dict[int, OffsetSet]:
        """The offsets of each partition that are not settled, as of now."""
        runner = self.letters.subscriptions.get(REDRIVE_SUBSCRIPTION)
        found: dict[int, OffsetSet] = {}
        for number, log in enumerate(self.letters.logs):
            settled = OffsetSet()
            if runner is not None:
                cursor = runner.machine.cursors[number]
                settled = OffsetSet([(0, cursor.floor), *cursor.acked])
            found[number] = OffsetSet(settled.gaps(int(log.first_offset), int(log.next_offset)))
        return found


def _graves(durable: DurableBroker, fields: Fields) -> Graves:
    """Raises `TopicNotSupported` if the topic never had any."""
    name = read.topic_name(fields)
    if name.namespace.endswith(DEAD_LETTER_SUFFIX):
        raise InvalidRequest(f"name the topic itself, not {name}, where its dead letters lie", field="topic")
    found = durable.topics.get(name.dead_letters)
    if found is None:
        raise TopicNotSupported(
            f"{name} has no dead letters: there is no topic {name.dead_letters}", topic=str(name.dead_letters)
        )
    check_kept(found)
    return Graves(name, found)


@dataclass(frozen=True, slots=True)
class Which:
    """Which dead letters are meant: globs, and the name of a subscription. All that are given must match."""

    type: str | None
    reason: str | None
    subscription: str | None

    def sieve(self) -> Sieve:
        """What can be seen from whole blocks; the rest is for `matches`."""
        attributes = {ORIGINAL_SUBSCRIPTION: self.subscription} if self.subscription else {}
        return Sieve(types=() if self.type is None else (self.type,), attributes=attributes)

    def matches(self, attributes: Mapping[str, str]) -> bool:
        if self.subscription not in (None, attributes.get(ORIGINAL_SUBSCRIPTION, "")):
            return False
        return self.reason is None or fnmatchcase(attributes.get(REASON, ""), self.reason)


def _which(fields: Fields) -> Which:
    return Which(*(_chosen(fields, name) for name in _WHICH))


def _chosen(fields: Fields, name: str) -> str | None:
    """An empty text is a choice too: letters without a type, or without a reason."""
    if name not in fields:
        return None
    given = fields[name]
    if not isinstance(given, str) or len(given) > FILTER_CHARS_MAX:
        raise InvalidRequest(f"Invalid {name}: expected text of at most {FILTER_CHARS_MAX} characters", field=name)
    return given


# where


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a topic's letters one call is about."""

    graves: Graves
    where: Where
    until: str | None
    """Where an earlier call ended, or would have: what came after that is not meant."""

    left: dict[int, OffsetSet]

    def positions(self) -> tuple[Positions, Positions]:
        """Where to begin, which is not before the first that is left, and where to stop."""
        starts, stops = self.where.positions(self.graves.letters)
        if self.until is not None:
            ends = parse_token(self.graves.letters, self.until, self.where.partition, "until")
            stops = {number: min(stop, ends[number]) for number, stop in stops.items()}
        return {number: max(start, self._first(number, stops[number])) for number, start in starts.items()}, stops

    def _first(self, partition: int, stop: int) -> int:
        return min(stop, next(iter(self.left[partition]), (stop, stop))[0])


def _part(graves: Graves, fields: Fields) -> Part:
    placed: Fields = {name: fields[name] for name in ("partition", "resume", "scan") if name in fields}
    until = read.text(fields, "until") if "until" in fields else None
    return Part(graves, parse_where(placed, graves.letters), until, graves.left())


def _redrives_max(fields: Fields) -> int:
    return read.number(fields, "redrives_max", REDRIVES_MAX, at_least=1, at_most=REDRIVES_CEILING)


# list


def _list(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """In the order of names; `after` goes on where the last answer ended."""
    read.check_known(fields, ("namespace", "after", "limit"))
    namespace = read.text(fields, "namespace").lower() if "namespace" in fields else None
    after = read.text(fields, "after").lower() if "after" in fields else ""
    limit = read.number(fields, "limit", LIST_ENTRIES_MAX, at_least=1, at_most=LIST_ENTRIES_MAX)
    found = [
        each
        for each in _all(durable)
        if namespace in (None, each.original.namespace)
        and str(each.original) > after
        and durable.sees(client, each.original)
    ]
    found.sort(key=lambda each: str(each.original))
    shown_ = (_summary(each) for each in found[:limit])
    return reply(listed(durable.answer_bytes_max, "dead_letters", shown_, len(found)))


def _all(durable: DurableBroker) -> Iterator[Graves]:
    for topic in durable.topics:
        name = topic.name
        if name.namespace.endswith(DEAD_LETTER_SUFFIX) and name.namespace != DEAD_LETTER_SUFFIX and topic.is_durable:
            yield Graves(topic_and_dead_letter_topic(name)[0], topic)


def _summary(graves: Graves) -> Fields:
    views = [log.view for log in graves.letters.logs]
    return {
        "topic": str(graves.original),
        "dead_letters": str(graves.letters.name),
        "left": sum(each.count for each in graves.left().values()),
        "messages": sum(view.messages for view in views),
        "bytes": sum(view.size for view in views),
    }


# browse


@dataclass(slots=True)
class LetterPage(Page):
    """Dead letters for one answer, with what each says of itself."""

    left: dict[int, OffsetSet] = field(default_factory=dict)
    which: Which = field(default_factory=lambda: Which(None, None, None))
    original: TopicName = field(default_factory=lambda: TopicName.parse("any"))
    redrives_max: int = REDRIVES_MAX

    def take(self, hit: Hit) -> Taken:
        row = row_of(hit)
        if row[1] not in self.left[hit.partition] or not self.which.matches(attributes_of(row)):
            return Taken.NO
        return Page.take(self, hit)

    def describe(self, hit: Hit) -> Fields:
        row = row_of(hit)
        return shown(hit.partition, row, self.preview) | self._said(row)

    def least(self, hit: Hit) -> Fields:
        return Page.least(self, hit) | self._said(row_of(hit))

    def _said(self, row: RecordRow) -> Fields:
        attributes = attributes_of(row)
        said = {
            "original_topic": original_topic_of(attributes),
            "original_offset": attributes.get(ORIGINAL_OFFSET, ""),
            "subscription": attributes.get(ORIGINAL_SUBSCRIPTION, ""),
            "reason": attributes.get(REASON, ""),
            "attempts": attributes.get(ATTEMPT, ""),
        }
        found = {
            "redrives": redrive_count(attributes),
            "verdict": redrive_verdict(attributes, self.original, self.redrives_max),
        }
        return {name: text[:_SAID_CHARS_MAX] for name, text in said.items()} | found


def _browse(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_PLACES, *_WHICH, "preview_bytes", "redrives_max"))
    graves, which, redrives_max = _graves(durable, fields), _which(fields), _redrives_max(fields)
    part = _part(graves, fields)
    made = partial(LetterPage, left=part.left, which=which, original=graves.original, redrives_max=redrives_max)
    page = page_of(durable, fields, made)

    def begin() -> Scan:
        return Scan(graves.letters, *part.positions(), which.sieve(), page.take, part.where.scanned_max, page.limit)

    def browsed(scan: Scan) -> list[Effect]:
        facts = {"topic": str(graves.original), "dead_letters": str(graves.letters.name), "messages": page.messages}
        left = sum(each.count for each in part.left.values())
        return reply(facts | {"left": left} | scan.facts() | {"until": token_of(graves.letters, scan.stops)})

    return durable.scans.run(client, begin, unless_deleted(durable, graves.letters, reply), browsed)


def _get(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """The whole of one, whether it is left or not: of what a list shows, long texts are cut."""
    read.check_known(fields, FETCHED)
    return fetch(durable, _graves(durable, fields).letters, fields, reply)


# send back, drop


def _redrive(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_PLACES, *_WHICH, "redrives_max"))
    redrives_max, graves = _redrives_max(fields), _graves(durable, fields)
    original = durable.topics.find(graves.original)
    check_kept(original)
    return _treat(durable, client, fields, reply, graves, Redrive(original=original, redrives_max=redrives_max))


def _drop(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_PLACES, *_WHICH))
    return _treat(durable, client, fields, reply, _graves(durable, fields), Drop())


def _treat(
    durable: DurableBroker, client: Client, fields: Fields, reply: Reply, graves: Graves, treatment: Treatment
) -> list[Effect]:
    """Part by part, each settled before the next is looked for."""
    which, part = _which(fields), _part(graves, fields)
    limit = read.number(fields, "limit", TREATED, at_least=1, at_most=TREATED_MAX)
    starts, stops = part.positions()

    def begin(found: SubscriptionRunner | PenstockError) -> list[Effect]:
        if isinstance(found, PenstockError):
            return reply(found)
        treating = Round(
            durable=durable,
            client=client,
            letters=graves.letters,
            treatment=treatment,
            sieve=which.sieve(),
            matches=which.matches,
            left=part.left,
            positions=starts,
            stops=stops,
            limit=limit,
            scanned_max=part.where.scanned_max,
            reply=unless_deleted(durable, graves.letters, partial(_told, graves, reply)),
        )
        return treating.go_on()

    firsts = {number: log.first_offset for number, log in enumerate(graves.letters.logs)}
    return durable.subscriptions.get_or_create(graves.letters, REDRIVE_SUBSCRIPTION, firsts, begin)


def _told(graves: Graves, reply: Reply, outcome: Any) -> list[Effect]:
    if isinstance(outcome, PenstockError):
        return reply(outcome)
    left = sum(each.count for each in graves.left().values())
    return reply({"topic": str(graves.original)} | outcome | {"left": left})


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.deadletter.list": _list,
    "system.deadletter.browse": _browse,
    "system.deadletter.get": _get,
    "system.deadletter.redrive": _redrive,
    "system.deadletter.drop": _drop,
}
