"""The catalog's tables: their columns, their migrations, and the checksum on every row.

SQLite has no checksums: a flipped bit in a name or in a number is a perfectly good row. So every row has a checksum
over all its columns (in the column `seal`), rows are written whole, and a row with a wrong checksum is never believed.
Only SQL that PostgreSQL understands too is used here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    bindparam,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.sql.expression import table as named_table

from penstock.core.errors import StorageFailed

CatalogRow = Mapping[str, Any]

ROW_CHECKSUM: Final = "seal"
SCHEMA_VERSION: Final = "schema_version"
DEFINITIONS_CHECKSUM: Final = "schema_seal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A step to `version` from the version before it. `apply` runs in a transaction of its own, all or nothing.

    Every table has a text column `seal` with the row's checksum, and `apply` writes rows with `write_row` alone. A step
    that adds a column to a table with rows writes each row again, so that its checksum covers the new column.
    """

    version: int
    apply: Callable[[Connection], None]


def statements(*ddl: str) -> Callable[[Connection], None]:
    """Return a migration's `apply` function that runs these DDL statements in order."""

    def apply(connection: Connection) -> None:
        for statement in ddl:
            connection.execute(text(statement))

    return apply


def _to_streams(connection: Connection) -> None:
    """Add subscriptions with cursors, producer sessions and settings of namespaces; turn the last requests in
    checkpoints into runs of requests."""
    namespaces = list(_all_rows(connection, "namespaces"))
    checkpoints = list(_all_rows(connection, "producer_checkpoints"))
    statements(
        "CREATE TABLE subscriptions (subscription_uid BIGINT NOT NULL PRIMARY KEY,"
        " topic_uid BIGINT NOT NULL REFERENCES topics (topic_uid), name TEXT NOT NULL, options TEXT NOT NULL,"
        " paused INTEGER NOT NULL, created_ms BIGINT NOT NULL, seal TEXT NOT NULL, UNIQUE (topic_uid, name))",
        "CREATE TABLE cursors (subscription_uid BIGINT NOT NULL REFERENCES subscriptions (subscription_uid),"
        " partition_index INTEGER NOT NULL, floor BIGINT NOT NULL, state TEXT NOT NULL, seal TEXT NOT NULL,"
        " PRIMARY KEY (subscription_uid, partition_index))",
        "CREATE TABLE producer_sessions (producer_id BIGINT NOT NULL PRIMARY KEY REFERENCES producers (producer_id),"
        " session TEXT NOT NULL, seal TEXT NOT NULL)",
        "ALTER TABLE namespaces ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'",
    )(connection)
    for row in namespaces:
        write_row(connection, NAMESPACES, {**row, "settings": "{}"})
    for row in checkpoints:
        write_row(connection, PRODUCER_CHECKPOINTS, {**row, "marks": _runs_of_marks(row["marks"])})


def _runs_of_marks(text: str) -> str:
    """Return the text of a checkpoint with each producer's last request as a run of one; drop requests without a
    number."""
    try:
        marks = msgspec.json.decode(text, type=list[tuple[int, int, int]])
    except msgspec.MsgspecError as error:
        raise StorageFailed(f"a stored producer checkpoint cannot be read: {error}") from error
    runs = [(producer_id, [(request_id, offset, 1)]) for producer_id, request_id, offset in marks if request_id > 0]
    return msgspec.json.encode(runs).decode()


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
    Migration(version=2, apply=_to_streams),
    Migration(
        version=3,
        apply=statements(
            "CREATE TABLE schemas (schema_id BIGINT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL,"
            " fingerprint TEXT NOT NULL, created_by TEXT NOT NULL, created_ms BIGINT NOT NULL, seal TEXT NOT NULL,"
            " UNIQUE (fingerprint))",
            "CREATE TABLE schema_references (schema_id BIGINT NOT NULL REFERENCES schemas (schema_id),"
            " place INTEGER NOT NULL, name TEXT NOT NULL, subject TEXT NOT NULL, version INTEGER NOT NULL,"
            " seal TEXT NOT NULL, PRIMARY KEY (schema_id, place))",
            "CREATE INDEX schema_referrers ON schema_references (subject, version)",
            "CREATE TABLE schema_subjects (subject TEXT NOT NULL PRIMARY KEY, revision BIGINT NOT NULL,"
            " last_version INTEGER NOT NULL, compatibility TEXT, lenient INTEGER, mode TEXT, seal TEXT NOT NULL)",
            "CREATE TABLE schema_versions (subject TEXT NOT NULL REFERENCES schema_subjects (subject),"
            " version INTEGER NOT NULL, schema_id BIGINT NOT NULL REFERENCES schemas (schema_id),"
            " deleted INTEGER NOT NULL, deprecated TEXT, description TEXT NOT NULL, tags TEXT NOT NULL,"
            " created_by TEXT NOT NULL, created_ms BIGINT NOT NULL, seal TEXT NOT NULL,"
            " PRIMARY KEY (subject, version))",
            "CREATE INDEX schema_holders ON schema_versions (schema_id)",
            "CREATE TABLE schema_uses (schema_id BIGINT NOT NULL REFERENCES schemas (schema_id), place TEXT NOT NULL,"
            " created_ms BIGINT NOT NULL, seal TEXT NOT NULL, PRIMARY KEY (schema_id, place))",
        ),
    ),
    Migration(
        version=4,
        apply=statements(
            "CREATE TABLE access_keys (key_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL,"
            " created_ms BIGINT NOT NULL, expires_ms BIGINT, revoked_ms BIGINT, seal TEXT NOT NULL)",
            "CREATE TABLE access_bindings (principal TEXT NOT NULL, role TEXT NOT NULL, scope TEXT NOT NULL,"
            " created_ms BIGINT NOT NULL, seal TEXT NOT NULL, PRIMARY KEY (principal, role, scope))",
        ),
    ),
    Migration(
        version=5,
        apply=statements(
            "CREATE TABLE log_ends (topic_uid BIGINT NOT NULL REFERENCES topics (topic_uid),"
            " partition_index INTEGER NOT NULL, first_offset BIGINT NOT NULL, next_offset BIGINT NOT NULL,"
            " last_id TEXT NOT NULL, seal TEXT NOT NULL, PRIMARY KEY (topic_uid, partition_index))",
        ),
    ),
    Migration(
        version=6,
        apply=statements(
            "CREATE TABLE producer_owners (producer_id BIGINT NOT NULL PRIMARY KEY REFERENCES producers (producer_id),"
            " principal TEXT NOT NULL, seal TEXT NOT NULL)",
        ),
    ),
)

METADATA: Final = MetaData()


def _table(name: str, *columns: Column[Any] | UniqueConstraint) -> Table:
    return Table(name, METADATA, *columns, Column(ROW_CHECKSUM, Text, nullable=False))


META: Final = _table("meta", Column("name", Text, primary_key=True), Column("value", Text, nullable=False))
"""Facts about the catalog itself. This table has the same form in every version, so that the version can be read."""

COUNTERS: Final = _table("counters", Column("name", Text, primary_key=True), Column("last", BigInteger, nullable=False))
"""The last number given out under each name. Rows are never deleted, so no number is reused."""

NAMESPACES: Final = _table(
    "namespaces",
    Column("namespace", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
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

LOG_ENDS: Final = _table(
    "log_ends",
    Column("topic_uid", BigInteger, ForeignKey("topics.topic_uid"), primary_key=True, autoincrement=False),
    Column("partition_index", Integer, primary_key=True, autoincrement=False),
    Column("first_offset", BigInteger, nullable=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("last_id", Text, nullable=False),
)
"""The end of each log when it was last saved, so that the loss of its files is noticed."""

SUBSCRIPTIONS: Final = _table(
    "subscriptions",
    Column("subscription_uid", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_uid", BigInteger, ForeignKey("topics.topic_uid"), nullable=False),
    Column("name", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("paused", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("topic_uid", "name"),
)

PRODUCER_SESSIONS: Final = _table(
    "producer_sessions",
    Column("producer_id", BigInteger, ForeignKey("producers.producer_id"), primary_key=True, autoincrement=False),
    Column("session", Text, nullable=False),
)
"""The session that claimed each named producer last; only that session may write under the name."""

PRODUCER_OWNERS: Final = _table(
    "producer_owners",
    Column("producer_id", BigInteger, ForeignKey("producers.producer_id"), primary_key=True, autoincrement=False),
    Column("principal", Text, nullable=False),
)
"""The principal that was the first to use each producer name; no other may use it."""

CURSORS: Final = _table(
    "cursors",
    Column(
        "subscription_uid",
        BigInteger,
        ForeignKey("subscriptions.subscription_uid"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("partition_index", Integer, primary_key=True, autoincrement=False),
    Column("floor", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
)
"""Cursors: each subscription has one for every partition of its topic, from its creation on."""

SCHEMAS: Final = _table(
    "schemas",
    Column("schema_id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("fingerprint"),
)
"""Registered schemas, verbatim; each once, however many subjects have it."""

SCHEMA_REFERENCES: Final = _table(
    "schema_references",
    Column("schema_id", BigInteger, ForeignKey("schemas.schema_id"), primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("version", Integer, nullable=False),
)
"""References of schemas to versions. They are rows, not part of a text, so that a version's referrers can be found
before it is deleted."""

SCHEMA_SUBJECTS: Final = _table(
    "schema_subjects",
    Column("subject", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("last_version", Integer, nullable=False),
    Column("compatibility", Text),
    Column("lenient", Integer),
    Column("mode", Text),
)
"""Settings, last version number and revision of subjects. The subject with an empty name holds the global settings.

Rows are never deleted, so no version number is reused.
"""

SCHEMA_VERSIONS: Final = _table(
    "schema_versions",
    Column("subject", Text, ForeignKey("schema_subjects.subject"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema_id", BigInteger, ForeignKey("schemas.schema_id"), nullable=False),
    Column("deleted", Integer, nullable=False),
    Column("deprecated", Text),
    Column("description", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

SCHEMA_USES: Final = _table(
    "schema_uses",
    Column("schema_id", BigInteger, ForeignKey("schemas.schema_id"), primary_key=True, autoincrement=False),
    Column("place", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)
"""Places where messages with the schema id are stored."""

ACCESS_KEYS: Final = _table(
    "access_keys",
    Column("key_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
)
"""Keys of clients: never the secret, only its digest."""

ACCESS_BINDINGS: Final = _table(
    "access_bindings",
    Column("principal", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)
"""Roles of principals, and their scopes."""


def newest_version() -> int:
    """Return the newest version of the catalog that this release reads; it is also the version that it writes."""
    return MIGRATIONS[-1].version


def row_checksum(table: str, row: CatalogRow) -> str:
    """Return a checksum of 64 bits, as text, over the table's name and every column of the row, in the order of the
    columns' names."""
    # SQLAlchemy's names are of a string type of its own.
    content = sorted((str(column), value) for column, value in row.items() if column != ROW_CHECKSUM)
    return digest([str(table), content])


def digest(content: object) -> str:
    # MessagePack, because in it 1, 1.0, "1" and b"1" are four different things.
    return hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=8).hexdigest()


def write_row(connection: Connection, table: Table, row: CatalogRow) -> None:
    """Replace the row with the same primary key, or add it if there is none."""
    sealed = _with_checksum(table, row)
    same = and_(*(column == row[column.name] for column in table.primary_key))
    if connection.execute(update(table).where(same).values(sealed)).rowcount == 0:
        connection.execute(insert(table).values(sealed))


def add_rows(connection: Connection, table: Table, rows: Iterable[CatalogRow]) -> None:
    """Add rows, at least one, with new primary keys."""
    connection.execute(insert(table), [_with_checksum(table, row) for row in rows])


def replace_rows(connection: Connection, table: Table, rows: Iterable[CatalogRow]) -> None:
    """Replace the rows with the same primary keys by these whole rows, at least one.

    Rows without a match are skipped. Nothing is read: this is for many rows at once.
    """
    keys = {column.name: f"key_{column.name}" for column in table.primary_key}
    same = and_(*(column == bindparam(keys[column.name]) for column in table.primary_key))
    sealed = [_with_checksum(table, row) for row in rows]
    parameters = [{keys.get(column, column): value for column, value in row.items()} for row in sealed]
    values: dict[str, Any] = {c.name: bindparam(c.name) for c in table.columns if c.name not in keys}
    connection.execute(update(table).where(same).values(values), parameters)


def _with_checksum(table: Table, row: CatalogRow) -> dict[str, Any]:
    return {**row, ROW_CHECKSUM: row_checksum(table.name, row)}


def read_rows(connection: Connection, query: Select[Any]) -> list[CatalogRow]:
    """Return the rows of a query that selects whole rows of one table. Raises `StorageFailed` if a row's checksum is
    wrong."""
    (source,) = query.get_final_froms()
    assert isinstance(source, Table)  # noqa: S101  a query over a join has no seal to check: a mistake of ours
    return list(_verified_rows(connection, source.name, query))


def read_row(connection: Connection, query: Select[Any]) -> CatalogRow | None:
    rows = read_rows(connection, query)
    return rows[0] if rows else None


def check_row_checksums(connection: Connection) -> None:
    """Check every row of every table, with the columns that the table has now. Raises `StorageFailed` for a wrong
    checksum."""
    for name in inspect(connection).get_table_names():
        for _ in _all_rows(connection, name):
            pass


def _all_rows(connection: Connection, table: str) -> Iterator[CatalogRow]:
    """Yield every row of a table with the columns that it has in the file, also those that this release does not
    know."""
    return _verified_rows(connection, table, select(text("*")).select_from(named_table(table)))


def _verified_rows(connection: Connection, table: str, query: Select[Any]) -> Iterator[CatalogRow]:
    for mapping in connection.execute(query).mappings():
        row: CatalogRow = {str(column): value for column, value in mapping.items()}
        if row.get(ROW_CHECKSUM) != row_checksum(table, row):
            raise StorageFailed(f"a row of table {table} is not as it was written")
        yield row


def meta_value(connection: Connection, name: str) -> str | None:
    row = read_row(connection, select(META).where(META.c.name == name))
    return None if row is None else str(row["value"])


def schema_version(connection: Connection) -> int:
    """Return the version of the catalog; 0 if the file holds no catalog. Raises `StorageFailed` if it is not a
    number."""
    if not inspect(connection).has_table(META.name):
        return 0
    value = meta_value(connection, SCHEMA_VERSION)
    if value is None or not value.isdecimal():
        raise StorageFailed(f"its schema version is {value!r}")
    return int(value)
