"""Storage, the catalog: which topics there are, who writes to them, and how far that is known. In SQL, never in files.

Every call that changes something is one transaction, durable on return. Calls may come from any thread and from
several processes at once. No sockets, no event loop and no records come in here.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sqlalchemy import Connection, Table, delete, select

from penstock.core.clock import Clock, now_ms
from penstock.core.errors import InvalidRequest, StorageFailed, TopicNotSupported
from penstock.core.names import TopicName
from penstock.storage.catalog_file import CatalogFile
from penstock.storage.catalog_schema import (
    COUNTERS,
    NAMESPACES,
    PRODUCER_CHECKPOINTS,
    PRODUCERS,
    TOPICS,
    Row,
    read_row,
    read_rows,
    write_row,
)
from penstock.storage.topics import (
    Dispatch,
    Producer,
    ProducerCheckpoint,
    Topic,
    TopicSettings,
    check_partitions,
    check_producer_name,
    marks_text,
    settings_text,
    stored_checkpoint,
    stored_settings,
)

CATALOG_FILE: Final = "catalog.db"
"""Its name in a data directory."""

SUGGESTIONS_MAX: Final = 1_000
"""Names compared for "did you mean": a misspelt name costs a few milliseconds however many topics there are."""


class Catalog:
    """The metadata of one data directory. See `open`.

    Any call may raise `StorageFailed` (the file cannot be trusted or written; nothing is written any more until it
    is opened again), `DiskFull` (nothing was changed) or `ServiceUnavailable` (closed, or busy for too long).
    """

    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    @classmethod
    def open(cls, path: Path, *, clock: Clock, create: bool = True) -> Self:
        """Open the catalog at `path`, or make an empty one, readable by its owner alone, if there is no such file.

        Where segments lie beside it, a missing catalog is a lost one: `create=False` refuses it.
        Raises `StorageFailed` for a damaged or empty file and leaves it as it is; `VersionNotSupported` for one
        that a newer release has written.
        """
        return cls(CatalogFile.open(path, create=create), clock)

    def close(self) -> None:
        """Let go of the file; nobody may be reading. Closing twice does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def backup_to(self, path: Path) -> None:
        """A consistent copy as of now, durable on return. Raises `InvalidRequest` if there is such a file."""
        self._file.backup_to(path)

    def namespaces(self) -> tuple[str, ...]:
        """All that ever had a topic, in order."""
        with self._file.reading() as connection:
            return tuple(sorted(row["namespace"] for row in read_rows(connection, select(NAMESPACES))))

    def create_topic(
        self,
        name: TopicName,
        *,
        partitions: int = 1,
        dispatch: Dispatch = Dispatch.RELIABLE,
        settings: TopicSettings = TopicSettings(),  # noqa: B008  frozen
    ) -> Topic:
        """A new topic, and its namespace if that is new too. The number of partitions never changes.

        Raises `InvalidRequest` if there is such a topic, or if the name is the broker's own.
        """
        if name.is_system:
            raise InvalidRequest(f"{name} cannot be created: system topics are the broker's own", topic=str(name))
        check_partitions(name, partitions)
        with self._file.writing() as connection:
            if _topic_row(connection, name) is not None:
                raise InvalidRequest(f"topic {name} exists already", topic=str(name))
            topic = Topic(
                topic_uid=self._take(connection, "topic_uid"),
                name=name,
                partitions=partitions,
                dispatch=dispatch,
                created_ms=now_ms(self._clock),
                settings=settings,
            )
            self._ensure_namespace(connection, name.namespace)
            write_row(connection, TOPICS, _row_of(topic))
        return topic

    def get_topic(self, name: TopicName) -> Topic:
        """Raises `TopicNotSupported`, with the closest name there is, if there is no such topic."""
        with self._file.reading() as connection:
            return _existing(connection, name)

    def list_topics(self, namespace: str | None = None) -> tuple[Topic, ...]:
        """In the order of their names; those of one namespace if one is given."""
        query = select(TOPICS) if namespace is None else select(TOPICS).where(TOPICS.c.namespace == namespace)
        with self._file.reading() as connection:
            topics = [_topic_of(row) for row in read_rows(connection, query)]
        return tuple(sorted(topics, key=lambda topic: topic.name))

    def alter_topic(self, name: TopicName, settings: TopicSettings) -> Topic:
        """Put these settings in the place of all it had. Raises `TopicNotSupported` if there is no such topic."""
        with self._file.writing() as connection:
            row = {**_row_of(_existing(connection, name)), "settings": settings_text(settings)}
            write_row(connection, TOPICS, row)
            return _topic_of(row)

    def delete_topic(self, name: TopicName) -> Topic:
        """Forget the topic, its producers and their checkpoints; the ids they had are never given again.

        Returns what was deleted. Raises `TopicNotSupported` if there is no such topic.
        """
        with self._file.writing() as connection:
            topic = _existing(connection, name)
            for table in (PRODUCER_CHECKPOINTS, PRODUCERS, TOPICS):
                connection.execute(delete(table).where(table.c.topic_uid == topic.topic_uid))
        return topic

    def producer_id(self, topic: Topic, name: str) -> int:
        """The number of this producer on this topic, the same for ever; a new one, never given before, at first.

        Raises `TopicNotSupported` if the topic has been deleted since, even if there is another of its name.
        """
        check_producer_name(name)
        with self._file.reading() as connection:
            known = _producer_row(connection, topic, name)
        return self._new_producer(topic, name) if known is None else int(known["producer_id"])

    def producers(self, topic: Topic) -> tuple[Producer, ...]:
        """In the order in which they came. Raises `TopicNotSupported` if the topic has been deleted since."""
        with self._file.reading() as connection:
            _require(connection, topic)
            rows = read_rows(connection, select(PRODUCERS).where(PRODUCERS.c.topic_uid == topic.topic_uid))
        producers = [Producer(producer_id=r["producer_id"], name=r["name"], created_ms=r["created_ms"]) for r in rows]
        return tuple(sorted(producers, key=lambda producer: producer.producer_id))

    def save_checkpoint(self, topic: Topic, partition: int, checkpoint: ProducerCheckpoint) -> None:
        """Put it in the place of the one before. Raises `InvalidRequest` if that one knows more of the log."""
        key = _checkpoint_key(topic, partition)
        with self._file.writing() as connection:
            _require(connection, topic)
            stored = _checkpoint_row(connection, topic, partition)
            if stored is not None and checkpoint.next_offset < stored["next_offset"]:
                raise InvalidRequest(
                    f"the checkpoint of {topic.name}, partition {partition}, stands at offset {stored['next_offset']}"
                    f" and does not go back to {checkpoint.next_offset}",
                    stored=stored["next_offset"],
                    given=checkpoint.next_offset,
                )
            content = {"next_offset": checkpoint.next_offset, "marks": marks_text(checkpoint.last)}
            write_row(connection, PRODUCER_CHECKPOINTS, {**key, **content})

    def load_checkpoint(self, topic: Topic, partition: int) -> ProducerCheckpoint | None:
        """The last one saved. Raises `TopicNotSupported` if the topic has been deleted since."""
        _checkpoint_key(topic, partition)
        with self._file.reading() as connection:
            _require(connection, topic)
            row = _checkpoint_row(connection, topic, partition)
            return None if row is None else stored_checkpoint(row["next_offset"], row["marks"])

    def _new_producer(self, topic: Topic, name: str) -> int:
        with self._file.writing() as connection:
            _require(connection, topic)
            known = _producer_row(connection, topic, name)
            if known is not None:
                return int(known["producer_id"])  # another caller was faster
            producer_id = self._take(connection, "producer_id")
            row = {"producer_id": producer_id, "topic_uid": topic.topic_uid, "name": name}
            write_row(connection, PRODUCERS, {**row, "created_ms": now_ms(self._clock)})
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

    def _ensure_namespace(self, connection: Connection, namespace: str) -> None:
        if read_row(connection, select(NAMESPACES).where(NAMESPACES.c.namespace == namespace)) is None:
            write_row(connection, NAMESPACES, {"namespace": namespace, "created_ms": now_ms(self._clock)})


def _topic_row(connection: Connection, name: TopicName) -> Row | None:
    return read_row(
        connection, select(TOPICS).where(TOPICS.c.namespace == name.namespace, TOPICS.c.topic == name.topic)
    )


def _existing(connection: Connection, name: TopicName) -> Topic:
    row = _topic_row(connection, name)
    if row is None:
        raise _missing(connection, name)
    return _topic_of(row)


def _missing(connection: Connection, name: TopicName) -> TopicNotSupported:
    # Neighbours in the same namespace come first: that is where a name is most often misspelt.
    names = select(TOPICS.c.namespace, TOPICS.c.topic).order_by(
        TOPICS.c.namespace != name.namespace, TOPICS.c.namespace, TOPICS.c.topic
    )
    known = [f"/{namespace}/{topic}" for namespace, topic in connection.execute(names.limit(SUGGESTIONS_MAX))]
    close = difflib.get_close_matches(str(name), known, n=1)
    if not close:
        return TopicNotSupported(f"there is no topic {name}", topic=str(name))
    return TopicNotSupported(
        f"there is no topic {name}; did you mean {close[0]}?", topic=str(name), suggestion=close[0]
    )


def _require(connection: Connection, topic: Topic) -> None:
    if read_row(connection, select(TOPICS).where(TOPICS.c.topic_uid == topic.topic_uid)) is None:
        raise TopicNotSupported(
            f"topic {topic.name} (uid {topic.topic_uid}) has been deleted", topic=str(topic.name), uid=topic.topic_uid
        )


def _producer_row(connection: Connection, topic: Topic, name: str) -> Row | None:
    query = select(PRODUCERS).where(PRODUCERS.c.topic_uid == topic.topic_uid, PRODUCERS.c.name == name)
    return read_row(connection, query)


def _checkpoint_key(topic: Topic, partition: int) -> dict[str, int]:
    topic.name.partition(partition, topic.partitions)
    return {"topic_uid": topic.topic_uid, "partition_index": partition}


def _checkpoint_row(connection: Connection, topic: Topic, partition: int) -> Row | None:
    table: Table = PRODUCER_CHECKPOINTS
    query = select(table).where(table.c.topic_uid == topic.topic_uid, table.c.partition_index == partition)
    return read_row(connection, query)


def _row_of(topic: Topic) -> dict[str, object]:
    return {
        "topic_uid": topic.topic_uid,
        "namespace": topic.name.namespace,
        "topic": topic.name.topic,
        "partitions": topic.partitions,
        "dispatch": topic.dispatch.value,
        "created_ms": topic.created_ms,
        "settings": settings_text(topic.settings),
    }


def _topic_of(row: Row) -> Topic:
    try:
        return Topic(
            topic_uid=row["topic_uid"],
            name=TopicName(row["namespace"], row["topic"]),
            partitions=row["partitions"],
            dispatch=Dispatch(row["dispatch"]),
            created_ms=row["created_ms"],
            settings=stored_settings(row["settings"]),
        )
    except (ValueError, TopicNotSupported) as error:
        raise StorageFailed(f"a stored topic cannot be read: {error}") from error
