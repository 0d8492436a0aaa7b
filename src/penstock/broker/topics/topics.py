"""The topics of a broker: their state in memory, and their creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from penstock.broker.base.effects import AdjustBacklog, Effect, RunInThread
from penstock.broker.topics.idempotence import TopicProducers, checkpoints_of
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, TopicNotSupported
from penstock.core.names import TopicName, nearest
from penstock.record.block import Block, scan
from penstock.storage.catalog.topics import Dispatch, ProducerCheckpoint, Topic, TopicSettings
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log
from penstock.storage.producer_windows import derive_checkpoint
from penstock.storage.store import Store

if TYPE_CHECKING:
    from penstock.broker.subscriptions.delivery import SubscriptionRunner

_CHECKPOINT_EVERY: Final = 100_000
"""The number of numbered messages between two checkpoints of producers. After a crash, those since the last one are
read again."""


_COMPARED_MAX: Final = 200
"""The most topics that are compared for "did you mean": all other clients wait meanwhile."""
_WAITING_MAX: Final = 1_000
"""The most messages and batches that wait for one topic to be created: as many as come in a few milliseconds."""


class AutoCreate(StrEnum):
    """Settings for a topic that does not exist when it is first published to or durably subscribed to."""

    RELIABLE = "reliable"
    """Create it as a durable topic."""
    LIVE = "live"
    """Treat it as a live topic: a message goes to those who are subscribed now."""
    OFF = "off"
    """Refuse the message or subscription."""


class _LentBlocks:
    """Consecutive blocks that have just been stored. They are joined into one when that is first read."""

    def __init__(self, appended: Sequence[AppendResult]) -> None:
        self.offset = int(appended[0].offset)
        self._appended = appended

    @cached_property
    def block(self) -> Block:
        # A copy: a lent block must not keep alive the larger write it was part of.
        return scan(b"".join([block.stamped for block in self._appended]), verify=False)[0]


class TopicState:
    """A durable topic, or a live one that was created explicitly."""

    def __init__(self, catalog_topic: Topic, logs: tuple[Log, ...]) -> None:
        self.catalog_topic = catalog_topic
        """The topic as the catalog has it. It is replaced after each change of the settings."""

        self.logs = logs
        self.producers: TopicProducers | None = None
        """The numbered producers. None until the first one is needed, as finding their last requests means to read the
        log."""

        self.awaiting_producers: list[Callable[[TopicProducers | PenstockError], list[Effect]]] = []
        """Continuations that wait until `producers` is known, in their order."""

        self.subscriptions: dict[str, SubscriptionRunner] = {}
        """The runners of durable subscriptions, by name, and of readers, by their ids."""

        self.pending = 0
        """The number of blocks on their way into its logs."""

        self.messages = 0
        """The number of messages stored since the broker started."""

        self.bytes = 0
        """The bytes of these messages in the log."""

        self.rate = 0
        self._ends = [int(log.next_offset) for log in logs]
        """The next offset of each partition, as of the blocks that were answered."""

        self._outside_windows: dict[int, set[int]] = {}
        """By partition, the first offsets of stored blocks that are not yet in the window of their producer."""

        self._lent: dict[int, _LentBlocks] = {}
        self._counted = 0
        self._numbered_since_checkpoint = 0
        self._turn = 0

    @property
    def name(self) -> TopicName:
        return self.catalog_topic.name

    @property
    def uid(self) -> int:
        return self.catalog_topic.topic_uid

    @property
    def settings(self) -> TopicSettings:
        return self.catalog_topic.settings

    @property
    def is_durable(self) -> bool:
        return self.catalog_topic.dispatch is Dispatch.RELIABLE

    def next_partition(self) -> int:
        """Return the partition for the next messages without a key. Partitions take turns."""
        self._turn = (self._turn + 1) % len(self.logs)
        return self._turn

    def on_stored(self, partition: int, appended: AppendResult, *, numbered: bool = False) -> None:
        """Count a block that is on disk. `numbered`: its messages have numbers of a producer."""
        self._ends[partition] = int(appended.offset) + appended.records
        self.messages += appended.records
        self.bytes += len(appended.stamped)
        if numbered:
            self._numbered_since_checkpoint += appended.records
            self._outside_windows.setdefault(partition, set()).add(int(appended.offset))

    @contextmanager
    def lend_blocks(self, partition: int, appended: Sequence[AppendResult]) -> Iterator[None]:
        """Offer blocks that were just stored to the subscriptions, for as long as the context lasts, so that they need
        not read the log."""
        self._lent[partition] = _LentBlocks(appended)
        try:
            yield
        finally:
            del self._lent[partition]

    def lent_block(self, partition: int, offset: int) -> Block | None:
        """Return the lent records, if they begin at this offset; otherwise None."""
        lent = self._lent.get(partition)
        return lent.block if lent is not None and lent.offset == offset else None

    def mark_in_window(self, partition: int, offset: int) -> None:
        """Note that the block that begins at this offset is in the window of its producer."""
        self._outside_windows.get(partition, set()).discard(offset)

    def second_passed(self) -> None:
        self.rate, self._counted = self.messages - self._counted, self.messages

    def checkpoint_due(self) -> bool:
        """Return whether enough numbered messages were stored for a checkpoint of the producers. If so, count from zero
        again."""
        if self._numbered_since_checkpoint < _CHECKPOINT_EVERY:
            return False
        self._numbered_since_checkpoint = 0
        return True

    def checkpoint_builder(self) -> Callable[[], dict[int, ProducerCheckpoint]]:
        """Return a function that builds a checkpoint for each partition, of the producers as they are now. It may be
        called in another thread."""
        if self.producers is None:
            return dict
        # Stored requests that are not in a window yet are read again: a checkpoint must not reach over them.
        ends = [min(self._outside_windows.get(partition, ()), default=end) for partition, end in enumerate(self._ends)]
        return partial(checkpoints_of, self.producers.written(), ends)


class Topics:
    """The topics of a broker, by name."""

    def __init__(self, store: Store, *, auto_create: AutoCreate) -> None:
        self.store = store
        self.auto_create = auto_create
        self.on_added: Callable[[TopicState], None] = lambda _topic: None
        """A function that is called with every topic that is added."""

        self.revision = 0
        """A counter that grows when a topic is added or removed."""

        self._topics: dict[TopicName, TopicState] = {}
        self._creating: dict[TopicName, list[Callable[[TopicState | PenstockError], list[Effect]]]] = {}
        for topic in store.catalog.list_topics():
            self.add(topic)

    def __iter__(self) -> Iterator[TopicState]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: TopicName) -> TopicState | None:
        return self._topics.get(name)

    def find(self, name: TopicName) -> TopicState:
        """Return a topic. Raises `TopicNotSupported` if there is none; the error names a similar topic if clients may
        see all names."""
        topic = self._topics.get(name)
        if topic is None:
            raise self._unknown_topic(name)
        return topic

    def _unknown_topic(self, name: TopicName) -> TopicNotSupported:
        if name.is_system:
            return TopicNotSupported(f"{name} is the broker's own, and keeps nothing", topic=str(name))
        compares = self.store.catalog.suggests and len(self._topics) <= _COMPARED_MAX
        close = nearest(name, self._topics) if compares else None
        hint = "" if close is None else f"; did you mean {close}?"
        return TopicNotSupported(f"there is no topic {name}{hint}", topic=str(name))

    def add(self, stored: Topic) -> TopicState:
        """Add a topic that exists in the catalog, and open its logs. If it was added before, return its state."""
        known = self._topics.get(stored.name)
        if known is not None and known.uid == stored.topic_uid:
            return known
        durable = stored.dispatch is Dispatch.RELIABLE
        logs = tuple(self.store.log(stored.name, number) for number in range(stored.partitions)) if durable else ()
        topic = self._topics[stored.name] = TopicState(stored, logs)
        self.revision += 1
        self.on_added(topic)
        return topic

    def remove(self, name: TopicName) -> None:
        self._topics.pop(name, None)
        self.revision += 1

    # creation

    def get_or_create(
        self,
        name: TopicName,
        then: Callable[[TopicState | PenstockError], list[Effect]],
        *,
        settings: TopicSettings | None = None,
        forced: bool = False,
        backlog: AdjustBacklog | None = None,
    ) -> list[Effect]:
        """Call `then` with the topic, or with the error. A topic that does not exist is created if `auto_create` is
        reliable, or with `forced`.

        Requests that come while it is being created wait, and continue in their order. Meanwhile their `backlog` counts
        as bytes of their client.
        """
        topic = self._topics.get(name)
        if topic is not None:
            return then(topic)
        if name in self._creating:
            if len(self._creating[name]) >= _WAITING_MAX:
                return then(ServiceUnavailable(f"{name} is being created, and too much waits for it; try again"))
            self._creating[name].append(partial(_release_and_continue, backlog, then) if backlog is not None else then)
            return [] if backlog is None else [backlog]
        if self.auto_create is not AutoCreate.RELIABLE and not forced:
            return then(self._not_created(name))
        self._creating[name] = [then]
        return [RunInThread(lambda: self._create(name, settings), lambda outcome: self._creation_done(name, outcome))]

    def _create(self, name: TopicName, settings: TopicSettings | None) -> Topic:
        """Create the topic on disk, or return the one that another process has created. Runs in the catalog's thread,
        so that no other creation runs meanwhile."""
        try:
            return self.store.create_topic(name, settings=settings)
        except InvalidRequest as refused:
            try:
                return self.store.catalog.get_topic(name)  # created by another process meanwhile
            except TopicNotSupported:
                raise refused from None

    def _creation_done(self, name: TopicName, outcome: Topic | PenstockError) -> list[Effect]:
        waiting = self._creating.pop(name)
        try:
            result = outcome if isinstance(outcome, PenstockError) else self.add(outcome)
        except PenstockError as error:  # its logs cannot be opened, so it can neither be used nor be deleted
            result = error
        return [effect for then in waiting for effect in then(result)]

    def _not_created(self, name: TopicName) -> TopicNotSupported:
        advice = "create it with `penstock topic create`, or start the broker with auto_create = reliable"
        return TopicNotSupported(f"there is no durable topic {name}: {advice}", topic=str(name))

    # producers

    def with_producers(
        self, topic: TopicState, then: Callable[[TopicProducers | PenstockError], list[Effect]]
    ) -> list[Effect]:
        """Call `then` with the producers of the topic once their last requests are known, or with the error. The first
        call reads the log, in another thread."""
        if topic.producers is not None:
            return then(topic.producers)
        topic.awaiting_producers.append(then)
        if len(topic.awaiting_producers) > 1:
            return []

        def done(outcome: dict[int, ProducerCheckpoint] | PenstockError) -> list[Effect]:
            waiting, topic.awaiting_producers = topic.awaiting_producers, []
            if isinstance(outcome, PenstockError):
                return [effect for then in waiting for effect in then(outcome)]
            topic.producers = TopicProducers(outcome)
            return [effect for then in waiting for effect in then(topic.producers)]

        return [RunInThread(lambda: self._derive_producers(topic), done, read_only=True)]

    def _derive_producers(self, topic: TopicState) -> dict[int, ProducerCheckpoint]:
        catalog = self.store.catalog
        return {
            number: derive_checkpoint(log, catalog.load_checkpoint(topic.catalog_topic, number))
            for number, log in enumerate(topic.logs)
        }

    def save_checkpoints(self, topic: TopicState) -> list[RunInThread]:
        if topic.producers is None:
            return []
        build = topic.checkpoint_builder()

        def save() -> None:
            for number, checkpoint in build().items():
                self.store.catalog.save_checkpoint(topic.catalog_topic, number, checkpoint)

        return [RunInThread(save, _ignore_outcome)]


def _release_and_continue(
    backlog: AdjustBacklog,
    then: Callable[[TopicState | PenstockError], list[Effect]],
    outcome: TopicState | PenstockError,
) -> list[Effect]:
    """Subtract the bytes that waited from the client's backlog, and continue."""
    return [AdjustBacklog(backlog.client, -backlog.size), *then(outcome)]


def _ignore_outcome(_outcome: object) -> list[Effect]:
    """Ignore whether a checkpoint was saved. It only makes the next start faster, and another one is saved later."""
    return []
