"""Which format a table has is decided here, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.folder import Folder
from penstock.spark.lake.names import parse
from penstock.spark.lake.table import LakeTable

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
        from penstock.spark.lake.delta import Delta

        return Delta(full, folder)
    if kind == "iceberg":
        from penstock.spark.lake.iceberg import Iceberg, catalog_of

        return Iceberg(full, folder, catalog_of(root, catalog))
    from penstock.spark.lake.parquet import ParquetTable

    return ParquetTable(full, folder)


def check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InvalidRequest(f"format {kind!r}: expected one of {', '.join(KINDS)}", given=kind)


def check_reachable(kind: str, root: Folder, catalog: Mapping[str, str] | None = None) -> None:
    """Raises `InvalidRequest` for options that the object store does not take, and for a catalog that is missing."""
    root.check()
    if kind == "iceberg":
        from penstock.spark.lake.iceberg import check_catalog

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
        from penstock.spark.lake.iceberg import catalog_of

        found = catalog_of(root, catalog)
        return sorted(".".join(name) for space in found.list_namespaces() for name in found.list_tables(space))
    return sorted(_marked(root, f"{_MARKS[kind]}/"))


def other_tables(
    kind: str, warehouse: str, *, storage_options: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """The tables of a warehouse that are of other formats, as their folders tell."""
    root = Folder.parse(warehouse, storage_options)
    found = {other: sorted(_marked(root, f"{mark}/")) for other, mark in _MARKS.items() if other != kind}
    return {other: names for other, names in found.items() if names}


def _marked(root: Folder, mark: str) -> set[str]:
    """Folders two levels down that hold a table of this format."""
    if root.is_local:
        found = root.local.glob(f"*/*/{mark.rstrip('/')}")
        return {".".join(path.parts[-3:-1]) for path in found if path.is_dir()}
    paths = (each.path.split("/") for each in root.list())
    return {".".join(parts[:2]) for parts in paths if len(parts) > 3 and f"{parts[2]}/" == mark}
