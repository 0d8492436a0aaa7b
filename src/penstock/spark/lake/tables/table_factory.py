"""Which format a table has is decided here, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import CATALOG_FILE, parse
from penstock.spark.lake.tables.table import LakeTable

KINDS: Final = ("delta", "iceberg", "parquet")
_MARKS: Final = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_manifests"}
"""The folder by which a table of each format is told."""


def open_table(
    kind: str,
    warehouse: str,
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> LakeTable:
    """A table of a warehouse, whether it is there yet or not.

    `name` is NAME or NAMESPACE.NAME. `storage_options` are those of the object store, `catalog` what PyIceberg's
    catalogs take (`uri`, `type`, …; `name` is one of its own configuration). Raises `InvalidRequest`.
    """
    check_kind(kind)
    root = Folder.parse(warehouse, storage_options)
    folder = root.child(*parse(name))
    full = ".".join(parse(name))
    if kind == "delta":
        from penstock.spark.lake.tables.delta import Delta

        return Delta(full, folder)
    if kind == "iceberg":
        from penstock.spark.lake.tables.iceberg import Iceberg, catalog_of

        return Iceberg(full, folder, catalog_of(root, catalog))
    from penstock.spark.lake.tables.parquet import ParquetTable

    return ParquetTable(full, folder)


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidRequest(f"format {kind!r}: expected one of {', '.join(KINDS)}", given=kind)


def check_reachable(kind: str, root: Folder, catalog: Mapping[str, str] | None = None) -> None:
    """Raises `InvalidRequest` for options that the object store does not take, and for a catalog that is missing."""
    root.check()
    if kind == "iceberg":
        from penstock.spark.lake.tables.iceberg import check_catalog

        check_catalog(root, catalog)


def check_format(table: LakeTable) -> None:
    """Raises `InvalidRequest` if a table of another format is where this one would be made: what one of them does not
    know of, its upkeep deletes."""
    if table.exists():
        return
    for kind, mark in _MARKS.items():
        if kind != table.kind and next(table.folder.list(mark), None) is not None:
            raise InvalidRequest(
                f"{table.folder.uri} is a table of the format {kind}, and this is to be {table.kind}: give --format"
                f" {kind}, or another --warehouse",
                table=table.name,
                format=kind,
            )


def table_names(
    kind: str,
    warehouse: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> list[str]:
    """The tables of a warehouse."""
    check_kind(kind)
    root = Folder.parse(warehouse, storage_options)
    if kind == "iceberg":
        from penstock.spark.lake.tables.iceberg import catalog_of

        found = catalog_of(root, catalog)
        return sorted(".".join(name) for space in found.list_namespaces() for name in found.list_tables(space))
    return sorted(_marked(root, f"{_MARKS[kind]}/"))


def kinds_there(
    warehouse: str, *, storage_options: Mapping[str, str] | None = None, catalog: Mapping[str, str] | None = None
) -> list[str]:
    """The formats of which a warehouse has tables. Nothing is made: opening an Iceberg catalog would."""
    root = Folder.parse(warehouse, storage_options)
    has_catalog = bool(catalog) or (root.is_local and _is_icebergs(root.local / CATALOG_FILE))
    asked = [kind for kind in KINDS if kind != "iceberg" or has_catalog]
    return [kind for kind in asked if table_names(kind, warehouse, storage_options=storage_options, catalog=catalog)]


def _is_icebergs(file: Path) -> bool:
    """Whether a catalog is one of Iceberg tables: a data directory has a file of that name, too, which a plain look
    would leave files beside."""
    if not file.exists():
        return False
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as database:
        try:
            return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchall())
        except sqlite3.DatabaseError:
            return False


def _marked(root: Folder, mark: str) -> set[str]:
    """Folders two levels down that hold a table of this format."""
    if root.is_local:
        found = root.local.glob(f"*/*/{mark.rstrip('/')}")
        return {".".join(path.parts[-3:-1]) for path in found if path.is_dir()}
    paths = (each.path.split("/") for each in root.list())
    return {".".join(parts[:2]) for parts in paths if len(parts) > 3 and f"{parts[2]}/" == mark}
