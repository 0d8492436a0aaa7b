"""The choice of a table's format: the one place that knows all formats."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import CATALOG_FILE, parse_table_name
from penstock.spark.lake.tables.table import LakeTable

TABLE_FORMATS: Final = ("delta", "iceberg", "parquet")
_FORMAT_FOLDERS: Final = {"delta": "_delta_log", "iceberg": "metadata", "parquet": "_manifests"}
"""Name of the folder, inside a table's folder, by which a table of each format is recognized."""


def open_table(
    table_format: str,
    warehouse: str,
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> LakeTable:
    """Return a table of a warehouse, which need not exist yet.

    `name` is NAME or NAMESPACE.NAME. `storage_options` are those of the object store, `catalog` the properties that
    PyIceberg's catalogs take (`uri`, `type`, …; `name` is one of its own configuration). Raises `InvalidRequest`.
    """
    check_table_format(table_format)
    root = Folder.parse(warehouse, storage_options)
    folder = root.child(*parse_table_name(name))
    full = ".".join(parse_table_name(name))
    if table_format == "delta":
        from penstock.spark.lake.tables.delta import DeltaLakeTable

        return DeltaLakeTable(full, folder)
    if table_format == "iceberg":
        from penstock.spark.lake.tables.iceberg import IcebergLakeTable, catalog_of

        return IcebergLakeTable(full, folder, catalog_of(root, catalog))
    from penstock.spark.lake.tables.parquet import ParquetLakeTable

    return ParquetLakeTable(full, folder)


def check_table_format(table_format: str) -> None:
    if table_format not in TABLE_FORMATS:
        raise InvalidRequest(f"format {table_format!r}: expected one of {', '.join(TABLE_FORMATS)}", given=table_format)


def check_reachable(table_format: str, root: Folder, catalog: Mapping[str, str] | None = None) -> None:
    """Raise `InvalidRequest` if the object store's client refuses the folder's options, or if an Iceberg warehouse in
    an object store has no catalog. No request is sent."""
    root.check()
    if table_format == "iceberg":
        from penstock.spark.lake.tables.iceberg import check_catalog

        check_catalog(root, catalog)


def check_no_other_format(table: LakeTable) -> None:
    """Raise `InvalidRequest` if a table of another format is where this one would be created: one format's maintenance
    deletes the files that it does not know."""
    if table.exists():
        return
    for table_format, mark in _FORMAT_FOLDERS.items():
        if table_format != table.table_format and next(table.folder.list(mark), None) is not None:
            raise InvalidRequest(
                f"{table.folder.uri} is a table of the format {table_format}, and this is to be"
                f" {table.table_format}: give --format {table_format}, or another --warehouse",
                table=table.name,
                format=table_format,
            )


def table_names(
    table_format: str,
    warehouse: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the names of a warehouse's tables of one format, sorted, as NAMESPACE.NAME. Raises `InvalidRequest` for an
    unknown format."""
    check_table_format(table_format)
    root = Folder.parse(warehouse, storage_options)
    if table_format == "iceberg":
        from penstock.spark.lake.tables.iceberg import catalog_of

        opened = catalog_of(root, catalog)
        return sorted(".".join(name) for space in opened.list_namespaces() for name in opened.list_tables(space))
    return sorted(_tables_with_folder(root, f"{_FORMAT_FOLDERS[table_format]}/"))


def formats_present(
    warehouse: str, *, storage_options: Mapping[str, str] | None = None, catalog: Mapping[str, str] | None = None
) -> list[str]:
    """Return the formats of which a warehouse has tables. Nothing is created, so an Iceberg catalog is opened only if
    it exists or `catalog` names one."""
    root = Folder.parse(warehouse, storage_options)
    has_catalog = bool(catalog) or (root.is_local and _is_iceberg_catalog(root.local / CATALOG_FILE))
    asked = [table_format for table_format in TABLE_FORMATS if table_format != "iceberg" or has_catalog]
    return [
        table_format
        for table_format in asked
        if table_names(table_format, warehouse, storage_options=storage_options, catalog=catalog)
    ]


def _is_iceberg_catalog(file: Path) -> bool:
    """Return True if the file is a catalog of Iceberg tables. A broker's data directory has a file of the same name.

    The file is opened as immutable: a normal open would leave files beside it.
    """
    if not file.exists():
        return False
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?immutable=1", uri=True)) as database:
        try:
            return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchall())
        except sqlite3.DatabaseError:
            return False


def _tables_with_folder(root: Folder, mark: str) -> set[str]:
    """Return the names of the tables, folders `NAMESPACE/NAME` below the warehouse, that contain a folder `mark`."""
    if root.is_local:
        folders = root.local.glob(f"*/*/{mark.rstrip('/')}")
        return {".".join(path.parts[-3:-1]) for path in folders if path.is_dir()}
    paths = (file.path.split("/") for file in root.list())
    return {".".join(parts[:2]) for parts in paths if len(parts) > 3 and f"{parts[2]}/" == mark}
