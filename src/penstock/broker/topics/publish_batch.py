"""Batches that are published over HTTP, without a lasting connection. Each is stored whole or not at all.

A batch that is posted twice is recognised by a producer's name and number, or by an idempotency key that the sender
chose.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.broker.access.policy import ANONYMOUS
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.context import Reply, errors_to
from penstock.broker.topics.idempotence import BY_KEY, TopicProducers, check_not_reserved
from penstock.broker.topics.publisher import Submission, TopicPublisher
from penstock.broker.topics.schema_policy import names_schema
from penstock.broker.topics.topics import Topics, TopicState
from penstock.core.errors import InvalidRequest, NotOwner, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.core.names import TopicName
from penstock.record import layout as at
from penstock.record.block import Block, Draft, read_draft
from penstock.record.message import NUMBER_MAX, Message, partition_of
from penstock.storage.catalog.topics import check_producer_name
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log
from penstock.storage.producer_windows import WINDOW

KEY_CHARS_MAX: Final = 255
"""The most characters of an idempotency key: enough for a UUID, or for a key made of an application's own ids."""
_KEY_BITS: Final = 62
"""The bits of a request id that come from the idempotency key. The remaining ones number the messages of the block."""
_NO_CONNECTION: Final = "post"
"""A client id that no connection has. With it, a post that repeats a pending one too often gets an error, as a
connection's block would."""
_PRODUCERS_KNOWN: Final = 10_000
"""The most producer ids in the cache, which saves looking them up in the catalog."""


@dataclass(frozen=True, slots=True)
class MessageNumbers:
    """The producer and the request numbers by which messages are recognised if they are posted again."""

    producer: str
    first: int
    """The number of the first message. Each following message has the next number."""
    unordered: bool = False
    """True if the numbers have no order, as those made of idempotency keys."""
    principal: str = ""
    """The authenticated sender. On each topic, a producer name belongs to the principal that used it first."""

    @classmethod
    def by_number(cls, producer: str, first: int, principal: str = ANONYMOUS.name) -> MessageNumbers:
        """Number messages upwards from `first`, under a producer's name. Raises `InvalidRequest` for an invalid name or
        number."""
        check_producer_name(producer)
        check_not_reserved(producer)
        if not 1 <= first <= NUMBER_MAX - WINDOW:
            raise InvalidRequest(f"a request id is a whole number from 1, not {first}", field="request_id")
        return cls(producer, first, principal="" if principal == ANONYMOUS.name else principal)

    @classmethod
    def by_key(cls, key: str, count: int, principal: str) -> MessageNumbers:
        """Derive the numbers from an idempotency key. They are the same if key, count and principal are the same.

        So a post with another number of messages, or from another principal, is never taken for a repetition. Two
        different keys have the same numbers once in some billion billion.
        """
        if not 1 <= len(key) <= KEY_CHARS_MAX:
            raise InvalidRequest(f"a key has 1 to {KEY_CHARS_MAX} characters, not {len(key)}", field="key")
        said = f"{principal}\0{count}\0{key}"  # a principal's name has no NUL in it
        digest = blake2b(said.encode(errors="surrogateescape"), digest_size=8).digest()
        return cls(BY_KEY, 1 + (int.from_bytes(digest) >> (64 - _KEY_BITS)), unordered=True)


class StoredAt(NamedTuple):
    """The position of one stored message."""

    partition: int
    offset: int
    id: bytes | None
    """The message id. None if the message had been stored before, and retention has deleted it since."""
    duplicate: bool


class BatchPublisher:
    def __init__(self, topics: Topics, publisher: TopicPublisher) -> None:
        self._topics = topics
        self._publisher = publisher
        self._numbers: OrderedDict[tuple[int, str, str], int] = OrderedDict()

    def post(
        self, topic: TopicName, messages: Sequence[Message] | Block, numbered: MessageNumbers | None, reply: Reply
    ) -> list[Effect]:
        """Store messages in a topic, which is created if that is allowed. Once all are durable, the reply gets a list
        of `StoredAt`. If any is refused, nothing is stored and the reply gets the error.

        Only a disk that fails while it writes to several partitions may leave a part of them stored. If the messages
        are numbered, posting them again then completes them.
        """
        if topic.is_system:
            return reply(TopicNotSupported(f"{topic} is the broker's own: post to another topic", topic=str(topic)))
        return self._topics.get_or_create(topic, errors_to(reply, partial(self._with_topic, messages, numbered, reply)))

    def _with_topic(
        self, messages: Sequence[Message] | Block, numbered: MessageNumbers | None, reply: Reply, topic: TopicState
    ) -> list[Effect]:
        if not topic.is_durable:
            raise TopicNotSupported(f"{topic.name} is a live topic: nothing in it is kept", topic=str(topic.name))
        if numbered is None:
            plain = self._store_plainly(messages, reply, topic)
            if plain is not None:
                return plain
            block = messages if isinstance(messages, Block) else _block_of(messages)
            return self._publisher.store(
                topic, block, self._with_duplicate_ids(topic, reply), whole=True, format_result=_stored_positions
            )
        go_on = partial(self._with_number, messages, numbered, reply, topic)
        producer_id = self._numbers.get((topic.uid, numbered.producer, numbered.principal))
        if producer_id is not None:
            return go_on(producer_id)
        look_up = self._topics.store.catalog.producer_id
        take = partial(look_up, topic.catalog_topic, numbered.producer, principal=numbered.principal)
        return [RunInThread(take, errors_to(reply, go_on))]

    def _store_plainly(
        self, messages: Sequence[Message] | Block, reply: Reply, topic: TopicState
    ) -> list[Effect] | None:
        """Store messages in one partition, without checks. Returns None, and stores nothing, if that is not possible:
        the topic has a schema policy, a message names a schema, or they would go to several partitions."""
        one_log = len(topic.logs) == 1
        if isinstance(messages, Block) or not (one_log or len(messages) == 1):
            return None
        if not self._publisher.takes_anything(topic) or any(map(names_schema, messages)):
            return None
        partition = 0 if one_log else _partition_of(topic, messages[0].key)

        def placed(outcome: AppendResult | PenstockError) -> list[Effect]:
            return reply(outcome if isinstance(outcome, PenstockError) else _stored_run(partition, outcome))

        return self._publisher.store_plain(topic, partition, _draft_of(messages), placed)

    def _with_number(
        self,
        messages: Sequence[Message] | Block,
        numbered: MessageNumbers,
        reply: Reply,
        topic: TopicState,
        producer_id: int,
    ) -> list[Effect]:
        self._numbers[topic.uid, numbered.producer, numbered.principal] = producer_id
        if len(self._numbers) > _PRODUCERS_KNOWN:
            self._numbers.popitem(last=False)
        store = partial(self._store, messages, numbered, producer_id, reply, topic)
        return self._topics.with_producers(topic, errors_to(reply, store))

    def _store(
        self,
        messages: Sequence[Message] | Block,
        numbered: MessageNumbers,
        producer_id: int,
        reply: Reply,
        topic: TopicState,
        producers: TopicProducers,
    ) -> list[Effect]:
        if any(owner.exclusive for owner in producers.owners.get(producer_id, {}).values()):
            raise NotOwner(
                f"producer {numbered.producer!r} of {topic.name} is connected, and nobody else may number messages"
                " under its name",
                producer_id=producer_id,
            )
        block = _block_of(_with_numbers(messages, numbered, producer_id))
        producers.window(producer_id).unordered = numbered.unordered
        placing = self._with_duplicate_ids(topic, reply)
        return self._publisher.store(
            topic,
            block,
            placing,
            client=_NO_CONNECTION,
            owned=True,
            trusted=False,
            whole=True,
            format_result=_stored_positions,
        )

    def _with_duplicate_ids(self, topic: TopicState, reply: Reply) -> Reply:
        """Wrap a reply: the message ids of duplicates are read from the log before it is called."""

        def placed(outcome: list[StoredAt] | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError) or not any(stored.duplicate for stored in outcome):
                return reply(outcome)
            return [RunInThread(partial(_with_ids, topic.logs, outcome), reply, read_only=True)]

        return placed


def _block_of(messages: Sequence[Message]) -> Block:
    return read_draft(_draft_of(messages))


def _draft_of(messages: Sequence[Message]) -> Draft:
    """Encode messages. For an invalid one, raises its error, which says the number of the message."""
    try:
        return Draft.of(messages)
    except PenstockError as error:
        for row, message in enumerate(messages):
            try:
                Draft.of([message])
            except PenstockError:
                raise type(error)(f"message {row} of the block: {error.message}", **error.details, record=row) from None
        raise


def _with_numbers(messages: Sequence[Message] | Block, numbered: MessageNumbers, producer_id: int) -> list[Message]:
    plain = [record.message for record in messages] if isinstance(messages, Block) else messages
    name = "" if numbered.unordered else numbered.producer
    return [
        replace(
            message,
            producer_id=producer_id,
            request_id=numbered.first + row,
            producer_name=name or message.producer_name,
        )
        for row, message in enumerate(plain)
    ]


def _partition_of(topic: TopicState, key: bytes | None) -> int:
    return topic.next_partition() if key is None else partition_of(key, len(topic.logs))


def _stored_run(partition: int, appended: AppendResult) -> list[StoredAt]:
    ids, first = appended.ids, int(appended.offset)
    return [StoredAt(partition, first + row, ids[row], duplicate=False) for row in range(appended.records)]


def _stored_positions(submission: Submission) -> list[StoredAt]:
    by_row: dict[int, StoredAt] = {
        row: StoredAt(partition, offset, None, duplicate=True) for row, partition, offset in submission.duplicates
    }
    for part in submission.parts:
        assert isinstance(part.outcome, AppendResult)  # noqa: S101 - or it would have failed
        ids, first = part.outcome.ids, int(part.outcome.offset)
        for index, row in enumerate(part.rows.tolist()):
            by_row[row] = StoredAt(part.partition, first + index, ids[index], duplicate=False)
    return [by_row[row] for row in sorted(by_row)]


def _with_ids(logs: Sequence[Log], positions: list[StoredAt]) -> list[StoredAt]:
    """Return the positions with the message ids of duplicates, which are read from the log. Runs in another thread."""
    ids: dict[tuple[int, int], bytes] = {}
    for stored in positions:
        if stored.duplicate and (stored.partition, stored.offset) not in ids:
            ids |= _ids_from(logs[stored.partition], stored.partition, stored.offset)
    return [
        stored._replace(id=ids.get((stored.partition, stored.offset))) if stored.duplicate else stored
        for stored in positions
    ]


def _ids_from(log: Log, partition: int, offset: int) -> dict[tuple[int, int], bytes]:
    try:
        block = log.read(offset).block
    except OffsetOutOfRange:
        return {}
    offsets = block.columns[:, at.OFFSET].tolist()
    return {(partition, offset): block.id(row) for row, offset in enumerate(offsets)}
