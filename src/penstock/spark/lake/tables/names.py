"""What tables are called: the table of a topic, and the companion with the records that did not decode."""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.core.names import DEFAULT_NAMESPACE, TopicName

CATALOG_FILE: Final = "catalog.db"
"""In a warehouse of Iceberg tables, where no other catalog is named."""

ALL_TOPICS_TABLE: Final = "default.all__topics"
"""All topics in one table. No topic has a table of that name: a level of a topic has no underscore."""

_BAD: Final = "__bad"
"""Two underscores: a level of a topic has none, so no topic's table is called as another's companion."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def table_of(topic: TopicName) -> str:
    """`default.orders_created` of `/default/orders.created`. Two topics never have the same table."""
    return f"{topic.namespace}.{topic.topic.replace('.', '_')}"


def bad_table_of(table: str) -> str:
    """Where the records of a table go that did not decode."""
    return f"{table}{_BAD}"


def is_bad_table(table: str) -> bool:
    return table.endswith(_BAD)


def parse_table_name(name: str) -> tuple[str, str]:
    """Namespace and table; a bare name is in the namespace `default`. Raises `InvalidRequest`."""
    namespace, dot, table = name.partition(".")
    if not dot:
        namespace, table = DEFAULT_NAMESPACE, name
    if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(table):
        raise InvalidRequest(
            f"table {name!r}: expected NAME or NAMESPACE.NAME of letters, digits, '_' and '-'", given=name
        )
    return namespace, table
