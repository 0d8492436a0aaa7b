"""Storage, the catalog's tables: what is in them, how they came to be, and the seal on every row.

SQLite has no checksums: a flipped bit in a name or in a number is a perfectly good row. So every row carries a seal
over all that is in it, rows are written whole, and a row whose seal is broken is never believed.
Only SQL that PostgreSQL understands as well comes in here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    UniqueConstraint,
    and_,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.sql.expression import table as named_table

from penstock.core.errors import StorageFailed

Row = Mapping[str, Any]

SEAL: Final = "seal"
SCHEMA_VERSION: Final = "schema_version"
SCHEMA_SEAL: Final = "schema_seal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step to `version` from the version before it. `apply` runs in a transaction of its own, all or nothing.

    Every table has a text column `seal`, and `apply` writes rows with `write_row` alone. A step that adds a column
    to a table with rows in it writes each of them again, so that the seal speaks of the new column too.
    """

    version: int
    apply: Callable[[Connection], None]


def statements(*ddl: str) -> Callable[[Connection], None]:
    """A step that is nothing but DDL."""

    def apply(connection: Connection) -> None:
        for statement in ddl:
            connection.execute(text(statement))

    return apply


# Written out, not derived from the tables below: a released step never changes, the tables move on.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=1,
        apply=statements(
            "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, seal TEXT NOT NULL)",
            "CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, last BIGINT NOT NULL, seal TEXT NOT NULL)",
            "CREATE TABLE namespaces (namespace TEXT NOT NULL PRIMARY KEY, created_ms BIGINT NOT NULL,"
            " seal TEXT NOT NULL)",
            "CREATE TABLE topics (topic_uid BIGINT NOT NULL PRIMARY KEY,"
            " namespace TEXT NOT NULL REFERENCES namespaces (namespace), topic TEXT NOT NULL,"
            " partitions INTEGER NOT NULL, dispatch TEXT NOT NULL, created_ms BIGINT NOT NULL,"
            " settings TEXT NOT NULL, seal TEXT NOT NULL, UNIQUE (namespace, topic))",
            "CREATE TABLE producers (producer_id BIGINT NOT NULL PRIMARY KEY,"
            " topic_uid BIGINT NOT NULL REFERENCES topics (topic_uid), name TEXT NOT NULL,"
            " created_ms BIGINT NOT NULL, seal TEXT NOT NULL, UNIQUE (topic_uid, name))",
            "CREATE TABLE producer_checkpoints (topic_uid BIGINT NOT NULL REFERENCES topics (topic_uid),"
            " partition_index INTEGER NOT NULL, next_offset BIGINT NOT NULL, marks TEXT NOT NULL,"
            " seal TEXT NOT NULL, PRIMARY KEY (topic_uid, partition_index))",
        ),
    ),
)

METADATA: Final = MetaData()


def _table(name: str, *columns: Column[Any] | UniqueConstraint) -> Table:
    return Table(name, METADATA, *columns, Column(SEAL, Text, nullable=False))


META: Final = _table("meta", Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
"""Facts about the catalog itself. This table keeps its form in every version: it is how the version is known."""

COUNTERS: Final = _table("counters", Column("name", Text, primary_key=True), Column("last", BigInteger, nullable=False))
"""The last number given out under each name. Rows never go, so no number is ever given twice."""

NAMESPACES: Final = _table(
    "namespaces", Column("namespace", Text, primary_key=True), Column("created_ms", BigInteger, nullable=False)
)

TOPICS: Final = _table(
    "topics",
    Column("topic_uid", BigInteger, primary_key=True, autoincrement=False),
    Column("namespace", Text, ForeignKey("namespaces.namespace"), nullable=False),
    Column("topic", Text, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("dispatch", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
    UniqueConstraint("namespace", "topic"),
)

PRODUCERS: Final = _table(
    "producers",
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_uid", BigInteger, ForeignKey("topics.topic_uid"), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("topic_uid", "name"),
)

PRODUCER_CHECKPOINTS: Final = _table(
    "producer_checkpoints",
    Column("topic_uid", BigInteger, ForeignKey("topics.topic_uid"), primary_key=True, autoincrement=False),
    Column("partition_index", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("marks", Text, nullable=False),
)


def newest_version() -> int:
    """The version this release writes, and the last one it reads."""
    return MIGRATIONS[-1].version


def seal_of(table: str, row: Row) -> str:
    """64 bits over the table's name and every column of the row, in the order of the columns' names."""
    # SQLAlchemy has a string type of its own for names.
    content = sorted((str(column), value) for column, value in row.items() if column != SEAL)
    return digest([str(table), content])


def digest(content: object) -> str:
    # MessagePack, because in it 1, 1.0, "1" and b"1" are four different things.
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=8).hexdigest()


def write_row(connection: Connection, table: Table, row: Row) -> None:
    """Put this row in the place of the one with its primary key, or beside the others if there is none."""
    sealed = {**row, SEAL: seal_of(table.name, row)}
    same = and_(*(column == row[column.name] for column in table.primary_key))
    if connection.execute(update(table).where(same).values(sealed)).rowcount == 0:
        connection.execute(insert(table).values(sealed))


def read_rows(connection: Connection, query: Select[Any]) -> list[Row]:
    """The rows of a query over one whole table. Raises `StorageFailed` for a broken seal."""
    (source,) = query.get_final_froms()
    assert isinstance(source, Table)  # noqa: S101  a query over a join has no seal to check: a mistake of ours
    return list(_unsealed(connection, source.name, query))


def read_row(connection: Connection, query: Select[Any]) -> Row | None:
    rows = read_rows(connection, query)
    return rows[0] if rows else None


def check_seals(connection: Connection) -> None:
    """Read every row of every table, also of versions before this one. Raises `StorageFailed` for a broken seal."""
    for name in inspect(connection).get_table_names():
        for _ in _unsealed(connection, name, select(text("*")).select_from(named_table(name))):
            pass


def _unsealed(connection: Connection, table: str, query: Select[Any]) -> Iterator[Row]:
    for found in connection.execute(query).mappings():
        row: Row = {str(column): value for column, value in found.items()}
        if row.get(SEAL) != seal_of(table, row):
            raise StorageFailed(f"a row of table {table} is not as it was written")
        yield row


def meta_value(connection: Connection, name: str) -> str | None:
    row = read_row(connection, select(META).where(META.c.name == name))
    return None if row is None else str(row["value"])


def schema_version(connection: Connection) -> int:
    """0 where there is no catalog yet. Raises `StorageFailed` if the version cannot be believed."""
    if not inspect(connection).has_table(META.name):
        return 0
    value = meta_value(connection, SCHEMA_VERSION)
    if value is None or not value.isdecimal():
        raise StorageFailed(f"its schema version is {value!r}")
    return int(value)
