"""System topics about dead letters: list the topics that have some, browse the letters that are left, redrive them,
drop them.

A letter is left until the subscription `redrive` of the dead-letter topic has acked it. A redrive stores the letter
under a request id made of its offset, with a producer id that only redrives use, and acks the letter once that is on
disk. So a redrive that stops in between can be repeated: it neither loses nor duplicates a letter. HTTP, the client and
`penstock dlq` all use this code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.admin.messages import (
    FETCH_FIELDS,
    MessagePage,
    ScanRange,
    fetch,
    new_page,
    parse_scan_range,
    row_of_hit,
    unless_deleted,
)
from penstock.broker.admin.redrive import DropLetters, LetterAction, RedriveLetters, RedriveRun
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect
from penstock.broker.base.replies import encode_list
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.reads.message_filter import MessageFilter
from penstock.broker.reads.message_json import message_json
from penstock.broker.reads.scan import (
    Positions,
    Scan,
    ScanHit,
    TakeResult,
    check_durable,
    parse_resume_token,
    resume_token,
)
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

LETTERS: Final = 1_000
LETTERS_MAX: Final = 10_000
"""The most letters that one call redrives or drops."""
_LETTER_TEXT_CHARS_MAX: Final = 1_024
"""The length to which each text of a letter is cut in a list. The broker writes none that are longer, but other
producers may."""
_FILTER_FIELDS: Final = ("type", "reason", "subscription")
_RANGE_FIELDS: Final = ("topic", "partition", "resume", "until", "scan", "limit")


# letter filters


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A topic, and the topic that holds its dead letters."""

    original: TopicName
    letters: TopicState

    def left(self) -> dict[int, OffsetSet]:
        """Return, for each partition of the dead-letter topic, the offsets that the redrive subscription has not
        acked."""
        runner = self.letters.subscriptions.get(REDRIVE_SUBSCRIPTION)
        left: dict[int, OffsetSet] = {}
        for number, log in enumerate(self.letters.logs):
            acked = OffsetSet()
            if runner is not None:
                cursor = runner.machine.cursors[number]
                acked = OffsetSet([(0, cursor.floor), *cursor.acked])
            left[number] = OffsetSet(acked.gaps(int(log.first_offset), int(log.next_offset)))
        return left


def _dead_letter_topic(durable: DurableBroker, fields: Fields) -> DeadLetterTopic:
    """Return the dead-letter topic of the topic that the request names. Raises `TopicNotSupported` if that topic never
    had dead letters, `InvalidRequest` if the request names the dead-letter topic itself."""
    name = read.topic_name(fields)
    if name.namespace.endswith(DEAD_LETTER_SUFFIX):
        raise InvalidRequest(f"name the topic itself, not {name}, where its dead letters lie", field="topic")
    letters = durable.topics.get(name.dead_letters)
    if letters is None:
        raise TopicNotSupported(
            f"{name} has no dead letters: there is no topic {name.dead_letters}", topic=str(name.dead_letters)
        )
    check_durable(letters)
    return DeadLetterTopic(name, letters)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """A filter of dead letters: globs of type and reason, and the name of a subscription. All that are not None must
    match."""

    type: str | None
    reason: str | None
    subscription: str | None

    def message_filter(self) -> MessageFilter:
        """Return the conditions that can be checked for a whole block at once. `matches` must check the candidates that
        pass."""
        attributes = {ORIGINAL_SUBSCRIPTION: self.subscription} if self.subscription else {}
        return MessageFilter(types=() if self.type is None else (self.type,), attributes=attributes)

    def matches(self, attributes: Mapping[str, str]) -> bool:
        if self.subscription not in (None, attributes.get(ORIGINAL_SUBSCRIPTION, "")):
            return False
        return self.reason is None or fnmatchcase(attributes.get(REASON, ""), self.reason)


def _parse_letter_filter(fields: Fields) -> LetterFilter:
    return LetterFilter(*(_optional_glob(fields, name) for name in _FILTER_FIELDS))


def _optional_glob(fields: Fields, name: str) -> str | None:
    """Return the glob in a field; None if the field is absent. An empty glob is a condition: it matches letters without
    a type, or without a reason."""
    if name not in fields:
        return None
    glob = fields[name]
    if not isinstance(glob, str) or len(glob) > FILTER_CHARS_MAX:
        raise InvalidRequest(f"Invalid {name}: expected text of at most {FILTER_CHARS_MAX} characters", field=name)
    return glob


# letter ranges


@dataclass(frozen=True, slots=True)
class LetterRange:
    """The letters of a topic that one call is about."""

    dlq: DeadLetterTopic
    where: ScanRange
    until: str | None
    """The token for the end of an earlier call's range: letters stored after that call are excluded."""

    left: dict[int, OffsetSet]

    def positions(self) -> tuple[Positions, Positions]:
        """Return the offsets to start and to stop at, by partition. The start is never before the first letter that is
        left."""
        starts, stops = self.where.positions(self.dlq.letters)
        if self.until is not None:
            ends = parse_resume_token(self.dlq.letters, self.until, self.where.partition, "until")
            stops = {number: min(stop, ends[number]) for number, stop in stops.items()}
        return {number: max(start, self._first(number, stops[number])) for number, start in starts.items()}, stops

    def _first(self, partition: int, stop: int) -> int:
        return min(stop, next(iter(self.left[partition]), (stop, stop))[0])


def _parse_letter_range(dlq: DeadLetterTopic, fields: Fields) -> LetterRange:
    placed: Fields = {name: fields[name] for name in ("partition", "resume", "scan") if name in fields}
    until = read.text(fields, "until") if "until" in fields else None
    return LetterRange(dlq, parse_scan_range(placed, dlq.letters), until, dlq.left())


def _redrives_max(fields: Fields) -> int:
    return read.number(fields, "redrives_max", REDRIVES_MAX, at_least=1, at_most=REDRIVES_CEILING)


# list


def _list(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List topics with dead letters, in the order of names. A request with `after`, the last name of the previous
    answer, gets the ones that follow."""
    read.check_known(fields, ("namespace", "after", "limit"))
    namespace = read.text(fields, "namespace").lower() if "namespace" in fields else None
    after = read.text(fields, "after").lower() if "after" in fields else ""
    limit = read.number(fields, "limit", LIST_ENTRIES_MAX, at_least=1, at_most=LIST_ENTRIES_MAX)
    dlqs = [
        dlq
        for dlq in _dead_letter_topics(durable)
        if namespace in (None, dlq.original.namespace)
        and str(dlq.original) > after
        and durable.can_describe(client, dlq.original)
    ]
    dlqs.sort(key=lambda dlq: str(dlq.original))
    summaries = (_summary(dlq) for dlq in dlqs[:limit])
    return reply(encode_list(durable.answer_bytes_max, "dead_letters", summaries, len(dlqs)))


def _dead_letter_topics(durable: DurableBroker) -> Iterator[DeadLetterTopic]:
    for topic in durable.topics:
        name = topic.name
        if name.namespace.endswith(DEAD_LETTER_SUFFIX) and name.namespace != DEAD_LETTER_SUFFIX and topic.is_durable:
            yield DeadLetterTopic(topic_and_dead_letter_topic(name)[0], topic)


def _summary(dlq: DeadLetterTopic) -> Fields:
    views = [log.view for log in dlq.letters.logs]
    return {
        "topic": str(dlq.original),
        "dead_letters": str(dlq.letters.name),
        "left": sum(each.count for each in dlq.left().values()),
        "messages": sum(view.messages for view in views),
        "bytes": sum(view.size for view in views),
    }


# browse


@dataclass(slots=True)
class LetterPage(MessagePage):
    """Dead letters for one answer, each with its origin and whether it can be redriven."""

    left: dict[int, OffsetSet] = field(default_factory=dict)
    letter_filter: LetterFilter = field(default_factory=lambda: LetterFilter(None, None, None))
    original: TopicName = field(default_factory=lambda: TopicName.parse("any"))
    redrives_max: int = REDRIVES_MAX

    def take(self, hit: ScanHit) -> TakeResult:
        row = row_of_hit(hit)
        if row[1] not in self.left[hit.partition] or not self.letter_filter.matches(attributes_of(row)):
            return TakeResult.NO
        return MessagePage.take(self, hit)

    def describe(self, hit: ScanHit) -> Fields:
        row = row_of_hit(hit)
        return message_json(hit.partition, row, self.preview) | self._letter_fields(row)

    def least(self, hit: ScanHit) -> Fields:
        return MessagePage.least(self, hit) | self._letter_fields(row_of_hit(hit))

    def _letter_fields(self, row: RecordRow) -> Fields:
        attributes = attributes_of(row)
        texts = {
            "original_topic": original_topic_of(attributes),
            "original_offset": attributes.get(ORIGINAL_OFFSET, ""),
            "subscription": attributes.get(ORIGINAL_SUBSCRIPTION, ""),
            "reason": attributes.get(REASON, ""),
            "attempts": attributes.get(ATTEMPT, ""),
        }
        verdict_fields = {
            "redrives": redrive_count(attributes),
            "verdict": redrive_verdict(attributes, self.original, self.redrives_max),
        }
        return {name: text[:_LETTER_TEXT_CHARS_MAX] for name, text in texts.items()} | verdict_fields


def _browse(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_RANGE_FIELDS, *_FILTER_FIELDS, "preview_bytes", "redrives_max"))
    dlq, letter_filter, redrives_max = (
        _dead_letter_topic(durable, fields),
        _parse_letter_filter(fields),
        _redrives_max(fields),
    )
    letter_range = _parse_letter_range(dlq, fields)
    new_letter_page = partial(
        LetterPage,
        left=letter_range.left,
        letter_filter=letter_filter,
        original=dlq.original,
        redrives_max=redrives_max,
    )
    page = new_page(durable, fields, new_letter_page)

    def begin() -> Scan:
        return Scan(
            dlq.letters,
            *letter_range.positions(),
            letter_filter.message_filter(),
            page.take,
            letter_range.where.scanned_max,
            page.limit,
        )

    def browsed(scan: Scan) -> list[Effect]:
        answer = {"topic": str(dlq.original), "dead_letters": str(dlq.letters.name), "messages": page.messages}
        left = sum(each.count for each in letter_range.left.values())
        return reply(answer | {"left": left} | scan.summary() | {"until": resume_token(dlq.letters, scan.stops)})

    return durable.scans.run(client, begin, unless_deleted(durable, dlq.letters, reply), browsed)


def _get(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Reply with one letter, whether it is left or not. Long texts are not cut as they are in lists; only a letter too
    large for one answer is."""
    read.check_known(fields, FETCH_FIELDS)
    return fetch(durable, _dead_letter_topic(durable, fields).letters, fields, reply)


# redrive and drop


def _redrive(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_RANGE_FIELDS, *_FILTER_FIELDS, "redrives_max"))
    redrives_max, dlq = _redrives_max(fields), _dead_letter_topic(durable, fields)
    original = durable.topics.find(dlq.original)
    check_durable(original)
    return _run(durable, client, fields, reply, dlq, RedriveLetters(original=original, redrives_max=redrives_max))


def _drop(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, (*_RANGE_FIELDS, *_FILTER_FIELDS))
    return _run(durable, client, fields, reply, _dead_letter_topic(durable, fields), DropLetters())


def _run(
    durable: DurableBroker, client: Client, fields: Fields, reply: Reply, dlq: DeadLetterTopic, action: LetterAction
) -> list[Effect]:
    """Redrive or drop the letters that a request selects, batch by batch: each batch is durably acked before the next
    is looked for. The reply gets counts, and a token to continue from."""
    letter_filter, letter_range = _parse_letter_filter(fields), _parse_letter_range(dlq, fields)
    limit = read.number(fields, "limit", LETTERS, at_least=1, at_most=LETTERS_MAX)
    starts, stops = letter_range.positions()

    def begin(runner: SubscriptionRunner | PenstockError) -> list[Effect]:
        if isinstance(runner, PenstockError):
            return reply(runner)
        redrive_run = RedriveRun(
            durable=durable,
            client=client,
            letters=dlq.letters,
            action=action,
            message_filter=letter_filter.message_filter(),
            matches=letter_filter.matches,
            left=letter_range.left,
            positions=starts,
            stops=stops,
            limit=limit,
            scanned_max=letter_range.where.scanned_max,
            reply=unless_deleted(durable, dlq.letters, partial(_answer, dlq, reply)),
        )
        return redrive_run.next_batch()

    firsts = {number: log.first_offset for number, log in enumerate(dlq.letters.logs)}
    return durable.subscriptions.get_or_create(dlq.letters, REDRIVE_SUBSCRIPTION, firsts, begin)


def _answer(dlq: DeadLetterTopic, reply: Reply, outcome: Any) -> list[Effect]:
    if isinstance(outcome, PenstockError):
        return reply(outcome)
    left = sum(each.count for each in dlq.left().values())
    return reply({"topic": str(dlq.original)} | outcome | {"left": left})


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.deadletter.list": _list,
    "system.deadletter.browse": _browse,
    "system.deadletter.get": _get,
    "system.deadletter.redrive": _redrive,
    "system.deadletter.drop": _drop,
}
