"""The catalog: topics, producers, subscriptions and their cursors, in SQL.

Every change is one transaction, durable on return. Calls may come from any thread and from several processes at once.
It knows no sockets, no event loop and no records.
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
    StoredSubscription,
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
    ProducerCheckpoint,
    StoredProducer,
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
"""The catalog's file name in a data directory."""


class Catalog:
    """The metadata of one data directory, opened with `open`.

    Any call may raise `StorageFailed` (the file cannot be trusted or written; nothing more is written until it is
    opened again), `DiskFull` (nothing was changed) or `ServiceUnavailable` (closed, or busy for too long).
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self.schemas = SchemaCatalog(file, clock)
        self.access = AccessCatalog(file, clock)
        self.suggests = True
        """True if the error for an unknown topic may suggest a similar name. A broker where some clients may not see
        all names turns it off."""

    @classmethod
    def open(cls, path: Path, *, clock: Clock, create: bool = True, reserve: DiskReserve | None = None) -> Self:
        """Open the catalog at `path`, or create an empty one, readable by its owner alone.

        Use `create=False` if the directory has segments already: a missing catalog was lost then, and raises
        `StorageFailed`. `reserve` frees room for the catalog's writes when the disk is full. Also raises
        `StorageFailed` for a damaged or empty file, which is left as it is, and `VersionNotSupported` for one that a
        newer release has written.
        """
        return cls(CatalogFile.open(path, create=create, reserve=reserve), clock)

    @property
    def failure(self) -> StorageFailed | None:
        """The reason why the catalog takes no more changes; None while it does."""
        return self._file.failure

    def close(self) -> None:
        """Close the file; nothing may be reading it by then. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sync_commit_counter(self) -> None:
        """Make the count of commits durable, so that transactions lost in a power cut are noticed at the next
        opening."""
        self._file.sync_commit_counter()

    def backup_to(self, path: Path) -> None:
        """Write a consistent copy, durable on return. Raises `InvalidRequest` if the file exists."""
        self._file.backup_to(path)

    def namespaces(self) -> tuple[str, ...]:
        """Return all namespaces that ever had a topic or settings, in alphabetical order."""
        with self._file.reading() as connection:
            return tuple(sorted(row["namespace"] for row in read_rows(connection, select(NAMESPACES))))

    def namespace_settings(self, namespace: str) -> TopicSettings:
        """Return the defaults of topics created in a namespace; empty settings unless they were set."""
        with self._file.reading() as connection:
            row = namespace_row(connection, parsed_namespace(namespace))
            return TopicSettings() if row is None else parse_settings(row["settings"])

    def set_namespace_settings(self, namespace: str, settings: TopicSettings) -> None:
        """Replace all settings of a namespace, creating it if it is new. Existing topics keep theirs.

        Raises `TopicNotSupported` for an invalid name.
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
        """Return a topic. Raises `TopicNotSupported` if it does not exist, with the closest name if the catalog
        `suggests`."""
        with self._file.reading() as connection:
            return self._topic(connection, name)

    def _topic(self, connection: Connection, name: TopicName) -> Topic:
        return existing_topic(connection, name, suggests=self.suggests)

    def list_topics(self, namespace: str | None = None) -> tuple[Topic, ...]:
        """Return the topics of all namespaces, or of one, in the order of their names."""
        query = select(TOPICS) if namespace is None else select(TOPICS).where(TOPICS.c.namespace == namespace)
        with self._file.reading() as connection:
            topics = [topic_of(row) for row in read_rows(connection, query)]
        return tuple(sorted(topics, key=lambda topic: topic.name))

    def alter_topic(self, name: TopicName, settings: TopicSettings) -> Topic:
        """Replace all settings of a topic. Raises `TopicNotSupported` if it does not exist."""
        with self._file.writing() as connection:
            row = {**row_of_topic(self._topic(connection, name)), "settings": settings_text(settings)}
            write_row(connection, TOPICS, row)
            return topic_of(row)

    def delete_topic(self, name: TopicName) -> Topic:
        """Delete a topic with its producers, their checkpoints and its subscriptions; their numbers are never reused.

        Schemas are no longer in use there either. Returns the deleted topic. Raises `TopicNotSupported` if it does not
        exist.
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
        """Return the number of a producer on a topic, always the same; a new name gets a number never used before.

        `principal`, where known, is the caller. A name belongs to the first principal that uses it: raises `NotOwner`
        for another. Raises `TopicNotSupported` if the topic has been deleted, even if there is another of its name by
        now.
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
        """Make a session the only one that may write as this producer, and return the producer's number as
        `producer_id` does.

        With `resumes`, the session claims a producer that it had before: raises `NotOwner`, and changes nothing, if
        another session has claimed it meanwhile. Otherwise the session takes it over.
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
        """Return a number never used before, for a producer without a name."""
        with self._file.writing() as connection:
            return self._take(connection, "producer_id")

    def producers(self, topic: Topic) -> tuple[StoredProducer, ...]:
        """Return a topic's producers in the order of creation. Raises `TopicNotSupported` if the topic has been
        deleted."""
        with self._file.reading() as connection:
            require_topic(connection, topic)
            rows = read_rows(connection, select(PRODUCERS).where(PRODUCERS.c.topic_uid == topic.topic_uid))
        producers = [
            StoredProducer(producer_id=r["producer_id"], name=r["name"], created_ms=r["created_ms"]) for r in rows
        ]
        return tuple(sorted(producers, key=lambda producer: producer.producer_id))

    def save_checkpoint(self, topic: Topic, partition: int, checkpoint: ProducerCheckpoint) -> None:
        """Replace the checkpoint of a partition's producers. Raises `InvalidRequest` if the stored one covers more of
        the log."""
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
        """Return the checkpoint saved last; None if there is none. Raises `TopicNotSupported` if the topic has been
        deleted."""
        checkpoint_key(topic, partition)
        with self._file.reading() as connection:
            require_topic(connection, topic)
            row = checkpoint_row(connection, topic, partition)
            return None if row is None else parse_checkpoint(row["next_offset"], row["marks"])

    def save_log_ends(self, ends: Mapping[tuple[int, int], LogEnd]) -> None:
        """Save where logs end, by topic uid and partition; logs of deleted topics are skipped. Durable on return."""
        with self._file.writing() as connection:
            topic_uids = set(connection.execute(select(TOPICS.c.topic_uid)).scalars())
            known = log_ends(connection)
            rows = {key: row_of_end(key, end) for key, end in ends.items() if key[0] in topic_uids}
            changed = [row for key, row in rows.items() if key in known]
            new = [row for key, row in rows.items() if key not in known]
            if changed:
                replace_rows(connection, LOG_ENDS, changed)
            if new:
                add_rows(connection, LOG_ENDS, new)

    def log_ends(self) -> dict[tuple[int, int], LogEnd]:
        """Return the saved ends of logs, by topic uid and partition."""
        with self._file.reading() as connection:
            return log_ends(connection)

    def create_subscription(
        self, topic: Topic, name: str, options: SubscriptionOptions, starts: Mapping[int, Offset]
    ) -> StoredSubscription:
        """Create a subscription with a cursor at `starts[partition]` in every partition; all or nothing.

        Raises `InvalidRequest` if it exists, if the name is invalid, or if `starts` does not name each partition;
        `TopicNotSupported` if the topic has been deleted.
        """
        check_subscription_name(name)
        cursors = first_cursors(topic, starts)
        with self._file.writing() as connection:
            require_topic(connection, topic)
            check_new_subscription(connection, topic, name)
            subscription = StoredSubscription(
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
    ) -> StoredSubscription:
        """Replace a subscription's options, or pause or resume it; an argument that is `None` changes nothing. Cursors
        stay.

        Returns the changed subscription. Raises `InvalidRequest` if it does not exist.
        """
        with self._file.writing() as connection:
            stored = existing_subscription(connection, subscription_uid)
            subscription = replace(
                stored,
                options=stored.options if options is None else options,
                paused=stored.paused if paused is None else paused,
            )
            write_row(connection, SUBSCRIPTIONS, row_of_subscription(subscription))
        return subscription

    def delete_subscription(self, subscription_uid: int) -> StoredSubscription:
        """Delete a subscription and its cursors; its number is never reused.

        Returns the deleted subscription. Raises `InvalidRequest` if it does not exist.
        """
        with self._file.writing() as connection:
            subscription = existing_subscription(connection, subscription_uid)
            for table in (CURSORS, SUBSCRIPTIONS):
                connection.execute(delete(table).where(table.c.subscription_uid == subscription_uid))
        return subscription

    def list_subscriptions(self, topic: Topic | None = None) -> tuple[StoredSubscription, ...]:
        """Return the subscriptions of all topics, or of one, by topic and name.

        Raises `TopicNotSupported` if that topic has been deleted.
        """
        query = select(SUBSCRIPTIONS)
        with self._file.reading() as connection:
            if topic is not None:
                require_topic(connection, topic)
                query = query.where(SUBSCRIPTIONS.c.topic_uid == topic.topic_uid)
            subscriptions = [subscription_of(row) for row in read_rows(connection, query)]
        return tuple(sorted(subscriptions, key=lambda subscription: (subscription.topic_uid, subscription.name)))

    def save_cursors(self, cursors: Mapping[tuple[int, int], Cursor]) -> None:
        """Replace the cursors of these subscriptions and partitions; all or none.

        Cursors of deleted subscriptions are skipped.
        """
        if not cursors:
            return
        rows = [row_of_cursor(uid, index, cursor) for (uid, index), cursor in cursors.items()]
        with self._file.writing() as connection:
            replace_rows(connection, CURSORS, rows)

    def load_cursors(self, subscription_uid: int) -> dict[int, Cursor]:
        """Return a subscription's cursors by partition; an empty dict if the subscription does not exist."""
        with self._file.reading() as connection:
            rows = read_rows(connection, select(CURSORS).where(CURSORS.c.subscription_uid == subscription_uid))
            return {row["partition_index"]: parse_cursor(row["floor"], row["state"]) for row in rows}

    def load_all_cursors(self) -> dict[tuple[int, int], Cursor]:
        """Return all cursors, by subscription uid and partition."""
        with self._file.reading() as connection:
            return {
                (row["subscription_uid"], row["partition_index"]): parse_cursor(row["floor"], row["state"])
                for row in read_rows(connection, select(CURSORS))
            }

    def _new_producer(self, topic: Topic, name: str, principal: str) -> int:
        """Create a producer, or give an existing one its owner; return its number."""
        with self._file.writing() as connection:
            require_topic(connection, topic)
            known = producer_row(connection, topic, name)  # another caller may have created it meanwhile
            producer_id = int(known["producer_id"]) if known is not None else self._take(connection, "producer_id")
            if known is None:
                row = {"producer_id": producer_id, "topic_uid": topic.topic_uid, "name": name}
                write_row(connection, PRODUCERS, {**row, "created_ms": now_ms(self._clock)})
            if principal and not check_owner(connection, topic, name, producer_id, principal):
                write_row(connection, PRODUCER_OWNERS, {"producer_id": producer_id, "principal": principal})
        return producer_id

    def _take(self, connection: Connection, counter: str) -> int:
        """Return a number that `counter` has never given before: the time in microseconds, or one more than the last
        number.

        A plain count would be wrong after a restore from a backup. The catalog would have forgotten the later numbers,
        but segments still have them: a new producer with an old number would have its messages taken for repetitions.
        Microseconds are used because a browser counts exactly only up to 2**53, which they reach in the year 2255.
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
