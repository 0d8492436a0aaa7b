"""The catalog's tables: migrations and definitions agree, other databases understand them, checksums find damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, inspect, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.pool import NullPool

from penstock.storage.catalog.tables import (
    META,
    METADATA,
    MIGRATIONS,
    newest_version,
    read_rows,
    row_checksum,
    write_row,
)

values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8")) | st.binary()
rows = st.dictionaries(st.sampled_from("abcde"), values, min_size=1)


@pytest.fixture
def connection(tmp_path: Path) -> Any:
    engine = create_engine(f"sqlite:///{tmp_path / 'tables.db'}", poolclass=NullPool)
    with engine.begin() as connection:
        for migration in MIGRATIONS:
            migration.apply(connection)
        yield connection


def test_the_migrations_make_the_tables_that_the_queries_speak_of(connection: Connection) -> None:
    inspector = inspect(connection)
    assert set(inspector.get_table_names()) == set(METADATA.tables)
    for name, table in METADATA.tables.items():
        columns = {column["name"]: column for column in inspector.get_columns(name)}
        # A column that a later version has added stands behind those of the first.
        assert sorted(columns) == sorted(column.name for column in table.columns)
        assert inspector.get_pk_constraint(name)["constrained_columns"] == [c.name for c in table.primary_key]
        for column in table.columns:
            assert columns[column.name]["nullable"] is column.nullable
            assert str(columns[column.name]["type"]) == str(column.type)


def test_versions_rise_by_one() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, newest_version() + 1))


def test_writers_lock_a_row_where_the_database_has_row_locks() -> None:
    query = select(META).where(META.c.name == "schema_version").with_for_update()
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    assert "FOR UPDATE" in str(query.compile(dialect=dialect))


def test_a_row_is_written_once_and_then_replaced(connection: Connection) -> None:
    for value in ("first", "second"):
        write_row(connection, META, {"name": "colour", "value": value})
    (row,) = read_rows(connection, select(META))
    assert (row["name"], row["value"]) == ("colour", "second")


@given(rows, rows)
def test_two_rows_have_one_checksum_only_if_they_are_one_row(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = {k: (type(v), v) for k, v in one.items()} == {k: (type(v), v) for k, v in other.items()}
    assert (row_checksum("t", one) == row_checksum("t", other)) is same


def test_a_row_of_one_table_is_no_row_of_another() -> None:
    assert row_checksum("topics", {"a": 1}) != row_checksum("producers", {"a": 1})
