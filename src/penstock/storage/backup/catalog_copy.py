"""The catalog of a backup, merged from two copies so that it fits logs that were read between them.

All records up to the watermarks were written before the second copy was made, so that copy has every schema and
producer they refer to. Cursors are taken from the first copy: all that they count as acked, and all that was written
because of it (dead letters, messages of other topics), is in the logs. So after a restore a message may be delivered
once more, and none is skipped. Topics and subscriptions younger than the first copy are left out; the next backup has
them.

Dead letters, and messages made of them, are numbered by offsets. Offsets behind a watermark are given again after a
restore, so a number may become that of another message, which would be taken for a repetition and lost. The producers
that number so are left out, and begin anew: a dead letter may then be stored twice, and none is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Connection, Table, delete, select
from sqlalchemy.pool import NullPool

from penstock.core.clock import SystemClock
from penstock.core.dead_letter_attributes import DEAD_LETTER_PRODUCER_PREFIX, REDRIVE_PRODUCER_PREFIX
from penstock.core.errors import VersionNotSupported
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.database import commit_counter_path, verify_catalog
from penstock.storage.catalog.reader import CatalogReader
from penstock.storage.catalog.rows import topic_of
from penstock.storage.catalog.sqlite import translated_errors
from penstock.storage.catalog.tables import (
    CURSORS,
    LOG_ENDS,
    PRODUCER_CHECKPOINTS,
    PRODUCER_OWNERS,
    PRODUCER_SESSIONS,
    PRODUCERS,
    SUBSCRIPTIONS,
    TOPICS,
    CatalogRow,
    add_rows,
    newest_version,
    read_rows,
)
from penstock.storage.catalog.topics import Topic


def copy_catalog(source: Path, target: Path) -> None:
    """Copy the catalog as of one moment. Raises `VersionNotSupported` for a catalog of an older release."""
    version = CatalogReader(source).copy_to(target)
    if version != newest_version():
        raise VersionNotSupported(
            f"{source} is a catalog of version {version}, and this release backs up version {newest_version()}: use"
            " the release that wrote it, or start this release's broker on it first",
            found=version,
        )


def topics_of(copy: Path) -> dict[int, Topic]:
    """Return the topics of a copy that nobody writes to, by uid."""
    with translated_errors(copy), _reading(copy) as connection:
        return {topic.topic_uid: topic for topic in map(topic_of, read_rows(connection, select(TOPICS)))}


def reconcile(second: Path, first: Path, keep: Iterable[int]) -> None:
    """Change the second copy so that it fits the logs of the topics to keep; it is whole, and one file, on return.

    Raises `StorageFailed` if the result is not a valid catalog.
    """
    _forget_topics(second, frozenset(keep))
    with translated_errors(first), _reading(first) as before:
        cursors = read_rows(before, select(CURSORS))
        checkpoints = read_rows(before, select(PRODUCER_CHECKPOINTS))
    with (
        translated_errors(second),
        sqlite.transaction(sqlite.engine_for(second, "make", pool=NullPool), writes=True) as after,
    ):
        known = {row["subscription_uid"] for row in cursors}
        there = {row["subscription_uid"] for row in read_rows(after, select(SUBSCRIPTIONS))}
        _put(after, CURSORS, [row for row in cursors if row["subscription_uid"] in there])
        for uid in there - known:
            after.execute(delete(SUBSCRIPTIONS).where(SUBSCRIPTIONS.c.subscription_uid == uid))
        topics = {row["topic_uid"] for row in read_rows(after, select(TOPICS))}
        _put(after, PRODUCER_CHECKPOINTS, [row for row in checkpoints if row["topic_uid"] in topics])
        _forget_numbering(after)
        # These ends are newer than the logs in the backup, which would seem to lack messages.
        after.execute(delete(LOG_ENDS))
    verify_catalog(second)


def _forget_numbering(connection: Connection) -> None:
    """Delete the producers with which the broker writes dead letters and redrives: they number messages by the offsets
    of other topics."""
    for row in read_rows(connection, select(PRODUCERS)):
        if row["name"].startswith((DEAD_LETTER_PRODUCER_PREFIX, REDRIVE_PRODUCER_PREFIX)):
            for table in (PRODUCER_SESSIONS, PRODUCER_OWNERS, PRODUCERS):
                connection.execute(delete(table).where(table.c.producer_id == row["producer_id"]))


def _reading(copy: Path) -> sqlite.ReadTransaction:
    return sqlite.transaction(sqlite.engine_for(copy, "frozen", pool=NullPool), writes=False)


def _put(connection: Connection, table: Table, rows: list[CatalogRow]) -> None:
    """Replace all rows of a table."""
    connection.execute(delete(table))
    if rows:
        add_rows(connection, table, rows)


def _forget_topics(copy: Path, keep: frozenset[int]) -> None:
    gone = [topic.name for uid, topic in topics_of(copy).items() if uid not in keep]
    if not gone:
        return
    with Catalog.open(copy, clock=SystemClock(), create=False) as catalog:
        for name in gone:
            catalog.delete_topic(name)
    with translated_errors(copy):
        sqlite.make_single_file(copy)
        commit_counter_path(copy).unlink(missing_ok=True)
