"""Storage, the catalog: which topics there are, who writes and who reads, and how far. In SQL, never in files.

Every call that changes something is one transaction, durable on return. Calls may come from any thread and from
several processes at once. No sockets, no event loop and no records come in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sqlalchemy import Connection, delete, select

from penstock.core.clock import Clock, now_ms
from penstock.core.errors import InvalidRequest, NotOwner, StorageFailed
from penstock.core.names import TopicName
from penstock.core.offsets import Offset
from penstock.storage.base.reserve import DiskReserve
from penstock.storage.catalog.access import AccessCatalog
from penstock.storage.catalog.database import CatalogFile
from penstock.storage.catalog.rows import (
    check_new_subscription,
    check_owner,
    checkpoint_key,
    checkpoint_row,
    existing_subscription,
    existing_topic,
    first_cursors,
    log_ends,
    namespace_row,
    parsed_namespace,
    producer_row,
    require_topic,
    row_of_cursor,
    row_of_end,
    row_of_subscription,
    row_of_topic,
    subscription_of,
    topic_of,
    topic_row,
)
from penstock.storage.catalog.schemas import SchemaCatalog, forget_place, topic_place
from penstock.storage.catalog.subscriptions import (
    Cursor,
    Subscription,
    SubscriptionOptions,
    check_subscription_name,
    parse_cursor,
)
from penstock.storage.catalog.tables import (
    COUNTERS,
    CURSORS,
    LOG_ENDS,
    NAMESPACES,
    PRODUCER_CHECKPOINTS,
    PRODUCER_OWNERS,
    PRODUCER_SESSIONS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    CatalogRow,
    add_rows,
    read_row,
    read_rows,
    replace_rows,
    write_row,
)
from penstock.storage.catalog.topics import (
    Dispatch,
    LogEnd,
    Producer,
    ProducerCheckpoint,
    Topic,
    TopicSettings,
    check_partitions,
    check_producer_name,
    merged_settings,
    parse_checkpoint,
    parse_settings,
    runs_text,
    settings_text,
)

CATALOG_FILE: Final = "catalog.db"
"""Its name in a data directory."""


class Catalog:
    """The metadata of one data directory. See `open`.

    Any call may raise `StorageFailed` (the file cannot be trusted or written; nothing is written any more until it
    is opened again), `DiskFull` (nothing was changed) or `ServiceUnavailable` (closed, or busy for too long).
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self.schemas = SchemaCatalog(file, clock)
        self.access = AccessCatalog(file, clock)
        self.suggests = True
        """Whether who names a topic that is not there hears of a similar name: not where not all may know it."""

    @classmethod
    def open(cls, path: Path, *, clock: Clock, create: bool = True, reserve: DiskReserve | None = None) -> Self:
        """Open the catalog at `path`, or make an empty one, readable by its owner alone, if there is no such file.

        Where segments lie beside it, a missing catalog is a lost one: `create=False` refuses it. `reserve` gives way
        where the disk is full.
        Raises `StorageFailed` for a damaged or empty file and leaves it as it is; `VersionNotSupported` for one
        that a newer release has written.
        """
        return cls(CatalogFile.open(path, create=create, reserve=reserve), clock)

    @property
    def failure(self) -> StorageFailed | None:
        """Why it takes no more changes; None while it does."""
        return self._file.failure

    def close(self) -> None:
        """Let go of the file; nobody may be reading. Closing twice does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sync_commit_counter(self) -> None:
        """Have transactions that are lost later be missed after a power cut, too."""
        self._file.sync_commit_counter()

    def backup_to(self, path: Path) -> None:
        """A consistent copy as of now, durable on return. Raises `InvalidRequest` if there is such a file."""
        self._file.backup_to(path)

    def namespaces(self) -> tuple[str, ...]:
        """All that ever had a topic or settings, in order."""
        with self._file.reading() as connection:
            return tuple(sorted(row["namespace"] for row in read_rows(connection, select(NAMESPACES))))

    def namespace_settings(self, namespace: str) -> TopicSettings:
        """What topics created in it take where they say nothing else; nothing, unless somebody has set it."""
        with self._file.reading() as connection:
            row = namespace_row(connection, parsed_namespace(namespace))
            return TopicSettings() if row is None else parse_settings(row["settings"])

    def set_namespace_settings(self, namespace: str, settings: TopicSettings) -> None:
        """Put these in the place of all it had; a new namespace is made. Topics that are there keep theirs.

        Raises `TopicNotSupported` for a name that no namespace has.
        """
        with self._file.writing() as connection:
            row = self._ensure_namespace(connection, parsed_namespace(namespace))
            write_row(connection, NAMESPACES, {**row, "settings": settings_text(settings)})

    def create_topic(
        self,
        name: TopicName,
        *,
        partitions: int = 1,
        dispatch: Dispatch = Dispatch.RELIABLE,
        settings: TopicSettings = TopicSettings(),  # noqa: B008  frozen
    ) -> Topic:
        """Create a topic, and its namespace if that is new too. The number of partitions never changes.

        Fields that `settings` leave unset are taken from the namespace now (see `merged_settings`). Raises
        `InvalidRequest` if the topic exists, if its name is reserved for the broker, or if its settings and those of
        the namespace contradict each other.
        """
        if name.is_system:
            raise InvalidRequest(f"{name} cannot be created: system topics are the broker's own", topic=str(name))
        check_partitions(name, partitions)
        with self._file.writing() as connection:
            if topic_row(connection, name) is not None:
                raise InvalidRequest(f"topic {name} exists already", topic=str(name))
            namespace = self._ensure_namespace(connection, name.namespace)
            topic = Topic(
                topic_uid=self._take(connection, "topic_uid"),
                name=name,
                partitions=partitions,
                dispatch=dispatch,
                created_ms=now_ms(self._clock),
                settings=merged_settings(settings, parse_settings(namespace["settings"]), dispatch),
            )
            write_row(connection, TOPICS, row_of_topic(topic))
        return topic

    def get_topic(self, name: TopicName) -> Topic:
        """Raises `TopicNotSupported`, with the closest name there is if it `suggests`, if there is no such topic."""
        with self._file.reading() as connection:
            return self._topic(connection, name)

    def _topic(self, connection: Connection, name: TopicName) -> Topic:
        return existing_topic(connection, name, suggests=self.suggests)

    def list_topics(self, namespace: str | None = None) -> tuple[Topic, ...]:
        """In the order of their names; those of one namespace if one is given."""
        query = select(TOPICS) if namespace is None else select(TOPICS).where(TOPICS.c.namespace == namespace)
        with self._file.reading() as connection:
            topics = [topic_of(row) for row in read_rows(connection, query)]
        return tuple(sorted(topics, key=lambda topic: topic.name))

    def alter_topic(self, name: TopicName, settings: TopicSettings) -> Topic:
        """Put these settings in the place of all it had. Raises `TopicNotSupported` if there is no such topic."""
        with self._file.writing() as connection:
            row = {**row_of_topic(self._topic(connection, name)), "settings": settings_text(settings)}
            write_row(connection, TOPICS, row)
            return topic_of(row)

    def delete_topic(self, name: TopicName) -> Topic:
        """Forget the topic, its producers, their checkpoints, and its subscriptions; their ids are never given again.

        Nor are schemas in use there any more. Returns what was deleted. Raises `TopicNotSupported` if there is no such
        topic.
        """
        with self._file.writing() as connection:
            topic = self._topic(connection, name)
            its_own = select(SUBSCRIPTIONS.c.subscription_uid).where(SUBSCRIPTIONS.c.topic_uid == topic.topic_uid)
            connection.execute(delete(CURSORS).where(CURSORS.c.subscription_uid.in_(its_own)))
            producers = select(PRODUCERS.c.producer_id).where(PRODUCERS.c.topic_uid == topic.topic_uid)
            for table in (PRODUCER_SESSIONS, PRODUCER_OWNERS):
                connection.execute(delete(table).where(table.c.producer_id.in_(producers)))
            for table in (SUBSCRIPTIONS, PRODUCER_CHECKPOINTS, PRODUCERS, LOG_ENDS, TOPICS):
                connection.execute(delete(table).where(table.c.topic_uid == topic.topic_uid))
            forget_place(connection, topic_place(topic.topic_uid))
        return topic

    def producer_id(self, topic: Topic, name: str, *, principal: str = "") -> int:
        """The number of this producer on this topic, the same for ever; a new one, never given before, at first.

        `principal`: who asks, where that is known; the name belongs to the first who does, and others are told
        `NotOwner`. Raises `TopicNotSupported` if the topic has been deleted since, even if there is another of its
        name.
        """
        check_producer_name(name)
        with self._file.reading() as connection:
            known = producer_row(connection, topic, name)
            if known is not None:
                number = int(known["producer_id"])
                if not principal or check_owner(connection, topic, name, number, principal):
                    return number
        return self._new_producer(topic, name, principal)

    def claim_producer(self, topic: Topic, name: str, session: str, *, resumes: bool, principal: str = "") -> int:
        """Its number, as `producer_id` gives it; from now on it is this session's.

        Raises `NotOwner`, and changes nothing, if it comes back and another session has come since.
        """
        producer_id = self.producer_id(topic, name, principal=principal)
        query = select(PRODUCER_SESSIONS).where(PRODUCER_SESSIONS.c.producer_id == producer_id)
        with self._file.writing() as connection:
            known = read_row(connection, query)
            if known is not None and known["session"] == session:
                return producer_id
            if known is not None and resumes:
                raise NotOwner(
                    f"producer {name} of {topic.name} was taken over by another while this one was away",
                    producer_id=producer_id,
                )
            write_row(connection, PRODUCER_SESSIONS, {"producer_id": producer_id, "session": session})
        return producer_id

    def take_producer_id(self) -> int:
        """A number that no producer was ever given, for one without a name: nobody will ask for it again."""
        with self._file.writing() as connection:
            return self._take(connection, "producer_id")

    def producers(self, topic: Topic) -> tuple[Producer, ...]:
        """In the order in which they came. Raises `TopicNotSupported` if the topic has been deleted since."""
        with self._file.reading() as connection:
            require_topic(connection, topic)
            rows = read_rows(connection, select(PRODUCERS).where(PRODUCERS.c.topic_uid == topic.topic_uid))
        producers = [Producer(producer_id=r["producer_id"], name=r["name"], created_ms=r["created_ms"]) for r in rows]
        return tuple(sorted(producers, key=lambda producer: producer.producer_id))

    def save_checkpoint(self, topic: Topic, partition: int, checkpoint: ProducerCheckpoint) -> None:
        """Put it in the place of the one before. Raises `InvalidRequest` if that one knows more of the log."""
        key = checkpoint_key(topic, partition)
        with self._file.writing() as connection:
            require_topic(connection, topic)
            stored = checkpoint_row(connection, topic, partition)
            if stored is not None and checkpoint.next_offset < stored["next_offset"]:
                raise InvalidRequest(
                    f"the checkpoint of {topic.name}, partition {partition}, stands at offset {stored['next_offset']}"
                    f" and does not go back to {checkpoint.next_offset}",
                    stored=stored["next_offset"],
                    given=checkpoint.next_offset,
                )
            content = {"next_offset": checkpoint.next_offset, "marks": runs_text(checkpoint.runs)}
            write_row(connection, PRODUCER_CHECKPOINTS, {**key, **content})

    def load_checkpoint(self, topic: Topic, partition: int) -> ProducerCheckpoint | None:
        """The last one saved. Raises `TopicNotSupported` if the topic has been deleted since."""
        checkpoint_key(topic, partition)
        with self._file.reading() as connection:
            require_topic(connection, topic)
            row = checkpoint_row(connection, topic, partition)
            return None if row is None else parse_checkpoint(row["next_offset"], row["marks"])

    def save_log_ends(self, ends: Mapping[tuple[int, int], LogEnd]) -> None:
        """Note how far these logs went, by topic and partition; those of topics deleted since are passed over."""
        with self._file.writing() as connection:
            there = set(connection.execute(select(TOPICS.c.topic_uid)).scalars())
            known = log_ends(connection)
            rows = {key: row_of_end(key, end) for key, end in ends.items() if key[0] in there}
            changed = [row for key, row in rows.items() if key in known]
            new = [row for key, row in rows.items() if key not in known]
            if changed:
                replace_rows(connection, LOG_ENDS, changed)
            if new:
                add_rows(connection, LOG_ENDS, new)

    def log_ends(self) -> dict[tuple[int, int], LogEnd]:
        """How far each log went when that was last noted, by topic and partition."""
        with self._file.reading() as connection:
            return log_ends(connection)

    def create_subscription(
        self, topic: Topic, name: str, options: SubscriptionOptions, starts: Mapping[int, Offset]
    ) -> Subscription:
        """A new subscription, with a cursor at `starts[partition]` in every partition; all of it, or nothing.

        Raises `InvalidRequest` if there is such a subscription, if the name is none, or if `starts` does not name each
        partition; `TopicNotSupported` if the topic has been deleted since.
        """
        check_subscription_name(name)
        cursors = first_cursors(topic, starts)
        with self._file.writing() as connection:
            require_topic(connection, topic)
            check_new_subscription(connection, topic, name)
            subscription = Subscription(
                subscription_uid=self._take(connection, "subscription_uid"),
                topic_uid=topic.topic_uid,
                name=name,
                options=options,
                paused=False,
                created_ms=now_ms(self._clock),
            )
            add_rows(connection, SUBSCRIPTIONS, [row_of_subscription(subscription)])
            uid = subscription.subscription_uid
            add_rows(connection, CURSORS, (row_of_cursor(uid, index, at) for index, at in cursors.items()))
        return subscription

    def alter_subscription(
        self, subscription_uid: int, *, options: SubscriptionOptions | None = None, paused: bool | None = None
    ) -> Subscription:
        """Put these in the place of what it had; `None` leaves it as it is. Its cursors are not touched.

        Raises `InvalidRequest` if there is no such subscription.
        """
        with self._file.writing() as connection:
            found = existing_subscription(connection, subscription_uid)
            subscription = replace(
                found,
                options=found.options if options is None else options,
                paused=found.paused if paused is None else paused,
            )
            write_row(connection, SUBSCRIPTIONS, row_of_subscription(subscription))
        return subscription

    def delete_subscription(self, subscription_uid: int) -> Subscription:
        """Forget it and its cursors; its number is never given again.

        Returns what was deleted. Raises `InvalidRequest` if there is no such subscription.
        """
        with self._file.writing() as connection:
            subscription = existing_subscription(connection, subscription_uid)
            for table in (CURSORS, SUBSCRIPTIONS):
                connection.execute(delete(table).where(table.c.subscription_uid == subscription_uid))
        return subscription

    def list_subscriptions(self, topic: Topic | None = None) -> tuple[Subscription, ...]:
        """In the order of their names, topic by topic; those of one topic if one is given.

        Raises `TopicNotSupported` if that has been deleted since.
        """
        query = select(SUBSCRIPTIONS)
        with self._file.reading() as connection:
            if topic is not None:
                require_topic(connection, topic)
                query = query.where(SUBSCRIPTIONS.c.topic_uid == topic.topic_uid)
            found = [subscription_of(row) for row in read_rows(connection, query)]
        return tuple(sorted(found, key=lambda subscription: (subscription.topic_uid, subscription.name)))

    def save_cursors(self, cursors: Mapping[tuple[int, int], Cursor]) -> None:
        """Put these, by subscription and partition, in the place of those before: all of them, or none.

        Cursors of a subscription that has been deleted since are passed over.
        """
        if not cursors:
            return
        rows = [row_of_cursor(uid, index, cursor) for (uid, index), cursor in cursors.items()]
        with self._file.writing() as connection:
            replace_rows(connection, CURSORS, rows)

    def load_cursors(self, subscription_uid: int) -> dict[int, Cursor]:
        """The cursors last saved, by partition; none if there is no such subscription."""
        with self._file.reading() as connection:
            rows = read_rows(connection, select(CURSORS).where(CURSORS.c.subscription_uid == subscription_uid))
            return {row["partition_index"]: parse_cursor(row["floor"], row["state"]) for row in rows}

    def load_all_cursors(self) -> dict[tuple[int, int], Cursor]:
        """The cursors last saved, by subscription and partition, of all there are."""
        with self._file.reading() as connection:
            return {
                (row["subscription_uid"], row["partition_index"]): parse_cursor(row["floor"], row["state"])
                for row in read_rows(connection, select(CURSORS))
            }

    def _new_producer(self, topic: Topic, name: str, principal: str) -> int:
        """One that is new, or has no owner yet."""
        with self._file.writing() as connection:
            require_topic(connection, topic)
            known = producer_row(connection, topic, name)  # another caller may have been faster
            producer_id = int(known["producer_id"]) if known is not None else self._take(connection, "producer_id")
            if known is None:
                row = {"producer_id": producer_id, "topic_uid": topic.topic_uid, "name": name}
                write_row(connection, PRODUCERS, {**row, "created_ms": now_ms(self._clock)})
            if principal and not check_owner(connection, topic, name, producer_id, principal):
                write_row(connection, PRODUCER_OWNERS, {"producer_id": producer_id, "principal": principal})
        return producer_id

    def _take(self, connection: Connection, counter: str) -> int:
        """A number never given before under that name: the time in microseconds, or one more than the last.

        Time, because a catalog restored from a backup has forgotten what was given since, and the segments have not:
        a producer with the number of another would have its messages taken for repetitions of the other's.
        Microseconds, because a browser counts exactly to 2**53, which is the year 2255.
        """
        row = read_row(connection, select(COUNTERS).where(COUNTERS.c.name == counter))
        last = 0 if row is None else int(row["last"])
        number = max(last + 1, self._clock.now_ns() // 1_000)
        write_row(connection, COUNTERS, {"name": counter, "last": number})
        return number

    def _ensure_namespace(self, connection: Connection, namespace: str) -> CatalogRow:
        row = namespace_row(connection, namespace)
        if row is None:
            settings = settings_text(TopicSettings())
            row = {"namespace": namespace, "created_ms": now_ms(self._clock), "settings": settings}
            write_row(connection, NAMESPACES, row)
        return row
