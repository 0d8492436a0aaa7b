"""Names of tables: the table of a topic, and the bad-rows table for records that did not decode."""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.core.names import DEFAULT_NAMESPACE, TopicName

CATALOG_FILE: Final = "catalog.db"
"""File of the SQLite catalog in a warehouse of Iceberg tables, where no other catalog is named."""

ALL_TOPICS_TABLE: Final = "default.all__topics"
"""Name of the one table into which all topics can be archived. No topic's own table has that name: in such a name each
underscore stands for a dot, so no two are neighbours."""

_BAD: Final = "__bad"
"""Suffix of bad-rows tables. A level of a topic has no underscore, so no topic's table has such a name."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def table_of(topic: TopicName) -> str:
    """Return the table of a topic: `default.orders_created` for `/default/orders.created`. No two topics share a
    table."""
    return f"{topic.namespace}.{topic.topic.replace('.', '_')}"


def bad_table_of(table: str) -> str:
    """Return the name of the table for records that did not decode."""
    return f"{table}{_BAD}"


def is_bad_table(table: str) -> bool:
    return table.endswith(_BAD)


def parse_table_name(name: str) -> tuple[str, str]:
    """Return namespace and table of a name. A name without a dot is in the namespace `default`. Raises `InvalidRequest`
    for other characters than letters, digits, '_' and '-'."""
    namespace, dot, table = name.partition(".")
    if not dot:
        namespace, table = DEFAULT_NAMESPACE, name
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(table):
        raise InvalidRequest(
            f"table {name!r}: expected NAME or NAMESPACE.NAME of letters, digits, '_' and '-'", given=name
        )
    return namespace, table
