"""Rows of the catalog: the queries that find them, and the values they stand for.

The caller has begun the transaction. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, Table, select

from penstock.core.errors import InvalidRequest, NotOwner, StorageFailed, TopicNotSupported
from penstock.core.names import TopicName, nearest
from penstock.core.offsets import Offset
from penstock.storage.catalog.subscriptions import Cursor, StoredSubscription, cursor_text, options_text, parse_options
from penstock.storage.catalog.tables import (
    LOG_ENDS,
    NAMESPACES,
    PRODUCER_CHECKPOINTS,
    PRODUCER_OWNERS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    CatalogRow,
    read_row,
    read_rows,
)
from penstock.storage.catalog.topics import Dispatch, LogEnd, Topic, parse_settings, settings_text

SUGGESTIONS_MAX: Final = 1_000
"""Names compared to suggest a similar one: a misspelt name costs a few milliseconds however many topics there are."""


def parsed_namespace(namespace: str) -> str:
    """Return a namespace in lower case, as it is stored. Raises `TopicNotSupported` if it is invalid."""
    return TopicName(namespace, "any").namespace


def namespace_row(connection: Connection, namespace: str) -> CatalogRow | None:
    return read_row(connection, select(NAMESPACES).where(NAMESPACES.c.namespace == namespace))


def topic_row(connection: Connection, name: TopicName) -> CatalogRow | None:
    return read_row(
        connection, select(TOPICS).where(TOPICS.c.namespace == name.namespace, TOPICS.c.topic == name.topic)
    )


def existing_topic(connection: Connection, name: TopicName, *, suggests: bool = True) -> Topic:
    """Return a topic. Raises `TopicNotSupported` if it does not exist; with `suggests`, the error has the closest
    name."""
    row = topic_row(connection, name)
    if row is None:
        raise (
            _missing(connection, name) if suggests else TopicNotSupported(f"there is no topic {name}", topic=str(name))
        )
    return topic_of(row)


def _missing(connection: Connection, name: TopicName) -> TopicNotSupported:
    # Topics of the same namespace come first, since they are misspelt most often.
    names = select(TOPICS.c.namespace, TOPICS.c.topic).order_by(
        TOPICS.c.namespace != name.namespace, TOPICS.c.namespace, TOPICS.c.topic
    )
    close = nearest(name, (TopicName(*row) for row in connection.execute(names.limit(SUGGESTIONS_MAX))))
    if close is None:
        return TopicNotSupported(f"there is no topic {name}", topic=str(name))
    return TopicNotSupported(f"there is no topic {name}; did you mean {close}?", topic=str(name), suggestion=str(close))


def require_topic(connection: Connection, topic: Topic) -> None:
    if read_row(connection, select(TOPICS).where(TOPICS.c.topic_uid == topic.topic_uid)) is None:
        raise TopicNotSupported(
            f"topic {topic.name} (uid {topic.topic_uid}) has been deleted", topic=str(topic.name), uid=topic.topic_uid
        )


def producer_row(connection: Connection, topic: Topic, name: str) -> CatalogRow | None:
    query = select(PRODUCERS).where(PRODUCERS.c.topic_uid == topic.topic_uid, PRODUCERS.c.name == name)
    return read_row(connection, query)


def check_owner(connection: Connection, topic: Topic, name: str, producer_id: int, principal: str) -> bool:
    """Return True if a producer's name belongs to this principal, False if it has no owner yet.

    Raises `NotOwner` if it belongs to another principal.
    """
    query = select(PRODUCER_OWNERS).where(PRODUCER_OWNERS.c.producer_id == producer_id)
    owner = read_row(connection, query)
    if owner is not None and owner["principal"] != principal:
        raise NotOwner(
            f"producer {name!r} of {topic.name} belongs to another principal, which used the name first: take another"
            " name",
            producer_id=producer_id,
        )
    return owner is not None


def checkpoint_key(topic: Topic, partition: int) -> dict[str, int]:
    topic.name.partition(partition, topic.partitions)
    return {"topic_uid": topic.topic_uid, "partition_index": partition}


def checkpoint_row(connection: Connection, topic: Topic, partition: int) -> CatalogRow | None:
    table: Table = PRODUCER_CHECKPOINTS
    query = select(table).where(table.c.topic_uid == topic.topic_uid, table.c.partition_index == partition)
    return read_row(connection, query)


def log_ends(connection: Connection) -> dict[tuple[int, int], LogEnd]:
    """Return the saved ends of logs, by topic uid and partition."""
    return {
        (row["topic_uid"], row["partition_index"]): LogEnd(
            row["first_offset"], row["next_offset"], bytes.fromhex(row["last_id"])
        )
        for row in read_rows(connection, select(LOG_ENDS))
    }


def row_of_end(key: tuple[int, int], end: LogEnd) -> CatalogRow:
    topic_uid, partition = key
    return {
        "topic_uid": topic_uid,
        "partition_index": partition,
        "first_offset": end.first_offset,
        "next_offset": end.next_offset,
        "last_id": end.last_id.hex(),
    }


def row_of_topic(topic: Topic) -> dict[str, object]:
    return {
        "topic_uid": topic.topic_uid,
        "namespace": topic.name.namespace,
        "topic": topic.name.topic,
        "partitions": topic.partitions,
        "dispatch": topic.dispatch.value,
        "created_ms": topic.created_ms,
        "settings": settings_text(topic.settings),
    }


def topic_of(row: CatalogRow) -> Topic:
    try:
        return Topic(
            topic_uid=row["topic_uid"],
            name=TopicName(row["namespace"], row["topic"]),
            partitions=row["partitions"],
            dispatch=Dispatch(row["dispatch"]),
            created_ms=row["created_ms"],
            settings=parse_settings(row["settings"]),
        )
    except (ValueError, TopicNotSupported) as error:
        raise StorageFailed(f"a stored topic cannot be read: {error}") from error


def check_new_subscription(connection: Connection, topic: Topic, name: str) -> None:
    table: Table = SUBSCRIPTIONS
    query = select(table).where(table.c.topic_uid == topic.topic_uid, table.c.name == name)
    if read_row(connection, query) is not None:
        raise InvalidRequest(
            f"subscription {name} of {topic.name} exists already", field="subscription", subscription=name
        )


def existing_subscription(connection: Connection, subscription_uid: int) -> StoredSubscription:
    row = read_row(connection, select(SUBSCRIPTIONS).where(SUBSCRIPTIONS.c.subscription_uid == subscription_uid))
    if row is None:
        raise InvalidRequest(f"there is no subscription with uid {subscription_uid}", field="subscription")
    return subscription_of(row)


def row_of_subscription(subscription: StoredSubscription) -> dict[str, object]:
    return {
        "subscription_uid": subscription.subscription_uid,
        "topic_uid": subscription.topic_uid,
        "name": subscription.name,
        "options": options_text(subscription.options),
        "paused": int(subscription.paused),
        "created_ms": subscription.created_ms,
    }


def subscription_of(row: CatalogRow) -> StoredSubscription:
    return StoredSubscription(
        subscription_uid=row["subscription_uid"],
        topic_uid=row["topic_uid"],
        name=row["name"],
        options=parse_options(row["options"]),
        paused=bool(row["paused"]),
        created_ms=row["created_ms"],
    )


def first_cursors(topic: Topic, starts: Mapping[int, Offset]) -> dict[int, Cursor]:
    if set(starts) != set(range(topic.partitions)):
        raise InvalidRequest(
            f"a subscription of {topic.name} starts in each of its partitions 0 to {topic.partitions - 1}, not in"
            f" {sorted(starts)}",
            field="starts",
        )
    return {partition: Cursor(floor=start) for partition, start in starts.items()}


def row_of_cursor(subscription_uid: int, partition: int, cursor: Cursor) -> dict[str, object]:
    return {
        "subscription_uid": subscription_uid,
        "partition_index": partition,
        "floor": int(cursor.floor),
        "state": cursor_text(cursor),
    }
