"""Streams: the topics that are kept. Which there are, how one comes to be, what belongs to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from penstock.broker.base.effects import Effect, Held, Work
from penstock.broker.topics.idempotence import Producers, checkpoints_of
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
_COMING_MAX: Final = 1_000
"""Messages and batches that wait for a topic to be created: a few milliseconds' worth."""


class AutoCreate(StrEnum):
    """What becomes of a topic that nobody created, when it is first published to or durably subscribed to."""

    RELIABLE = "reliable"
    """It is created, and kept."""
    LIVE = "live"
    """It is a live topic: a message goes to whoever listens."""
    OFF = "off"
    """It is refused."""


class _Fresh:
    """Blocks that were just stored behind each other, as one, if anybody asks."""

    def __init__(self, appended: Sequence[AppendResult]) -> None:
        self.offset = int(appended[0].offset)
        self._appended = appended

    @cached_property
    def block(self) -> Block:
        # A copy: what was written together with it is not to be kept for its sake.
        return scan(b"".join([each.stamped for each in self._appended]), verify=False)[0]


class Stream:
    """One topic that is kept, or that somebody created as a live one."""

    def __init__(self, topic: Topic, logs: tuple[Log, ...]) -> None:
        self.topic = topic
        self.logs = logs
        self.producers: Producers | None = None
        """None until a numbered producer is first heard of: only then must the log be looked through."""

        self.deriving: list[Callable[[Producers | PenstockError], list[Effect]]] = []
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

        self._unnoted: dict[int, set[int]] = {}
        """Where blocks begin that are stored, and whose producer has not been told yet, of partitions that had any."""

        self._fresh: dict[int, _Fresh] = {}
        self._counted = 0
        self._numbered = 0
        self._turn = 0

    @property
    def name(self) -> TopicName:
        return self.topic.name

    @property
    def kept(self) -> bool:
        return self.topic.dispatch is Dispatch.RELIABLE

    def next_partition(self) -> int:
        """In turn, for messages without a key."""
        self._turn = (self._turn + 1) % len(self.logs)
        return self._turn

    def stored(self, partition: int, appended: AppendResult, *, numbered: bool = False) -> None:
        """A block is on disk."""
        self._ends[partition] = int(appended.offset) + appended.records
        self.messages += appended.records
        self.bytes += len(appended.stamped)
        if numbered:
            self._numbered += appended.records
            self._unnoted.setdefault(partition, set()).add(int(appended.offset))

    @contextmanager
    def fresh(self, partition: int, appended: Sequence[AppendResult]) -> Iterator[None]:
        """While blocks that were just stored are at hand, behind each other: whoever waits for them gets them so."""
        self._fresh[partition] = _Fresh(appended)
        try:
            yield
        finally:
            del self._fresh[partition]

    def at_hand(self, partition: int, offset: int) -> Block | None:
        """The records from this offset on, if they were just stored."""
        fresh = self._fresh.get(partition)
        return fresh.block if fresh is not None and fresh.offset == offset else None

    def noted(self, partition: int, offset: int) -> None:
        """The block that begins there will be recognised if it is sent again."""
        self._unnoted.get(partition, set()).discard(offset)

    def second_passed(self) -> None:
        self.rate, self._counted = self.messages - self._counted, self.messages

    def checkpoint_due(self) -> bool:
        """Asked after every block: whether it is time to note what producers wrote last."""
        if self._numbered < _CHECKPOINT_EVERY:
            return False
        self._numbered = 0
        return True

    def checkpoints(self) -> Callable[[], dict[int, ProducerCheckpoint]]:
        """What producers wrote last, of every partition: as of now, to be put together in another thread."""
        if self.producers is None:
            return dict
        # What the log holds and nobody has noted is read again: a checkpoint must not reach over it.
        ends = [min(self._unnoted.get(partition, ()), default=end) for partition, end in enumerate(self._ends)]
        return partial(checkpoints_of, self.producers.written(), ends)


class Streams:
    """All of them, by name."""

    def __init__(self, store: Store, *, auto_create: AutoCreate) -> None:
        self.store = store
        self.auto_create = auto_create
        self.added: Callable[[Stream], None] = lambda _stream: None
        """Told of every topic that comes to be, however it does."""

        self.revision = 0
        """Another one with every topic that comes or goes."""

        self._streams: dict[TopicName, Stream] = {}
        self._coming: dict[TopicName, list[Callable[[Stream | PenstockError], list[Effect]]]] = {}
        for topic in store.catalog.list_topics():
            self.add(topic)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def get(self, name: TopicName) -> Stream | None:
        return self._streams.get(name)

    def find(self, name: TopicName) -> Stream:
        """Raises `TopicNotSupported`, with the closest name there is if all may know it, if there is no such topic."""
        found = self._streams.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: TopicName) -> TopicNotSupported:
        if name.is_system:
            return TopicNotSupported(f"{name} is the broker's own, and keeps nothing", topic=str(name))
        compares = self.store.catalog.suggests and len(self._streams) <= _COMPARED_MAX
        close = nearest(name, self._streams) if compares else None
        hint = "" if close is None else f"; did you mean {close}?"
        return TopicNotSupported(f"there is no topic {name}{hint}", topic=str(name))

    def add(self, topic: Topic) -> Stream:
        """The stream of a topic that exists; the same if it is known already."""
        known = self._streams.get(topic.name)
        if known is not None and known.topic.topic_uid == topic.topic_uid:
            return known
        kept = topic.dispatch is Dispatch.RELIABLE
        logs = tuple(self.store.log(topic.name, each) for each in range(topic.partitions)) if kept else ()
        stream = self._streams[topic.name] = Stream(topic, logs)
        self.revision += 1
        self.added(stream)
        return stream

    def remove(self, name: TopicName) -> None:
        self._streams.pop(name, None)
        self.revision += 1

    # coming to be

    def ensure(
        self,
        name: TopicName,
        then: Callable[[Stream | PenstockError], list[Effect]],
        *,
        settings: TopicSettings | None = None,
        forced: bool = False,
        held: Held | None = None,
    ) -> list[Effect]:
        """Go on with the topic, which is created if need be and if that is allowed; or with the error.

        All who ask while it is being created go on in the order in which they asked.
        """
        found = self._streams.get(name)
        if found is not None:
            return then(found)
        if name in self._coming:
            if len(self._coming[name]) >= _COMING_MAX:
                return then(ServiceUnavailable(f"{name} is being created, and too much waits for it; try again"))
            self._coming[name].append(partial(_released, held, then) if held is not None else then)
            return [] if held is None else [held]
        if self.auto_create is not AutoCreate.RELIABLE and not forced:
            return then(self._missing(name))
        self._coming[name] = [then]
        return [Work(lambda: self._created(name, settings), lambda outcome: self._came(name, outcome))]

    def _created(self, name: TopicName, settings: TopicSettings | None) -> Topic:
        """In the catalog's thread, where nobody else creates one meanwhile."""
        try:
            return self.store.create_topic(name, settings=settings)
        except InvalidRequest as refused:
            try:
                return self.store.catalog.get_topic(name)  # somebody was faster
            except TopicNotSupported:
                raise refused from None

    def _came(self, name: TopicName, outcome: Topic | PenstockError) -> list[Effect]:
        waiting = self._coming.pop(name)
        try:
            found = outcome if isinstance(outcome, PenstockError) else self.add(outcome)
        except PenstockError as error:  # it has no logs: it could not be deleted, and not be kept either
            found = error
        return [each for then in waiting for each in then(found)]

    def _missing(self, name: TopicName) -> TopicNotSupported:
        advice = "create it with `penstock topic create`, or start the broker with auto_create = reliable"
        return TopicNotSupported(f"there is no durable topic {name}: {advice}", topic=str(name))

    # producers

    def with_producers(self, stream: Stream, then: Callable[[Producers | PenstockError], list[Effect]]) -> list[Effect]:
        """Go on once it is known what the producers of a topic wrote last."""
        if stream.producers is not None:
            return then(stream.producers)
        stream.deriving.append(then)
        if len(stream.deriving) > 1:
            return []

        def derived(outcome: dict[int, ProducerCheckpoint] | PenstockError) -> list[Effect]:
            waiting, stream.deriving = stream.deriving, []
            if isinstance(outcome, PenstockError):
                return [each for then in waiting for each in then(outcome)]
            stream.producers = Producers(outcome)
            return [each for then in waiting for each in then(stream.producers)]

        return [Work(lambda: self._derived(stream), derived, reads=True)]

    def _derived(self, stream: Stream) -> dict[int, ProducerCheckpoint]:
        catalog = self.store.catalog
        return {
            number: derive_checkpoint(log, catalog.load_checkpoint(stream.topic, number))
            for number, log in enumerate(stream.logs)
        }

    def save_checkpoints(self, stream: Stream) -> list[Work]:
        if stream.producers is None:
            return []
        made = stream.checkpoints()

        def save() -> None:
            for number, checkpoint in made().items():
                self.store.catalog.save_checkpoint(stream.topic, number, checkpoint)

        return [Work(save, _nothing_more)]


def _released(
    held: Held, then: Callable[[Stream | PenstockError], list[Effect]], found: Stream | PenstockError
) -> list[Effect]:
    """Go on with what has waited."""
    return [Held(held.client, -held.size), *then(found)]


def _nothing_more(_outcome: object) -> list[Effect]:
    """A checkpoint saves time at the next start, nothing else: it is tried again later."""
    return []
