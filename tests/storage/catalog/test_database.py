"""The catalog's file: made, examined, migrated; damaged in every way we could think of, and left as it is."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Table
from sqlalchemy.pool import NullPool

from penstock.core.clock import SystemClock
from penstock.core.errors import (
    DiskFull,
    InvalidRequest,
    PenstockError,
    ServiceUnavailable,
    StorageFailed,
    VersionNotSupported,
)
from penstock.core.names import TopicName
from penstock.core.offsets import Offset, OffsetRange
from penstock.core.schemas import Reference, Schema, SchemaKind, SubjectMode
from penstock.storage.catalog import database, sqlite, tables
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.database import CatalogFile, saved_commit_counter
from penstock.storage.catalog.schema_rows import NewVersion, SubjectSettings, VersionMetadata
from penstock.storage.catalog.subscriptions import Cursor, StoredSubscription, SubscriptionKind, SubscriptionOptions
from penstock.storage.catalog.tables import (
    COUNTERS,
    META,
    NAMESPACES,
    PRODUCER_CHECKPOINTS,
    PRODUCERS,
    TOPICS,
    Migration,
    statements,
    write_row,
)
from penstock.storage.catalog.topics import ProducerCheckpoint, RequestRun, TopicSettings

pytestmark = pytest.mark.slow

ORDERS = TopicName.parse("/shop/orders")
RELEASED = tables.MIGRATIONS
NEXT = len(RELEASED) + 1
SHARED = SubscriptionOptions(kind=SubscriptionKind.SHARED)
PAGE = 4096


def opened(path: Path) -> Catalog:
    return Catalog.open(path, clock=SystemClock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    with opened(path) as catalog:
        yield catalog


def content(catalog: Catalog) -> list[Any]:
    """Return everything that can be read, each answer both from a list and from a lookup."""
    topics = catalog.list_topics()
    assert tuple(catalog.get_topic(topic.name) for topic in topics) == topics
    marks = [catalog.load_checkpoint(topic, 0) for topic in topics]
    subscriptions = [catalog.list_subscriptions(topic) for topic in topics]
    assert sorted(catalog.list_subscriptions(), key=id_of) == sorted(chain(*subscriptions), key=id_of)
    cursors = {found: catalog.load_cursors(found.subscription_uid) for found in catalog.list_subscriptions()}
    assert catalog.load_all_cursors() == {
        (found.subscription_uid, place): cursor for found, each in cursors.items() for place, cursor in each.items()
    }
    settings = [catalog.namespace_settings(namespace) for namespace in catalog.namespaces()]
    producers = [catalog.producers(topic) for topic in topics]
    schemas = catalog.schemas.load()
    uses = [catalog.schemas.uses(stored.schema_id) for stored in schemas.schemas]
    return [catalog.namespaces(), settings, topics, marks, producers, subscriptions, cursors, schemas, uses]


def id_of(subscription: StoredSubscription) -> int:
    return subscription.subscription_uid


# Making and opening


def test_a_new_catalog_is_for_its_owner_alone_and_leaves_no_drafts(path: Path) -> None:
    with opened(path) as catalog:
        catalog.create_topic(ORDERS)
        assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
            "catalog.db": 0o600,
            "catalog.db-wal": 0o600,
            "catalog.db-shm": 0o600,
            "catalog.db-commits": 0o600,
        }
    assert sorted(file.name for file in path.parent.iterdir()) == ["catalog.db", "catalog.db-commits"]


def test_a_new_catalog_gets_its_name_without_a_write_ahead_log(path: Path) -> None:
    # Were there one, and no room left to carry it over, the file under its name would be half a catalog.
    database._create(path)
    assert path.read_bytes()[18:20] == b"\1\1"
    opened(path).close()


# Every size at which a file may stop growing: what was confirmed is there, what was refused is not, and it opens again.
SMALL_FILES = """
import resource, sys
from pathlib import Path
from penstock.core.clock import SystemClock
from penstock.core.errors import PenstockError
from penstock.core.names import TopicName
from penstock.storage.catalog.catalog import Catalog

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
refusals = 0
for limit in range(0, 204_800, 4_096):
    path = Path(sys.argv[1]) / f"{limit}.db"
    confirmed = []
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with Catalog.open(path, clock=SystemClock()) as catalog:
            for name in ("a", "b"):
                confirmed.append(catalog.create_topic(TopicName.parse(name)))
    except PenstockError:
        refusals += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    with Catalog.open(path, clock=SystemClock()) as catalog:
        assert catalog.list_topics() == tuple(confirmed), limit
print(refusals)
"""


def test_wherever_the_file_stops_growing_what_was_confirmed_is_kept(tmp_path: Path) -> None:
    answer = subprocess.run([sys.executable, "-c", SMALL_FILES, str(tmp_path)], capture_output=True, timeout=300)
    assert answer.stderr == b""
    assert 10 < int(answer.stdout) < 50
    assert not [file.name for file in tmp_path.iterdir() if not file.name.endswith((".db", ".db-commits"))]


def test_every_commit_is_synced_and_every_reference_checked(catalog: Catalog) -> None:
    with catalog._file.reading() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        answers = [connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() for pragma in pragmas]
    assert answers == ["wal", 2, 1, sqlite.BUSY_MS]


def test_odd_characters_in_a_path_are_only_characters(tmp_path: Path) -> None:
    directory = tmp_path / "50% off? #1 é"
    directory.mkdir()
    with opened(directory / "catalog.db") as catalog:
        catalog.create_topic(ORDERS)
    assert sorted(file.name for file in directory.iterdir()) == ["catalog.db", "catalog.db-commits"]


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="No such file or directory"):
        opened(tmp_path / "nowhere" / "catalog.db")
    assert not (tmp_path / "nowhere").exists()


def test_a_closed_catalog_says_so_and_closes_twice(path: Path) -> None:
    catalog = opened(path)
    catalog.close()
    catalog.close()
    for call in (catalog.list_topics, lambda: catalog.create_topic(ORDERS)):
        with pytest.raises(ServiceUnavailable, match="is closed"):
            call()


def test_whoever_waits_too_long_for_another_process_is_told_to_try_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    with opened(path) as catalog:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ServiceUnavailable, match=r"database is locked.*try again"):
            catalog.create_topic(ORDERS)
        assert catalog.list_topics() == ()
        other.close()
        catalog.create_topic(ORDERS)


def test_whoever_waits_too_long_for_another_thread_is_told_to_try_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    with ThreadPoolExecutor(1) as pool, catalog._file.writing():
        with pytest.raises(ServiceUnavailable, match="busy"):
            pool.submit(catalog.create_topic, ORDERS).result()
        assert pool.submit(catalog.list_topics).result() == ()


def test_a_full_disk_refuses_writes_and_goes_on_reading(path: Path) -> None:
    written: list[TopicName] = []
    with opened(path) as catalog:
        with catalog._file.reading() as connection:  # the only one in the pool
            connection.exec_driver_sql(f"PRAGMA max_page_count = {path.stat().st_size // PAGE + 4}")
        with pytest.raises(DiskFull, match="no room on the disk"):
            create_many(catalog, written)
        assert [topic.name for topic in catalog.list_topics()] == sorted(written)
        catalog.delete_topic(written[0])
        catalog.create_topic(written[0])


def create_many(catalog: Catalog, written: list[TopicName]) -> None:
    for number in range(1_000):
        topic = catalog.create_topic(TopicName.parse(f"/shop/orders{number}"))
        written.append(topic.name)


# Versions


def test_a_catalog_of_a_newer_release_is_refused_with_both_versions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        add_migrations(newer, statements("CREATE TABLE colours (name TEXT NOT NULL PRIMARY KEY, seal TEXT NOT NULL)"))
        opened(path).close()
    before = path.read_bytes()
    with pytest.raises(
        VersionNotSupported, match=rf"version {NEXT}, .* up to {NEXT - 1}: run the newer release"
    ) as refused:
        opened(path)
    assert refused.value.details == {"found": NEXT, "newest": NEXT - 1}
    assert path.read_bytes() == before


def add_migrations(monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
    extra = (Migration(version=number, apply=step) for number, step in enumerate(steps, len(RELEASED) + 1))
    monkeypatch.setattr(tables, "MIGRATIONS", (*RELEASED, *extra))


def add_colours(connection: Connection) -> None:
    statements("CREATE TABLE colours (name TEXT NOT NULL PRIMARY KEY, seal TEXT NOT NULL)")(connection)


def meta_row(version: int) -> Any:
    """A step that needs the step before it, and says that it was taken."""

    def apply(connection: Connection) -> None:
        assert tables.schema_version(connection) == version - 1
        write_row(connection, META, {"name": f"step {version}", "value": "taken"})

    return apply


def test_an_older_catalog_is_brought_up_step_by_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as catalog:
        topic = catalog.create_topic(ORDERS)
    add_migrations(monkeypatch, meta_row(NEXT), meta_row(NEXT + 1))
    for _ in range(2):
        with opened(path) as catalog:
            assert catalog.list_topics() == (topic,)
            with catalog._file.reading() as connection:
                assert tables.schema_version(connection) == NEXT + 1
                assert tables.meta_value(connection, f"step {NEXT}") == "taken"
                assert tables.meta_value(connection, f"step {NEXT + 1}") == "taken"


def test_a_step_that_fails_leaves_the_version_before_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as catalog:
        topic = catalog.create_topic(ORDERS)
    add_migrations(monkeypatch, meta_row(NEXT), statements("CREATE TABLE half (seal TEXT)", "CREATE NONSENSE"))
    with pytest.raises(StorageFailed, match=f"on the way to version {NEXT + 1}; the catalog stays at version {NEXT}"):
        opened(path)
    add_migrations(monkeypatch, meta_row(NEXT))
    with opened(path) as catalog, catalog._file.reading() as connection:
        assert tables.schema_version(connection) == NEXT
        assert connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE name = 'half'").all() == []
    add_migrations(monkeypatch, meta_row(NEXT), meta_row(NEXT + 1))
    with opened(path) as catalog:
        assert catalog.list_topics() == (topic,)


def test_a_step_is_taken_once_however_many_open_the_catalog(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 60_000)  # on a slow disk, each waits long for all the others
    opened(path).close()
    add_migrations(monkeypatch, meta_row(NEXT), add_colours)
    with ThreadPoolExecutor(6) as pool:
        for catalog in list(pool.map(opened, [path] * 6)):
            catalog.close()


def test_a_release_does_not_write_to_a_catalog_that_another_has_brought_further(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as catalog:
        with monkeypatch.context() as newer:
            add_migrations(newer, meta_row(NEXT))
            opened(path).close()
        with pytest.raises(VersionNotSupported, match=f"no longer of version {NEXT - 1}"):
            catalog.create_topic(ORDERS)


# The step from version 1 to version 2


@pytest.fixture
def first_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog as the first release left it."""
    with monkeypatch.context() as then:
        then.setattr(tables, "MIGRATIONS", RELEASED[:1])
        file = CatalogFile.open(path, create=True)
        with file.writing() as connection:
            for table, row in FIRST_ROWS:
                write_row(connection, table, row)
        file.close()
    return path


FIRST_TOPIC = {
    "topic_uid": 5,
    "namespace": "shop",
    "topic": "orders",
    "partitions": 2,
    "dispatch": "reliable",
    "created_ms": 2,
    "settings": '{"segment_bytes_max":8192}',
}
FIRST_MARKS: dict[str, Any] = {"topic_uid": 5, "partition_index": 1, "next_offset": 9, "marks": "[[3,7,8],[4,0,2]]"}
FIRST_ROWS: list[tuple[Table, dict[str, Any]]] = [
    (NAMESPACES, {"namespace": "shop", "created_ms": 1}),
    (NAMESPACES, {"namespace": "shop-dlq", "created_ms": 1}),
    (TOPICS, FIRST_TOPIC),
    (PRODUCERS, {"producer_id": 3, "topic_uid": 5, "name": "till", "created_ms": 3}),
    (PRODUCER_CHECKPOINTS, FIRST_MARKS),
    (COUNTERS, {"name": "producer_id", "last": 2**60}),
]


def test_a_catalog_of_the_first_release_is_brought_up_with_all_it_holds(first_version: Path) -> None:
    for _ in range(2):
        with opened(first_version) as catalog:
            assert catalog.namespaces() == ("shop", "shop-dlq")
            assert catalog.namespace_settings("shop") == TopicSettings()
            topic = catalog.get_topic(ORDERS)
            assert (topic.topic_uid, topic.partitions, topic.settings.segment_bytes_max) == (5, 2, 8192)
            assert catalog.producer_id(topic, "till") == 3
            # A request without a number was nobody's.
            expected = ProducerCheckpoint(next_offset=Offset(9), runs={3: (RequestRun(7, 8, 1),)})
            assert catalog.load_checkpoint(topic, 1) == expected
            assert catalog.list_subscriptions() == ()
            assert catalog.load_all_cursors() == {}
            assert catalog.take_producer_id() > 2**60


def test_a_catalog_of_the_first_release_takes_subscriptions_and_settings(first_version: Path) -> None:
    with opened(first_version) as catalog:
        catalog.set_namespace_settings("shop", TopicSettings(rate_max=7))
        found = catalog.create_subscription(catalog.get_topic(ORDERS), "billing", SHARED, {0: Offset(0), 1: Offset(9)})
    with opened(first_version) as catalog:
        assert catalog.namespace_settings("shop") == TopicSettings(rate_max=7)
        assert catalog.list_subscriptions() == (found,)


def test_a_row_that_is_damaged_before_the_step_is_refused_and_the_file_left_as_it_was(first_version: Path) -> None:
    alter(first_version, "UPDATE namespaces SET created_ms = 2 WHERE namespace = 'shop'")
    before = first_version.read_bytes()
    with pytest.raises(StorageFailed, match="a row of table namespaces is not as it was written"):
        opened(first_version)
    assert first_version.read_bytes() == before


def test_marks_that_cannot_be_read_leave_the_catalog_at_the_first_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(tables, "MIGRATIONS", RELEASED[:1])
        file = CatalogFile.open(path, create=True)
        with file.writing() as connection:
            for table, row in FIRST_ROWS:
                write_row(connection, table, {**row, "marks": "[[1]]"} if row is FIRST_MARKS else row)
        file.close()
    with pytest.raises(StorageFailed, match="a stored producer checkpoint cannot be read"):
        opened(path)
    engine = sqlite.engine_for(path, "examine", pool=NullPool)
    with sqlite.transaction(engine, writes=False) as connection:
        assert tables.schema_version(connection) == 1


# The step from version 2 to version 3


@pytest.fixture
def second_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Any]]:
    """A catalog as the second release left it, and what it held."""
    with monkeypatch.context() as then:
        then.setattr(tables, "MIGRATIONS", RELEASED[:2])
        with opened(path) as catalog:
            topic = catalog.create_topic(ORDERS, settings=TopicSettings(rate_max=7))
            catalog.producer_id(topic, "till")
            catalog.create_subscription(topic, "billing", SHARED, {0: Offset(9)})
            return path, [catalog.list_topics(), catalog.producers(topic), catalog.list_subscriptions()]


def test_a_catalog_of_the_second_release_is_brought_up_with_all_it_holds_and_takes_schemas(
    second_version: tuple[Path, list[Any]],
) -> None:
    path, before = second_version
    for number in range(2):
        with opened(path) as catalog:
            topic = catalog.get_topic(ORDERS)
            assert [catalog.list_topics(), catalog.producers(topic), catalog.list_subscriptions()] == before
            assert len(catalog.schemas.load().schemas) == number
            add_schema(catalog, number, "text")


# Damage


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[Any]]:
    """The bytes of a catalog with rows in every table, pages that overflow and pages that are free; its content."""
    path = tmp_path_factory.mktemp("sound") / "catalog.db"
    with opened(path) as catalog:
        for number in range(4):
            topic = catalog.create_topic(TopicName.parse(f"/shop{number % 2}/orders{number}"))
            catalog.producer_id(topic, "till")
            runs = {i: (RequestRun(i, i, 1),) for i in range(1, 600 if number > 1 else 5)}
            catalog.save_checkpoint(topic, 0, ProducerCheckpoint(next_offset=Offset(1000), runs=runs))
            found = catalog.create_subscription(topic, f"reader{number}", SHARED, {0: Offset(number)})
            acked = tuple(OffsetRange.of(i, i + 1) for i in range(10, 1200 if number > 1 else 20, 2))
            catalog.save_cursors({(found.subscription_uid, 0): Cursor(floor=Offset(5), acked=acked, failures={7: 2})})
            catalog.set_namespace_settings(topic.name.namespace, TopicSettings(rate_max=number + 1))
            add_schema(catalog, number, "x" * (6_000 if number > 1 else 5))
        catalog.delete_topic(topic.name)
        before = content(catalog)
    return path.read_bytes(), before


def add_schema(catalog: Catalog, number: int, text: str) -> None:
    """Add a schema with all that belongs to it: a reference to the one before, settings, a use."""
    references = (Reference(name="before", subject=f"s{number - 1}", version=1),) if number else ()
    schema = Schema(kind=SchemaKind.JSON, text=text, references=references)
    about = VersionMetadata(description="as it was", tags=("a", "b"), created_by="somebody")
    new = NewVersion(subject=f"s{number}", schema=schema, fingerprint=str(number), metadata=about, deprecated="why")
    catalog.schemas.add_version(new, expected={})
    catalog.schemas.put_settings(f"s{number}", SubjectSettings(lenient=True, mode=SubjectMode.IMPORT), expected={})
    catalog.schemas.note_use(number + 1, f"archive {number}")


def outcome(path: Path, damaged: bytes) -> list[Any] | StorageFailed:
    """Return the content of a damaged catalog, or how it was refused. Any other exception fails the test."""
    path.write_bytes(damaged)
    try:
        with opened(path) as catalog:
            return content(catalog)
    except StorageFailed as refused:
        assert path.read_bytes() == damaged
        return refused


def check_sentence(refused: list[Any] | StorageFailed, path: Path) -> None:
    assert isinstance(refused, StorageFailed)
    assert refused.message.startswith(f"{path} is damaged (")
    for part in ("nothing was changed", "`penstock segment dump`", "`penstock segment verify`", "from a backup"):
        assert part in refused.message


@pytest.mark.parametrize("size", [1, 15, 100, 512, PAGE, 3 * PAGE, 100_001])
@pytest.mark.parametrize("magic", [b"", b"SQLite format 3\0"])
def test_random_bytes_are_refused(path: Path, size: int, magic: bytes) -> None:
    check_sentence(outcome(path, magic + random.Random(size).randbytes(size)), path)


def test_a_file_cut_anywhere_is_refused(path: Path, sound: tuple[bytes, list[Any]]) -> None:
    whole, before = sound
    ends = {0, 1, 16, 99, 100, 511, 512, 1024}
    ends |= {end + more for end in range(PAGE, len(whole), PAGE) for more in (-1, 0, 1)}
    for end in sorted(ends):
        after = outcome(path, whole[:end])
        # The last page is a free one: where only a part of that is gone, nothing is.
        if end <= len(whole) - PAGE or isinstance(after, StorageFailed):
            check_sentence(after, path)
        else:
            assert after == before


def test_any_flipped_bit_of_the_header_is_refused_or_harmless(path: Path, sound: tuple[bytes, list[Any]]) -> None:
    whole, before = sound
    for place in range(100):
        check_flip(path, whole, before, place, bit=place % 8)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_any_flipped_bit_of_any_page_is_refused_or_harmless(
    path: Path, sound: tuple[bytes, list[Any]], seed: int
) -> None:
    whole, before = sound
    chance = random.Random(seed)
    for page in range(0, len(whole), PAGE):
        # Most of a page is empty: half of the flips go where something is written.
        written = [place for place in range(page, page + PAGE) if whole[place]]
        for place in [*chance.sample(written, min(4, len(written))), page + chance.randrange(PAGE)]:
            check_flip(path, whole, before, place, bit=chance.randrange(8))


def check_flip(path: Path, whole: bytes, before: list[Any], place: int, bit: int) -> None:
    damaged = bytearray(whole)
    damaged[place] ^= 1 << bit
    after = outcome(path, bytes(damaged))
    assert isinstance(after, StorageFailed) or after == before, f"byte {place}, bit {bit}"


def test_a_changed_number_in_a_healthy_table_is_noticed(path: Path, catalog: Catalog) -> None:
    catalog.create_topic(ORDERS)
    alter(path, "UPDATE topics SET partitions = 2")
    with pytest.raises(StorageFailed, match="a row of table topics is not as it was written"):
        catalog.get_topic(ORDERS)
    with pytest.raises(StorageFailed, match="a row of table topics is not as it was written"):
        opened(path)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE cursors SET floor = floor + 1", "a row of table cursors"),
        ("UPDATE cursors SET state = '{}'", "a row of table cursors"),
        ("UPDATE subscriptions SET paused = 1", "a row of table subscriptions"),
        ("UPDATE namespaces SET settings = '{}'", "a row of table namespaces"),
        ("UPDATE schemas SET text = text || ' '", "a row of table schemas"),
        ("UPDATE schema_references SET version = 2", "a row of table schema_references"),
        ("UPDATE schema_subjects SET mode = NULL", "a row of table schema_subjects"),
        ("UPDATE schema_versions SET deleted = 1", "a row of table schema_versions"),
        ("UPDATE schema_uses SET place = 'nowhere'", "a row of table schema_uses"),
        ("UPDATE meta SET value = '7' WHERE name = 'schema_version'", "a row of table meta"),
        ("DELETE FROM meta WHERE name = 'schema_version'", "its schema version is None"),
        ("CREATE INDEX mine ON topics (topic)", "its table definitions"),
        ("DROP TABLE producers", "its table definitions"),
        ("DROP TABLE meta", "it holds no catalog"),
    ],
)
def test_a_catalog_changed_by_hand_is_refused(path: Path, statement: str, found: str) -> None:
    with opened(path) as catalog:
        reader = catalog.create_subscription(catalog.create_topic(ORDERS), "reader", SHARED, {0: Offset(3)})
        catalog.save_cursors({(reader.subscription_uid, 0): Cursor(floor=Offset(3), failures={3: 1})})
        catalog.set_namespace_settings("shop", TopicSettings(rate_max=1))
        for number in range(2):
            add_schema(catalog, number, "text")
    alter(path, statement)
    with pytest.raises(StorageFailed, match=found):
        opened(path)


def test_a_cursor_changed_under_an_open_catalog_is_not_believed(path: Path, catalog: Catalog) -> None:
    reader = catalog.create_subscription(catalog.create_topic(ORDERS), "reader", SHARED, {0: Offset(3)})
    alter(path, "UPDATE cursors SET floor = 4")
    for call in (catalog.load_all_cursors, lambda: catalog.load_cursors(reader.subscription_uid)):
        with pytest.raises(StorageFailed, match="a row of table cursors is not as it was written"):
            call()


def alter(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_somebody_elses_database_is_refused_and_not_filled(path: Path) -> None:
    alter(path, "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StorageFailed, match="it holds no catalog"):
        opened(path)
    assert path.read_bytes() == before


def test_a_directory_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StorageFailed, match="cannot be read or written"):
        opened(path)


def test_a_lost_file_is_refused_where_none_may_be_made(path: Path) -> None:
    with pytest.raises(StorageFailed, match="the file is missing"):
        Catalog.open(path, clock=SystemClock(), create=False)
    assert [*path.parent.iterdir()] == []


def test_an_empty_file_is_refused_and_stays_empty(path: Path) -> None:
    path.touch()
    with pytest.raises(StorageFailed, match="the file is empty"):
        opened(path)
    assert path.read_bytes() == b""


# A process that has committed to the write-ahead log and is gone before the log was carried over.
KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.core.clock import SystemClock
from penstock.core.names import TopicName
from penstock.storage.catalog.catalog import Catalog

catalog = Catalog.open(Path(sys.argv[1]), clock=SystemClock())
for name in ("/shop/orders", "/shop/payments", "/shop/returns"):
    catalog.create_topic(TopicName.parse(name))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(path: Path) -> Path:
    """The write-ahead log of a catalog whose topics are nowhere else."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    return path.with_name("catalog.db-wal")


def test_a_lost_file_is_not_replaced_by_an_empty_one_while_its_log_is_there(path: Path, killed: Path) -> None:
    log = killed.read_bytes()
    path.unlink()
    with pytest.raises(StorageFailed, match="the file is missing, but its write-ahead log is there"):
        opened(path)
    assert not path.exists()
    assert killed.read_bytes() == log


@pytest.mark.parametrize("size", [0, 100, PAGE])
def test_a_damaged_file_with_a_log_beside_it_is_left_with_it(path: Path, killed: Path, size: int) -> None:
    log = killed.read_bytes()
    damaged = path.read_bytes()[:size] + random.Random(size).randbytes(3 * PAGE if size else 0)
    check_sentence(outcome(path, damaged), path)
    assert killed.read_bytes() == log


def test_a_log_left_behind_by_a_kill_is_carried_over(path: Path, killed: Path) -> None:
    assert killed.stat().st_size > 0
    with opened(path) as catalog:
        assert [topic.name.topic for topic in catalog.list_topics()] == ["orders", "payments", "returns"]
    assert not killed.exists()


@pytest.mark.parametrize("place", [0, 20, 32 + 4, 32 + 24 + 100])
def test_a_log_damaged_before_its_last_transaction_is_refused_and_left(path: Path, killed: Path, place: int) -> None:
    log = killed.read_bytes()
    damaged = log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :]
    killed.write_bytes(damaged)
    before = path.read_bytes()
    with pytest.raises(StorageFailed, match="transactions in its write-ahead log lie behind a frame"):
        opened(path)
    assert (path.read_bytes(), killed.read_bytes()) == (before, damaged)


def test_a_torn_end_of_the_log_is_what_a_power_cut_leaves(path: Path, killed: Path) -> None:
    path.with_name("catalog.db-commits").unlink()  # it was not on the disk yet that the last one is complete
    killed.write_bytes(killed.read_bytes()[:-1])
    with opened(path) as catalog:
        assert [topic.name.topic for topic in catalog.list_topics()] == ["orders", "payments"]


def test_damage_found_after_opening_ends_writing_and_not_reading(path: Path) -> None:
    with opened(path) as catalog:
        catalog.create_topic(ORDERS)
    with opened(path) as catalog:
        ruin_pages(path)
        for call in (catalog.list_topics, catalog.list_topics):
            with pytest.raises(StorageFailed, match=r"is damaged \(database disk image is malformed\)"):
                call()
        with pytest.raises(StorageFailed, match=r"not written, for an earlier failure: .* malformed"):
            catalog.create_topic(TopicName.parse("another"))


def ruin_pages(path: Path) -> None:
    """Ruin all pages but the first, by which SQLite recognises its files."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xff" * (size - PAGE))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, DiskFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, DiskFull),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, ServiceUnavailable),
        (sqlite3.SQLITE_LOCKED, ServiceUnavailable),
        (sqlite3.SQLITE_IOERR_FSYNC, StorageFailed),
        (sqlite3.SQLITE_READONLY, StorageFailed),
        (sqlite3.SQLITE_CORRUPT, StorageFailed),
    ],
)
def test_every_failure_of_sqlite_has_one_of_our_names(catalog: Catalog, code: int, kind: type[PenstockError]) -> None:
    error = sqlite3.OperationalError("so it is")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match="so it is"), catalog._file.writing():
        raise error
    if kind is not StorageFailed:
        catalog.create_topic(ORDERS)


def test_a_refused_request_is_no_failure_of_the_file(catalog: Catalog) -> None:
    catalog.create_topic(ORDERS)
    with pytest.raises(InvalidRequest):
        catalog.create_topic(ORDERS)
    catalog.alter_topic(ORDERS, TopicSettings())


def without_last_transaction(log: Path) -> None:
    """Damage the last frame, as a flipped bit or a torn write would: SQLite then skips it silently."""
    log.write_bytes(log.read_bytes()[:-1])


def flip_last_frame(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[-100] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize(
    "harm", [Path.unlink, without_last_transaction, flip_last_frame, lambda log: log.write_bytes(b"")]
)
def test_confirmed_transactions_that_are_missing_after_a_kill_are_missed(
    path: Path, killed: Path, harm: Callable[[Path], None]
) -> None:
    harm(killed)
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"confirmed transactions are missing.*remove catalog\.db-commits"):
            opened(path)
    path.with_name("catalog.db-commits").unlink()
    opened(path).close()  # an operator may accept the loss


def test_an_older_copy_of_a_catalog_is_not_taken_for_the_newest(path: Path) -> None:
    with opened(path) as catalog:
        catalog.create_topic(TopicName.parse("a"))
    older = path.read_bytes()
    with opened(path) as catalog:
        catalog.create_topic(TopicName.parse("b"))
    path.write_bytes(older)
    with pytest.raises(StorageFailed, match="its last 1 confirmed transactions are missing"):
        opened(path)
    path.unlink()
    with pytest.raises(StorageFailed, match="the file is missing"):
        opened(path)


@pytest.mark.parametrize("mark", [b"", b"9999999 0123456789abcdef\n", b"\xff" * 300, b"12\n"])
def test_a_mark_that_does_not_verify_is_not_believed(path: Path, mark: bytes) -> None:
    opened(path).close()
    path.with_name("catalog.db-commits").write_bytes(mark)
    with opened(path) as catalog:
        catalog.create_topic(TopicName.parse("a"))
    opened(path).close()


def test_a_transaction_that_is_undone_is_not_counted(path: Path) -> None:
    with opened(path) as catalog:
        topic = catalog.create_topic(TopicName.parse("a"))
        for _ in range(3):
            with pytest.raises(InvalidRequest):
                catalog.create_topic(topic.name)
    assert saved_commit_counter(path) == 1
    opened(path).close()
