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
"""Messages of numbered producers between two checkpoints. After a crash, those since the last are read again."""


_COMPARED_MAX: Final = 200
"""Topics compared for "did you mean", at most: all other clients wait meanwhile."""
_WAITING_MAX: Final = 1_000
"""Messages and batches that wait for a topic to be created: a few milliseconds' worth."""


class AutoCreate(StrEnum):
    """Treatment of a topic that does not exist, when it is first published to or durably subscribed to."""

    RELIABLE = "reliable"
    """Create it as a durable topic."""
    LIVE = "live"
    """Treat it as a live topic: a message goes to the current subscribers."""
    OFF = "off"
    """Refuse it."""


class _LentBlocks:
    """Blocks that were just stored behind each other; joined into one when it is first read."""

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
        """The catalog's row of this topic; replaced after each change of its settings."""

        self.logs = logs
        self.producers: TopicProducers | None = None
        """Numbered producers; None until the first registers: only then must the log be scanned."""

        self.awaiting_producers: list[Callable[[TopicProducers | PenstockError], list[Effect]]] = []
        """Continuations that wait for that scan, in order."""

        self.subscriptions: dict[str, SubscriptionRunner] = {}
        """Durable subscriptions, by name, and readers, by their ids."""

        self.pending = 0
        """Blocks on their way into its logs."""

        self.messages = 0
        """Messages stored since the broker started."""

        self.bytes = 0
        """Bytes of these messages in the log."""

        self.rate = 0
        self._ends = [int(log.next_offset) for log in logs]
        """Offset of each partition up to which its records are known here."""

        self._outside_windows: dict[int, set[int]] = {}
        """First offsets of stored blocks that are not yet in their producer's window, by partition."""

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
        """Return the next partition in turn, for messages without a key."""
        self._turn = (self._turn + 1) % len(self.logs)
        return self._turn

    def on_stored(self, partition: int, appended: AppendResult, *, numbered: bool = False) -> None:
        """Count a block that is on disk."""
        self._ends[partition] = int(appended.offset) + appended.records
        self.messages += appended.records
        self.bytes += len(appended.stamped)
        if numbered:
            self._numbered_since_checkpoint += appended.records
            self._outside_windows.setdefault(partition, set()).add(int(appended.offset))

    @contextmanager
    def lend_blocks(self, partition: int, appended: Sequence[AppendResult]) -> Iterator[None]:
        """Lend just stored blocks to the subscriptions within this context, so that they need not read them back."""
        self._lent[partition] = _LentBlocks(appended)
        try:
            yield
        finally:
            del self._lent[partition]

    def lent_block(self, partition: int, offset: int) -> Block | None:
        """Return the records from this offset on, if they are lent now."""
        lent = self._lent.get(partition)
        return lent.block if lent is not None and lent.offset == offset else None

    def mark_in_window(self, partition: int, offset: int) -> None:
        """Note that the block that begins there is in its producer's window, and recognised if sent again."""
        self._outside_windows.get(partition, set()).discard(offset)

    def second_passed(self) -> None:
        self.rate, self._counted = self.messages - self._counted, self.messages

    def checkpoint_due(self) -> bool:
        """Return, and reset, whether producers should be checkpointed. Called after every block."""
        if self._numbered_since_checkpoint < _CHECKPOINT_EVERY:
            return False
        self._numbered_since_checkpoint = 0
        return True

    def checkpoint_builder(self) -> Callable[[], dict[int, ProducerCheckpoint]]:
        """Return a function that builds checkpoints of the producers as they are now; it may run in another thread."""
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
        """Callback for every topic that is added."""

        self.revision = 0
        """Number that changes when a topic is added or removed."""

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
        """Return a topic, or raise `TopicNotSupported`, with the closest name if all clients may see it."""
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
        """Add a topic that exists in the catalog; return the known state if there is one."""
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
        """Continue with the topic, which is created if that is needed and allowed; or with the error.

        Requests that arrive while it is being created continue in their order.
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
        """Create the topic in the catalog's thread, where no other creation runs meanwhile."""
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
        """Continue once the last requests of the topic's producers are known."""
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
    """Release the bytes that waited, and continue."""
    return [AdjustBacklog(backlog.client, -backlog.size), *then(outcome)]


def _ignore_outcome(_outcome: object) -> list[Effect]:
    """Ignore the outcome: a checkpoint only saves time at the next start, and is tried again later."""
    return []
