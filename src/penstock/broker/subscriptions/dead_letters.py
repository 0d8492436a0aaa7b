"""The dead-letter writer: stores messages whose last delivery failed in the dead-letter topic, each once.

First the failed delivery is saved in the cursor. Then the dead letter is stored, under a request id that only this
message of this subscription can have. Then the cursor moves past the message. If the broker stops in between, it
repeats the remaining steps: the request id is recognised, so the dead letter exists once, and the message is not
delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.topics.publisher import TopicPublisher
from penstock.broker.topics.topics import Topics, TopicState
from penstock.core.dead_letter_attributes import (
    ATTEMPT,
    DEAD_LETTER_PRODUCER_PREFIX,
    ORIGINAL_OFFSET,
    ORIGINAL_PRODUCER,
    ORIGINAL_SUBSCRIPTION,
    ORIGINAL_TOPIC,
    REASON,
)
from penstock.core.errors import (
    InvalidRequest,
    MalformedMessage,
    OffsetOutOfRange,
    PayloadTooLarge,
    PenstockError,
    StorageFailed,
    TopicNotSupported,
)
from penstock.core.gaps import RETENTION, Gap, gaps_of
from penstock.core.limits import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX
from penstock.record.block import Draft, parse_block
from penstock.record.message import Message
from penstock.storage.catalog.topics import TopicSettings

_LOG: Final = logging.getLogger(__name__)
_PERMANENT_ERRORS: Final = (InvalidRequest, MalformedMessage, PayloadTooLarge)
"""Errors that come again however often the write is tried."""
_OFFSET_BITS: Final = 40
_REASON_CHARS_MAX: Final = 1024


class DeadLetterWriter:
    """The writer of dead letters. It takes these steps, with one effect each: read the message, create the topic, get a
    producer id, append."""

    def __init__(self, topics: Topics, publisher: TopicPublisher) -> None:
        self._topics = topics
        self._publisher = publisher
        self._numbers: dict[tuple[int, int], int] = {}
        """The producer id under which dead letters are stored, by subscription and partition."""

        self.count = 0

    def write(self, runner: SubscriptionRunner, letter: events.DeadLetter) -> list[Effect]:
        """Read a message and store it in the dead-letter topic. When that is done, the machine gets `DeadLettered`, or
        `Lost` if the message can no longer be read."""
        log = runner.topic.logs[letter.partition]

        def read() -> Message | Gap:
            gone = Gap(letter.offset, letter.offset + 1, RETENTION)
            try:
                chunk = log.read(letter.offset, bytes_max=1)
            except OffsetOutOfRange:
                return gone
            if len(chunk.block) > 0 and chunk.block.offsets.start == letter.offset:
                return chunk.block.record(0).message
            reasons = [gap.reason for gap in gaps_of(chunk.damages) if gap.start <= letter.offset < gap.stop]
            return gone._replace(reason=reasons[0]) if reasons else gone

        return [RunInThread(read, partial(self._read, runner, letter, _number(letter)), read_only=True)]

    def _read(
        self, runner: SubscriptionRunner, letter: events.DeadLetter, number: int, outcome: Message | Gap | PenstockError
    ) -> list[Effect]:
        if isinstance(outcome, Gap):  # lost to retention, or damaged
            return runner.handle(events.Lost(letter.partition, *outcome))
        if isinstance(outcome, PenstockError):
            return self._failed(runner, letter, outcome)
        settings = runner.topic.settings
        kept = TopicSettings(payload_bytes_max=settings.payload_bytes_max, segment_bytes_max=settings.segment_bytes_max)
        name = runner.topic.name.dead_letters
        then = partial(self._with_topic, runner, letter, replace(outcome, request_id=number))
        return self._topics.get_or_create(name, then, settings=kept, forced=True)

    def _with_topic(
        self,
        runner: SubscriptionRunner,
        letter: events.DeadLetter,
        message: Message,
        dlq_topic: TopicState | PenstockError,
    ) -> list[Effect]:
        if isinstance(dlq_topic, PenstockError):
            return self._failed(runner, letter, dlq_topic)
        if not dlq_topic.is_durable:
            live = f"{dlq_topic.name} is a live topic and keeps nothing: delete it, and it is made as it must be"
            return self._failed(runner, letter, TopicNotSupported(live, topic=str(dlq_topic.name)))
        key = (runner.uid, letter.partition)
        known = self._numbers.get(key)
        if known is not None and dlq_topic.producers is not None:
            return self._store(runner, letter, message, dlq_topic, known)
        # The subscription's uid is never reused: a topic created anew has other messages at the same offsets.
        name = f"{DEAD_LETTER_PRODUCER_PREFIX}{runner.name} {runner.uid} {letter.partition}"

        def numbered(outcome: int | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return self._failed(runner, letter, outcome)
            self._numbers[key] = outcome
            return self._topics.with_producers(
                dlq_topic, lambda _: self._store(runner, letter, message, dlq_topic, outcome)
            )

        return [RunInThread(lambda: self._topics.store.catalog.producer_id(dlq_topic.catalog_topic, name), numbered)]

    def _store(
        self,
        runner: SubscriptionRunner,
        letter: events.DeadLetter,
        message: Message,
        dlq_topic: TopicState,
        producer_id: int,
    ) -> list[Effect]:
        if dlq_topic.producers is None:
            return self._failed(runner, letter, StorageFailed(f"{dlq_topic.name} cannot be read"))
        dead_letter = replace(
            message,
            producer_id=producer_id,
            attributes=_attributes(runner, letter, message),
        )
        block = parse_block(Draft.of([dead_letter]).data, verify=False)

        def stored(outcome: object) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return self._failed(runner, letter, outcome)
            self.count += 1
            runner.last_error = None
            return runner.handle(events.DeadLettered(letter.partition, letter.offset, stored=True, seek=letter.seek))

        try:
            return self._publisher.store(dlq_topic, block, stored, owned=True, unbounded=True)
        except PenstockError as error:
            return self._failed(runner, letter, error)

    def _failed(self, runner: SubscriptionRunner, letter: events.DeadLetter, error: PenstockError) -> list[Effect]:
        """Report a failure to the machine. It tries again later, unless the error is permanent: then the message blocks
        its partition until an operator decides."""
        if not isinstance(error, _PERMANENT_ERRORS):
            runner.last_error = error
            return runner.handle(events.DeadLettered(letter.partition, letter.offset, stored=False, seek=letter.seek))
        position = f"offset {letter.offset} of partition {letter.partition}"
        _LOG.error(
            "%s of %s, subscription %s, cannot become a dead letter and blocks: %s",
            position,
            runner.topic.name,
            runner.name,
            error.message,
        )
        dead_lettered = events.DeadLettered(
            letter.partition, letter.offset, stored=False, seek=letter.seek, permanent_error=error.message
        )
        return runner.handle(dead_lettered)


def _number(letter: events.DeadLetter) -> int:
    """Return the request id of a dead letter. It differs for each message, and after each seek, as the same message may
    then fail again."""
    return letter.seek << _OFFSET_BITS | letter.offset + 1


def _attributes(runner: SubscriptionRunner, letter: events.DeadLetter, message: Message) -> Mapping[str, str]:
    """Return the attributes of a dead letter: those that say where it came from, and as many of the message's own as
    there is room for."""
    topic = runner.topic.catalog_topic
    name = f"/{topic.name.namespace}/{topic.name.partition(letter.partition, topic.partitions)}"
    origin = {
        ORIGINAL_TOPIC: name,
        ORIGINAL_SUBSCRIPTION: runner.name,
        ORIGINAL_OFFSET: str(letter.offset),
        ORIGINAL_PRODUCER: str(message.producer_id),
        ATTEMPT: str(letter.attempts),
        REASON: letter.reason[:_REASON_CHARS_MAX],
    }
    copied: dict[str, str] = {}
    room = ATTRIBUTE_BYTES_MAX - sum(map(_size, origin.items()))
    for attribute in message.attributes.items():
        if (
            attribute[0] not in origin
            and len(copied) + len(origin) < ATTRIBUTES_MAX
            and (size := _size(attribute)) <= room
        ):
            copied[attribute[0]] = attribute[1]
            room -= size
    return copied | origin


def _size(attribute: tuple[str, str]) -> int:
    """Return the bytes that an attribute takes in a record, with the lengths of its name and value."""
    return len(attribute[0].encode()) + len(attribute[1].encode()) + 6
