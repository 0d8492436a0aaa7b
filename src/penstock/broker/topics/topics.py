"""Streams: the topics that are kept. Which there are, how one comes to be, what belongs to each."""

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
"""Messages of numbered producers between two checkpoints. After a crash, what came since is read again."""


_COMPARED_MAX: Final = 200
"""Names compared for "did you mean", while everybody waits."""
_WAITING_MAX: Final = 1_000
"""Messages and batches that wait for a topic to be created: a few milliseconds' worth."""


class AutoCreate(StrEnum):
    """What becomes of a topic that nobody created, when it is first published to or durably subscribed to."""

    RELIABLE = "reliable"
    """It is created, and kept."""
    LIVE = "live"
    """It is a live topic: a message goes to whoever listens."""
    OFF = "off"
    """It is refused."""


class _LentBlocks:
    """Blocks that were just stored behind each other, as one, if anybody asks."""

    def __init__(self, appended: Sequence[AppendResult]) -> None:
        self.offset = int(appended[0].offset)
        self._appended = appended

    @cached_property
    def block(self) -> Block:
        # A copy: what was written together with it is not to be kept for its sake.
        return scan(b"".join([each.stamped for each in self._appended]), verify=False)[0]


class TopicState:
    """One topic that is kept, or that somebody created as a live one."""

    def __init__(self, catalog_topic: Topic, logs: tuple[Log, ...]) -> None:
        self.catalog_topic = catalog_topic
        """The catalog's row of this topic; another one after each change of its settings."""

        self.logs = logs
        self.producers: TopicProducers | None = None
        """None until a numbered producer is first heard of: only then must the log be looked through."""

        self.awaiting_producers: list[Callable[[TopicProducers | PenstockError], list[Effect]]] = []
        """Who waits for that, in order."""

        self.subscriptions: dict[str, SubscriptionRunner] = {}
        """Its durable subscriptions, by name, and readers, by their ids."""

        self.pending = 0
        """Blocks on their way into its logs."""

        self.messages = 0
        """Stored since the broker started."""

        self.bytes = 0
        """Of these, as they lie in the log."""

        self.rate = 0
        self._ends = [int(log.next_offset) for log in logs]
        """Up to where it is known what every partition holds."""

        self._outside_windows: dict[int, set[int]] = {}
        """Where blocks begin that are stored, and whose producer has not been told yet, of partitions that had any."""

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
        """In turn, for messages without a key."""
        self._turn = (self._turn + 1) % len(self.logs)
        return self._turn

    def on_stored(self, partition: int, appended: AppendResult, *, numbered: bool = False) -> None:
        """A block is on disk."""
        self._ends[partition] = int(appended.offset) + appended.records
        self.messages += appended.records
        self.bytes += len(appended.stamped)
        if numbered:
            self._numbered_since_checkpoint += appended.records
            self._outside_windows.setdefault(partition, set()).add(int(appended.offset))

    @contextmanager
    def lend_blocks(self, partition: int, appended: Sequence[AppendResult]) -> Iterator[None]:
        """While blocks that were just stored are at hand, behind each other: whoever waits for them gets them so."""
        self._lent[partition] = _LentBlocks(appended)
        try:
            yield
        finally:
            del self._lent[partition]

    def lent_block(self, partition: int, offset: int) -> Block | None:
        """The records from this offset on, if they were just stored."""
        lent = self._lent.get(partition)
        return lent.block if lent is not None and lent.offset == offset else None

    def mark_in_window(self, partition: int, offset: int) -> None:
        """The block that begins there will be recognised if it is sent again."""
        self._outside_windows.get(partition, set()).discard(offset)

    def second_passed(self) -> None:
        self.rate, self._counted = self.messages - self._counted, self.messages

    def checkpoint_due(self) -> bool:
        """Asked after every block: whether it is time to note what producers wrote last."""
        if self._numbered_since_checkpoint < _CHECKPOINT_EVERY:
            return False
        self._numbered_since_checkpoint = 0
        return True

    def checkpoint_builder(self) -> Callable[[], dict[int, ProducerCheckpoint]]:
        """What producers wrote last, of every partition: as of now, to be put together in another thread."""
        if self.producers is None:
            return dict
        # What the log holds and nobody has noted is read again: a checkpoint must not reach over it.
        ends = [min(self._outside_windows.get(partition, ()), default=end) for partition, end in enumerate(self._ends)]
        return partial(checkpoints_of, self.producers.written(), ends)


class Topics:
    """All of them, by name."""

    def __init__(self, store: Store, *, auto_create: AutoCreate) -> None:
        self.store = store
        self.auto_create = auto_create
        self.on_added: Callable[[TopicState], None] = lambda _topic: None
        """Told of every topic that comes to be, however it does."""

        self.revision = 0
        """Another one with every topic that comes or goes."""

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
        """Raises `TopicNotSupported`, with the closest name there is if all may know it, if there is no such topic."""
        found = self._topics.get(name)
        if found is None:
            raise self._unknown_topic(name)
        return found

    def _unknown_topic(self, name: TopicName) -> TopicNotSupported:
        if name.is_system:
            return TopicNotSupported(f"{name} is the broker's own, and keeps nothing", topic=str(name))
        compares = self.store.catalog.suggests and len(self._topics) <= _COMPARED_MAX
        close = nearest(name, self._topics) if compares else None
        hint = "" if close is None else f"; did you mean {close}?"
        return TopicNotSupported(f"there is no topic {name}{hint}", topic=str(name))

    def add(self, stored: Topic) -> TopicState:
        """The stream of a topic that exists; the same if it is known already."""
        known = self._topics.get(stored.name)
        if known is not None and known.uid == stored.topic_uid:
            return known
        durable = stored.dispatch is Dispatch.RELIABLE
        logs = tuple(self.store.log(stored.name, each) for each in range(stored.partitions)) if durable else ()
        topic = self._topics[stored.name] = TopicState(stored, logs)
        self.revision += 1
        self.on_added(topic)
        return topic

    def remove(self, name: TopicName) -> None:
        self._topics.pop(name, None)
        self.revision += 1

    # coming to be

    def get_or_create(
        self,
        name: TopicName,
        then: Callable[[TopicState | PenstockError], list[Effect]],
        *,
        settings: TopicSettings | None = None,
        forced: bool = False,
        backlog: AdjustBacklog | None = None,
    ) -> list[Effect]:
        """Go on with the topic, which is created if need be and if that is allowed; or with the error.

        All who ask while it is being created go on in the order in which they asked.
        """
        found = self._topics.get(name)
        if found is not None:
            return then(found)
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
        """In the catalog's thread, where nobody else creates one meanwhile."""
        try:
            return self.store.create_topic(name, settings=settings)
        except InvalidRequest as refused:
            try:
                return self.store.catalog.get_topic(name)  # somebody was faster
            except TopicNotSupported:
                raise refused from None

    def _creation_done(self, name: TopicName, outcome: Topic | PenstockError) -> list[Effect]:
        waiting = self._creating.pop(name)
        try:
            found = outcome if isinstance(outcome, PenstockError) else self.add(outcome)
        except PenstockError as error:  # it has no logs: it could not be deleted, and not be kept either
            found = error
        return [each for then in waiting for each in then(found)]

    def _not_created(self, name: TopicName) -> TopicNotSupported:
        advice = "create it with `penstock topic create`, or start the broker with auto_create = reliable"
        return TopicNotSupported(f"there is no durable topic {name}: {advice}", topic=str(name))

    # producers

    def with_producers(
        self, topic: TopicState, then: Callable[[TopicProducers | PenstockError], list[Effect]]
    ) -> list[Effect]:
        """Go on once it is known what the producers of a topic wrote last."""
        if topic.producers is not None:
            return then(topic.producers)
        topic.awaiting_producers.append(then)
        if len(topic.awaiting_producers) > 1:
            return []

        def done(outcome: dict[int, ProducerCheckpoint] | PenstockError) -> list[Effect]:
            waiting, topic.awaiting_producers = topic.awaiting_producers, []
            if isinstance(outcome, PenstockError):
                return [each for then in waiting for each in then(outcome)]
            topic.producers = TopicProducers(outcome)
            return [each for then in waiting for each in then(topic.producers)]

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
        made = topic.checkpoint_builder()

        def save() -> None:
            for number, checkpoint in made().items():
                self.store.catalog.save_checkpoint(topic.catalog_topic, number, checkpoint)

        return [RunInThread(save, _ignore_outcome)]


def _release_and_continue(
    backlog: AdjustBacklog,
    then: Callable[[TopicState | PenstockError], list[Effect]],
    found: TopicState | PenstockError,
) -> list[Effect]:
    """Go on with what has waited."""
    return [AdjustBacklog(backlog.client, -backlog.size), *then(found)]


def _ignore_outcome(_outcome: object) -> list[Effect]:
    """A checkpoint saves time at the next start, nothing else: it is tried again later."""
    return []
